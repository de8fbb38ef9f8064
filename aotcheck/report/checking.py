"""The table that ``aotcheck check`` prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from aotcheck.checking import Report, Standing

_STYLES = {
    Standing.AGREES: "green",
    Standing.DIFFERS: "bold red",
    Standing.REFUSED: "yellow",
    Standing.UNSTABLE: "magenta",
    Standing.NOT_PROMISED: "dim",
    Standing.NOT_APPLICABLE: "dim",
}


def print_report(report: Report, console: Console) -> None:
    """A row for each variation that was tried, then how many have each standing."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("variation", "", "what"):
        table.add_column(column, overflow="fold")
    for result in report.results:
        if result.standing is not Standing.NOT_APPLICABLE:
            style = _STYLES[result.standing]
            table.add_row(result.variation.name, f"[{style}]{result.standing.value}[/]", _plain(result.text))
    console.print(table)
    console.print(f"{report.name} on {report.backend}: {report.summary}", highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
