"""Makes an environment for each of other people's backends, with the torch that it works with: ``python -m
tools.backend_environments FOLDER [NAME ...]``.

Each environment is ``FOLDER/NAME``; one that is there already is left alone. uv, which must be on PATH or in this
environment, installs it; aotcheck itself is installed from this repository, editable.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECIPES: Mapping[str, tuple[str, ...]] = {
    "openvino": ("torch==2.13.0", "openvino==2026.4.*"),
    "thunder": ("torch==2.12.1", "lightning-thunder==0.2.6"),
    "onnxruntime": ("torch==2.13.0", "onnxruntime==1.32.*", "onnxscript==0.7.*", "onnx"),
}
"""What each environment holds beside aotcheck: the newest torch that the package works with, and the package.

lightning-thunder 0.2.6 does not import with torch 2.13, which has no ``Tensor.align_as``.
"""


def commands(name: str, folder: Path, uv: str) -> tuple[tuple[str, ...], ...]:
    """The commands that make the environment of a backend."""
    target = str(folder / name)
    install = (uv, "pip", "install", "--python", f"{target}/bin/python")
    return ((uv, "venv", "--python", "3.11", target), (*install, *RECIPES[name], "-e", f"{ROOT}[test]"))


def main(arguments: list[str]) -> int:
    """Make what is not there; the number of environments that could not be made."""
    if not arguments or not set(arguments[1:]) <= set(RECIPES):
        print(f"usage: python -m tools.backend_environments FOLDER [{' | '.join(RECIPES)} ...]", file=sys.stderr)
        return 2
    folder, uv = Path(arguments[0]), shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    failed = 0
    for name in arguments[1:] or RECIPES:
        if (folder / name / "bin" / "aotcheck").exists():
            print(f"{folder / name}: there already")
            continue
        done = all(subprocess.run(command, check=False).returncode == 0 for command in commands(name, folder, uv))
        failed += not done
        print(f"{folder / name}: {'made' if done else 'could not be made'}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
