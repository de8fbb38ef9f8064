"""trace: the function runs once on replicas of what a call brings; ``specialize`` asks again if that needs more.

The replicas lie on storages that share as the call's do, and have the same leafness and views.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.errors import UnsupportedError
from aotcheck.autograd2.frontend.bind import Bound
from aotcheck.autograd2.frontend.substitute import CACHED, Change, arguments, changes, substituted
from aotcheck.autograd2.ir.graph import Node, ancestors
from aotcheck.autograd2.ir.meta import Geometry, TensorMeta, geometry_of, is_leaf
from aotcheck.autograd2.ir.signature import BaseOf, Descriptor, Input
from aotcheck.autograd2.ir.size import is_static
from aotcheck.autograd2.ir.structure import own_attributes
from aotcheck.autograd2.trace.functions import WithoutLooking, python_functions, without_cache
from aotcheck.autograd2.trace.gate import Event, met, refuse
from aotcheck.autograd2.trace.mode import Tracer
from aotcheck.autograd2.trace.replica import Disarmed, Needs, Replica, inference, make_replica
from aotcheck.autograd2.trace.view import StorageState, View


class _History(torch.autograd.Function):
    """Gives its second argument a grad_fn: no leaf, and no view."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, t: Tensor) -> Tensor:
        ctx.mark_dirty(t)
        ctx.set_materialize_grads(False)
        return t

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Never where gradients stop at an input; only a backward of the function's own comes here."""
        refuse(Event.CALLERS)


@dataclass(eq=False)
class TracedInput:
    """An input of the trace.

    Attributes:
        input: what it is, and how it looks.
        real: the tensor of this call.
        replica: what stands for it.
        node: the graph's placeholder; None for a view that is made from its base inside.
        grad_fn: its history at entry; ``output_nr`` says which result of that it was.
        state: its storage at entry.
        version: of the replica at entry, once all are made.
    """

    input: Input
    real: Tensor
    replica: Replica
    node: Node | None
    grad_fn: Any
    output_nr: int
    state: StorageState
    version: int = 0

    @property
    def geometry(self) -> Geometry:
        """Where it lay at entry."""
        return self.input.meta.geometry


def _admit(t: Tensor, descriptor: Descriptor) -> None:
    if is_leaf(t) is None:
        refuse(Event.NO_GRAD_VIEW, f"{descriptor}")
    if type(t) not in (Tensor, torch.nn.Parameter) and not isinstance(t, torch.nn.Buffer):
        refuse(Event.ESCAPED if type(t) is Disarmed else Event.WRAPPER, f"{descriptor} is a {type(t).__name__}")
    base = _torch.base_of(t)
    if base is not None and _torch.address_of(base) != _torch.address_of(t):
        refuse(Event.BASE, f"{descriptor}")
    if t.layout is not torch.strided or t.is_quantized or t.is_nested:
        refuse(Event.LAYOUT, f"{descriptor} is {t.layout}")
    if t.device.type not in ("cpu", "cuda"):
        refuse(Event.DEVICE, f"{descriptor} is on {t.device}")


