"""The live display of a minimization, and its result."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from aotcheck.minimize import Reduced, Reduction, inputs_passed
from aotcheck.program import Program, body_source
from aotcheck.report.progress import bar

LINE_SECONDS = 10.0


class MinimizingDisplay:
    """Shows how far a reduction is; without a terminal, a line every ten seconds.

    Args:
        reduction: what to show.
        console: where.
    """

    def __init__(self, reduction: Reduction, console: Console) -> None:
        self._reduction, self._console = reduction, console
        self._last = time.monotonic()
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._now)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> MinimizingDisplay:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def moved(self) -> None:
        """A candidate was taken."""
        now = time.monotonic()
        if self._live is None and now - self._last > LINE_SECONDS:
            self._last = now
            self._console.print(self._now(), soft_wrap=True)

    def _now(self) -> RenderableType:
        r = self._reduction
        key = Text(r.key, style="dim", no_wrap=True, overflow="ellipsis")
        said = (f"{amount(r.program)} now · {r.tried} candidates tried · {r.seconds:.0f} s\n", "bold")
        limit = r.limits.seconds
        over = [] if limit is None or r.seconds >= limit else [bar(r.seconds / limit, r.seconds, at_most=True)]
        return Group(*over, Text.assemble(said, key))


def amount(program: Program) -> str:
    """How much a program is: ``3 statements, 1 input``."""
    statements, inputs = program.statements, inputs_passed(program)
    return f"{statements} statement{'s' * (statements != 1)}, {inputs} input{'s' * (inputs != 1)}"


def print_reduced(reduction: Reduction, reduced: Reduced, path: Path, console: Console) -> None:
    """What a minimization came to."""
    ending = "" if reduced.finished else " (stopped: it may become smaller yet)"
    console.print(f"{reduction.subject.backend}: {reduced.shows.key}", soft_wrap=True, highlight=False, markup=False)
    console.print(
        f"{amount(reduction.original)} -> {amount(reduced.program)}, "
        f"{reduced.tried} candidates, {reduced.seconds:.1f} s{ending}",
        soft_wrap=True,
        highlight=False,
    )
    console.print(body_source(reduced.program).rstrip(), style="cyan", soft_wrap=True, highlight=False, markup=False)
    console.print(f"written: {path}", soft_wrap=True, highlight=False, markup=False)
