"""``python -m tools.versions``: see ``make versions``."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tools.versions import report
from tools.versions.checks import ROOT, VERSIONS, Check, Piece, Result, pieces, run
from tools.versions.environments import NoEnvironmentError, interpreter
from tools.versions.store import Store

T = TypeVar("T")


def _named(text: str, known: dict[str, T], what: str) -> tuple[T, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise click.UsageError(f"{what} '{name}' is unknown: choose from {', '.join(known)}")
    return tuple(known[name] for name in names)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--versions", default=",".join(VERSIONS), show_default=True, help="Only these, by comma.")
@click.option("--checks", default=",".join(c.value for c in Check), show_default=True, help="Only these, by comma.")
@click.option("--examples", type=click.IntRange(min=1), default=500, show_default=True, help="Programs of a strategy.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes. Default: one per core.")
@click.option("--environments", type=click.Path(path_type=Path), default=ROOT / ".versions", help="Where they lie.")
@click.option("--results", type=click.Path(path_type=Path), default=ROOT / ".versions" / "results.jsonl")
@click.option("--again", is_flag=True, help="Do what is done once more.")
@click.option("--write", is_flag=True, help="Write docs/versions.md even if not everything was asked for.")
@click.option("--no-run", is_flag=True, help="Run nothing; report what is there.")
def main(
    versions: str,
    checks: str,
    examples: int,
    jobs: int | None,
    environments: Path,
    results: Path,
    again: bool,
    write: bool,
    no_run: bool,
) -> None:
    """Check aotcheck's own AOT autograd on every torch that it supports, each in an environment made by uv.

    Goes on where the last run stopped: what is done with the sources as they are now is not done again (--again does
    it). Once everything has run, writes docs/versions.md. Exits with 1 if something is wrong of ours, with 3 if
    something could not be run.
    """
    console, store = Console(), Store(results)
    chosen = _named(versions, {v: v for v in VERSIONS}, "version")
    kinds = _named(checks, {c.value: c for c in Check}, "check")
    found = {piece: store.result(piece) for piece in pieces(chosen, kinds, examples)}
    todo = [] if no_run else [piece for piece, result in found.items() if again or result is None]
    console.print(f"{len(found)} pieces, {len(todo)} to do")
    impossible: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(todo))
        for piece in todo:
            progress.update(task, description=f"{piece.version} {piece.check.value}")
            if piece.version not in impossible:
                try:
                    python = interpreter(environments, piece.version)
                except NoEnvironmentError as error:
                    impossible[piece.version] = str(error)
                else:
                    found[piece] = _remembered(store, piece, python, jobs or len(os.sched_getaffinity(0)))
            progress.advance(task)
    _print(console, found, impossible)
    everything = set(chosen) == set(VERSIONS) and set(kinds) == set(Check)
    if write or (everything and None not in found.values()):
        (ROOT / "docs" / "versions.md").write_text(report.document(found), encoding="utf-8")
    done = [result for result in found.values() if result is not None]
    if any(result.wrong for result in done):
        sys.exit(1)
    sys.exit(3 if impossible or any(result.broken for result in done) else 0)


def _remembered(store: Store, piece: Piece, python: Path, jobs: int) -> Result:
    began = time.monotonic()
    result = replace(run(piece, python, jobs), seconds=round(time.monotonic() - began, 1))
    store.add(piece, result)
    return result


def _print(console: Console, found: dict[Piece, Result | None], impossible: dict[str, str]) -> None:
    head, *body = report.rows(found)
    table = Table(*head)
    for row in body:
        table.add_row(*row)
    console.print(table)
    for title, lines in report.lists(found).items():
        for line in lines:
            console.print(f"{title}: {line}", markup=False, soft_wrap=True)
    for version, why in impossible.items():
        console.print(f"{version}: no environment: {why}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