class _Maker:
    """Makes replicas; each storage once."""

    def __init__(self, tracer: Tracer, tensors: list[tuple[Descriptor, Tensor]]) -> None:
        self.tracer = tracer
        self.position = {t: k for k, (_, t) in enumerate(tensors)}
        self.members: dict[int, list[tuple[int, Tensor]]] = {}
        for k, (_, t) in enumerate(tensors):
            if t.layout is torch.strided:
                self.members.setdefault(_torch.address_of(t), []).append((k, t))
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.counters = _torch.shared_counters(t for _, t in tensors)
        self.counting: dict[int | Tensor, Tensor] = {}

    def plain(self, real: Tensor) -> Replica:
        """Lies as ``real`` does, without history."""
        with inference(real.is_inference()):
            elem = self._elem(real)
            base = _torch.base_of(real)
            root = real if base is None else base
            counter = self.counting.setdefault(self.counters.get(root, root), elem)
            if counter is not elem:
                elem, data = counter.detach(), elem
                _torch.set_data(elem, data)
            with torch.no_grad():
                elem = torch.ops.aten._conj.default(elem) if real.is_conj() else elem
                elem = torch.ops.aten._neg_view.default(elem) if real.is_neg() else elem
            replica = make_replica(elem, real.device, self.tracer)
        replica.aot.is_parameter = isinstance(real, torch.nn.Parameter)
        replica.aot.was_a_view = base is not None
        return replica

    def view_function(self, t: Tensor, base: Tensor) -> Callable[[Tensor], Any]:
        """What makes the view ``t`` of its base: its op, or, where numbers of it are symbols, ``as_strided``."""
        symbols, members = self.tracer.symbols, self.members[_torch.address_of(t)]
        if symbols is None or (lies := symbols.lies(self.position[t], t, members)) is None:
            return _torch.view_function(t)
        if geometry_of(t)[3:] != geometry_of(base)[3:]:
            refuse(Event.BASES, "a view of another dtype")
        return lambda replica: replica.as_strided(*lies)

    def _elem(self, real: Tensor) -> Tensor:
        """A meta tensor that lies as ``real`` does, but for lazy bits; some numbers may be symbols."""
        address, symbols = _torch.address_of(real), self.tracer.symbols
        lies: tuple[Any, Any, Any] = real.shape, real.stride(), real.storage_offset()
        nbytes, known = _torch.storage_of(real).nbytes(), self.storages.get(address)
        position, members = self.position.get(real, -1), self.members.get(address, [])
        if symbols is not None and (found := symbols.lies(position, real, members)) is not None:
            lies, nbytes = found, symbols.nbytes(real, members, found) if known is None else known.nbytes()
        if known is None:
            room = torch.empty(nbytes, dtype=torch.uint8, device=_torch.META)
            known = self.storages[address] = _torch.storage_of(room)
        return _torch.lying_on(known, real.dtype, *lies)

    def root(self, real: Tensor) -> Replica:
        """With the leafness of ``real``, but no view of anything."""
        replica = self.plain(real)
        if not real.requires_grad:
            return replica
        if real.is_leaf:
            with inference(real.is_inference()):
                Tensor.requires_grad_(replica)
            replica.aot.told = _torch.accumulator_of(real) is not None
            replica.aot.need(bases=not replica.aot.told)
            return replica
        shape, dtype, _ = _torch.recorded_gradient(real.grad_fn, real.output_nr)
        if shape != tuple(real.shape) or dtype != real.dtype:
            refuse(Event.HISTORY, "an argument has other data than its history tells of")
        elem = torch.empty_strided(replica.shape, replica.stride(), dtype=real.dtype, device=_torch.META)
        anchor = make_replica(elem, real.device, self.tracer)
        Tensor.requires_grad_(anchor)
        with torch.enable_grad():
            _History.apply(anchor, replica)
        return replica


def make_inputs(tracer: Tracer, tensors: list[tuple[Descriptor, Tensor]], with_bases: bool) -> list[TracedInput]:
    """The inputs of a trace; if ``with_bases``, views are made from their bases inside. No mode may be active."""
    maker = _Maker(tracer, tensors)
    made: dict[Tensor, TracedInput] = {}
    views: list[tuple[Descriptor, Tensor, Tensor]] = []

    def root(descriptor: Descriptor, t: Tensor) -> None:
        with torch.inference_mode(False):
            replica = maker.root(t)
        node = tracer.graph.placeholder(geometry_of(replica), t.device)
        traced = _traced(tracer, descriptor, t, replica, node, tracer.table.hold(replica, node))
        traced.state.source = len(made) if traced.state.source is None else traced.state.source
        made[t] = traced

    for descriptor, t in tensors:
        _admit(t, descriptor)
    for descriptor, t in tensors:
        base = _torch.base_of(t)
        if with_bases and base is not None:
            views.append((descriptor, t, base))
            if base not in maker.position and base not in made:
                if tracer.symbols is not None and tracer.symbols.dynamic:
                    refuse(Event.BASES, f"{descriptor}, whose base is no argument")
                _admit(base, BaseOf(descriptor))
                root(BaseOf(descriptor), base)
        else:
            root(descriptor, t)
    with tracer:
        for descriptor, t, base in views:
            replica = _view(maker, t, base, made[base].replica)
            made[t] = _traced(tracer, descriptor, t, replica, None, tracer.table.view(replica))
    for i in made.values():
        i.version = _torch.version_of(i.replica)
    return [*made.values()]


