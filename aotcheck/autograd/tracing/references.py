"""Who holds the replicas of a trace: the program, as in eager, or nobody but the trace itself.

Note [References]
In eager a tensor that nobody holds ends, and with it what it holds. Replicas live as long as their trace. Where that
shows, in ``swap_tensors`` which counts who holds a tensor, or in what becomes of a leaf's gradient, the references to
replicas are counted: those of the trace are known, its list of all replicas, what it keeps and its notes of how views
were made and written. What is left is the program's.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.saved import saved_by
from aotcheck.autograd.replicas.kernel_state import WriteUnderGrad

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer


def ours(tracer: Tracer) -> Counter[int]:
    """By id of a replica, how many references to it are the trace's."""
    notes = [*tracer.views.values(), *tracer.plain_views.values(), *tracer.unsafe_views.values()]
    ends = [t for made in notes for t in (made.tensor, made.source)]
    writes = {id(w): w.operands for w in tracer.kernels.writes.values() if isinstance(w, WriteUnderGrad)}
    kernels = tracer.kernels
    return Counter(map(id, chain(kernels.alive, tracer.keep, ends, *writes.values(), kernels.arrived.values())))


def held_by_program(tracer: Tracer) -> set[int]:
    """The ids of the replicas to which the program has a reference of its own."""
    known = ours(tracer)
    (counting,) = [sys.getrefcount(x) - 1 for x in [object()]]
    # What autograd holds, a view's base or a saved tensor, has a reference from there.
    alive = [(t, counting + _torch.own_references(t)) for t in tracer.kernels.alive]
    return {id(t) for t, more in alive if sys.getrefcount(t) - 1 - more > known[id(t)]}


def _kept_by(tracer: Tracer, v: Tensor) -> Sequence[Tensor]:
    """The tensors that the view ``v`` keeps beside its base: those on the way to it that are taken for other numbers.

    ``view_as_real``, a lazy conjugate and the like have an inverse, which keeps what it is the inverse for; the
    inverses of all that a view was made by are its own.
    """
    kept: list[Tensor] = []
    while (made := tracer.views.get(id(v))) is not None:
        if made.geometry[3:] != made.source_geometry[3:]:
            kept.append(made.source)
        v = made.source
    return kept


def _ended(tracer: Tracer, held: set[int]) -> Sequence[Tensor]:
    """The replicas that nobody in eager would hold: neither the program, nor a node, nor a view of them that lives."""
    ended: list[Tensor] = []
    let_go = Counter[int]()
    for v in reversed(tracer.kernels.alive):
        if id(v) not in held and _torch.use_count(v) - let_go[id(v)] == 1:
            ended.append(v)
            base = _torch.base_of(v)
            let_go.update(map(id, [*_kept_by(tracer, v), *([base] if base is not None else [])]))
    return ended


def use_count(tracer: Tracer, t: Tensor) -> int:
    """How many would hold the tensor that the replica ``t`` is in eager, as torch counts: its object, what is saved."""
    count, alive = _torch.use_count(t), tracer.kernels.alive
    if count == 1:
        return 1
    held = held_by_program(tracer)
    ended = {id(v) for v in _ended(tracer, held)}
    stands_for_view = id(t) in tracer.kernels.stand_for_views  # what views are made of it have the base of that view
    for v in alive:
        count -= (id(v) in ended or stands_for_view) and _torch.base_of(v) is t
        count -= sum(x is t for x in _kept_by(tracer, v)) if id(v) in ended else 0
    if count == 1:
        return 1
    with torch.inference_mode(False):  # in inference mode a written view that is looked at would lose its history
        starts = {id(x): _torch.grad_fn_of(x) for x in alive if x.requires_grad and _torch.leafness(x) is False}
    live = nodes_behind([node for key, node in starts.items() if key in held], set())
    for node in nodes_behind(starts.values(), set()) - live:
        with contextlib.suppress(RuntimeError):  # what was written since is not told
            count -= sum(x is t for x in (getattr(node, "variable", None), *saved_by(node, t)))
    return max(1, count)
