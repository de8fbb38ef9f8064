"""An epilogue while it is written: what the graph returns, what is attached to autograd, and the steps around that.

Note [Late leaves]
What results lead to requires grad before they are attached, so before all that befalls arguments. That is too early for
what is told to require grad after it, or what it is a view of, was cut from its history, went elsewhere or took another
history over: `h.detach_(); h.requires_grad_()`, say. Such a leaf begins at its moment (see Note [In the program's
order]), and groups of results that lead to it are attached later still. What leads to the history from which it was cut
goes by a handle that is made when the call begins.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck.autograd.effects.views import Views, is_new_leaf
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.trace import Value, geometry_of, recorded_geometry
from aotcheck.autograd.record.record import Attached, GraphOutput, Role
from aotcheck.autograd.record.steps import Local, Ref, RequireGrad, Result, StandIn, Step, Wrap
from aotcheck.autograd.record.timeline import Timeline
from aotcheck.autograd.tensors.subclasses import held_by, is_jagged, is_wrapper, wrapping_of
from aotcheck.autograd.tracing.traced_inputs import TracedArgument

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


class Draft(Views):
    """The parts of one call's epilogue, and the tensors that still have to be made."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(capture)
        self.outputs: list[GraphOutput] = []
        self.attached: list[Attached] = []
        self.holds: list[Step] = []  # of storages, from the beginning
        self.before: list[Step] = []  # before results are attached to autograd
        self.steps: list[Step] = []  # after
        self.shrink: list[Step] = []  # at the very end
        self._stage = self.steps
        self._locals = 0
        self.tensors: dict[int, tuple[Tensor, Tensor | None]] = {}  # tensors to be named, and their bases
        self._preceding = Timeline()  # what happens before results are attached
        self._reached: dict[int, list[GradientEdge]] = {}  # by id of the leaf where gradients of results arrive
        self._told: set[int] = set()  # ids of what is told to require grad before results are attached
        self._late: dict[int, Tensor] = {}  # by id, what is told so at its moment: see Note [Late leaves]
        self._begun: set[int] = set()  # ids of those of them that were
        self._due: list[tuple[float, Callable[[], Any]]] = []  # when views are made before such a moment
        self.held_accumulators: dict[
            int, list[Step]
        ] = {}  # by id of a late leaf, how to hold where its gradients arrive

    @contextlib.contextmanager
    def before_attaching(self) -> Iterator[None]:
        """What is made inside is made before results are attached to autograd."""
        self._stage, self.ahead = self.before, True
        try:
            yield
        finally:
            self._stage, self.ahead = self.steps, False

    def emit(self, step: Step) -> None:
        """One more step, in the part of the epilogue that is being written."""
        self._stage.append(step)

    def local(self) -> Local:
        """A new name, for a tensor that a step will make."""
        self._locals += 1
        return Local(self._locals - 1)

    def output(self, value: Value, role: Role, geometry: Any, tensor: Tensor | None) -> Result:
        """Let the graph return ``value``; ``tensor`` is the replica that it stands for, if one."""
        self.outputs.append(GraphOutput(value, role, geometry, tensor))
        return Result(len(self.outputs) - 1)

    def attach(self, ref: Ref, t: Tensor) -> None:
        """Let the tensor ``ref`` get the history that the replica ``t`` has."""
        recorded = None if is_wrapper(t) or is_sparse(t) else recorded_geometry(t)
        odd = recorded is not None and (recorded.shape, recorded.dtype) != (t.shape, t.dtype)
        self.attached.append(Attached(ref, t, t.device, recorded if odd else None))

    def stand_in(self, t: Tensor) -> Local:
        """A tensor without memory that gets the history of ``t``, for another to take over."""
        local = self.local()
        if is_wrapper(t) and is_jagged(t):
            self._ragged_stand_in(local, t)
        else:
            self.before.append(StandIn(local, recorded_geometry(t), t.device))
        self.attach(local, t)
        return local

    def _ragged_stand_in(self, local: Local, t: Tensor) -> None:
        """What says how ragged ``t`` is belongs to the sizes that autograd knows of it."""
        wrapping = wrapping_of(t)
        assert wrapping is not None
        refs: list[Ref] = []
        for _, x in held_by(t)[0]:
            if x.is_floating_point() or x.is_complex():
                values = self.local()
                self.before.append(StandIn(values, geometry_of(x), x.device))
                refs.append(values)
            else:
                refs.append(self.names[id(x)] if id(x) in self.names else self._refused(x))
        self.before.append(Wrap(local, wrapping, tuple(refs)))

    def _refused(self, x: Tensor) -> Ref:
        raise UnsupportedError("subclass output", "a ragged tensor of offsets made inside takes over a history")

    # -- what begins as a leaf

    def _begins_as_leaf(self, t: Tensor) -> bool:
        """Whether ``t`` is a leaf that requires grad, or was one from which results were computed, and told to be."""
        return is_new_leaf(t) or (id(t) in self._reached and id(t) in self.kernels.required)

    @property
    def begins_any_late(self) -> bool:
        """See Note [Late leaves]."""
        return bool(self._late)

    def begins_late(self, t: Tensor) -> bool:
        """See Note [Late leaves]."""
        return id(t) in self._late

    def required_for_a_while(self, a: TracedArgument) -> bool:
        """Whether the argument ``a`` requires grad when results are attached and is to stop doing so then."""
        required = self.kernels.required.get(id(a.replica), math.inf)
        stops = self.kernels.detached.get(id(a.replica), -1) > required
        return stops and not a.requires_grad and self._begins_as_leaf(a.replica)

    def _schedule_requirement(self, t: Tensor) -> None:
        """``t`` starts to require grad when the program says so: views made of it before do not."""
        self._told.add(id(t))
        if id(t) in self._late:
            return
        step = RequireGrad(self.names[id(t)], t.is_inference())
        self._preceding.at(self.kernels.required[id(t)], functools.partial(self.before.append, step))
