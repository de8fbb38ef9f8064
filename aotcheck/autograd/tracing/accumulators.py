"""Whether what gradients of a leaf arrive at outlives what was computed from the leaf.

Note [Accumulators that end]
What gradients of a leaf arrive at lives as long as something that was computed from it, and takes gradients of the
shape that the leaf had when it was made. So when a leaf gets another shape it matters whether the program still holds
what it computed before: in eager a tensor that nobody holds ends, here replicas live as long as their trace. Before the
next thing is done with such a leaf, the references to those replicas are counted (see Note [References]), and where
none is the program's the leaf gets an accumulator anew, as in eager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.replicas.replicas import make_replica
from aotcheck.autograd.tracing.references import held_by_program

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer


def settle_accumulators(tracer: Tracer) -> None:
    """Let go of the accumulators of leaves with a new shape that only we hold."""
    kernels = tracer.kernels
    leaves, kernels.reshaped_leaves = kernels.reshaped_leaves, []
    for leaf in leaves:
        if leaf.requires_grad and _torch.leafness(leaf) and _ended(leaf, tracer):
            _torch.drop_accumulator(
                leaf, make_replica(_torch.other_dtype_than(leaf, _torch.META), leaf.device, kernels)
            )


def _ended(leaf: Tensor, tracer: Tracer) -> bool:
    """Whether something was computed from ``leaf`` and the program holds nothing of it."""
    with torch.inference_mode(False):  # in inference mode a written view that is looked at would lose its history
        reaching = {id(t) for t in tracer.kernels.alive if t.requires_grad and _reaches(t, leaf)}
    return bool(reaching) and not reaching & held_by_program(tracer)


def _reaches(t: Tensor, leaf: Tensor) -> bool:
    base = _torch.base_of(t)
    if base is not None and base.requires_grad:  # to look at a view that was written is to give it a history
        return base is leaf or _reaches(base, leaf)
    node = _torch.grad_fn_of(t)
    return node is not None and any(getattr(n, "variable", None) is leaf for n in nodes_behind([node], set()))
