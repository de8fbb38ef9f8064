"""Progress bars with an estimate of the time left; they vanish at the end, and without a terminal there are none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from aotcheck.report.console import Console

__all__ = ["bar", "counting", "staged"]


def bar(done: float, seconds: float, at_most: bool = False) -> RenderableType:
    """A bar for a live display.

    Args:
        done: the share that is behind, between 0 and 1.
        seconds: how long that took.
        at_most: the work may well end earlier.
    """
    left = timedelta(seconds=round(seconds * (1.0 - done) / done))
    row = Table.grid(padding=(0, 1))
    said = f"{'at most' if at_most else 'about'} {left} left"
    row.add_row(ProgressBar(total=1.0, completed=done, width=40), f"{done:.0%}", said)
    return row


@contextmanager
def counting(what: str, count: int) -> Iterator[Callable[[int], None]]:
    """A bar for ``count`` things of one kind, on stderr. What is yielded is told how many are done."""
    with staged() as moved:
        yield lambda done: moved(what, done, count)


@contextmanager
def staged() -> Iterator[Callable[[str, float, float], None]]:
    """A bar for each stage of something, on stderr. What is yielded is told the stage, how much is done, and of how
    much."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        stages: dict[str, int] = {}

        def moved(stage: str, done: float, of: float) -> None:
            if stage not in stages:
                stages[stage] = progress.add_task(stage, total=round(of))
            progress.update(stages[stage], completed=round(min(done, of)))  # type: ignore[arg-type]

        yield moved
