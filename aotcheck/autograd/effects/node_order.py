"""The order in which autograd counts the nodes that an epilogue makes.

Note [The order of nodes]
A backward comes by those nodes first that were made last, so the order of nodes is that in which the gradients of a
tensor are summed up. It shows in rounding, in infinities, and where the class of a wrapper lets one summand decide what
the sum is like. An epilogue makes nodes in another order than the program where it must: views of what is written come
after the write, which comes after the results are attached; arguments that are such views are looked at with the write,
and in the program perhaps later. Then the nodes exchange their numbers in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.effects.views import has_history
from aotcheck.autograd.record.steps import (
    Arg,
    Attach,
    GiveHistory,
    NoteNodes,
    OrderNodes,
    PickView,
    Ref,
    RenewHistory,
    ReplayView,
)
from aotcheck.autograd.replicas.windows import Derivation

if TYPE_CHECKING:
    from aotcheck.autograd.effects.results import Results


def order_nodes(results: Results) -> None:
    """Let the nodes that the steps make be numbered in the program's order; adds nothing if they are."""
    steps = [*results.before, *results.steps]
    named, waiting = results.names, results.capture.waiting  # what waits gets its node later
    views = {named[key]: made for key, made in results.tracer.views.items() if key in named and key not in waiting}
    for s in steps:
        if isinstance(s, GiveHistory):
            views.pop(s.target, None)
    written: dict[Ref, Tensor] = {Arg(a.index): a.replica for a in results.arguments}
    made: list[tuple[tuple[int, ...], Ref]] = []
    for s in steps:
        if isinstance(s, Attach):
            group = results.groups[s.group]
            made.append((group.turn, results.attached[group.attached[0]].ref))
        elif isinstance(s, (ReplayView, PickView)) and s.local in views:
            turn = _turn_of_view(views[s.local])
            if turn is not None:
                made.append((turn, s.local))
        elif isinstance(s, RenewHistory) and s.target in written:
            node = _torch.grad_fn_of(written.pop(s.target))
            if node is not None:
                made.append(((_torch.sequence_number(node),), s.target))
    made += [((number,), Arg(a.index)) for number, a in results.rewritten_later() if Arg(a.index) in written]
    wanted = sorted(made, key=lambda x: x[0])
    if wanted != made:
        since = results.local()
        results.before.insert(0, NoteNodes(since))
        results.steps.append(OrderNodes(since, tuple(ref for _, ref in wanted)))


def _turn_of_view(made: Derivation) -> tuple[int, ...] | None:
    """When autograd made the node of a view, or made it anew after a write; None if it has none."""
    if not made.grad or not has_history(made.tensor):
        return None
    node = _torch.grad_fn_of(made.tensor)
    return None if node is None else (_torch.sequence_number(node),)
