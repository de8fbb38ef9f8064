"""Tells whether compiling has become slower since a revision, relative to torch's ``aot_function`` in the same process.

``python -m benchmarks.compile_since REVISION [--rounds N] [--at-most FACTOR]``

The alias-free functions are compiled, called and backpropagated through, each as a function that no cache has seen, by
the package as it is here and as it was then. Each of the two is a process of its own, in which torch compiles the same
functions in turn; the two processes take turns as well, so that whatever else the machine does falls on all alike. What
counts is the time of the processor, torch's being the measure of it: ours divided by torch's, now divided by then.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from benchmarks.performance import Compile, first_call, ours, torchs
from tests.behaviour.alias_free import ORDINARY, Ordinary

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 2  # rounds that are not counted

Round = list[tuple[float, float]]
"""Seconds for each function: ours, torch's."""


def serve() -> None:
    """The process of one side: does a round for each line that it reads, and writes it as one line of JSON."""
    torch.set_num_threads(1)

    def sample(compile: Compile, ordinary: Ordinary) -> float:
        gc.collect(1)  # else what one sample leaves is collected in another, and always in the same one
        return first_call(compile, ordinary.function, ordinary.arguments)

    for _ in sys.stdin:
        print(json.dumps([[sample(compile, x) for compile in (ours, torchs)] for x in ORDINARY]), flush=True)


class Side:
    """The package in the folder ``root``, in a process of its own; ended when it is left."""

    def __init__(self, root: Path) -> None:
        paths = os.pathsep.join([str(root), str(ROOT)])  # the package from the one, the functions from the other
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.compile_since", "--serve"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()

    def round(self) -> Round:
        """One more sample of each function."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a process that compiles has ended; what it said is above")
        return [(mine, torchs) for mine, torchs in json.loads(line)]


def package_at(revision: str, folder: Path) -> None:
    """Put the package as it was at ``revision`` into ``folder``."""
    archive = subprocess.run(["git", "archive", revision, "aotcheck"], cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if archive.returncode:
        raise SystemExit(f"git knows no package at {revision}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def compare(revision: str, rounds: int) -> tuple[list[Round], list[Round]]:
    """So many rounds with the package as it was at ``revision``, and as many with the one here."""
    with ExitStack() as stack:
        then = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        package_at(revision, then)
        sides = [stack.enter_context(Side(root)) for root in (then, ROOT)]
        taken: tuple[list[Round], list[Round]] = ([], [])
        for number in range(WARM_UP + rounds):
            for k in (0, 1) if number % 2 else (1, 0):
                sample = sides[k].round()
                if number >= WARM_UP:
                    taken[k].append(sample)
        return taken


def relative(rounds: Sequence[Round], function: int) -> float:
    """How long ours takes to compile a function if torch's takes 1, in the median."""
    samples = [taken[function] for taken in rounds]
    return statistics.median(mine for mine, _ in samples) / statistics.median(torchs for _, torchs in samples)


def main() -> None:
    """Compare, and say it; exit code 1 if it is more than ``--at-most``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_since", description=__doc__.split("\n")[0])
    parser.add_argument("revision", nargs="?", help="what to compare with, as git names it")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each function on each side")
    parser.add_argument("--at-most", type=float, help="fail if compiling takes more than so many times as long")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.revision is None:
        parser.error("which revision?")
    then, now = compare(options.revision, options.rounds)
    print(f"{'torch / aotcheck':26}{options.revision:>12}{'here':>12}{'slower by':>12}")
    factors: dict[str, float] = {}
    for k, ordinary in enumerate(ORDINARY):
        before, after = relative(then, k), relative(now, k)
        factors[ordinary.name] = after / before
        print(f"{ordinary.name:26}{1 / before:11.2f}x{1 / after:11.2f}x{after / before:11.3f}x")
    mean, worst = statistics.geometric_mean(factors.values()), max(factors, key=factors.__getitem__)
    print(
        f"Relative to torch's, compiling takes {mean:.3f} times as long as at {options.revision} "
        f"(geometric mean; worst {factors[worst]:.3f}, {worst})."
    )
    if options.at_most is not None and mean > options.at_most:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
