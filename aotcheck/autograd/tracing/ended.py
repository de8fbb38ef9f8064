"""Views that ended with the function, and with them the histories by which derivatives would come.

Note [Views that end]
An op that writes a view and keeps its result, as ``sigmoid_`` does, keeps it with the history that the view has then,
but holds that history only weakly. While the view or something computed of it lasts, a derivative of the op's backward
goes by it, and so by the history of the base, of which the backward frees what it keeps. Afterwards the derivative goes
straight to the op's own node, which the base's history hides, and which that lets go of without freeing it. Replicas
last as long as their trace, so before the first backward is differentiated those that nobody holds by then (see Note
[References]) lose their histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.replicas.kernel_state import WriteUnderGrad
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.tracing.references import held_by_program

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer


class Ended:
    """What ended when the function did, where a view that was written is among it."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.lasting: list[Tensor] = []
        self.views: list[Tensor] = []
        if not tracer.kernels.writes:
            return
        writes = [w for w in tracer.kernels.writes.values() if isinstance(w, WriteUnderGrad)]
        written = {id(t) for w in writes for t in w.operands if type(t) is Replica and _torch.base_of(t) is not None}
        if written:
            held = held_by_program(tracer)
            self.lasting = [t for t in tracer.kernels.alive if id(t) in held]
            written -= held
        self.views = [t for t in tracer.kernels.alive if id(t) in written]

    def lose_histories(self, needed: Iterable[Tensor]) -> None:
        """Once: end the histories of views that nobody has any more; those of what is ``needed`` last."""
        views, self.views = self.views, []
        if not views:
            return
        with self.tracer.recording():
            lasting = {id(t): t for t in (*self.lasting, *needed)}
            others = [t for t in self.tracer.kernels.alive if id(t) not in lasting]
            alive = nodes_behind(_starts(lasting.values()), set())
            for view in views:
                node = _torch.grad_fn_of(view) if id(view) not in lasting and view.requires_grad else None
                if node is not None and node not in alive:
                    _lose(node, others)


def _lose(node: object, tensors: Sequence[Tensor]) -> None:
    """``node`` ends: none of ``tensors`` has a history that leads there any more."""
    leading = [t for t in tensors if t.requires_grad and node in nodes_behind(_starts([t]), set())]
    with _torch.without_modes(), _torch.meta_kernels():
        for t in leading:
            if _torch.base_of(t) is None:
                Tensor.detach_(t)
        for t in leading:
            if _torch.base_of(t) is not None:
                with _torch.at_another_version(t):
                    _torch.grad_fn_of(t)  # it gets another


def _starts(tensors: Iterable[Tensor]) -> list[object]:
    return [node for t in tensors if t.requires_grad and (node := _torch.grad_fn_of(t)) is not None]
