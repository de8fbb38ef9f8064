"""Draw what the caller does around a call: backwards of every kind, writes, hooks, contexts.

A plan is a *recipe*, an order of backwards that means something together (twice, apart, a gradient penalty, ...), into
which writes and hooks are put.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from aotcheck.program import (
    Around,
    Backward,
    Cotangent,
    Fill,
    Graph,
    Hook,
    HookKind,
    Of,
    Probe,
    Site,
    Step,
    Way,
    Write,
)
from strategies.chooser import Chooser
from strategies.profile import Profile

__all__ = ["Sides", "draw_around", "draw_before", "draw_steps", "with_trained_cotangents"]


@dataclass(frozen=True)
class Sides:
    """What a plan is about.

    Args:
        outputs: how many tensors the call returns.
        roots: how many distinct ones of them require grad.
        inputs: how many parameters there are.
        trained: how many named inputs require grad.
    """

    outputs: int
    roots: int
    inputs: int
    trained: int


_PLAIN = (Fill.PATTERN,) * 13 + (Fill.ZEROS, Fill.EXPANDED, Fill.STRIDED, Fill.EXPANDED, Fill.STRIDED)
_ODD = (*_PLAIN, Fill.INFINITE, Fill.IMPLICIT)


class _Plan:
    """A plan in the making."""

    def __init__(self, choose: Chooser, sides: Sides) -> None:
        self.choose, self.sides = choose, sides

    # -- parts

    def subset(self, count: int, percent: int = 30) -> tuple[int, ...]:
        """All indices below ``count``, or in some percent of draws some of them."""
        if count > 1 and self.choose.chance(percent):
            return tuple(i for i in range(count) if self.choose.chance(60)) or (self.choose.below(count),)
        return tuple(range(count))

    def cotangents(self, double: bool = False) -> tuple[Cotangent, ...]:
        """One kind for all roots, now and then one each."""
        fills = (*_ODD, *(Fill.TRAINED,) * (2 * len(_ODD))) if double else _ODD
        count = self.sides.roots if self.choose.chance(25) else 1
        return tuple(Cotangent(self.choose.one(fills), self.choose.below(4)) for _ in range(max(count, 1)))

    def inputs(self) -> tuple[int, ...] | None:
        """Gradients of all inputs, or of some."""
        return self.subset(self.sides.trained, 70) if self.sides.trained and self.choose.chance(35) else None

    def backward(self, graph: Graph = Graph.FREED, roots: tuple[int, ...] | None = None) -> Backward:
        """A backward of the outputs."""
        around: tuple[Around, ...] = ()
        if self.choose.chance(6):
            around = (self.choose.one((Around.NO_GRAD, Around.ANOMALY, Around.AUTOCAST)),)
        return Backward(
            self.subset(self.sides.roots) if roots is None else roots,
            self.cotangents(),
            inputs=self.inputs() if self.choose.chance(30) else None,
            graph=graph,
            around=around,
        )

    def grad(self, graph: Graph = Graph.FREED) -> Backward:
        """A ``torch.autograd.grad`` of the outputs."""
        way = Way.RETURN_USED if self.choose.chance(12) else Way.RETURN
        double = graph is Graph.CREATED
        return replace(self.backward(graph), way=way, inputs=self.inputs(), cotangents=self.cotangents(double))

    def again(self, of: Of, way: Way = Way.ACCUMULATE, graph: Graph = Graph.FREED) -> Backward:
        """A backward of gradients."""
        cotangents = (Cotangent(self.choose.one(_PLAIN), self.choose.below(3)),)
        roots = self.subset(4) if of is not Of.PENALTY else (0,)
        return Backward(roots, cotangents, of, way, self.inputs() if self.choose.chance(40) else None, graph)

    def keep(self) -> Graph:
        """What becomes of a graph that is backpropagated again: it may turn out to be missed."""
        return self.choose.one((Graph.RETAINED, Graph.RETAINED, Graph.FREED, Graph.RETAINED))

    # -- recipes

    def once(self) -> list[Step]:
        """One backward."""
        return [self.backward()]

    def twice(self) -> list[Step]:
        """The same outputs, or others, twice or three times."""
        first = self.backward(self.keep())
        other = replace(first, graph=Graph.FREED) if self.choose.chance(50) else self.backward()
        more: list[Step] = [self.backward()] if self.choose.chance(20) else []
        if more:
            other = replace(other, graph=self.keep())
        return [first, other, *more]

    def apart(self) -> list[Step]:
        """Each output by itself, in any order."""
        left = list(range(self.sides.roots))
        steps: list[Step] = []
        graph = self.keep()
        while left and len(steps) < 3:
            root = left.pop(self.choose.below(len(left)))
            steps.append(self.backward(graph, (root,)))
        return steps if len(steps) > 1 else self.twice()

    def returned(self) -> list[Step]:
        """``torch.autograd.grad``, then a backward or another ``grad``."""
        return [self.grad(self.keep()), self.grad() if self.choose.chance(30) else self.backward()]

    def double(self) -> list[Step]:
        """Second derivatives: the gradient's gradient, or a gradient penalty."""
        of = self.choose.one((Of.RESULTS, Of.PENALTY))
        way = self.choose.one((Way.ACCUMULATE, Way.ACCUMULATE, Way.RETURN))
        return [self.grad(Graph.CREATED), self.again(of, way)]

    def accumulated(self) -> list[Step]:
        """Second derivatives through ``.grad``."""
        graph = self.choose.one((Graph.CREATED, Graph.CREATED, Graph.CREATED_FREED))
        first = replace(self.backward(graph), cotangents=self.cotangents(double=True))
        return [first, self.again(Of.GRADIENTS)]

    def third(self) -> list[Step]:
        """Third derivatives."""
        second = self.again(Of.RESULTS, Way.RETURN, Graph.CREATED)
        return [self.grad(Graph.CREATED), second, self.again(self.choose.one((Of.RESULTS, Of.PENALTY)))]

    # -- the rest

    def probe(self) -> Probe:
        """A write by the caller."""
        sides, choose = self.sides, self.choose
        site = Site.OUTPUT if sides.outputs and (not sides.inputs or choose.chance(70)) else Site.INPUT
        how = Write.GRAD if choose.chance(15) else Write.NO_GRAD
        index = choose.below(max(1, sides.outputs if site is Site.OUTPUT else sides.inputs))
        return Probe(site, index, choose.between(1, 4), how)

    def hook(self, site: Site) -> Hook:
        """A hook."""
        index = self.choose.below(max(1, self.sides.outputs if site is Site.OUTPUT else self.sides.inputs))
        leaf = (HookKind.POST, HookKind.CLEAR) if site is Site.INPUT else ()
        kinds = (HookKind.WATCH, HookKind.DOUBLE, HookKind.RETAIN, *leaf)
        return Hook(self.choose.one(kinds), site, index)


