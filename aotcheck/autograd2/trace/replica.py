"""Replicas: tensors without data that stand for real ones while the function runs.

Note [Replicas answer for the real device]
A replica is a meta tensor under a light subclass whose dispatch keys are those of the real device. Code that asks for
``x.device`` is told the truth, autocast applies, and composite ops branch as they do on the real tensor. Kernels run
under ``meta_kernels`` on the replicas themselves, which for that moment say that they are on the meta device.

Note [Replicas are no Python tensors to the dispatcher]
Autograd treats a tensor that dispatches to Python otherwise than a real one. So a replica is made under a class without
``__torch_dispatch__``: ops reach the tracing mode all the same, and what autograd does with it is what it does with the
tensor it stands for. A replica that outlives its trace would be taken for a tensor by any kernel, so replicas are
disarmed when the trace is over.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck._torch2 import pytree
from aotcheck.autograd2.ir.meta import Geometry, geometry_of
from aotcheck.autograd2.ir.signature import Step
from aotcheck.autograd2.ir.size import Dynamic
from aotcheck.autograd2.ir.structure import GONE
from aotcheck.autograd2.trace.gate import Event, refuse

Place = tuple[int, Geometry]  # the address of a storage, and how a tensor lies there
ASKED: dict[Any, Callable[[Tensor], Any]] = {
    _torch.PRIM_DEVICE: lambda t: t.device,
    torch.ops.aten.size.default: lambda t: [int(n) for n in t.shape],
    torch.ops.aten.stride.default: lambda t: [int(n) for n in t.stride()],
}
"""What C++ code asks that only knows ints; sizes are guarded to be these."""


@dataclass(frozen=True)
class Needs:
    """What a trace must take into account. A trace that finds more is made again; needs only grow.

    Args:
        bases: views among the inputs are made from their bases inside.
        gradients: ``.grad`` of the inputs are inputs as well.
        dynamic: numbers of the call that are symbols.
        symbols: data decide some sizes, for which there must be symbols.
        values: numbers that small tensors of the call decide are guarded, as the function branches on one.
    """

    bases: bool = False
    gradients: bool = False
    dynamic: Dynamic = frozenset()
    symbols: bool = False
    values: bool = False

    def also(self, **more: Any) -> Needs:
        """These, and what is true besides."""
        return replace(self, **{name: is_true or getattr(self, name) for name, is_true in more.items()})


Trace = Any
"""The ``Recorder`` to which replicas belong, which imports this module."""


@dataclass(frozen=True, eq=False)
class ViewStep:
    """How a tensor was made of another on the same memory.

    Args:
        source: that other tensor.
        how: what made it.
        place: where it lay then.
        source_place: where its source lay then.
        version: how often its memory had been written then.
    """

    source: Tensor
    how: Step
    place: Place
    source_place: Place
    version: int

    @property
    def op(self) -> Any:
        """The op that made it."""
        return self.how.op


class TensorState:
    """What the trace knows of one replica.

    Attributes:
        device: the real tensor's.
        trace: the trace that it belongs to.
        step: how it was made, if it is a view.
        is_parameter: whether the real tensor is a ``Parameter``.
        data_assigned: whether ``.data`` was assigned.
        is_reset: whether ``set_`` moved it as autograd watched, which then forgets where its gradients arrive.
        told: whether the function made it require grad. A view made under no_grad says that it does if its base does.
        set: what the function let it require, if it did.
        detached: whether detach_ was called on it.
        is_input: whether it stands for an input.
        own: what somebody put on the real tensor.
        revived: once the trace is over, what it stands for, if that was asked.
        was_a_view: whether the real tensor is a view, and this replica is not.
        own_counter: whether it counts versions apart from other tensors on its memory.
        reshapes: the ops that changed its shape in place.
        born: where it lay before set_, resize_, ``.data =`` or an in-place change of its shape; None if it never moved.
    """

    step: ViewStep | None = None
    is_parameter: bool = False
    data_assigned: bool = False
    is_reset: bool = False
    reshapes: tuple[Step, ...] = ()
    born: Place | None = None
    told: bool = False
    was_a_view: bool = False
    own_counter: bool = False
    set: bool | None = None
    detached: bool = False
    is_input: bool = False
    revived: Tensor | None = None

    def __init__(self, device: torch.device, trace: Trace) -> None:
        self.device, self.trace = device, trace
        self.own: dict[str, Any] = {}

    def need(self, **more: bool) -> None:
        """The trace must take this into account too."""
        self.trace.needs = self.trace.needs.also(**more)


class Replica(Tensor):
    """A tensor without data that stands for a real one."""

    aot: TensorState

    __torch_function__ = _torch.disabled_torch_function

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch types the default as no class method
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Only ever asked for the device or sizes, by C++ code outside the tracing mode."""
        if func in ASKED:
            return ASKED[func](args[0])
        raise AssertionError(f"{func} was dispatched to a replica")

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # torch types it as an attribute
        """The real tensor's device; the meta device to a kernel that runs now."""
        state = self.aot
        return _torch.META if state.trace.inside else state.device

    def __getattr__(self, name: str) -> Any:
        """What somebody put on the real tensor: a plain value, by which calls are told apart."""
        state = state_of(self)
        state.trace.asks |= not name.startswith("__")
        if name not in state.own:
            raise AttributeError(name)
        return state.own[name] if state.own[name] is not GONE else refuse(Event.ATTRIBUTE, name)

    @property
    def __class__(self) -> type:
        """What ``isinstance`` is told."""
        return torch.nn.Parameter if self.aot.is_parameter else Tensor

    @__class__.setter
    def __class__(self, kind: type) -> None:
        refuse(Event.SWAP, f"a tensor becomes one of class {kind.__qualname__}")

    @property
    def _is_param(self) -> bool:
        return self.aot.is_parameter

    @_is_param.setter
    def _is_param(self, value: bool) -> None:
        self.aot.is_parameter = value

    @property
    def requires_grad(self) -> bool:
        """As torch's. That it was set is noted."""
        return _torch.requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not self.is_leaf:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Replica:
        """Noted, as autograd does not tell. Refused where autograd would not say later what it has done."""
        state = self.aot
        if self.is_inference():
            refuse(Event.LEAF)
        base = _torch.base_of(self)
        if _torch.requires_grad(self) and (state.was_a_view or base is not None):
            state.need(bases=base is None)
            here = base is None or _torch.creation_meta(self) == _torch.CreationMeta.DEFAULT
            if requires_grad and here and (base is None or base.dtype == self.dtype):
                return self  # made under grad, of what requires it: no leaf; but parts of complex ones forget
            refuse(Event.LEAF, "a view requires grad already")
        Tensor.requires_grad_(self, requires_grad)
        state.told = state.set = requires_grad
        return self

    def detach_(self) -> Replica:
        """As torch's, which tells no mode of it. Of views it is an error."""
        self.aot.need(bases=self.aot.was_a_view)
        Tensor.detach_(self)
        self.aot.detached |= not torch.is_inference_mode_enabled()
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without history, with a version counter of its own."""
        made, place = _as_replica(_torch.data_of(self), self.aot.device, self.aot.trace), place_of(self)
        step = Step(_torch.data_of, (), {}, None, torch.is_grad_enabled())
        made.aot.step, made.aot.own_counter = ViewStep(self, step, place, place, 0), True
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        if type(value) is not Replica:
            refuse(Event.CAPTURED, "it is assigned to .data")
        counts = self.is_inference() and not (self.aot.is_input or torch.is_inference_mode_enabled())
        if value.is_inference() is not self.is_inference() or counts:
            refuse(Event.INFERENCE, "data that is an inference tensor is given to one that is not, or counts versions")
        detached = self.aot.step is not None and self.aot.step.op is torch.ops.aten.detach.default
        if detached and place_of(value) == place_of(self):
            refuse(Event.STORAGE, "data are assigned that lie where those of a detached alias do")
        reshaped = not self.aot.is_input and value.shape != self.shape
        if self.aot.told and (reshaped or _torch.base_of(self) is not None):
            refuse(Event.LEAF, "data of another shape is assigned to a leaf made inside, or data to one that is a view")
        self.aot.need(bases=self.aot.was_a_view)
        self.aot.born = self.aot.born or place_of(self)
        self.aot.data_assigned, self.aot.own_counter, self.aot.is_reset = True, True, False
        _torch.set_data(self, value)

    @property
    def _base(self) -> Tensor | None:  # type: ignore[override]  # torch types it as an attribute
        """As of the real tensor: of a view it is asked of a replica that is one."""
        self.aot.need(bases=self.aot.was_a_view)
        return _torch.base_of(self)

    def _is_view(self) -> bool:
        """The same."""
        return self._base is not None

    @property
    def grad(self) -> Tensor | None:
        """The gradient of a leaf. That it was asked for is noted: then gradients of inputs are inputs too."""
        self.aot.need(gradients=True)
        return _torch.gradient_of(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.aot.need(gradients=True)
        _torch.set_gradient(self, value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None


def _refused(event: Event, what: str) -> Any:
    return lambda *_, **__: refuse(event, what)


_REFUSED = {name: (Event.DATA, name) for name in ("tolist", "numpy", "apply_", "map_", "map2_", "data_ptr")}
_REFUSED |= dict.fromkeys(("__repr__", "__str__", "__format__"), (Event.DATA, "the text of a tensor"))
_REFUSED |= dict.fromkeys(("__reduce_ex__", "__deepcopy__", "__array__"), (Event.DATA, "Python copies a tensor"))
_REFUSED |= {x: (Event.HOOK, x) for x in ("register_hook", "register_post_accumulate_grad_hook")}
_REFUSED |= {"_version": (Event.DATA, "the version of a tensor")}
for _name, _met in _REFUSED.items():
    setattr(Replica, _name, property(_refused(*_met)) if _name == "_version" else _refused(*_met))


class Disarmed(Replica):
    """A replica whose trace is over: who uses it gets an error, or, as of a mask in a cache, what it stands for."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map(lambda t: t.revived(func) if type(t) is Disarmed else t, (args, kwargs or {}))
        return func(*args, **kwargs)

    def revived(self, func: Any) -> Tensor:
        """What it stands for, if no input decides that."""
        if self.aot.revived is None:
            _torch.set_class(self, Replica)
            if not self.requires_grad:
                computed, _ = self.aot.trace.of_constants(torch.ops.aten.clone.default, (self,), {})
                self.aot.revived = computed and computed()
            _torch.set_class(self, Disarmed)
        if self.aot.revived is None:
            refuse(Event.ESCAPED, f"{getattr(func, '__name__', func)} met a tensor of a trace that is over")
        return self.aot.revived


