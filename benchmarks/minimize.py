"""How small findings become and how long that takes: writes docs/minimize.md.

Run as ``python -m benchmarks.minimize RUN [RUN ...]``, each RUN a folder of ``aotcheck fuzz``. The first finding of
each coarse key is minimized.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from aotcheck.cli import INSPECTION
from aotcheck.minimize import DoesNotFailError, Limits, Reduced, Reduction, Subject, inputs_passed
from aotcheck.program import Program, parse_file

OUT = Path(__file__).resolve().parent.parent / "docs" / "minimize.md"

HEAD = """\
# Minimizing

`aotcheck minimize FILE` reduces a failing program, from a run's findings or from the corpus, to the least that still
shows the same coarse key on the same backend. What follows is what it makes of the first finding of each coarse key of
{runs}, one worker, {version}:

    {command}

| | median | most |
| --- | --- | --- |
"""


@dataclass(frozen=True)
class Row:
    """One finding, before and after."""

    backend: str
    before: Program
    after: Reduced


def rows(folders: list[Path]) -> Iterator[Row]:
    """Minimize the first finding of each coarse key in each folder."""
    for folder in folders:
        seen: set[str] = set()
        for path in sorted((folder / "findings").glob("*.py")):
            parsed = parse_file(path)
            backend, key = str(parsed.header.get("backend")), str(parsed.header.get("key"))
            if key in seen or path.name.endswith(".min.py"):
                continue
            seen.add(key)
            reduction = Reduction(parsed.program, Subject(backend, "cpu", INSPECTION), Limits())
            try:
                for _ in reduction.steps():
                    pass
            except DoesNotFailError as error:
                print(f"{path}: does not fail: {error}")
                continue
            assert reduction.result is not None
            row = Row(backend, parsed.program, reduction.result)
            print(_line(row), flush=True)
            yield row


def _line(row: Row) -> str:
    before, after = row.before, row.after.program
    return (
        f"| {row.backend} | {row.after.shows.key} | {before.statements} -> {after.statements} "
        f"| {inputs_passed(before)} -> {inputs_passed(after)} | {row.after.tried} | {row.after.seconds:.1f} |"
    ).replace("`", "'")


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


def main(arguments: list[str]) -> None:
    """Measure and write."""
    folders = [Path(argument) for argument in arguments]
    found = list(rows(folders))
    backends = " and ".join(dict.fromkeys(f"`{row.backend}`" for row in found))
    shown = " ".join(f"reports/{folder.name}" for folder in folders)
    command = f"python -m benchmarks.minimize {shown}"
    head = HEAD.format(runs=f"300 programs on {backends}", version=f"torch {torch.__version__}", command=command)
    table = ["", "| backend | coarse key | statements | inputs | candidates | seconds |", "| --- " * 6 + "|"]
    OUT.write_text(head + "\n".join([*_summary(found), *table, *map(_line, found)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
