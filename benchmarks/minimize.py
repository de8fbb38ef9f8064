"""How small findings become and how long that takes: writes docs/minimize.md.

Run as ``python -m benchmarks.minimize RUN [RUN ...]``, each RUN a folder of ``aotcheck fuzz``. Of each run some
findings are drawn at random and minimized. ``--show`` prints the programs before and after, for reading.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from aotcheck.cli import INSPECTION
from aotcheck.minimize import DoesNotFailError, Limits, Reduced, Reduction, Subject, inputs_passed
from aotcheck.program import ParsedFile, Program, emit, parse_file

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "minimize.md"

HEAD = """\
# Minimizing

`aotcheck minimize FILE` reduces a failing program (a finding of a run, a file of the corpus) to a smallest program
that still shows the same coarse key on the same backend. It deletes calls, steps, statements, outputs and arguments,
removes contexts, makes tensors plain and small, ops simple and numbers 0 or 1, until no pass finds anything simpler
that still fails. Each candidate runs in a worker process, so that a crash or a hang is an outcome with a key of its
own. A candidate counts only if eager raises nothing new on it, and if its outcome is as well defined as the
original's. The result is the same with any number of workers, and minimizing the result again changes nothing.

A candidate may bring in another op only if that op does not show the same key by itself, on plain operands or on
those that it has in the candidate. So on a backend whose `detach` is wrong too, a wrong slice does not become a
`detach`. One exception: if most simple ops of the same kind (views, writes, ops that compute) show the key in that
place, no op is to blame, and the candidate counts.

The table shows {most} findings of each run, drawn at random and minimized by one worker on a busy machine with torch
{version}. These commands made it:

{commands}

| | median | most |
| --- | --- | --- |
"""

DETAILS = """
| backend | coarse key | statements | inputs | candidates | seconds |
| --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Row:
    """One finding, before and after."""

    backend: str
    found: str
    before: Program
    after: Reduced


def _drawn(folder: Path, most: int) -> list[ParsedFile]:
    """Some findings of a run, the same each time."""
    paths = sorted(path for path in (folder / "findings").glob("*.py") if not path.name.endswith(".min.py"))
    return [parse_file(path) for path in random.Random(39).sample(paths, min(most, len(paths)))]


def measure(folder: Path, most: int) -> Iterator[Row]:
    """Minimize findings of a run."""
    for parsed in _drawn(folder, most):
        backend = str(parsed.header["backend"])
        reduction = Reduction(parsed.program, Subject(backend, "cpu", INSPECTION), Limits())
        try:
            for _ in reduction.steps():
                pass
        except DoesNotFailError as error:  # flaky
            print(f"{parsed.header.get('key')}: {error}")
            continue
        assert reduction.result is not None
        yield Row(backend, str(parsed.header["found"]), parsed.program, reduction.result)


def _line(row: Row) -> str:
    before, after = row.before, row.after.program
    return (
        f"| {row.backend} | {row.after.shows.key} | {before.statements} -> {after.statements} "
        f"| {inputs_passed(before)} -> {inputs_passed(after)} | {row.after.tried} | {row.after.seconds:.1f} |"
    ).replace("`", "'")


def _text(program: Program) -> str:
    """What a reader judges it by; `emit` has all of it."""
    return emit(program).partition("import torch\n")[2].partition("if __name__")[0]


def _summary(found: list[Row]) -> Iterator[str]:
    figures: dict[str, list[float]] = {
        "statements before": [row.before.statements for row in found],
        "statements after": [row.after.program.statements for row in found],
        "inputs before": [inputs_passed(row.before) for row in found],
        "inputs after": [inputs_passed(row.after.program) for row in found],
        "candidates": [row.after.tried for row in found],
        "seconds": [round(row.after.seconds, 1) for row in found],
    }
    for what, values in figures.items():
        yield f"| {what} | {median(values):g} | {max(values):g} |"


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minimize", description=__doc__.split("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of aotcheck fuzz")
    parser.add_argument("--most", type=int, default=20, help="findings of each run")
    parser.add_argument("--show", action="store_true", help="print the programs")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file to write")
    options = parser.parse_args()
    found: list[Row] = []
    for folder in options.runs:
        for row in measure(folder, options.most):
            found.append(row)
            print(_line(row), flush=True)
            if options.show:
                print(_text(row.before), _text(row.after.program), sep="\n", flush=True)
    commands = [*dict.fromkeys(f"    {row.found}" for row in found), "    python -m benchmarks.minimize RUN ..."]
    head = HEAD.format(most=options.most, version=torch.__version__, commands="\n".join(commands))
    page = head + "\n".join(_summary(found)) + "\n" + DETAILS + "\n".join(map(_line, found)) + "\n"
    options.output.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
