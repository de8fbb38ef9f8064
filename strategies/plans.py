"""Draw what the caller does around a call: backwards of every kind, writes, hooks, contexts.

A plan is a *recipe*, an order of backwards that means something together (twice, apart, a gradient penalty, ...), into
which writes and hooks are put.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from aotcheck.program import Around, Backward, Cotangent, Fill, Graph, Hook, HookKind, Of, Probe, Site, Step, Way, Write

from .chooser import Chooser
from .profile import Profile

__all__ = ["Sides", "draw_around", "draw_before", "draw_one_backward", "draw_steps", "with_trained_cotangents"]


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

    def __init__(self, choose: Chooser, sides: Sides, trained_writes: int = 0) -> None:
        self.choose, self.sides, self.trained_writes = choose, sides, trained_writes

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
        kinds = (self.choose.toward(fills, lambda fill: (f"cotangent:{fill.value}",)) for _ in range(max(count, 1)))
        return tuple(Cotangent(kind, self.choose.below(4)) for kind in kinds)

    def inputs(self) -> tuple[int, ...] | None:
        """Gradients of all inputs, or of some."""
        chosen = self.sides.trained and self.choose.likely(35, "step:chosen-inputs")
        return self.subset(self.sides.trained, 70) if chosen else None

    def backward(self, graph: Graph = Graph.FREED, roots: tuple[int, ...] | None = None) -> Backward:
        """A backward of the outputs."""
        around: tuple[Around, ...] = ()
        if self.choose.likely(6, *(trait for one in _AROUND_BACKWARD for trait in _of_backward(one))):
            around = _one_or_all_wanted(self.choose, _AROUND_BACKWARD, _of_backward)
        return Backward(
            self.subset(self.sides.roots) if roots is None else roots,
            self.cotangents(),
            inputs=self.inputs() if self.choose.chance(30) else None,
            graph=graph,
            around=around,
        )

    def grad(self, graph: Graph = Graph.FREED) -> Backward:
        """A ``torch.autograd.grad`` of the outputs."""
        way = Way.RETURN_USED if self.choose.likely(12, "step:grad-of-used") else Way.RETURN
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

    def by_input(self) -> list[Step]:
        """Gradients of some inputs, then of others, of the same outputs or not: each comes by nodes of its own."""
        left = list(range(self.sides.trained))
        if len(left) < 2:
            return self.twice()
        first = self.grad(self.keep()) if self.choose.chance(60) else self.backward(self.keep())
        steps: list[Step] = []
        while left and len(steps) < 3:
            asked = left.pop(self.choose.below(len(left)))
            step = replace(first, inputs=(asked,))
            if steps and self.choose.chance(30):
                step = replace(self.backward(self.keep()), inputs=(asked,) if self.choose.chance(70) else None)
            steps.append(step)
        return steps

    def returned(self) -> list[Step]:
        """``torch.autograd.grad``, then a backward or another ``grad``."""
        return [self.grad(self.keep()), self.grad() if self.choose.chance(30) else self.backward()]

    def double(self) -> list[Step]:
        """Second derivatives: the gradient's gradient, or a gradient penalty."""
        of = self.choose.toward((Of.RESULTS, Of.PENALTY), lambda of: (f"step:of-{of.value}",))
        way = self.choose.one((Way.ACCUMULATE, Way.ACCUMULATE, Way.RETURN))
        return [self.grad(Graph.CREATED), self.again(of, way)]

    def accumulated(self) -> list[Step]:
        """Second derivatives through ``.grad``."""
        graph = self.choose.toward(
            (Graph.CREATED, Graph.CREATED, Graph.CREATED_FREED),
            lambda graph: ("step:created-freed",) if graph is Graph.CREATED_FREED else (),
        )
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
        how = Write.GRAD if choose.likely(15, "step:probe-grad") else Write.NO_GRAD
        if self.trained_writes and choose.likely(self.trained_writes, "step:probe-trained"):
            how = Write.TRAINED
        index = choose.below(max(1, sides.outputs if site is Site.OUTPUT else sides.inputs))
        return Probe(site, index, choose.between(1, 4), how)

    def hook(self, site: Site) -> Hook:
        """A hook."""
        index = self.choose.below(max(1, self.sides.outputs if site is Site.OUTPUT else self.sides.inputs))
        leaf = (HookKind.POST, HookKind.CLEAR) if site is Site.INPUT else ()
        kinds = (HookKind.WATCH, HookKind.DOUBLE, HookKind.RETAIN, *leaf)
        return Hook(self.choose.toward(kinds, _of_hook), site, index)