for _name in _REFUSED.keys() - {"_version"}:
    setattr(Disarmed, _name, lambda self, *args, of=_name, **more: getattr(self.revived(of), of)(*args, **more))


class _Undispatched(Tensor):
    """The class under which replicas are born: see Note [Replicas are no Python tensors to the dispatcher]."""

    __torch_dispatch__ = _torch.disabled_torch_dispatch
    __torch_function__ = _torch.disabled_torch_function


Replica.__module__, Replica.__qualname__, Replica.__name__ = "torch", "Tensor", "Tensor"


def make_replica(elem: Tensor, device: torch.device, trace: Trace) -> Replica:
    """``elem``, a meta tensor without history, as a replica on ``device``; it shares the storage. No mode may be on."""
    with inference(elem.is_inference() or torch.is_inference_mode_enabled()):
        made = _torch.make_subclass(_Undispatched, elem, device_for_backend_keys=device)
    return _as_replica(made, device, trace)


@_torch.hide_from_dynamo
def _as_replica(made: Any, device: torch.device, trace: Trace) -> Replica:
    _torch.set_class(made, Replica)
    made.__dict__["aot"] = TensorState(device, trace)
    trace.alive.append(weakref.ref(made))
    return cast(Replica, made)


def inference(mode: bool) -> contextlib.AbstractContextManager[Any]:
    """Inside, inference mode is on or off. Where it is so already, grad mode stays as it is too."""
    return contextlib.nullcontext() if mode is torch.is_inference_mode_enabled() else torch.inference_mode(mode)


def place_of(t: Tensor) -> Place:
    """Where a replica lies now."""
    return _torch.address_of(t), geometry_of(t)


def state_of(t: Tensor) -> TensorState:
    """What the trace knows of a replica."""
    state: TensorState = t.__dict__["aot"]
    return state


def replicas_in(a: Any) -> list[Tensor]:
    """The replicas among arguments, those in lists too."""
    if type(a) in (list, tuple):
        return [r for x in a if type(x) in (Replica, list, tuple) for r in replicas_in(x)]
    return [a] if type(a) is Replica else []


def disarm(replicas: list[weakref.ref[Any]], kind: type[Replica] = Disarmed) -> None:
    """The trace is over: none of its replicas may be used until ``rearm`` makes them of the other ``kind``."""
    for r in [r() for r in replicas]:
        if r is not None:
            _torch.set_class(r, kind)


rearm = functools.partial(disarm, kind=Replica)
"""The trace goes on."""
