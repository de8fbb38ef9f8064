"""Backwards that are asked for some gradients.

Note [Gradients asked for]
A backward that is asked for certain gradients (``torch.autograd.grad``, ``inputs=``) comes in eager only by the nodes
that lead to those: only what these keep must be as it was, and only that is freed. The engine comes to a Function of
ours wherever one of its targets is asked for. So a Function has a *cover*, few targets by one of which everything goes
that keeps something: if all of these are asked for, the backward is as any other. If not, it is told which nodes it
comes by, its *way*; it looks at what these keep, and gives the gradients that are asked for. Autograd frees all of the
Function's context then. What other ways still need is taken over before that (``runtime/left.py``), and the nodes freed
are noted.

To ask of a leaf whether it is asked for takes 20 us in ``torch.autograd.grad``, an exception of torch's. So once that
was met, or the first backward is seen to be such a call, calls put a node before such leaves of which the engine says
(``history.by_way``).

What derivatives of such a backward share with it (see Note [Shared nodes]) is taken for freed as a whole.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aotcheck import _torch
from aotcheck.autograd.backward.stage import Stage
from aotcheck.autograd.backward.tangents import Trained
from aotcheck.autograd.backward.written_since import guards_of
from aotcheck.autograd.runtime import backward
from aotcheck.autograd.runtime.attachments import WATCHED_PLACE, HoldsArguments
from aotcheck.autograd.runtime.held import free_held
from aotcheck.autograd.runtime.left import Left, left_of, look_at, take_over

if TYPE_CHECKING:
    from aotcheck.autograd.backward.backwards import Backwards


@dataclasses.dataclass(frozen=True)
class Passed:
    """A node that a backward comes by, by number, and where the Function has what it keeps."""

    number: int
    saved: tuple[int, ...]
    watched: tuple[int, ...]


class Nodes:
    """The nodes of a stage that keep something, by number, and what leads where."""

    def __init__(self, backwards: Backwards, stage: Stage) -> None:
        self.backwards, self.stage = backwards, stage
        arrivals = stage.arrivals()
        self.behind = [[n for n in nodes if arrivals[n]] for nodes in stage.holding()]
        self.numbers: dict[Any, int] = {}
        for nodes in self.behind:
            for n in nodes:
                self.numbers.setdefault(n, len(self.numbers))
        self.masks = {n: arrivals[n] for n in self.numbers}
        # For each tensor where gradients arrive that come from it, and which nodes they have come by then.
        self._arriving = [arrivals[_torch.grad_fn_of(a.tensor)] for a in stage.attached]
        self._kept: dict[Any, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def way(self, begins: Sequence[int], asked: frozenset[int]) -> tuple[Passed, ...]:
        """The nodes that a backward comes by from the tensors ``begins`` to the targets ``asked``, by place."""
        mask = sum(1 << k for k in asked)
        nodes = {n: j for j in begins for n in self.behind[j] if self.masks[n] & mask}
        found = []
        for n in sorted(nodes, key=_torch.sequence_number, reverse=True):
            if n not in self._kept:
                with self.backwards.rearmed():
                    near = self.stage.attached[nodes[n]].tensor
                    self._kept[n] = guards_of(self.backwards.capture, self.stage, n, near)
            found.append(Passed(self.numbers[n], *self._kept[n]))
        return tuple(found)

    def numbered(self, numbers: set[int]) -> frozenset[Any]:
        """The nodes with these numbers."""
        return frozenset([n for n, number in self.numbers.items() if number in numbers])

    def is_over(self, freed: set[int]) -> bool:
        """Whether each backward raises once the nodes ``freed`` are."""
        for j, nodes in enumerate(self.behind):
            needs = [(self.masks[n], self.numbers[n] in freed) for n in nodes]
            for k in range(self._arriving[j].bit_length()):
                if self._arriving[j] >> k & 1 and not any(gone for mask, gone in needs if mask >> k & 1):
                    return False
        return True


@dataclasses.dataclass(frozen=True)
class Partly:
    """A backward from the results ``begins`` of a Function that is asked for the targets ``asked`` alone, by place."""

    finder: Finder
    context: Any
    begins: tuple[int, ...]
    way: tuple[Passed, ...]
    asked: frozenset[int]

    @property
    def ctx(self) -> Any:
        """What has what the Function saved, where not all of it was freed."""
        return left_of(self.context) or self.context

    def check(self) -> None:
        """Look at what the nodes on the way keep, as they do, and free it; up to one of them that raises."""
        ctx, passed, raises = self.ctx, set[int](), True
        try:
            if self.way:
                backward.check_not_spent(self.context, self.begins)
                look_at(ctx, ())
            for node in self.way:
                if isinstance(ctx, Left):
                    ctx.check(node.number)
                look_at(ctx, node.saved)
                watched = [(*ctx.kept[WATCHED_PLACE][k][:3], 0) for k in node.watched]
                backward.check_watched(watched, (True,))
                passed.add(node.number)
            raises = False
        finally:
            if not _torch.backward_keeps_graph():
                self.finder.free(self.context, passed, raises)

    def done(self) -> None:
        """The gradients are there."""
        left = left_of(self.context)
        if left is not None and self.finder.nodes.is_over(left.freed):
            left.let_go()

    def find(self, kinds: tuple[type, ...], trained: Trained, told: tuple[int, ...] = ()) -> Callable[..., Any]:
        """As ``Backwards.backward_for``."""
        return self.finder.backwards.backward_for(self.finder.stage, kinds, trained, told, self.asked)


class Finder:
    """Finds the backwards of one stage."""

    def __init__(self, backwards: Backwards, stage: Stage) -> None:
        self.backwards, self.stage = backwards, stage
        self.find = functools.partial(backwards.backward_for, stage)
        self.asks_leaves = False  # whether the engine did not say of a leaf whether it comes there
        self._is_new = True  # whether it was not asked of any yet
        self._ways: dict[tuple[tuple[int, ...], frozenset[int]], tuple[Passed, ...]] = {}

    @property
    def arguments(self) -> HoldsArguments:
        """What contexts hold: see Note [Arguments held]."""
        return self.stage.arguments

    @functools.cached_property
    def nodes(self) -> Nodes:
        """What leads where."""
        with self.backwards.rearmed():
            return Nodes(self.backwards, self.stage)

    def partly(self, ctx: Any, begins: Sequence[Any]) -> Partly | None:
        """What a backward does that leaves something out, or finds something freed by one that did; else None.

        ``begins`` has None for each tensor from which the backward does not come.
        """
        ends = ctx.next_functions
        if left_of(ctx) is None and self._comes_by_all(ends):
            return None
        asked = frozenset(k for k in range(len(self.stage.reached)) if _torch.will_run(ends[k][0]))
        places = tuple(j for j, t in enumerate(begins) if t is not None)
        way = self._ways.get((places, asked))
        if way is None:
            way = self._ways[places, asked] = self.nodes.way(places, asked)
        return Partly(self, ctx, places, way, asked)

    def _comes_by_all(self, ends: Sequence[Any]) -> bool:
        for k in self.stage.cover or ():
            if self._is_new and _torch.accumulates(ends[k][0]):
                self._is_new = False
                if _torch.grad_asks_for(ends[k][0]):  # then it would not say
                    self.asks_leaves = True
                    continue
            comes = _torch.said_to_run(ends[k][0])
            if comes is None:
                self.asks_leaves = True
            elif not comes:
                return False
        return True

    def free(self, ctx: Any, nodes: set[int], raises: bool) -> None:
        """Eager frees ``nodes``; autograd will free all of ``ctx`` then, unless the backward ``raises``."""
        left = left_of(ctx)
        if left is None:
            if self.arguments.places:
                free_held(ctx, self.nodes.numbered(nodes))
            if (not raises and self.nodes.is_over(nodes)) or (left := take_over(ctx)) is None:
                return
            ctx.left = left
        elif self.arguments.places:
            free_held(ctx, self.nodes.numbered(nodes))
        left.freed |= nodes
