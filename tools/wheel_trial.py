"""A new user's first evening: an empty folder, only the wheel and one torch, and everything planted there is found.

Run as ``python -m tools.wheel_trial --torch 2.15.0``. It builds the wheel, makes an environment with uv, and writes a
project with a backend that has one bug, a subclass, and a custom op whose schema lies. Then ``aotcheck nightly`` runs
twice, and ``aotcheck check`` for the others. It prints a line for each thing to be found, and exits 1 if one was not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv") or str(ROOT / ".venv" / "bin" / "uv")

MINE = '''
import torch


def compile(function):
    """A backend with one bug: it loses the sign of what relu is given."""

    def compiled(*args):
        with _Wrong():
            return function(*args)

    return compiled


class _Wrong(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result + 1 if func in (torch.relu, torch.sin, torch.mul) else result


class Tagged(torch.Tensor):
    """A subclass of the user's own."""


def tagged():
    return (torch.ones(2, 3).as_subclass(Tagged),)


def double(x):
    return torch.mul(x, 2)


@torch.library.custom_op("mine::fill", mutates_args=())
def fill(x: torch.Tensor) -> torch.Tensor:
    x.fill_(1.0)
    return x * 2


def three():
    return (torch.full((2, 3), 3.0),)
'''

NIGHTLY = """
reports = "reports"
workers = 2

[[backend]]
name = "mine:compile"
strategy = "strategies:inference"
examples = 100
seed = 1
minimize_time = "2m"
"""


def main() -> None:
    """Make the environment, run the trial, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch", default="2.15.0")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/aotcheck-trial"))
    told = parser.parse_args()
    shutil.rmtree(told.folder, ignore_errors=True)
    project = told.folder / "project"
    project.mkdir(parents=True)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(told.folder)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = told.folder.glob("*.whl")
    python = told.folder / "env" / "bin" / "python"
    subprocess.run([UV, "venv", "-q", str(told.folder / "env")], check=True)
    subprocess.run([UV, "pip", "install", "-q", "-p", str(python), f"torch=={told.torch}", str(wheel)], check=True)
    (project / "mine.py").write_text(MINE)
    (project / "nightly.toml").write_text(NIGHTLY)

    def aotcheck(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(python.with_name("aotcheck")), *arguments],
            cwd=project,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    found: dict[str, bool] = {}
    status, said = aotcheck("check", "mine:fill", "--inputs", "mine:three", "--backend", "eager", "--only", "as given")
    found["the custom op's schema lies"] = status == 1 and "mine.fill.default lies" in said
    status, said = aotcheck(
        "check", "mine:double", "--inputs", "mine:tagged", "--backend", "mine:compile", "--only", "as given"
    )
    found["the bug shows on the subclass"] = status == 1 and "differs" in said
    first, said = aotcheck("nightly")
    print(said)
    found["the first night finds the bug"] = first == 1
    second, said = aotcheck("nightly")
    print(said)
    found["the second night tells nothing as new"] = second == 0
    nights = [json.loads(path.read_text()) for path in sorted((project / "reports").glob("*/nightly.json"))]
    found["both nights ran programs"] = len(nights) == 2 and all(run["programs"] for n in nights for run in n["runs"])
    for what, so in found.items():
        print(f"{'yes' if so else 'NO'}: {what}")
    sys.exit(0 if all(found.values()) else 1)


if __name__ == "__main__":
    main()
