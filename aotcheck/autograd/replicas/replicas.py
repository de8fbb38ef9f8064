"""Stand-ins for the call's tensors: no data, but the same storages, windows, autograd relations and device.

Note [Replicas answer for the real device]
A replica is a meta tensor under a light subclass whose dispatch keys are those of the real device: code that asks for
``x.device`` is told the truth, autocast applies to it, and composite ops branch as they will on the real tensors.
Kernels are run under ``meta_kernels`` on the replicas themselves, which for that moment say that they are on the meta
device.

Note [Replicas are no Python tensors to the dispatcher]
Autograd treats a tensor that dispatches to Python otherwise than a real one: it replays the views of it where it takes
``as_strided`` of a real tensor, and the two part ways as soon as a base or a view changed its geometry in place. So a
replica is made under a class without ``__torch_dispatch__``: ops on it reach the tracing mode all the same, and what
autograd does with it is to the letter what it does with the tensor it stands for. The price is that a replica which
outlives its trace would be taken for a tensor by any kernel; so replicas are disarmed when the trace is over.

Note [Attributes of tensors]
A tensor may have attributes that its caller gave it. No guard looks at them, so a function that reads one, or sets one
on an argument or a result, runs as it is. ``given`` are the names of an argument's.

Note [Tensors as keys]
A dictionary or set finds a tensor by its identity, which a replica does not have. So a function that looks up a tensor
while there are tensors among the keys or members of what is around it or passed to it, runs as it is; so does one that
leaves a replica as a key, which is taken away again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.utils.hooks import RemovableHandle

from aotcheck import _torch
from aotcheck.autograd.errors import EagerRaises, RetraceWithCaptured, RunsAsItIs, UnsupportedError
from aotcheck.autograd.ir.places import Move
from aotcheck.autograd.ir.trace import is_users
from aotcheck.autograd.replicas.hooks import HookKind, NotedHook
from aotcheck.autograd.replicas.kernel_state import KernelState
from aotcheck.autograd.state.gradients import own_gradient, set_own_gradient

aten = torch.ops.aten


_MOST_TO_LIST = 256
_WITH_DICTIONARIES_OF_THEIR_OWN = ("torch.nn.", "aotcheck.")  # so `parameters` gives each once
LOOKS_UP = "it looks up a tensor where dictionaries or sets have tensors for keys or members"


class Replica(Tensor):
    """A tensor without data that stands for one on ``real_device`` while a program is traced."""

    real_device: torch.device
    kernels: KernelState
    kind: type[Replica]  # which class of replicas it is while its trace goes on
    is_parameter = False
    _own: ClassVar[frozenset[str]] = frozenset(("real_device", "kernels", "kind", "is_parameter", "edge", "given"))

    __torch_function__ = _torch.disabled_torch_function

    def __setattr__(self, name: str, value: Any) -> None:
        """``swap_tensors`` is known by its exchange of the attributes of two tensors; ``requires_grad = `` is noted."""
        kernels = self.kernels
        if name == "requires_grad":
            self._note_requirement(bool(value), lambda: super(Replica, self).__setattr__(name, value))
            return
        shape = self.shape if name == "data" else None
        if name == "data" and not (isinstance(value, Replica) and kernels.lie_alike(self, value)):
            kernels.note_move(self, Move.DATA)
        super().__setattr__(name, value)
        if name == "data" and shape != self.shape and _torch.shows_as_leaf(self):
            kernels.reshaped_leaves.append(self)
        if name == "__dict__":
            kernels.swapped.append(self)
            # Then swap_tensors has just poisoned its accumulator; else it has not looked at its history.
            if kernels.watcher.use_count(self) == 2 and _torch.leafness(self):
                kernels.watcher.on_poison(self)
            if len(kernels.swapped) % 2 == 0:
                kernels.watcher.on_swap(*kernels.swapped[-2:])

    def __hash__(self) -> int:
        """Asked for where it is looked up: see Note [Tensors as keys]."""
        if self.kernels.tensors_are_keys:
            by = str(sys._getframe(1).f_globals.get("__name__"))
            if not by.startswith(_WITH_DICTIONARIES_OF_THEIR_OWN):
                self.kernels.looked_up = True
                raise RunsAsItIs("kept tensor", LOOKS_UP)
        return id(self)

    def __getattr__(self, name: str) -> Any:
        """Asked for what a tensor does not have; the one that this stands for may: see Note [Attributes of tensors]."""
        if name in self.__dict__.get("given", ()):
            raise RunsAsItIs("attribute of a tensor", f"it reads the attribute {name!r} of a tensor")
        kind = "Parameter" if self.is_parameter else "Tensor"
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # torch types it as an attribute
        """The real tensor's device to the traced code, the meta device to a meta kernel."""
        return _torch.META if self.kernels.inside else self.real_device

    @property
    def __class__(self) -> type:
        """What code is told that asks a tensor rather than ``type``: see Note [Types of replicas]."""
        return torch.nn.Parameter if self.is_parameter else Tensor

    @__class__.setter
    def __class__(self, kind: type) -> None:
        swapped = sys._getframe(1).f_globals.get("__name__") == "torch.utils"  # ``is_parameter`` goes with __dict__
        if kind is not self.__class__ and not swapped:
            raise RunsAsItIs("class of a tensor", f"it makes a tensor one of the class {kind.__qualname__}")

    @property
    def _is_param(self) -> bool:
        return self.is_parameter

    @_is_param.setter
    def _is_param(self, value: bool) -> None:
        self.is_parameter = value

    @property
    def grad(self) -> Tensor | None:
        """Noted besides: see Note [Gradients of arguments]."""
        self.kernels.watcher.on_gradient(self)
        return own_gradient(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.kernels.watcher.on_gradient(self)
        set_own_gradient(self, value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch types the default as no class method
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Only ever asked for the device, by C++ code outside the tracing mode."""
        if func is _torch.PRIM_DEVICE:
            return args[0].device
        raise AssertionError(f"{func} was dispatched to a replica")

    def detach_(self) -> Tensor:
        """Noted besides, since no dispatch shows it; refused of a view that is none to autograd here, as eager does."""
        does_nothing = torch.is_inference_mode_enabled() or self.is_inference()
        if id(self) in self.kernels.stand_for_views and not does_nothing:
            raise EagerRaises("a view is detached in place")
        again = id(self) in self.kernels.detached and not self.requires_grad
        result = super().detach_()
        if self.requires_grad or again:  # under inference mode it does nothing, nor does it twice
            return result
        self.kernels.detached[id(self)] = self.kernels.now()
        return result

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Noted besides, since no dispatch shows it."""
        self._note_requirement(requires_grad, lambda: super(Replica, self).requires_grad_(requires_grad))
        return self

    def _note_requirement(self, wanted: bool, change: Callable[[], Any]) -> None:
        # The second look at a history may differ from the first, so it is not looked at without need.
        if wanted:
            before = _torch.waits_to_have_history(self) or _torch.requires_grad_by_itself(self)
        else:
            before = self.requires_grad
        change()
        if wanted and not before:
            self.kernels.required[id(self)] = self.kernels.now()
        elif wanted and (_torch.base_of(self) is not None or id(self) in self.kernels.stand_for_views):
            self.kernels.required_besides[id(self)] = self.kernels.now()
        elif before and not wanted:
            self.kernels.detached[id(self)] = self.kernels.now()

    def squeeze_(self, *dims: Any, dim: Any = None) -> Tensor:
        """Noted besides where dispatch shows how it is done (of a copy, which is copied back) and not that it is."""
        dims = dims if dim is None else (dim,)
        if dims and (self.is_conj() or self.is_neg()):
            by_dims = isinstance(dims[0], (tuple, list))
            self.kernels.watcher.on_squeeze(self, aten.squeeze_.dims if by_dims else aten.squeeze_.dim, dims)
            moved = self.kernels.moved[id(self)]
            super().squeeze_(*dims)
            self.kernels.forget_moves_since(self, moved)
            return self
        return super().squeeze_(*dims)

    def _use_count(self) -> int:
        """What ``swap_tensors`` asks: see Note [References]."""
        other = _torch.swapped_with(self)
        if other is not None and not isinstance(other, Replica):
            if type(other) in (Tensor, torch.nn.Parameter):
                raise RetraceWithCaptured(other)
            raise UnsupportedError("swapped wrapper", f"with a {type(other).__name__}")
        return self.kernels.watcher.use_count(self)

    def view_as(self, other: Tensor) -> Tensor:
        """The view that torch makes to find out where gradients arrive is none of the program's."""
        if other is self and _torch.asked_for_gradient_edge():
            with _torch.meta_kernels():
                return super().view_as(other)
        return super().view_as(other)

    def register_hook(self, hook: Callable[[Tensor], Any]) -> RemovableHandle:
        """Noted besides: see Note [Hooks registered inside]."""
        noted = NotedHook(self, self.kernels, hook, HookKind.GRADIENT)
        return noted.installed(super().register_hook(noted.registered))

    def retain_grad(self) -> None:
        """Noted besides: it is for the history that the tensor has now."""
        if self.kernels.watcher.keeps_gradient(self):  # then this does nothing
            return
        before = self.retains_grad
        super().retain_grad()
        if self.retains_grad and not before:  # else autograd took it for a leaf, and is not to look for its history now
            self.kernels.retained[id(self)] = _torch.grad_fn_of(self)
            self.kernels.retained_at[id(self)] = self.kernels.now()

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Noted besides: see Note [Hooks registered inside]."""
        noted = NotedHook(self, self.kernels, hook, HookKind.ACCUMULATED)
        return noted.installed(super().register_post_accumulate_grad_hook(noted.registered))

    def untyped_storage(self) -> torch.UntypedStorage:
        """Noted besides: what the program does may depend on how large the storage is, or change that."""
        self.kernels.sizes_matter = True
        return super().untyped_storage()

    def tolist(self) -> Any:
        """What is known of values that depend on no input; refused for others: there is no data."""
        if self.numel() > _MOST_TO_LIST:
            raise UnsupportedError("data-dependent", "tolist needs values at trace time")
        return [x.tolist() for x in self.unbind()] if self.dim() else self.item()

    def numpy(self, *, force: bool = False) -> Any:
        """Refused: there is no data."""
        raise UnsupportedError("data-dependent", "numpy needs values at trace time")

    def __array__(self, dtype: Any = None) -> Any:
        raise UnsupportedError("data-dependent", "NumPy needs values at trace time")

    def apply_(self, callable: Callable[..., Any]) -> Tensor:
        """Refused: there are no elements to call anything with."""
        raise UnsupportedError("data-dependent", "apply_ needs values at trace time")

    def map_(self, tensor: Tensor, callable: Callable[..., Any]) -> Tensor:
        """Refused: there are no elements to call anything with."""
        raise UnsupportedError("data-dependent", "map_ needs values at trace time")

    def map2_(self, x: Tensor, y: Tensor, callable: Callable[..., Any]) -> Tensor:
        """Refused: there are no elements to call anything with."""
        raise UnsupportedError("data-dependent", "map2_ needs values at trace time")

    def data_ptr(self) -> int:
        """Refused: there is no memory."""
        raise UnsupportedError("data-dependent", "data_ptr needs an address at trace time")

    def __str__(self) -> str:
        self._show_to(sys._getframe(1))
        return self.__repr__()

    def __format__(self, spec: str) -> str:
        self._show_to(sys._getframe(1))
        return format(self.__repr__(), spec)

    def _show_to(self, frame: FrameType) -> None:
        """Refused to the function: there are no values to show."""
        if self.kernels.function_runs and is_users(frame):
            raise UnsupportedError("data-dependent", "the text of a tensor needs values at trace time")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # untyped in torch
        self._show_to(sys._getframe(1))
        return f"Replica(shape={tuple(self.shape)}, dtype={self.dtype}, device={self.real_device})"


Replica.kind = Replica


class Disarmed(Replica):
    """A replica whose trace is over: whoever uses it gets an error.

    Nodes of autograd hold replicas in C++, where Python's garbage collector sees nothing, and the trace holds nodes. So
    a replica does not lead to its trace when that is over: a cycle by way of both would live for ever.
    """

    def __hash__(self) -> int:
        """It may still be in a dictionary."""
        return id(self)

    @property
    def kernels(self) -> KernelState:  # type: ignore[override]  # an attribute of those in use
        """Not to be had any more."""
        raise UnsupportedError("escaped replica", "a tensor of a trace that is over was used; was it kept in a global?")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise UnsupportedError(
            "escaped replica",
            f"{getattr(func, '__name__', func)} met a tensor of a trace that is over; was it kept in a global?",
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # untyped in torch
        """Says what it is, and asks nothing of torch."""
        return "Replica of a trace that is over"

    def __str__(self) -> str:
        return self.__repr__()

    def __format__(self, spec: str) -> str:
        return format(self.__repr__(), spec)


class Past(Replica):
    """Stands for what a node of autograd made where no tensor has that history any more."""

    edge: GradientEdge

    @property
    def grad_fn(self) -> Any:  # type: ignore[override]  # torch types these as attributes
        """The node."""
        return self.edge.node

    @property
    def output_nr(self) -> int:  # type: ignore[override]
        """Which of the node's results it is."""
        return self.edge.output_nr

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]
        """It has a history."""
        return False

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        """It has a history."""
        return True


def past(edge: GradientEdge, device: torch.device, kernels: KernelState) -> Past:
    """What the node at ``edge`` made, a tensor on ``device``."""
    shape, dtype = _torch.recorded_gradient(edge.node, edge.output_nr)
    with _torch.without_modes():
        made = make_replica(torch.empty(shape, dtype=dtype, device=_torch.META), device, kernels, Past)
    assert isinstance(made, Past)
    made.edge = edge
    return made


def attribute_set(t: Replica) -> str | None:
    """The name of an attribute that the traced code has set on ``t``, if it has one."""
    if len(t.__dict__) <= 2:
        return None
    return next((name for name in given_attributes(t) if name not in t._own), None)


def given_attributes(t: Tensor) -> list[str]:
    """The names of a tensor's attributes but for Dynamo's marks, which are about nothing that is computed."""
    return [name for name in t.__dict__ if not name.startswith(("_dynamo", "_specialize_on"))]


class _Undispatched(Tensor):
    """The class under which replicas are born: see Note [Replicas are no Python tensors to the dispatcher]."""

    __torch_dispatch__ = _torch.disabled_torch_dispatch
    __torch_function__ = _torch.disabled_torch_function


def make_replica(elem: Tensor, device: torch.device, kernels: KernelState, kind: type[Replica] = Replica) -> Replica:
    """``elem``, a meta tensor without autograd history, as a replica on ``device``; shares its storage.

    No mode may be active.
    """
    r: Any
    if elem.is_inference() and _torch.version_of(elem) < 0:  # outside inference mode it would be given a counter
        with torch.inference_mode():
            r = _torch.make_subclass(_Undispatched, elem, device_for_backend_keys=device)
    else:
        r = _torch.make_subclass(_Undispatched, elem, device_for_backend_keys=device)
    _set_class(r, kind)
    attributes = r.__dict__
    if kind is not Replica:
        attributes["kind"] = kind
    attributes["real_device"], attributes["kernels"] = device, kernels
    kernels.alive.append(r)
    made: Replica = r
    return made


def disarm(kernels: KernelState) -> None:
    """The trace is over: no replica of it may be used until ``rearm``."""
    if kernels.alive and type(kernels.alive[-1]) is not Disarmed:
        for r in kernels.alive:
            _set_class(r, Disarmed)
            del r.__dict__["kernels"]


def rearm(kernels: KernelState) -> None:
    """The trace goes on."""
    if kernels.alive and type(kernels.alive[-1]) is Disarmed:
        for r in kernels.alive:
            _set_class(r, r.kind)
            r.__dict__["kernels"] = kernels


_set_class = object.__dict__["__class__"].__set__
