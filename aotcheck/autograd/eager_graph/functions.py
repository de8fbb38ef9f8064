"""Custom Functions of which it shows whether their backwards run once for all gradients, or once for each.

Note [Functions cut off]
Gradients that come to a node of autograd's graph are summed up before it runs, whatever they are derivatives of: a
loss, say, and a penalty on its gradient. The loss comes to a node by the Function that it is attached by, the penalty
by that of a derivative, and each would run the node for itself, on its own gradient. That is the same where the node is
linear in the gradient, as all of torch's own are. The backward of a custom Function may clip or normalize it, take its
sign, add to it, write, or draw; or mind for which of its results there are any. So if derivatives of backwards may come
there, its results are cuts (see Note [Cuts]), for which tensors without memory stand: then there is one Function that
all gradients come to, and autograd sums them up before it runs that.

Whether a backward is linear shows where it is traced, and then it is too late: the call is traced once more, being told
which Functions are to be cut off. Derivatives of backwards are divided once more. Most Functions are linear, and are
attached with what is around them.

Note [Functions for all gradients]
Where results are wrappers or sparse, or a partition is the user's, nothing is cut off: what could stand there is not
known. There, and where a cut is given up, a Function of ours marks the nodes that are not linear when it runs them: in
the context of the first Function that has them, with the backward that is running. One that finds such a mark raises,
as the node would be run for a part of its gradients. A backward that brings it but one gradient is as in eager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.regions import places_met
from aotcheck.autograd.eager_graph.saved import has_packed, holds_saved, kept_results, kernels_of, saved_by
from aotcheck.autograd.tensors.captured import reachable


def function_of(node: Any, near: Tensor) -> Any:
    """The node of the custom Function that ``node``, in the graph of the replica ``near``, is or runs; None if of none.

    What the base of a view has for the history of a write runs the node of what wrote.
    """
    if isinstance(node, BackwardCFunction):
        return node
    if _torch.is_write_through_view(node):
        write = kernels_of(near).write_of(node)
        return write if isinstance(write, BackwardCFunction) else None
    return None


def name_of(function: BackwardCFunction) -> str:
    """What the class of the Function of a node is called, wherever it is made anew."""
    kind = getattr(type(function), "_forward_cls", type(function))
    return f"{kind.__module__}.{kind.__qualname__}"


def function_heads(attached: Sequence[Tensor], stop: set[Any], apart: Collection[str]) -> list[GradientEdge]:
    """Where gradients of ``attached`` arrive at custom Functions that are to be cut off, those with names in ``apart``.

    The search ends at the nodes ``stop``. See Note [Functions cut off].
    """
    if not apart:
        return []
    found = [(n, function_of(n, attached[0])) for n in places_met(attached, stop) if n not in stop]
    chosen = [n for n, function in found if function is not None and name_of(function) in apart]
    return edges_to(attached, stop, met_by_derivatives(attached, stop, chosen)) if chosen else []


def edges_to(attached: Sequence[Tensor], stop: set[Any], nodes: Iterable[Any]) -> list[GradientEdge]:
    """Where gradients of ``attached`` arrive at ``nodes``; the search ends at the nodes ``stop``."""
    met = places_met(attached, stop)
    return [GradientEdge(n, place) for n in nodes for place in sorted(met.get(n, ()))]


def met_by_derivatives(attached: Sequence[Tensor], stop: set[Any], nodes: Collection[Any]) -> list[Any]:
    """Those of ``nodes``, behind ``attached``, to which derivatives of backwards may come: by what nodes keep."""
    near = attached[0]
    starts = {node for t in attached if (node := _torch.grad_fn_of(t)) is not None}
    inside = (nodes_behind([n for s in starts for n, _ in s.next_functions], stop) - stop) | starts
    met = nodes_behind([x for n in inside for x in _histories_kept(n, near)], stop)
    return [n for n in nodes if n in met]


def _histories_kept(node: Any, near: Tensor) -> list[Any]:
    """The histories of what ``node`` keeps; where that is not known, what may be among them."""
    behind = [n for n, _ in node.next_functions]
    if isinstance(node, BackwardCFunction):
        held = [x for x in reachable(vars(node), 2) if isinstance(x, Tensor)]
        return [*behind, *map(_torch.grad_fn_of, held), *([node] if kept_results(node, near) else [])]
    if not holds_saved(node, near):
        return []
    if _torch.is_write_through_view(node):
        return [node, *behind]
    try:
        return behind if has_packed(node) else [_torch.grad_fn_of(t) for t in saved_by(node, near)]
    except RuntimeError:  # written since
        return behind