def _view(maker: _Maker, t: Tensor, base: Tensor, base_replica: Replica) -> Replica:
    """The view ``t`` made again from the replica of its base."""
    how, function = _torch.creation_meta(t), maker.view_function(t, base)
    try:
        hidden = how in (_torch.CreationMeta.NO_GRAD_MODE, _torch.CreationMeta.INFERENCE_MODE)
        with torch.inference_mode(False), torch.set_grad_enabled(not hidden):
            replica: Replica = function(base_replica)
    except RuntimeError as error:
        refuse(Event.STORAGE, f"an argument is a view that cannot be made again: {error}")
    lies = geometry_of(replica)
    if lies != geometry_of(t) and is_static((lies.offset, *lies.shape, *lies.stride)):
        refuse(Event.BASE, "an argument")
    if how not in (_torch.CreationMeta.DEFAULT, _torch.CreationMeta.NO_GRAD_MODE):
        _torch.set_creation_meta(replica, how)
    if t.requires_grad and t.is_leaf and _torch.accumulator_of(t) is not None:
        replica.requires_grad_()
    replica.aot.is_parameter = isinstance(t, torch.nn.Parameter)
    return replica


def _traced(
    tracer: Tracer, descriptor: Descriptor, t: Tensor, replica: Replica, node: Node | None, view: View
) -> TracedInput:
    replica.aot.is_input, replica.aot.own = True, own_attributes(t)
    if replica.requires_grad and replica.is_leaf and _torch.has_hooks(t):
        Tensor.register_hook(replica, lambda _: None if tracer.in_backward else refuse(Event.CALLERS, "a hook"))
    meta = TensorMeta(view.geometry, t.device, t.requires_grad, t.is_leaf, t.is_inference())
    return TracedInput(Input(descriptor, meta), t, replica, node, replica.grad_fn, replica.output_nr, view.state)


def _check_backward_inside(tracer: Tracer, inputs: list[TracedInput]) -> None:
    """Refuse one whose gradients flow between inputs in the caller's graph, as one was computed of another."""
    if tracer.backward_inside and any(_torch.has_hooks(i.real) for i in inputs if not i.input.meta.is_leaf):
        refuse(Event.CALLERS, "an argument has hooks")
    reals = [i.real for i in inputs if i.input.meta.requires_grad and tracer.backward_inside > 1]
    starts = {t.grad_fn: t for t in reals if t.grad_fn is not None}
    first = [n for node in starts for n in _torch.nodes_after(node)] if len(reals) > 1 else []
    behind = ancestors(first, inputs=_torch.nodes_after)
    if any(n in starts or (_torch.accumulates(n) and any(n.variable is t for t in reals)) for n in behind):
        if tracer.needs.bases or not any(_torch.base_of(i.real) is not None for i in inputs):
            refuse(Event.CALLERS, "an argument is computed from another")
        raise UserError(tracer.needs.also(bases=True))


@dataclass(eq=False)
class UserError(Exception):
    """The function raised, as the original does on the real inputs, or for what the trace lacked: its ``needs``."""

    needs: Needs


