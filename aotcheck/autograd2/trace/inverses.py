"""How a write to a view is carried to what it is a view of: the inverse of each op that makes views."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import Graph, Node
from aotcheck.autograd2.trace.flat import scatter
from aotcheck.autograd2.trace.view import RESHAPES, WINDOW, View

aten = torch.ops.aten


def inverse(graph: Graph, view: View, value: Node, before: Callable[[], Node]) -> Node:
    """The parent's value once ``value`` was written to ``view``; ``before`` gives what the parent held till then."""
    op, parent, args = view.op, view.parent, view.args
    assert parent is not None
    if op is WINDOW:
        return scatter(graph, parent.geometry, before(), view.geometry, value)
    if op in RESHAPES or op is aten.expand.default:
        contiguous = view.geometry.is_contiguous and parent.geometry.is_contiguous
        return graph.view(aten.view.default if contiguous else aten.reshape.default, value, [*parent.geometry.shape])
    if op is aten.transpose.int or op is aten.t.default:
        return graph.view(op, value, *args)
    if op is aten.permute.default:
        back = [0] * len(args[0])
        for i, d in enumerate(args[0]):
            back[d % len(back)] = i
        return graph.view(op, value, back)
    if op is aten._conj.default:
        return graph.like(value, aten._conj_physical.default, value)
    if op is aten._neg_view.default:
        return graph.like(value, aten.neg.default, value)
    if op is aten.view_as_real.default:
        order = parent.geometry.dense_order or range(len(parent.geometry.shape))
        value = graph.view(aten.permute.default, value, [*order, len(order)])
        value = graph.like(value, aten.clone.default, value, memory_format=torch.contiguous_format)
        value = graph.like(value, aten.view_as_complex.default, value)
        return graph.view(aten.permute.default, value, [order.index(d) for d in range(len(order))])
    if op is aten.view_as_complex.default:
        return graph.like(value, aten.view_as_real.default, graph.like(value, aten.resolve_conj.default, value))
    scatter_op = getattr(aten, f"{_torch.op_name(op)}_scatter").default  # select's, slice's, diagonal's
    return graph.like(value, scatter_op, before(), value, *args, **view.kwargs)
