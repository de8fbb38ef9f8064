"""A new user's first evening: an empty folder, the wheel and one torch; every planted bug must be found.

Run as ``python -m tools.wheel_trial --torch 2.15.0``. It builds the wheel, makes an environment with uv, and writes a
project: a wrapper subclass and custom ops, streams that draw them, and backends with one bug each (an op of torch's,
the subclass, the custom op). ``aotcheck check`` looks at the subclass and at an op whose schema lies, ``aotcheck
nightly`` runs twice. It prints a line for each thing to be found, and exits 1 if one was not.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv") or str(ROOT / ".venv" / "bin" / "uv")

MYLIB = '''
import torch
from torch.utils._pytree import tree_map_only

import aotcheck
from aotcheck.program.ops.registry import Group, entry


class Scaled(torch.Tensor):
    """A wrapper subclass of the user's own."""

    @staticmethod
    def __new__(cls, inner):
        kept = {"dtype": inner.dtype, "device": inner.device, "strides": inner.stride()}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, storage_offset=inner.storage_offset(), **kept)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Scaled(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = tree_map_only(Scaled, lambda t: t.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Scaled, func(*plain[0], **plain[1]))


def make_scaled(x: torch.Tensor) -> Scaled:
    return Scaled(x.detach())


def one_scaled():
    return (Scaled(torch.ones(2, 3)),)


@torch.library.custom_op("mylib::halve", mutates_args=())
def halve(x: torch.Tensor) -> torch.Tensor:
    return x - x // 2


@halve.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("mylib::fill", mutates_args=())
def fill(x: torch.Tensor) -> torch.Tensor:
    x.fill_(1.0)
    return x * 2


def three():
    return (torch.full((2, 3), 3.0),)


def negate(x):
    return torch.neg(x)


aotcheck.register_subclass("scaled", Scaled, make_scaled)
entry("mylib.halve", "self", Group.POINTWISE, function=halve, weight=40)
'''

MINE = '''
import torch
from torch.utils._pytree import tree_map_only

import mylib


def faulty(wrong):
    """A backend with one bug: what `wrong` makes of a function's result is not what the function said."""

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return wrong(func, result)

    def compile(function):
        def compiled(*args):
            with Mode():
                return function(*args)

        return compiled

    return compile


relu = faulty(lambda func, result: result + 1 if func in (torch.relu, torch.Tensor.relu) else result)


def subclass(function):
    """A backend that forgets to wrap what it returns."""

    def compiled(*args):
        return tree_map_only(mylib.Scaled, lambda t: t.inner, function(*args))

    return compiled


def op(function):
    """A backend that compiles the custom op wrongly."""

    def compiled(*args):
        kept, mylib.halve = mylib.halve, lambda x: kept(x) + 1
        scope = function.__globals__
        scope["mylib"] = mylib
        try:
            return function(*args)
        finally:
            mylib.halve = kept

    return compiled
'''

STRATEGIES = """
from aotcheck_strategies import Profile, Training, Writes, programs

import mylib  # noqa: F401  # registers the subclass and the op

FUNCTIONAL = {"writes": Writes.NOTHING, "training": Training.NOTHING, "second_call": 0, "trained_later": 0}


def elementwise():
    return programs(Profile(ops={"relu", "add", "mul", "view"}, wrappers=0, inside=0, **FUNCTIONAL))


def wrapped():
    return programs(Profile(wrappers=100, inside=0, **FUNCTIONAL))


def halves():
    return programs(Profile(ops={"mylib.halve", "add", "mul"}, wrappers=0, inside=0, **FUNCTIONAL))
"""

NIGHTLY = """
reports = "reports"
workers = 2
""" + "".join(
    f"""
[[backend]]
name = "mine:{bug}"
strategy = "strategies:{stream}"
examples = {examples}
seed = 1
minimize_time = "1m"
"""
    for bug, stream, examples in (("relu", "elementwise", 50), ("subclass", "wrapped", 100), ("op", "halves", 50))
)


def main() -> None:
    """Make the environment, run the trial, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch", default="2.15.0")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/aotcheck-trial"))
    asked = parser.parse_args()
    shutil.rmtree(asked.folder, ignore_errors=True)
    project = asked.folder / "project"
    project.mkdir(parents=True)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(asked.folder)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = asked.folder.glob("*.whl")
    python = asked.folder / "env" / "bin" / "python"
    subprocess.run([UV, "venv", "-q", str(asked.folder / "env")], check=True)
    subprocess.run([UV, "pip", "install", "-q", "-p", str(python), f"torch=={asked.torch}", str(wheel)], check=True)
    written = {"mylib.py": MYLIB, "mine.py": MINE, "strategies.py": STRATEGIES, "nightly.toml": NIGHTLY}
    for name, text in written.items():
        (project / name).write_text(text)

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
    alone = ("--only", "as given")
    status, said = aotcheck("check", "mylib:fill", "--inputs", "mylib:three", "--backend", "eager", *alone)
    found["check: the custom op's schema lies"] = status == 1 and "mylib.fill.default lies" in said
    status, said = aotcheck(
        "check", "mylib:negate", "--inputs", "mylib:one_scaled", "--backend", "mine:subclass", *alone
    )
    found["check: the bug shows on the subclass"] = status == 1 and "differs" in said
    statuses = []
    for _ in range(2):
        status, said = aotcheck("nightly")
        print(said)
        statuses.append(status)
    nights = [json.loads(path.read_text()) for path in sorted((project / "reports").glob("*/nightly.json"))]
    for run in nights[0]["runs"] if nights else ():
        told = [bug for bug in run["signatures"] if not bug["known"]]
        found[f"the first night finds the bug of {run['backend']}"] = len(told) > 0
    found["the first night ends with 1, the second with 0"] = statuses == [1, 0]
    again = [bug for run in nights[-1]["runs"] for bug in run["signatures"] if not bug["known"]]
    found["the second night tells nothing as new"] = len(nights) == 2 and not again
    found["each bug was found again"] = all(run["signatures"] for night in nights for run in night["runs"])
    for what, so in found.items():
        print(f"{'yes' if so else 'NO'}: {what}")
    sys.exit(0 if all(found.values()) else 1)


if __name__ == "__main__":
    main()
