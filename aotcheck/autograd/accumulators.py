"""Whether what gradients of a leaf arrive at outlives what was computed from the leaf.

Note [Accumulators that end]
What gradients of a leaf arrive at lives as long as something that was computed from it, and takes gradients of the
shape that the leaf had when it was made. So when a leaf gets another shape it matters whether the program still holds
what it computed before: in eager a tensor that nobody holds ends, here replicas live as long as their trace. Before the
next thing is done with such a leaf, the references to those replicas are counted, and where none is the program's the
leaf gets an accumulator anew, as in eager.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.partition.components import nodes_behind
from aotcheck.autograd.replicas import KernelState, make_replica
from aotcheck.autograd.windows import Derivation


def settle_accumulators(kernels: KernelState, keep: list[Any]) -> None:
    """Let go of the accumulators of leaves with a new shape that only we hold; ``keep`` is a list of ours."""
    leaves, kernels.reshaped_leaves = kernels.reshaped_leaves, []
    for leaf in leaves:
        if leaf.requires_grad and _torch.leafness(leaf) and _ended(leaf, kernels, keep):
            _torch.drop_accumulator(
                leaf, make_replica(_torch.other_dtype_than(leaf, _torch.META), leaf.device, kernels)
            )


def _ended(leaf: Tensor, kernels: KernelState, keep: list[Any]) -> bool:
    """Whether something was computed from ``leaf`` and the program holds nothing of it."""
    reaching = [k for k, t in enumerate(kernels.alive) if t.requires_grad and _reaches(t, leaf)]
    return bool(reaching) and not any(_is_held(kernels, k, keep) for k in reaching)


def _reaches(t: Tensor, leaf: Tensor) -> bool:
    node = _torch.grad_fn_of(t)
    return node is not None and any(getattr(n, "variable", None) is leaf for n in nodes_behind([node], set()))


def _is_held(kernels: KernelState, place: int, keep: list[Any]) -> bool:
    """Whether someone but the trace's own notes refers to this replica."""
    t = kernels.alive[place]
    ours = 0
    for holder in gc.get_referrers(t):
        if holder is kernels.alive or holder is keep or type(holder) is Derivation:
            ours += sum(x is t for x in holder)
    return sys.getrefcount(t) - ours > 2  # one is our own name for it, one what was just counted
