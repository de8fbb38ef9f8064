"""The table that ``aotcheck check`` prints."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aotcheck.checking import Report, Standing
from aotcheck.checking.report import numbers

_STYLES = {
    Standing.AGREES: "green",
    Standing.DIFFERS: "bold red",
    Standing.REFUSED: "yellow",
    Standing.UNSTABLE: "magenta",
    Standing.EAGER_FAILS: "magenta",
    Standing.NOT_PROMISED: "dim",
    Standing.NOT_APPLICABLE: "dim",
}


def print_report(report: Report, console: Console) -> None:
    """A row for each variation that was tried, what they showed, then how many have each standing.

    What several variations showed is printed once, under a number that their rows have. So rows fit 80 columns.
    """
    notes = report.notes(report.tried)
    number = numbers(notes)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("variation", "", "note"):
        table.add_column(column, overflow="fold")
    for result in report.tried:
        standing = Text(result.standing.value, _STYLES[result.standing])
        table.add_row(Text(result.variation.name), standing, Text(str(number.get(id(result), ""))))
    console.print(table)
    for i, note in enumerate(notes):
        console.print(Text(f"({i + 1}) {note.text}"), highlight=False, soft_wrap=not console.is_terminal)
    for text in report.problems:
        console.print(Text(text, "bold red"), highlight=False, soft_wrap=not console.is_terminal)
    console.print(f"{report.name} on {report.backend}: {report.summary}", highlight=False, soft_wrap=True)
