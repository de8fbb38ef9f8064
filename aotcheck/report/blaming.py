"""Shows the result of a ladder on one screen."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from aotcheck.blame import Blame, Standing

_MARKS = {
    Standing.AGREES: ("agrees", "green"),
    Standing.DIFFERS: ("differs", "bold red"),
    Standing.NOT_REACHED: ("not reached", "dim"),
}
_MOST_LINES = 40


def print_blame(blame: Blame, path: Path, console: Console) -> None:
    """Each rung with its standing, the first difference, and the record with the line that is to blame marked."""

    def line(text: Text | str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    if blame.rung is None:
        line(f"{path}: {blame.backend}: does not differ ({blame.seen}); there is nothing to blame")
        return
    again = ", when all its calls are made twice" if blame.twice else ""
    line(f"{path}: {blame.backend}: {blame.seen}{again}")
    width = max(len(judged.rung.value) for judged in blame.rungs)
    for judged in blame.rungs:
        word, style = _MARKS[judged.standing]
        said = f"  {judged.text}" if judged.text else ""
        line(Text.assemble(f"  {judged.rung.value:<{width}}  ", (word, style), said))
    if blame.record:
        line(f"the record of call {blame.call + 1}:")
        wrong = blame.wrong.line if blame.wrong is not None else None
        for number, text in enumerate(_shortened(blame.record, wrong)):
            line(Text(f"{'>' if number == wrong else ' '} {text}", style="bold red" if number == wrong else ""))
    line(Text(f"blame: {blame.text}", style="bold"))


def _shortened(lines: tuple[str, ...], wrong: int | None) -> tuple[str, ...]:
    """At most a screen of lines, the wrong one among them."""
    if len(lines) <= _MOST_LINES:
        return lines
    last = max(_MOST_LINES, (wrong or 0) + 1)
    return (*lines[:last], f"... and {len(lines) - last} more")
