"""The code for one key, and what calls look at before they run it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from aotcheck.autograd.assemble import Assembly
from aotcheck.autograd.calls.containers import ContainerResult, ResultShape
from aotcheck.autograd.calls.kept import Kept
from aotcheck.autograd.calls.module_state import ModuleState
from aotcheck.autograd.calls.original import Outcome
from aotcheck.autograd.calls.specialize import counting_together, fast_guard
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.record.steps import BaseOf, PointAt, TakeHistory


@dataclasses.dataclass
class Specialization:
    """The code for one key, or why there is none."""

    assembly: Assembly | None
    refusal: UnsupportedError | None = None
    guard: Callable[[Sequence[Any]], bool] | None = None
    called: bool = False
    result: ContainerResult | None = None
    assignments: tuple[Callable[[], None], ...] = ()
    left: tuple[Kept, ...] = ()  # by the trace, until that is over
    counts_apart: bool = True  # whether it took the arguments to: see Note [Counting together]

    def together(self, whole: Sequence[Any]) -> tuple[int | None, ...]:
        """Which of a call's arguments ``whole`` count versions together where it took them to count apart."""
        if self.assembly is None or not self.counts_apart:
            return ()
        return counting_together(whole, self.assembly.counting)

    def make_guard(self, whole: Sequence[Any], around: tuple[Callable[[], int], int] | None) -> None:
        """Make a fast guard that tells calls with arguments like ``whole``, if there can be one.

        ``around``: what gives the number of what there is around the function, and that number for such calls.
        """
        if self.guard is not None or self.assembly is None or self.result or not self.counts_apart:
            return
        record, capture = self.assembly.record, self.assembly.capture
        # What holds a tensor that is swapped depends on whether it is a view, too.
        writes = bool(record.swapped) or any(isinstance(s, (TakeHistory, PointAt)) for s in record.steps)
        if not (capture.mode.with_bases or any(isinstance(r.source, BaseOf) for r in record.roots)):
            sizes = bool(record.flats) or capture.maker.kernels.sizes_matter
            shares, counting = bool(record.written_placeholders), self.assembly.counting
            self.guard = fast_guard(whole, writes, sizes, shares, counting, around)

    @property
    def runs(self) -> Assembly | Assigning | None:
        """What a call that passes the guard runs."""
        if self.assembly is None or not self.assignments:
            return self.assembly
        return Assigning(self.assembly, self.assignments)


@dataclasses.dataclass(frozen=True)
class Assigning:
    """What a call runs and assigns afterwards."""

    assembly: Assembly
    assignments: tuple[Callable[[], None], ...]

    def call(self, flat: Sequence[Any]) -> Any:
        """Call the code."""
        result = self.assembly.call(flat)
        for assign in self.assignments:
            assign()
        return result


def shape_of(outcome: Outcome, state: ModuleState | None) -> ResultShape:
    """How the results of the code become those of the call, and what of them is assigned to a module's ``state``."""
    spec = None if outcome.containers else outcome.spec
    assign: Callable[[Sequence[Any]], None] | None = None
    tail = len(outcome.slots)
    if outcome.slots and state is not None:
        assign = functools.partial(state.assign, outcome.slots)
    if outcome.kept is not None and (outcome.containers is None or outcome.containers.keep is None):
        assign = outcome.kept if assign is None else _Each(tail, assign, outcome.kept)
        tail += outcome.kept.count
    return ResultShape(spec, tail, assign)


class _Each:
    """Gives the first ``count`` results to one function and the others to another."""

    def __init__(
        self, count: int, first: Callable[[Sequence[Any]], None], second: Callable[[Sequence[Any]], None]
    ) -> None:
        self._count, self._first, self._second = count, first, second

    def __call__(self, flat: Sequence[Any]) -> None:
        self._first(flat[: self._count])
        self._second(flat[self._count :])
