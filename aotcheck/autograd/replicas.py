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
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.utils.hooks import RemovableHandle

from aotcheck import _torch
from aotcheck.autograd.errors import EagerRaises, RetraceWithCaptured, UnsupportedError
from aotcheck.autograd.gradients import own_gradient, set_own_gradient
from aotcheck.autograd.hooks import HookKind, NotedHook
from aotcheck.autograd.places import Left, Move
from aotcheck.autograd.stand_ins import tensors_in
from aotcheck.autograd.subclasses import is_wrapper
from aotcheck.autograd.trace import geometry_of

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class WriteUnderGrad:
    """An op that wrote a tensor while autograd recorded, and the tensors it was given, what it wrote first.

    ``kind`` is equal for ops whose nodes in autograd's graph keep the same operands.
    """

    kind: Any
    operands: tuple[Tensor, ...]


def _kind_of_operands(args: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(
        [
            a.requires_grad if isinstance(a, Tensor) else _kind_of_operands(a) if type(a) in (list, tuple) else type(a)
            for a in args
        ]
    )


class KernelState:
    """Whether this trace is inside a meta kernel right now, and what no dispatch shows.

    One per trace, shared by its replicas.
    """

    __slots__ = (
        "_clock",
        "after_backward",
        "alive",
        "arrived",
        "asked",
        "detached",
        "function_runs",
        "hooks",
        "inside",
        "left",
        "moved",
        "moved_before",
        "on_backward",
        "on_gradient",
        "on_poison",
        "on_squeeze",
        "on_swap",
        "required",
        "reshaped_leaves",
        "retained",
        "sizes_matter",
        "stand_for_views",
        "stopped",
        "swapped",
        "use_count",
        "writes",
        "writes_of_several",
    )

    def __init__(self) -> None:
        self.inside = False
        self.alive: list[Replica] = []  # every replica of the trace; weak references would keep them from being swapped
        # by id of what stands for the caller's graph behind a root: what a backward inside last brought there
        self.arrived: dict[int, Tensor | None] = {}
        self.asked = weakref.WeakSet[Any]()  # custom Functions, as nodes, that asked for what they saved
        self.swapped: list[Tensor] = []  # replicas that were swapped, in pairs
        self.on_swap: Callable[[Tensor, Tensor], None] = lambda a, b: None
        self.use_count: Callable[[Tensor], int] = _torch.use_count  # as eager's swap_tensors would count
        self.stand_for_views: dict[int, bool] = {}  # ids of replicas of views that are no views themselves
        self.on_poison: Callable[[Tensor], None] = lambda t: None
        # called before what is conjugated or negated lazily is squeezed in place by an op
        self.on_squeeze: Callable[[Tensor, Any, tuple[Any, ...]], None] = lambda t, op, dims: None
        self.on_gradient: Callable[[Tensor], None] = lambda t: None  # called when ``t.grad`` is read or written
        self.on_backward: Callable[..., None] = lambda *call: None  # called with the call of a backward
        self.after_backward: Callable[[], None] = lambda: None  # called when a backward that accumulates is over
        self.detached: dict[int, int] = {}  # id of a replica -> when detach_ was last called on it
        self.required: dict[int, int] = {}  # and requires_grad_
        self.moved: dict[int, int] = {}  # and when it last came to lie elsewhere
        self.left: dict[int, list[Left]] = {}  # and which places it left
        self.moved_before: dict[int, int] = {}  # and before which node of autograd, by its number, that was
        # by the number that autograd had then for the next node; of a custom Function its own node
        self.writes: dict[int, Any] = {}
        self.writes_of_several: set[int] = set()  # the numbers of those that may write several tensors
        self.retained: dict[int, Any] = {}  # id of a replica -> the history for which retain_grad was last called on it
        self.reshaped_leaves: list[Tensor] = []  # that just got another shape: see Note [Accumulators that end]
        self.sizes_matter = False  # whether what the program does may depend on the sizes of storages
        self.function_runs = False  # whether what runs is the user's function, not a backward of it
        self.stopped: Mapping[Any, None] = {}  # nodes at which the backward that is being traced ends
        self.hooks: list[NotedHook] = []  # what the function registered, in order
        self._clock = 0

    def now(self) -> int:
        """A moment later than every moment before."""
        self._clock += 1
        return self._clock

    def note_write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """``func`` is about to write its first argument, a tensor or a list, autograd having made the nodes."""
        kind = func, _kind_of_operands(args), tuple(kwargs), _kind_of_operands(kwargs.values())
        self._note(WriteUnderGrad(kind, tuple(tensors_in(args, kwargs))), isinstance(args[0], (list, tuple)))

    def note_custom_write(self, node: Any) -> None:
        """The custom Function whose node this is has said what it wrote."""
        self._note(node, len(node.dirty_tensors) > 1, _torch.sequence_number(node) + 1)

    def _note(self, write: Any, several: bool, number: int | None = None) -> None:
        number = _torch.autograd_sequence_number() if number is None else number
        self.writes[number] = write
        if several:
            self.writes_of_several.add(number)

    def write_of(self, node: Any) -> Any:
        """Which of ``writes`` it was of which ``node`` is the history that the base of a view has; None if none.

        Between the histories that one op gives to several bases come those of their views.
        """
        number = _torch.sequence_number(node)
        first = max((n for n in self.writes_of_several if n <= number), default=number)
        between = number not in self.writes and not any(first < n <= number for n in self.writes)
        return self.writes.get(first if between else number)

    def went_by_data(self, t: Tensor) -> bool:
        """Whether it was by ``.data =`` that ``t`` last came to lie elsewhere."""
        left = self.left.get(id(t), [])
        return bool(left) and left[-1].move is Move.DATA

    def note_move(self, t: Tensor, move: Move | None) -> None:
        """``t`` comes to lie elsewhere now; it stays where it is if there is no ``move``."""
        moment = self.moved[id(t)] = self.now()
        node = self.moved_before[id(t)] = _torch.autograd_sequence_number()
        if move is not None and isinstance(t, Replica):
            address = _torch.storage_address(_torch.storage_of(t))
            left = Left(moment, geometry_of(t), address, t.is_inference(), move, node)
            self.left.setdefault(id(t), []).append(left)


_MOST_TO_LIST = 256


class Replica(Tensor):
    """A tensor without data that stands for one on ``real_device`` while a program is traced."""

    real_device: torch.device
    kernels: KernelState
    kind: type[Replica]  # which class of replicas it is while its trace goes on
    is_parameter = False

    __torch_function__ = _torch.disabled_torch_function  # type: ignore[assignment]  # as torch itself does

    def __setattr__(self, name: str, value: Any) -> None:
        """``swap_tensors`` is known by its exchange of the attributes of two tensors; ``requires_grad = `` is noted."""
        kernels = self.kernels
        if name == "requires_grad":
            self._note_requirement(bool(value), lambda: super(Replica, self).__setattr__(name, value))
            return
        shape = self.shape if name == "data" else None
        if name == "data":
            kernels.note_move(self, Move.DATA)
        super().__setattr__(name, value)
        if name == "data" and shape != self.shape and _torch.shows_as_leaf(self):
            kernels.reshaped_leaves.append(self)
        if name == "__dict__":
            kernels.swapped.append(self)
            # Then swap_tensors has just poisoned its accumulator; else it has not looked at its history.
            if kernels.use_count(self) == 2 and _torch.leafness(self):
                kernels.on_poison(self)
            if len(kernels.swapped) % 2 == 0:
                kernels.on_swap(*kernels.swapped[-2:])

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # torch types it as an attribute
        """The real tensor's device to the traced code, the meta device to a meta kernel."""
        return _torch.META if self.kernels.inside else self.real_device

    @property
    def _is_param(self) -> bool:
        return self.is_parameter

    @_is_param.setter
    def _is_param(self, value: bool) -> None:
        self.is_parameter = value

    @property
    def grad(self) -> Tensor | None:
        """Noted besides: see Note [Gradients of arguments]."""
        self.kernels.on_gradient(self)
        return own_gradient(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.kernels.on_gradient(self)
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
        if id(self) in self.kernels.stand_for_views and not torch.is_inference_mode_enabled():
            raise EagerRaises("a view is detached in place")
        result = super().detach_()
        if self.requires_grad:  # under inference mode it does nothing
            return result
        self.kernels.detached[id(self)] = self.kernels.now()
        return result

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Noted besides, since no dispatch shows it."""
        self._note_requirement(requires_grad, lambda: super(Replica, self).requires_grad_(requires_grad))
        return self

    def _note_requirement(self, wanted: bool, change: Callable[[], Any]) -> None:
        # The second look at a history may differ from the first, so it is not looked at without need.
        before = _torch.requires_grad_by_itself(self) if wanted else self.requires_grad
        change()
        if wanted and not before:
            self.kernels.required[id(self)] = self.kernels.now()
        elif before and not wanted:
            self.kernels.detached[id(self)] = self.kernels.now()

    def squeeze_(self, *dims: Any, dim: Any = None) -> Tensor:
        """Noted besides where dispatch shows how it is done (of a copy, which is copied back) and not that it is."""
        dims = dims if dim is None else (dim,)
        if dims and (self.is_conj() or self.is_neg()):
            by_dims = isinstance(dims[0], (tuple, list))
            self.kernels.on_squeeze(self, aten.squeeze_.dims if by_dims else aten.squeeze_.dim, dims)
        return super().squeeze_(*dims)

    def _use_count(self) -> int:
        """What ``swap_tensors`` asks: see Note [References]."""
        other = _torch.swapped_with(self)
        if other is not None and not isinstance(other, Replica):
            if type(other) in (Tensor, torch.nn.Parameter):
                raise RetraceWithCaptured(other)
            raise UnsupportedError("swapped wrapper", f"with a {type(other).__name__}")
        return self.kernels.use_count(self)

    def view_as(self, other: Tensor) -> Tensor:
        """The view that torch makes to find out where gradients arrive is none of the program's."""
        if other is self and _torch.asked_for_gradient_edge():
            with _torch.meta_kernels():
                return super().view_as(other)
        return super().view_as(other)

    def register_hook(self, hook: Callable[[Tensor], Any]) -> RemovableHandle:
        """Noted besides: see Note [Hooks registered inside]."""
        noted = NotedHook(self, self.kernels, hook, HookKind.GRADIENT)
        return noted.installed(super().register_hook(noted))

    def retain_grad(self) -> None:
        """Noted besides: it is for the history that the tensor has now."""
        super().retain_grad()
        self.kernels.retained[id(self)] = _torch.grad_fn_of(self)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Noted besides: see Note [Hooks registered inside]."""
        noted = NotedHook(self, self.kernels, hook, HookKind.ACCUMULATED)
        return noted.installed(super().register_post_accumulate_grad_hook(noted))

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

    def data_ptr(self) -> int:
        """Refused: there is no memory."""
        raise UnsupportedError("data-dependent", "data_ptr needs an address at trace time")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # untyped in torch
        return f"Replica(shape={tuple(self.shape)}, dtype={self.dtype}, device={self.real_device})"


Replica.kind = Replica


class Disarmed(Replica):
    """A replica whose trace is over: whoever uses it gets an error."""

    @classmethod
    def __torch_function__(  # type: ignore[override]  # torch types the default as no class method
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise UnsupportedError(
            "escaped replica",
            f"{getattr(func, '__name__', func)} met a tensor of a trace that is over; was it kept in a global?",
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # untyped in torch
        """Says what it is, and asks nothing of torch."""
        return "Replica of a trace that is over"


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
    shape, dtype = _torch.gradient_shape(edge.node, edge.output_nr), _torch.gradient_dtype(edge.node, edge.output_nr)
    with _torch.without_modes():
        made = make_replica(torch.empty(shape, dtype=dtype, device=_torch.META), device, kernels, Past)
    assert isinstance(made, Past)
    made.edge = edge
    return made


class _Undispatched(Tensor):
    """The class under which replicas are born: see Note [Replicas are no Python tensors to the dispatcher]."""

    __torch_dispatch__ = _torch.disabled_torch_dispatch
    __torch_function__ = _torch.disabled_torch_function  # type: ignore[assignment]  # as torch itself does


def make_replica(elem: Tensor, device: torch.device, kernels: KernelState, kind: type[Replica] = Replica) -> Replica:
    """``elem``, a meta tensor without autograd history, as a replica on ``device``; shares its storage.

    No mode may be active.
    """
    r: Any
    if elem.is_inference() and _torch.version_of(elem) < 0:  # outside inference mode it would be given a counter
        with torch.inference_mode():
            r = _torch.make_subclass(_Undispatched, elem, device)
    else:
        r = _torch.make_subclass(_Undispatched, elem, device)
    r.__class__ = kind
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
            _set_attribute(r, "__class__", Disarmed)


def rearm(kernels: KernelState) -> None:
    """The trace goes on."""
    if kernels.alive and type(kernels.alive[-1]) is Disarmed:
        for r in kernels.alive:
            _set_attribute(r, "__class__", r.kind)


_set_attribute = object.__setattr__


class _Rebound(torch.autograd.Function):
    """Gives its second argument a grad_fn: a non-leaf that is not a view.

    ``arrived`` of the node is the gradient that came by last; it comes to the anchor unless it is a ``whole`` wrapper.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, t: Tensor, whole: bool = False) -> Tensor:
        ctx.mark_dirty(t)
        ctx.arrived, ctx.whole = None, whole
        return t

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.arrived = grads[0]
        return None if ctx.whole else grads[0], None, None


class ReplicaMaker:
    """Replicas of the real tensors of one call, each storage made once."""

    def __init__(self) -> None:
        self.kernels = KernelState()
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.counters: dict[Any, Tensor] = {}
        self.anchors: list[Tensor] = []  # the leaves behind replicas that are none

    def storage(self, real: torch.UntypedStorage) -> torch.UntypedStorage:
        """The stand-in for ``real``, of the same size; the same one each time."""
        key = _torch.storage_address(real)
        made = self.storages.get(key)
        if made is None:
            made = self.storages[key] = torch.empty(real.nbytes(), dtype=torch.uint8, device="meta").untyped_storage()
        return made

    def plain(self, real: Tensor, versions: Any = None) -> Replica:
        """The window of ``real`` on its storage's stand-in, detached.

        Replicas made with equal ``versions`` (not None) share a version counter, as their originals do.
        """
        source = _torch.storage_of(real)
        storage = self.storage(source)
        if versions is None:
            elem = _window(
                torch.empty(0, dtype=real.dtype, device="meta"),
                storage,
                source.nbytes(),
                int(real.storage_offset()),
                real.shape,
                real.stride(),
            )
        else:
            whole = self.counters.get(versions)
            if whole is None:
                whole = torch.empty(0, dtype=torch.uint8, device="meta")
                whole = self.counters[versions] = _window(whole, storage, source.nbytes(), 0, (source.nbytes(),), (1,))
            size = real.dtype.itemsize
            with torch.no_grad():
                if _torch.storage_address(_torch.storage_of(whole)) != _torch.storage_address(storage):
                    # One of them left the storage that they shared; .data = leaves the counter as it was.
                    empty = whole[:0].view(real.dtype)
                    offset = int(real.storage_offset())
                    elem = _window(empty, storage, source.nbytes(), offset, real.shape, real.stride())
                else:
                    typed = whole[: source.nbytes() // size * size].view(real.dtype)
                    elem = typed.as_strided(real.shape, real.stride(), real.storage_offset())
        if real.is_conj() or real.is_neg():
            with torch.no_grad():
                if real.is_conj():
                    elem = _torch.conj_view(elem)
                if real.is_neg():
                    elem = _torch.neg_view(elem)
        r = make_replica(elem, real.device, self.kernels)
        r.is_parameter = isinstance(real, torch.nn.Parameter)
        return r

    def root(self, real: Tensor, versions: Any = None) -> Replica:
        """A replica with ``real``'s leafness and requires_grad, but no view relation."""
        inference = real.is_inference()
        rebound = real.requires_grad and _torch.leafness(real) is False
        with torch.inference_mode(inference and not rebound):
            r = self.plain(real, versions)
        if real.requires_grad:
            if not rebound:
                Tensor.requires_grad_(r)
            else:
                elem = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
                anchor = make_replica(elem, real.device, self.kernels)
                anchor.requires_grad_()
                self.anchors.append(anchor)
                with torch.enable_grad():
                    _Rebound.apply(anchor, r)
                if inference:  # it became one when its data was exchanged
                    with torch.inference_mode():
                        _torch.set_data(r, self.plain(real, versions))
        return r

    def give_history(self, r: Tensor, anchor: Tensor | None = None) -> None:
        """Make ``r`` a non-leaf that is no view; ``anchor`` is the leaf behind it."""
        if anchor is None:
            anchor = make_replica(torch.empty((), dtype=r.dtype, device="meta"), r.device, self.kernels)
        anchor.requires_grad_()
        self.anchors.append(anchor)
        with torch.enable_grad():
            _Rebound.apply(anchor, r, is_wrapper(r))


def arrived_at(node: Any) -> Tensor | None:
    """The gradient that a backward brought to the replica of no leaf that ``node`` made, told once."""
    arrived: Tensor | None = getattr(node, "arrived", None)
    if arrived is not None:
        node.arrived = None
    return arrived


def _window(elem: Tensor, storage: torch.UntypedStorage, nbytes: int, offset: int, shape: Any, stride: Any) -> Tensor:
    _torch.set_geometry(elem, storage, offset, shape, stride)
    if storage.nbytes() != nbytes:  # set_ grows a storage that is too small, as a freed one is
        storage.resize_(nbytes)
    return elem
