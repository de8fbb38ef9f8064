"""What ``aotcheck zoo`` prints: a table for people, JSON for programs."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aotcheck.zoo.judge import Outcome, Result

__all__ = ["as_text", "print_results", "summary"]

_STYLES = {
    Outcome.EQUAL: "green",
    Outcome.DIFFERS: "bold red",
    Outcome.ERROR: "bold red",
    Outcome.REFUSED: "yellow",
    Outcome.RAN_EAGERLY: "yellow",
    Outcome.UNSTABLE: "magenta",
}


def summary(results: Iterable[Result]) -> str:
    """How many models have each outcome, and how many were compiled more often than they may be."""
    found = tuple(results)
    counts = Counter(result.outcome for result in found)
    told = [f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]]
    recompiled = sum(result.recompiled for result in found)
    return ", ".join([*told, *([f"{recompiled} compiled too often"] if recompiled else [])])


def compilations(result: Result) -> str:
    """How many compilations there were, and of how many that is too many."""
    if result.compilations is None:
        return ""
    return f"{result.compilations} > {result.at_most}" if result.recompiled else str(result.compilations)


def print_results(backend: str, results: Sequence[Result], console: Console) -> None:
    """A row for each model, then how many have each outcome."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", overflow="fold", min_width=16)
    table.add_column("")
    for column in ("compiled", "s", "MiB"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for result in results:
        table.add_row(
            Text(result.model),
            Text(result.outcome.value, _STYLES[result.outcome]),
            compilations(result),
            f"{result.seconds:.1f}",
            f"{result.peak / 2**20:.0f}" if result.peak else "",
            Text(result.text),
        )
    console.print(table)
    console.print(f"{len(results)} models on {backend}: {summary(results)}", highlight=False, soft_wrap=True)


def as_text(backend: str, device: str, results: Sequence[Result]) -> str:
    """The results as JSON: what they were found on, and an object for each model."""
    models = [{**dataclasses.asdict(result), "outcome": result.outcome.value} for result in results]
    counts = Counter(result.outcome.value for result in results)
    head = {"backend": backend, "device": device, "torch": torch.__version__}
    return json.dumps({**head, "outcomes": dict(counts), "models": models}, indent=2)
