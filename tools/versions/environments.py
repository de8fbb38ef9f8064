"""An environment for each torch, made by uv."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.versions.checks import ROOT

_NEEDED = "torch, numpy, hypothesis, click, rich, pebble, jinja2, pytest, xdist, pytest_timeout"


class NoEnvironmentError(RuntimeError):
    """An environment cannot be made; the message says why."""


def interpreter(folder: Path, version: str) -> Path:
    """The interpreter of the environment ``folder / version``, which is made first unless it is whole.

    The build of torch is uv's choice: ``UV_TORCH_BACKEND=cpu`` in the environment asks for the small one.

    Raises:
        NoEnvironmentError: uv is not there, or cannot install it.
    """
    home = folder / version
    python = home / "bin" / "python"
    if is_whole(python, version):
        return python
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise NoEnvironmentError("uv is not there; install it with pip install -c constraints.txt -e '.[test,dev]'")
    constraints = folder / "constraints.txt"
    folder.mkdir(parents=True, exist_ok=True)
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints.write_text("".join(f"{line}\n" for line in pinned if not line.startswith("torch==")), encoding="utf-8")
    options = ["--quiet", "--python", str(python), "--constraints", str(constraints)]
    for command in (
        [uv, "venv", "--quiet", "--clear", "--python", f"{sys.version_info[0]}.{sys.version_info[1]}", str(home)],
        [uv, "pip", "install", *options, f"torch=={version}", "-e", f"{ROOT}[test]"],
    ):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise NoEnvironmentError(f"{' '.join(command)} failed: {done.stdout.strip()[-500:]}")
    return python


def is_whole(python: Path, version: str) -> bool:
    """Whether an interpreter has that torch and all that the checks need, our pytest plugin among it."""
    if not python.exists():
        return False
    needed = f"import {_NEEDED}; from importlib.metadata import distribution; distribution('aotcheck')"  # its plugin
    done = subprocess.run(
        [str(python), "-I", "-W", "ignore", "-c", f"{needed}; print(torch.__version__)"], capture_output=True, text=True
    )
    return done.returncode == 0 and done.stdout.strip().split("+")[0] == version