@dataclass(eq=False)
class Traced:
    """What a trace left behind.

    Attributes:
        inputs: in order; those with a node are inputs of the graph.
        result: what the function returned, with replicas in it.
        changes: what it assigned around it.
        grad_mode: grad mode afterwards, if it is another.
        modes: of the call, whether grad mode, inference mode and autocast were on.
    """

    tracer: Tracer
    bound: Bound
    inputs: list[TracedInput]
    result: Any
    changes: list[Change]
    grad_mode: bool | None
    modes: tuple[bool, bool, bool]

    def __post_init__(self) -> None:
        self.number = _torch.sequence_number()  # what has a history by now has a smaller one
        self.position: dict[Tensor, int] = {i.replica: k for k, i in enumerate(self.inputs)}

    def release(self) -> None:
        """Let go of what the call brought; what is left is for backwards that are traced later."""
        for i in self.inputs:
            i.real = i.replica
        self.bound, self.result, self.changes = Bound(), None, []
        self.tracer.numbers.clear()

    def input_of(self, t: Tensor | None) -> int | None:
        """The position of the input whose replica ``t`` is."""
        return None if t is None else self.position.get(t)


def trace(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: Bound, needs: Needs
) -> Traced:
    """Run ``fn`` on replicas.

    Raises:
        UnsupportedError: it does what cannot be traced.
        UserError: it raised an error of its own.
    """
    tracer = Tracer(needs)
    inputs = make_inputs(tracer, bound.tensors, needs.bases)
    replicas: dict[Any, Any] = {i.real: i.replica for i in inputs}
    for k, (_, t) in enumerate(bound.tensors if needs.values else []):
        if t.dim() == 0 and t.device.type == "cpu":
            tracer.numbers[tracer.value_of(replicas[t])] = f"t{k}", t
    replicas |= {x: without_cache(x, tracer.draws) for x in bound.containers if type(x) is CACHED}
    if needs.gradients:
        for _, t in bound.tensors:
            if t.is_leaf and t.grad is not None:
                replicas[t].grad = replicas[t.grad]
    symbols = {} if tracer.symbols is None else tracer.symbols.plain(tuple(bound.numbers.values()))
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), bool(_torch.casts())
    drawing = tracer.draws.stretch(bound.generators)
    with substituted(bound, replicas, symbols) as during, _state(), drawing, _torch.single_threaded_backward():
        try:
            symbolic = python_functions(tracer)
            with _torch.compiling(), _torch.without_dynamo(), WithoutLooking(tracer), tracer, tracer.asking(), symbolic:
                given, named = arguments(bound, args, kwargs, replicas, symbols)
                met()
                try:
                    result = fn(*given, **named)
                    if refused := met():
                        raise refused
                except Exception as error:
                    traceback.clear_frames(error.__traceback__)  # modes that they entered end below this one
                    raise
                after = torch.is_grad_enabled()
                if _torch.global_state() != tracer.ambient:
                    refuse(Event.GLOBAL)
        except (Exception, SystemExit) as error:
            if any(f.f_code is torch.utils.swap_tensors.__code__ for f, _ in traceback.walk_tb(error.__traceback__)):
                refuse(Event.SWAP)  # torch raises as the trace has weak references to its replicas
            if tracer.needs == needs and isinstance(error, _torch.GuardOnDataDependentSymNode):
                if needs.values:
                    refuse(Event.DATA, "a number that data decide", error)
                raise UserError(needs.also(symbols=True, values=True)) from error
            if tracer.needs == needs and isinstance(error, UnsupportedError):
                raise
            _check_backward_inside(tracer, inputs)  # it may have met a gradient that is None here
            raise UserError(tracer.needs) from error
        found = changes(bound, during)
    _check_backward_inside(tracer, inputs)
    return Traced(tracer, bound, inputs, result, found, None if after is modes[0] else after, modes)


@contextlib.contextmanager
def _state() -> Iterator[None]:
    """Grad mode and global state are afterwards as they were."""
    grad, state = torch.is_grad_enabled(), _torch.global_state()
    try:
        yield
    finally:
        if _torch.global_state() != state:
            _torch.set_global_state(state)
        torch.set_grad_enabled(grad)
