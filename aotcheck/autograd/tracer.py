"""The dispatch mode under which the user's function runs for real on replicas, and which records what it computes."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from typing import Any, cast

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd import overlap
from aotcheck.autograd.errors import Retrace, RetraceWithCaptured, TraceMode, UnsupportedError
from aotcheck.autograd.random_order import Order, inverse, order_of
from aotcheck.autograd.replicas import KernelState, Replica, make_replica
from aotcheck.autograd.storage import StorageTable, View
from aotcheck.autograd.trace import PLACEHOLDER, Geometry, Trace, Value, geometry_of, getitem, user_frame
from aotcheck.autograd.twins import Kind, OpInfo, foreach_element_op, info_of

aten = torch.ops.aten

_METADATA_LIMIT = 20_000


class MetadataCache:
    """What each op gives for each set of argument geometries, so that its (slow) meta kernel runs once per process.

    ``corrections`` hold strides that real kernels were seen to give where the meta kernel says otherwise.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()
        self.corrections: dict[Any, tuple[Geometry, ...]] = {}

    def get(self, key: Any) -> Any:
        """What was put under ``key``, or None."""
        return self._known.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Remember ``value`` for ``key``; what was put first is forgotten once there are too many."""
        with self._lock:
            self._known[key] = value
            if len(self._known) > _METADATA_LIMIT:
                self._known.popitem(last=False)

    def correct(self, key: Any, value: Any) -> None:
        """From now on the op gives ``value`` for ``key``, as a real run of it did."""
        self.put(key, value)
        self.corrections[key] = value


METADATA = MetadataCache()


@dataclasses.dataclass(frozen=True)
class UnsafeView:
    """A tensor that shares memory with ``source`` and is no view of it to autograd.

    ``op`` gave it, as result ``index`` if of several.
    """

    tensor: Tensor
    source: Tensor
    source_version: int
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None

    @property
    def intact(self) -> bool:
        """Whether neither was written since, so that the op repeated now gives the same history."""
        return _torch.version_of(self.source) == self.source_version and _torch.version_of(self.tensor) == 0

    def replay(self, source: Tensor) -> Tensor:
        """The op again on ``source``."""
        out = self.op(source, *self.args, **self.kwargs)
        result: Tensor = out if self.index is None else out[self.index]
        return result


class Tracer(_torch.TorchDispatchMode):
    """Runs each op on replicas through its meta kernel and records it in ``trace`` as a functional operation."""

    def __init__(self, kernels: KernelState) -> None:
        super().__init__()
        self.trace = Trace()
        self.table = StorageTable(self.trace)
        self.kernels = kernels
        self.keep: list[Any] = []
        self.regeometried: set[int] = set()  # ids of tensors whose own geometry was changed in place
        self.set_calls: set[int] = set()  # ids of tensors on which set_ was called
        self.keys: dict[Value, Any] = {}
        self.reshaped: set[int] = set()  # ids of the states of storages on which those lay
        self.quietly: set[int] = set()  # ids of those whose geometry changed under no_grad: autograd has their old shape
        self.bases: set[int] = set()  # ids of tensors of which views were made
        self.unsafe_views: dict[int, UnsafeView] = {}  # by id of the replica
        self.generators: dict[int, Value] = {}  # by address of the stand-in

    @classmethod
    def is_infra_mode(cls) -> bool:
        """To torch this mode is machinery, not the user's."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    # -- entry

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _torch.PRIM_DEVICE:
            return args[0].device
        kwargs = kwargs or {}
        for t in types:
            if t is not Replica and t is not Tensor and t is not torch.nn.Parameter:
                return NotImplemented
        if func is aten.lift_fresh.default or func is aten.lift_fresh_copy.default:
            return self._lift(args[0])
        for a in args:
            self._check(a)
        for a in kwargs.values():
            self._check(a)
        info = info_of(func)
        if info.takes_device and kwargs.get("device") == _torch.META:
            # Some formulas of autograd ask the implementation, not the tensor, and learn that replicas have no data.
            rest = {k: a for k, a in kwargs.items() if k != "device"}
            kwargs = {**rest, "device": self._device(args, rest)}
        match info.kind:
            case Kind.PURE:
                return self._pure(func, info, args, kwargs)
            case Kind.VIEW:
                return self._view(func, args, kwargs)
            case Kind.IN_PLACE:
                return self._in_place(func, info, args, kwargs)
            case Kind.OUT:
                return self._out(func, info, args, kwargs)
            case Kind.RESHAPING:
                return self._reshaping(func, args, kwargs)
            case Kind.STORAGE:
                return self._storage(func, args, kwargs)
            case Kind.BATCH_NORM:
                return self._batch_norm(func, args, kwargs)
            case Kind.VALUE_DEPENDENT:
                raise UnsupportedError("data-dependent", f"{func} needs values at trace time")
            case Kind.NO_TWIN:
                raise UnsupportedError("op without a functional form", str(func))

    def _check(self, a: Any) -> None:
        """Every tensor must be a replica of this trace; another is a captured one."""
        if isinstance(a, Tensor):
            if type(a) is not Replica:
                raise RetraceWithCaptured(a)
        elif type(a) in (list, tuple):
            for x in a:
                if isinstance(x, Tensor):
                    self._check(x)
        elif isinstance(a, torch.UntypedStorage) and a.device.type != "meta":
            raise UnsupportedError("captured storage", "set_ to a storage that belongs to no input")
        elif isinstance(a, torch.Generator) and _torch.generator_address(a) not in self.generators:
            raise RetraceWithCaptured(a)

    def _lift(self, t: Tensor) -> Tensor:
        if isinstance(t, Replica):
            return t
        if type(t) is not Tensor:
            raise UnsupportedError("constant of a subclass", type(t).__name__)
        elem = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        r = make_replica(elem, t.device, self.kernels)
        value = self.trace.call(aten.lift_fresh_copy.default, (self.trace.constant(t.clone()),))
        self.table.bind(r, value)
        return r

    def generator(self, stand_in: torch.Generator) -> None:
        """``stand_in`` is for a random generator that each call brings along."""
        value = Value(PLACEHOLDER, (), {})
        value.constant, value.device = stand_in, stand_in.device
        self.generators[_torch.generator_address(stand_in)] = value

    # -- running kernels

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The op's meta kernel on the replicas."""
        if self.generators:  # meta kernels draw nothing, but look at which device a generator is for
            args = tuple([None if type(a) is torch.Generator else a for a in args])
            kwargs = {k: None if type(a) is torch.Generator else a for k, a in kwargs.items()}
        self.kernels.inside = True
        try:
            with _torch.meta_kernels():
                return func(*args, **kwargs)
        except NotImplementedError as error:
            raise UnsupportedError("no meta kernel", f"{func}: {str(error)[:120]}") from error
        finally:
            self.kernels.inside = False

    def _device(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
        """The device that the op's results are on."""
        wanted = kwargs.get("device")
        if wanted is not None:
            wanted = torch.device(wanted)
            index = cast("int | None", wanted.index)  # torch says int
            if wanted.type == "cuda" and index is None:
                wanted = torch.device("cuda", torch.cuda.current_device())
            return wanted
        found: torch.device | None = None
        for a in (*args, *kwargs.values()):
            for x in a if type(a) in (list, tuple) else (a,):
                if type(x) is Replica:
                    if x.real_device.type != "cpu" or x.dim() > 0:
                        return x.real_device
                    found = found or x.real_device
        return found or torch.get_default_device()

    def _value(self, a: Any) -> Any:
        """An argument as the functional program names it."""
        if type(a) is Replica:
            return self.table.read(a)
        if type(a) in (list, tuple):
            return [self._value(x) for x in a]
        if type(a) is torch.Generator:
            return self.generators[_torch.generator_address(a)]
        return a

    def _key_of(self, a: Any) -> Any:
        if type(a) is Replica:
            return (a.storage_offset(), a.shape, a.stride(), a.dtype, a.is_conj(), a.is_neg(), a.real_device)
        if type(a) in (list, tuple):
            return tuple([self._key_of(x) for x in a])
        if type(a) is torch.Generator:
            return torch.Generator
        return (a, type(a))

    def _new(self, geometry: Geometry, device: torch.device, value: Value) -> Replica:
        elem = torch.empty_strided(geometry.shape, geometry.stride, dtype=geometry.dtype, device=_torch.META)
        r = make_replica(elem, device, self.kernels)
        self.table.bind(r, value)
        return r

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        value = self.trace.call(func, args, kwargs)
        value.where = user_frame()
        value.sequence = _torch.autograd_sequence_number()
        if info_of(func).random:
            self.trace.effects.append(value)
        return value

    # -- pure ops

    def metadata(self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """(key, result): geometries and devices of the op's fresh results.

        The result is None where it is not known, or not a plain list of fresh tensors.
        """
        key: Any = None
        if info.cacheable:
            key = (
                func,
                *[self._key_of(a) for a in args],
                *[(k, self._key_of(a)) for k, a in kwargs.items()],
                torch.get_default_dtype(),
            )
            try:
                known = METADATA.get(key)
            except TypeError:
                return None, None
            if known is not None:
                return key, known
        return key, None

    def _learn(self, key: Any, out: Any, device: torch.device) -> None:
        """Note what a kernel gave, if it is one fresh tensor or several on storages of their own."""
        if key is None or out is None:
            return
        tensors = [out] if isinstance(out, Tensor) else out
        if not isinstance(tensors, (list, tuple)) or not all(isinstance(o, Tensor) for o in tensors):
            return
        geometries = [geometry_of(o) for o in tensors]
        storages = {_torch.storage_address(o.untyped_storage()) for o in tensors}
        if len(storages) == len(tensors) and all(g.offset == 0 and not g.conj and not g.neg for g in geometries):
            METADATA.put(key, (None if isinstance(out, Tensor) else type(out), tuple(geometries), device))

    def _pure(self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is aten.index.Tensor and any(
            type(i) is Replica and i.dtype in (torch.bool, torch.uint8) for i in args[1]
        ):
            raise UnsupportedError("data-dependent", "indexing by a mask gives a shape that depends on values")
        if func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
            raise UnsupportedError("data-dependent", "repeat_interleave without output_size")
        key, known = self.metadata(func, info, args, kwargs)
        if known is None:
            run_kwargs = (
                {**kwargs, "device": _torch.META}
                if info.takes_device and (kwargs.get("device") is not None or not _has_tensor(args))
                else kwargs
            )
            out = self.run(func, args, run_kwargs)
            device = self._device(args, kwargs)
            if not _has_tensor((out,)) and out is not None:
                return out
            if args and type(args[0]) is Replica and _shares_storage(out, args[0]):
                bound = self._bind_views(func, args, kwargs, out)
                self._note_unsafe(func, args, kwargs, bound)
                return bound
            self._learn(key, out, device)
        value_args = tuple([self._value(a) for a in args])
        value_kwargs = {k: self._value(a) for k, a in kwargs.items()} if kwargs else {}
        if info.takes_device and kwargs.get("device") is None and not _has_tensor(args):
            value_kwargs["device"] = self._device(args, kwargs)
        value = self._call(func, value_args, value_kwargs)
        if key is not None:
            self.keys[value] = key
        if known is None:
            return self._bind_results(out, value, device)
        container, geometries, device = known
        if container is None:
            return self._new(geometries[0], device, value)
        return container([self._new(g, device, self.trace.call(getitem, (value, k))) for k, g in enumerate(geometries)])

    def _bind_results(self, out: Any, value: Value, device: torch.device) -> Any:
        if isinstance(out, Tensor):
            return self._bind_fresh(out, value, device)
        if isinstance(out, (list, tuple)):
            bound = [
                self._bind_fresh(o, self.trace.call(getitem, (value, k)), device) if isinstance(o, Tensor) else o
                for k, o in enumerate(out)
            ]
            return type(out)(bound)
        if out is None:
            self.trace.effects.append(value)
        return out

    def _bind_fresh(self, out: Tensor, value: Value, device: torch.device) -> Tensor:
        if type(out) is not Replica:
            out = make_replica(out, device, self.kernels)
        if _torch.storage_address(out.untyped_storage()) in self.table.states:
            raise UnsupportedError(
                "unannotated alias", "an op returned a tensor that shares memory with another, against its schema"
            )
        self.table.bind(out, value)
        return out

    # -- views

    def _view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        source = args[0]
        if type(source) in (list, tuple) or not isinstance(source, Tensor):
            raise UnsupportedError("view of several tensors", str(func))
        out = self.run(func, args, kwargs)
        first = out if isinstance(out, Tensor) else next((o for o in out if isinstance(o, Tensor)), None)
        if first is None:
            return out
        if func is aten.as_strided.default:
            _check_bounds(first)
            self._strided_view(source)
        if _torch.storage_address(first.untyped_storage()) != _torch.storage_address(source.untyped_storage()):
            raise UnsupportedError("conditional view", f"{func} copied where its schema says that it may alias")
        return self._bind_views(func, args, kwargs, out)

    def _strided_view(self, source: Tensor) -> None:
        """as_strided of a view counts from the storage, and reaches what the view does not: replayed, it is another function."""
        view = _torch.base_of(source) is not None or id(source) in self.kernels.view_roots
        if source.requires_grad and torch.is_grad_enabled() and view:
            state = self.table.state(source)
            if state.version > 0:
                raise UnsupportedError("write to memory of a fragile view", "as_strided of a view, after a write")
            state.fragile = True

    def _bind_views(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        source: Replica = args[0]
        if id(source) in self.regeometried and source.requires_grad and _torch.base_of(source) is not None:
            raise UnsupportedError("change of metadata of a view", "in place, and then a view of it")
        self.bases.add(id(source))
        self.keep.append(source)
        state = self.table.state(source)
        parent: View | None = None
        replicas = []
        many = not isinstance(out, Tensor)
        for k, o in enumerate(out if many else (out,)):
            r = o if type(o) is Replica else make_replica(o, source.real_device, self.kernels)
            replicas.append(r)
            geometry = geometry_of(r)
            if geometry not in state.views:
                if parent is None:
                    parent = self.table.view(source)
                if func is aten.as_strided.default:
                    self.table.view(r)
                else:
                    view = state.views[geometry] = View(state, geometry)
                    view.derive_from(parent, func, tuple(args[1:]), dict(kwargs), k if many else None)
        return type(out)(replicas) if many else replicas[0]

    def _note_unsafe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], bound: Any) -> None:
        """Remember how a window that autograd does not take for a view was made; the epilogue makes it again."""
        many = not isinstance(bound, Tensor)
        for k, r in enumerate(bound if many else (bound,)):
            self.keep.append((r, args[0]))
            self.unsafe_views[id(r)] = UnsafeView(
                r, args[0], _torch.version_of(args[0]), func, tuple(args[1:]), dict(kwargs), k if many else None
            )

    def _reshaping(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        t: Replica = args[0]
        self.keep.append(t)
        self.regeometried.add(id(t))
        name = _torch.op_name(func)
        if name == "detach_":
            self.run(func, args, kwargs)
            return t
        parent = self.table.view(t)
        self.reshaped.add(id(parent.state))
        base = _torch.base_of(t)
        if t.requires_grad and not t.is_leaf:
            if not torch.is_grad_enabled():
                self.quietly.add(id(t))
            elif id(t) in self.quietly:
                raise UnsupportedError("change of metadata of a view", "under grad, after one under no_grad")
        views = self.kernels.view_roots
        if torch.is_grad_enabled() and t.requires_grad and (id(t) in views or id(base) in views):
            raise Retrace(TraceMode(with_bases=True))
        if t.requires_grad or (base is not None and base.requires_grad):
            # Autograd replays the views of replicas, onto whatever geometry the base has by then; real ones it makes by
            # as_strided.
            if id(t) in self.bases:
                raise UnsupportedError("change of metadata of a base", "in place, after views of it were made")
            parent.state.fragile = parent.state.fragile or base is not None
        self.run(func, args, kwargs)
        if name == "as_strided_":
            _check_bounds(t)
        geometry, state = geometry_of(t), parent.state
        if geometry not in state.views:
            if name == "as_strided_":
                self.table.view(t)
            else:
                names = {"transpose_": "transpose.int", "swapaxes_": "transpose.int", "swapdims_": "transpose.int"}
                packet, _, overload = names.get(name, f"{name[:-1]}.{_torch.overload_name(func)}").partition(".")
                view = state.views[geometry] = View(state, geometry)
                view.derive_from(parent, getattr(getattr(aten, packet), overload), tuple(args[1:]), dict(kwargs))
        return t

    def _storage(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        t: Replica = args[0]
        self.keep.append(t)
        self.regeometried.add(id(t))
        old = self.table.state(t)
        if not old.roots:
            raise UnsupportedError("unknown storage", str(func))
        if _torch.op_name(func) == "set_":
            self.set_calls.add(id(t))
            view = _torch.base_of(t) is not None or id(t) in self.kernels.view_roots
            if torch.is_grad_enabled() and t.requires_grad and view:
                raise UnsupportedError("set_ on a differentiable input", "a view, under grad: all views of its base learn of it")
        sizes = {id(s): s.storage.nbytes() for s in self.table.states.values()}
        self.run(func, args, kwargs)
        state = self.table.state(t)
        if _torch.op_name(func) == "set_" and state.storage.nbytes() > sizes.get(id(state), state.storage.nbytes()):
            raise UnsupportedError("set_ beyond its storage", "meta storages grow where real ones may refuse")
        self.reshaped.update((id(old), id(state)))
        if not state.roots:
            count = state.storage.nbytes() // t.dtype.itemsize
            geometry = Geometry(0, (count,), (1,), t.dtype, False, False)
            value = self.trace.call(aten.empty.memory_format, ([count],), {"dtype": t.dtype, "device": t.real_device})
            value.geometry, value.device = geometry, t.real_device
            state.device = t.real_device
            root = View(state, geometry)
            root.value, root.version = value, state.version
            state.views[geometry] = root
            state.roots.append(root)
        if state.storage.nbytes() != state.nbytes:
            self.table.flat(state)
        return t

    # -- writes

    def _in_place(self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = args[0]
        if type(target) in (list, tuple):
            return self._foreach(func, info, args, kwargs)
        overlap.check(func, info, args, kwargs)
        value_args = tuple([self._value(a) for a in args])
        value_kwargs = {k: self._value(a) for k, a in kwargs.items()} if kwargs else {}
        self.run(func, args, kwargs)
        if len(info.written) > 1:
            raise UnsupportedError("op without a functional form", str(func))
        if func is aten.bernoulli_.float and len(value_args) == 1 and "p" not in value_kwargs:
            value_args, args = (*value_args, 0.5), (*args, 0.5)
        order = geometry_of(target).dense_order
        if info.random and order_of(func, info.twin, target, args[1:], kwargs) is Order.MEMORY and order is not None:
            permuted = self.trace.call(aten.permute.default, (value_args[0], order))
            dense = self.trace.call(aten.clone.default, (permuted,), {"memory_format": torch.contiguous_format})
            drawn = self._call(info.twin, (dense, *value_args[1:]), value_kwargs)
            value = self.trace.call(aten.permute.default, (drawn, inverse(order)))
            self.table.write(self.table.view(target), value)
            return target
        value = self._call(info.twin, value_args, value_kwargs)
        self._write(target, info.twin, args, kwargs, value)
        return target

    def _write(self, target: Replica, twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Value) -> None:
        """``target`` now holds ``value``, converted where the twin gives another dtype or strides than eager writes."""
        geometry = self._twin_geometry(twin, args, kwargs)
        if geometry is not None:
            value = self._conform(value, geometry, geometry_of(target), target.real_device)
        self.table.write(self.table.view(target), value)

    def _conform(self, value: Value, has: Geometry, wants: Geometry, device: torch.device) -> Value:
        if has.dtype != wants.dtype:
            if not torch.can_cast(has.dtype, wants.dtype):
                raise RuntimeError(f"result type {has.dtype} can't be cast to the desired output type {wants.dtype}")
            value = self.trace.call(aten._to_copy.default, (value,), {"dtype": wants.dtype})
        if 0 in wants.shape or wants.may_self_overlap or _same_strides(has, wants):
            return value
        order = wants.dense_order
        if order is None:
            holder = self.trace.call(
                aten.empty_strided.default,
                (list(wants.shape), list(wants.stride)),
                {"dtype": wants.dtype, "device": device},
            )
            return self.trace.call(aten.copy.default, (holder, value))
        permuted = self.trace.call(aten.permute.default, (value, order))
        copied = self.trace.call(aten.clone.default, (permuted,), {"memory_format": torch.contiguous_format})
        back = [order.index(d) for d in range(len(order))]
        return self.trace.call(aten.permute.default, (copied, back))

    def _twin_geometry(self, twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Geometry | None:
        """What the twin gives for these arguments; None where it is known to keep its first argument's geometry."""
        if twin is aten.copy.default or twin is aten.fill.Scalar or twin is aten.zero.default:
            return None
        info = info_of(twin)
        key, known = self.metadata(twin, info, args, kwargs)
        if known is None:
            out = self.run(twin, args, kwargs)
            self._learn(key, out, self._device(args, kwargs))
            return geometry_of(out if isinstance(out, Tensor) else out[0])
        geometry: Geometry = known[1][0]
        return geometry

    def _foreach(self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A write to each tensor of a list.

        One after another where the list's tensors share storages with each other or with operands.
        """
        targets = args[0]
        states = [self.table.state(x) for x in targets]
        operands = [x for a in args[1:] for x in (a if type(a) in (list, tuple) else (a,)) if type(x) is Replica]
        if len(set(map(id, states))) < len(states) or any(self.table.state(x) in states for x in operands):
            element_op = foreach_element_op(func)
            if element_op is None or kwargs:
                raise UnsupportedError("foreach on aliases", str(func))
            element_info = info_of(element_op)
            for k, x in enumerate(targets):
                rest = [a[k] if type(a) in (list, tuple) and len(a) == len(targets) else a for a in args[1:]]
                self._in_place(element_op, element_info, (x, *rest), {})
                torch.autograd.graph.increment_version(x)
            return None
        overlap.check(func, info, args, kwargs)
        value_args = tuple([self._value(a) for a in args])
        value_kwargs = {k: self._value(a) for k, a in kwargs.items()}
        out = self.run(info.twin, args, kwargs)
        self.run(func, args, kwargs)
        value = self._call(info.twin, value_args, value_kwargs)
        for k, (x, o) in enumerate(zip(targets, out, strict=True)):
            item = self._conform(self.trace.call(getitem, (value, k)), geometry_of(o), geometry_of(x), x.real_device)
            self.table.write(self.table.view(x), item)
            torch.autograd.graph.increment_version(x)  # eager counts in its per-tensor kernels, which do not run here
        return None

    def _out(self, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        overlap.check(func, info, args, kwargs)
        targets = [kwargs[str(w)] for w in info.written]
        rest = {k: a for k, a in kwargs.items() if k not in info.written}
        value_args = tuple([self._value(a) for a in args])
        value_rest = {k: self._value(a) for k, a in rest.items()}
        reference = self.run(
            info.twin, args, {**rest, "device": _torch.META} if rest.get("device") is not None else rest
        )
        for t in targets:
            if isinstance(t, Tensor):
                self.table.view(t)
                self.regeometried.add(id(t))
                self.keep.append(t)
        before = [geometry_of(t) for t in targets]
        out = self.run(func, args, kwargs)
        if any(isinstance(t, Tensor) and geometry_of(t) != g for t, g in zip(targets, before, strict=True)):
            raise UnsupportedError("out= that resizes", str(func))
        value = self._call(info.twin, value_args, value_rest)
        single = isinstance(reference, Tensor)
        for k, (t, r) in enumerate(zip(targets, [reference] if single else reference, strict=True)):
            item = value if single else self.trace.call(getitem, (value, k))
            state = self.table.state(t)
            if state.storage.nbytes() != state.nbytes:
                self.table.flat(state)
            item = self._conform(item, geometry_of(r), geometry_of(t), t.real_device)
            self.table.write(self.table.view(t), item)
        return out

    # -- ops of their own

    def _batch_norm(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Running statistics are written in training whatever the schema says; the functional form returns them."""
        name = _torch.op_name(func)
        if name not in ("native_batch_norm", "_native_batch_norm_legit") or kwargs:
            raise UnsupportedError("batch norm variant", str(func))
        if len(args) != 8:
            return self._pure(func, OpInfo(Kind.PURE), args, kwargs)
        x, _, _, mean, variance, training, _, _ = args
        if (mean is None) != (variance is None):
            raise UnsupportedError("batch norm variant", "only one running statistic is given")
        updates = mean is not None and bool(training)
        values = tuple([self._value(a) for a in args])
        key, known = self.metadata(func, OpInfo(Kind.PURE, cacheable=True), args, kwargs)
        if known is None:
            out = self.run(func, args, kwargs)
            self._learn(key, out, x.real_device)
            known = (tuple, tuple(geometry_of(o) for o in out), x.real_device)
        value = self._call(*_functional_batch_norm(func, values, updates), {})
        if updates:
            self.table.write(self.table.view(mean), self.trace.call(getitem, (value, 3)))
            self.table.write(self.table.view(variance), self.trace.call(getitem, (value, 4)))
        self.keys[value] = key
        return tuple(self._new(g, x.real_device, self.trace.call(getitem, (value, k))) for k, g in enumerate(known[1]))


def _functional_batch_norm(func: Any, values: tuple[Any, ...], updates: bool) -> tuple[Any, tuple[Any, ...]]:
    """The op, with its arguments, that says what batch norm does to its running statistics.

    It is the one other compilers expect.
    """
    x, weight, bias, mean, variance, training, momentum, eps = values
    if updates:
        return aten._native_batch_norm_legit_functional.default, values
    if training:
        return aten._native_batch_norm_legit.no_stats, (x, weight, bias, True, momentum, eps)
    if mean is None:
        return func, values
    return aten._native_batch_norm_legit_no_training.default, (x, weight, bias, mean, variance, momentum, eps)


def _has_tensor(args: tuple[Any, ...]) -> bool:
    return any(
        isinstance(a, Tensor) or (type(a) in (list, tuple) and any(isinstance(x, Tensor) for x in a)) for a in args
    )


def _same_strides(a: Geometry, b: Geometry) -> bool:
    return (
        all(n == 1 or s == t for n, s, t in zip(b.shape, a.stride, b.stride, strict=True))
        if a.shape == b.shape
        else True
    )


def _check_bounds(t: Tensor) -> None:
    """Real tensors may not reach beyond their storage; meta ones may."""
    g = geometry_of(t)
    if 0 not in g.shape and g.elements_reached * g.dtype.itemsize > t.untyped_storage().nbytes():
        raise RuntimeError(
            f"as_strided of {g.shape} with strides {g.stride} at offset {g.offset} is out of bounds of its storage"
        )


def _shares_storage(out: Any, source: Tensor) -> bool:
    """Whether an op gave a window on its argument although its schema does not say so."""
    first = (
        out
        if isinstance(out, Tensor)
        else next((o for o in out if isinstance(o, Tensor)), None)
        if isinstance(out, (list, tuple))
        else None
    )
    return first is not None and _torch.storage_address(first.untyped_storage()) == _torch.storage_address(
        source.untyped_storage()
    )
