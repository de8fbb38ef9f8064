"""Gradients that leaves take over instead of copying them, where a backward runs inside the function.

Note [Gradients taken over]
A leaf without a gradient takes over what arrives if nobody else holds that tensor, and then shares memory with whatever
the tensor is a window on: with the gradient that ``backward`` was called with, say. Replicas are held by the trace, so
autograd would copy each. Before a gradient is accumulated, the references to its replica are counted (see Note
[References]), and where none is the program's, autograd is handed another window on the same memory, which nobody
holds.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.state.gradients import own_gradient
from aotcheck.autograd.tracing.references import ours

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer


@contextlib.contextmanager
def taking_over(tracer: Tracer, starts: Sequence[Any]) -> Iterator[None]:
    """Inside, leaves behind the nodes ``starts`` take gradients over as they do in eager."""
    accumulators = [n for n in nodes_behind(starts, set()) if isinstance(getattr(n, "variable", None), Replica)]
    _held_by_nobody()  # it runs a backward of its own
    hooks = [n.register_prehook(functools.partial(_hand_over, tracer, n.variable)) for n in accumulators]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _hand_over(tracer: Tracer, leaf: Tensor, grads: tuple[Tensor | None, ...]) -> tuple[Tensor] | None:
    g = grads[0]
    if id(leaf) in tracer.kernels.arrived:
        tracer.kernels.arrived[id(leaf)] = g
        tracer.kernels.arrived_free[id(leaf)] = type(g) is Replica and _is_free(tracer, grads)
        return None
    if type(g) is not Replica or own_gradient(leaf) is not None or torch.is_grad_enabled():
        return None
    if not _is_free(tracer, grads):
        return None
    window = g.detach()
    kernels = tracer.kernels
    assert kernels.alive[-1] is window
    del kernels.alive[-1], tracer.views[id(window)]
    return (window,)


def _is_free(tracer: Tracer, grads: tuple[Tensor | None, ...]) -> bool:
    """Whether nobody in the program holds the one replica of ``grads``, which just arrived at a leaf."""
    held, nobody = _held(grads), _held_by_nobody()
    # One is the caller's own name for it.
    return held[0] == nobody[0] and held[1] - 1 - ours(tracer)[id(grads[0])] == nobody[1]


def _held(grads: tuple[Tensor | None, ...]) -> tuple[int, int]:
    """How many hold the one tensor of ``grads``, in autograd and in Python."""
    assert grads[0] is not None
    return _torch.use_count(grads[0]), sys.getrefcount(grads[0])


@functools.cache
def _held_by_nobody() -> tuple[int, int]:
    """What ``_held`` says of a gradient that arrives and that nobody else holds."""
    found: list[tuple[int, int]] = []
    with _torch.without_modes(), _torch.without_torch_function(), torch.inference_mode(False), torch.enable_grad():
        leaf = torch.zeros((), requires_grad=True)
        node = torch.autograd.graph.get_gradient_edge(leaf).node
        handle = node.register_prehook(lambda grads: found.append(_held(grads)))
        (leaf * 2).backward()
        handle.remove()
    return found[0]