_RECIPES: tuple[tuple[Callable[[_Plan], list[Step]], int], ...] = (
    (_Plan.twice, 6),
    (_Plan.apart, 5),
    (_Plan.returned, 4),
    (_Plan.double, 7),
    (_Plan.accumulated, 2),
    (_Plan.third, 2),
)
_WEIGHTED = tuple(recipe for recipe, weight in _RECIPES for _ in range(weight))


def draw_steps(choose: Chooser, profile: Profile, sides: Sides) -> tuple[Step, ...]:
    """What the caller does after a call."""
    plan = _Plan(choose, sides)
    if not sides.outputs + sides.inputs:
        return ()
    steps: list[Step] = []
    if sides.roots and not choose.chance(4):
        steps = (choose.one(_WEIGHTED) if choose.chance(profile.calls) else _Plan.once)(plan)
        if choose.chance(12):
            steps.insert(0, plan.hook(Site.OUTPUT if choose.chance(70) else Site.INPUT))
        if choose.chance(4):
            steps.insert(1 + choose.below(len(steps)), Probe(Site.GRADIENT, choose.below(2), choose.between(1, 4)))
    for _ in range(choose.one((0, 1, 1, 2)) if len(steps) < 2 else choose.one((0, 1, 1))):
        at = len(steps) if choose.chance(40) else choose.below(len(steps) + 1)
        steps.insert(at, plan.probe())
    return tuple(steps)


def draw_before(choose: Chooser, sides: Sides) -> tuple[Step, ...]:
    """What the caller does before a call."""
    if not sides.trained or not choose.chance(10):
        return ()
    return (_Plan(choose, sides).hook(Site.INPUT),)


def draw_around(choose: Chooser) -> tuple[Around, ...]:
    """Contexts around a call."""
    if not choose.chance(4):
        return ()
    return (choose.one((Around.AUTOCAST, Around.ANOMALY, Around.SAVED_TENSORS)),)


def with_trained_cotangents(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with cotangents that require grad wherever a graph of the outputs' gradients is made."""
    created = (Graph.CREATED, Graph.CREATED_FREED)
    return tuple(
        replace(step, cotangents=tuple(replace(c, fill=Fill.TRAINED) for c in step.cotangents))
        if isinstance(step, Backward) and step.graph in created and step.of is Of.OUTPUTS
        else step
        for step in steps
    )