_RECIPES: tuple[tuple[Callable[[_Plan], list[Step]], int], ...] = (
    (_Plan.twice, 6),
    (_Plan.apart, 5),
    (_Plan.by_input, 4),
    (_Plan.returned, 4),
    (_Plan.double, 7),
    (_Plan.accumulated, 2),
    (_Plan.third, 4),
)
_WEIGHTED = tuple(recipe for recipe, weight in _RECIPES for _ in range(weight))
_LEADS_TO: dict[Callable[[_Plan], list[Step]], tuple[str, ...]] = {
    _Plan.twice: ("step:several", "step:retained"),
    _Plan.by_input: ("step:chosen-inputs",),
    _Plan.returned: ("step:grad", "step:grad-of-used"),
    _Plan.double: ("step:of-results", "step:of-penalty", "step:created", "cotangent:trained"),
    _Plan.accumulated: ("step:of-gradients", "step:created-freed"),
    _Plan.third: ("step:of-results",),
}
"""The traits that a recipe is there for."""
_AROUND_BACKWARD = (Around.NO_GRAD, Around.ANOMALY, Around.AUTOCAST)
_AROUND_CALL = (Around.AUTOCAST, Around.ANOMALY, Around.SAVED_TENSORS)
_HOOKS = tuple(f"step:hook-{kind.value}" for kind in HookKind)


def _leads_to(recipe: Callable[[_Plan], list[Step]]) -> tuple[str, ...]:
    return _LEADS_TO.get(recipe, ())


def _of_backward(around: Around) -> tuple[str, ...]:
    return (f"context:backward-{around.value.replace('_', '-')}",)


def _of_call(around: Around) -> tuple[str, ...]:
    return (f"context:call-{around.value.replace(' ', '-')}",)


def _one_or_all_wanted(
    choose: Chooser, contexts: tuple[Around, ...], trait: Callable[[Around], tuple[str, ...]]
) -> tuple[Around, ...]:
    wanted = tuple(one for one in contexts if not choose.wanted.isdisjoint(trait(one)))
    return wanted if len(wanted) > 1 else (choose.toward(contexts, trait),)


def _of_hook(kind: HookKind) -> tuple[str, ...]:
    return (f"step:hook-{kind.value}",)


def draw_steps(choose: Chooser, profile: Profile, sides: Sides) -> tuple[Step, ...]:
    """What the caller does after a call."""
    plan = _Plan(choose, sides, profile.trained_writes)
    if not sides.outputs + sides.inputs:
        return ()
    steps: list[Step] = []
    if sides.roots and not choose.chance(4):
        steps = (choose.toward(_WEIGHTED, _leads_to) if choose.chance(profile.calls) else _Plan.once)(plan)
        if choose.likely(12, *_HOOKS):
            steps.insert(0, plan.hook(Site.OUTPUT if choose.chance(70) else Site.INPUT))
        if choose.likely(4, "step:probe-gradient"):
            steps.insert(1 + choose.below(len(steps)), Probe(Site.GRADIENT, choose.below(2), choose.between(1, 4)))
    for _ in range(choose.one((0, 1, 1, 2)) if len(steps) < 2 else choose.one((0, 1, 1))):
        at = len(steps) if choose.chance(40) else choose.below(len(steps) + 1)
        steps.insert(at, plan.probe())
    return tuple(steps)


def draw_one_backward(choose: Chooser, sides: Sides) -> tuple[Step, ...]:
    """One backward of what a call returned, with cotangents as a loss gives them."""
    if not sides.roots:
        return ()
    plan = _Plan(choose, sides)
    way = Way.RETURN if choose.chance(30) else Way.ACCUMULATE
    return (Backward(plan.subset(sides.roots), (Cotangent(choose.one(_PLAIN), choose.below(4)),), way=way),)


def draw_before(choose: Chooser, sides: Sides) -> tuple[Step, ...]:
    """What the caller does before a call."""
    if not sides.trained or not choose.likely(10, "step:hook-before", "step:hook-post", "step:hook-clear"):
        return ()
    return (_Plan(choose, sides).hook(Site.INPUT),)


def draw_around(choose: Chooser) -> tuple[Around, ...]:
    """Contexts around a call."""
    if not choose.likely(4, *(trait for one in _AROUND_CALL for trait in _of_call(one))):
        return ()
    return _one_or_all_wanted(choose, _AROUND_CALL, _of_call)


def with_trained_cotangents(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with cotangents that require grad wherever a graph of the outputs' gradients is made."""
    created = (Graph.CREATED, Graph.CREATED_FREED)
    return tuple(
        replace(step, cotangents=tuple(replace(c, fill=Fill.TRAINED) for c in step.cotangents))
        if isinstance(step, Backward) and step.graph in created and step.of is Of.OUTPUTS
        else step
        for step in steps
    )
