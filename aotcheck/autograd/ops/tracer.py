"""The dispatch mode under which the user's function runs for real on replicas, and which records what it computes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import EXPECTATION, OTHER_FORMULA, RetraceWithCaptured, UnsupportedError, higher_order_op
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.stand_ins import tensors_in
from aotcheck.autograd.ir.trace import (
    NO_KWARGS,
    PLACEHOLDER,
    Geometry,
    Trace,
    Value,
    calling_module,
    geometry_of,
    getitem,
    user_frame,
)
from aotcheck.autograd.ops import beneath, counting, folding, no_meta, pure_ops, sparse_ops, view_ops, writes, zeros
from aotcheck.autograd.ops.storage import StorageTable
from aotcheck.autograd.ops.twins import Kind, OpInfo, info_of
from aotcheck.autograd.replicas.kernel_state import KernelState, exchange
from aotcheck.autograd.replicas.replicas import Replica, make_replica
from aotcheck.autograd.replicas.sparse import Selection, SparseReplica, SparseResult
from aotcheck.autograd.replicas.windows import UNSAFE_VIEWS, Derivation, Reshaping
from aotcheck.autograd.state.rng import Draws, default_generators
from aotcheck.autograd.tensors.subclasses import holds_ragged_size, is_wrapper, leaves_of, wrappers_in

aten = torch.ops.aten
pytree = _torch.pytree
_NOT = aten.logical_not.default
_TELLING_NO_RANK = (None, "gels", "gelsy")
"""Drivers of least squares that give residuals, or none, whatever the rank of the matrix is."""
_FILLED = {aten.new_ones.default: True, aten.new_zeros.default: False}
_USUAL = {  # what code that checks hopes for
    aten.lt.Scalar: False,
    aten.le.Scalar: False,
    aten.ge.Scalar: True,
    aten.ne.Scalar: True,
    aten.all.default: True,
}
_COMPUTE_INSIDE = {  # ops whose kernels for every backend call others, with tensors that they make
    aten.abs.default,
    aten.block_diag.default,
    aten.clone.default,
    aten._to_copy.default,
    aten.complex.default,
    aten.constant_pad_nd.default,
    aten.logsumexp.default,
    aten.rsub.Scalar,
}
OPAQUE = frozenset({SparseReplica, Selection})
_PLAIN = frozenset({int, float, bool, type(None), torch.dtype, torch.layout, torch.device, torch.memory_format})
_INT = frozenset({int})
_NOTED = (Kind.IN_PLACE, Kind.WRITES)  # no set: members of an enumeration hash slowly, as ops do
_TANGENT_OP = aten.to.dtype_layout
_PRIM_DEVICE = _torch.PRIM_DEVICE
_LIFT, _LIFT_COPY = aten.lift_fresh.default, aten.lift_fresh_copy.default
# What C++ code asks the class of a wrapper, where it may not raise.
_ASKED = ("size", "sym_size", "stride", "sym_stride", "numel", "sym_numel", "dim", "sym_storage_offset")
_ASKS_GEOMETRY = frozenset(
    {
        _torch.PRIM_LAYOUT.overloadpacket,
        aten.is_contiguous,
        aten.sym_is_contiguous,
        aten.is_non_overlapping_and_dense,
        aten.is_strides_like_format,
        *[getattr(aten, name) for name in _ASKED],
    }
)


class _Recording:
    """See :meth:`Tracer.recording`."""

    __slots__ = ("_threads", "_tracer")

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __enter__(self) -> None:
        self._threads = _torch.set_multithreading(False)
        self._tracer.__enter__()

    def __exit__(self, *exception: Any) -> None:
        try:
            self._tracer.__exit__(*exception)
        finally:
            _torch.set_multithreading(self._threads)


_marking = threading.RLock()
_PATIENCE = 60.0
"""Seconds that a trace waits for another's end, which may wait for this one's by way of what the user has made."""


class _Drawing:
    """See :meth:`Tracer.drawing`. One thread at a time: generators are the process's, and marked by one trace."""

    __slots__ = ("_alone", "_before", "_draws", "_later")

    def __init__(self, draws: Sequence[Draws], later: bool) -> None:
        self._draws, self._later = draws, later

    def __enter__(self) -> None:
        self._alone = _marking.acquire(timeout=_PATIENCE)
        self._before = [draws.begin(self._later) for draws in self._draws]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for draws in self._draws:
                    draws.settle()
        finally:
            for draws, states in zip(self._draws, self._before, strict=True):
                draws.restore(states)
            if self._alone:
                _marking.release()


class Tracer(_torch.TorchDispatchMode):
    """Runs each op on replicas through its meta kernel and records it in ``trace`` as a functional operation."""

    supports_higher_order_operators = True  # so that they come here, to be refused by name

    def __init__(self, kernels: KernelState) -> None:
        super().__init__()
        self.trace = Trace()
        self.table = StorageTable(self.trace, kernels.now)
        self.kernels = kernels
        self.keep: list[Any] = []
        self.depth = 0  # how many wrappers' classes are at work
        self.outside = user_frame()  # who called what is traced
        self.asks_layouts = False  # whether eager is asked how results lie of which meta kernels do not know it
        self.only_ours = False  # whether no code of the user's runs, as in most backwards
        self.on_cast: Callable[..., Tensor | None] | None = None  # given each op; what it gives is the op's result
        self.only_computes = True  # whether no op wrote, was given a wrapper, or had something saved by hooks
        self.past_autocast = False  # whether what runs was called by a kernel of autocast's
        self.regeometried: set[int] = set()  # ids of tensors whose own geometry was changed in place
        # ids of tensors on which set_ was called, and whether autograd was told of a call
        self.set_calls: dict[int, bool] = {}
        self.keys: dict[Value, Any] = {}
        self.reshapings: dict[int, list[Reshaping]] = {}  # and how, by id
        self.views: dict[int, Derivation] = {}  # by id of the replica: how autograd's views were made
        self.plain_views: dict[int, Derivation] = {}  # of plain tensors among them that are views of wrappers
        self.unsafe_views: dict[int, Derivation] = {}  # and windows that are no views to autograd
        # called before a tensor changes its geometry in place, or (True) perhaps goes elsewhere
        self.on_reshaping: Callable[[Tensor, bool], None] = lambda t, elsewhere: None
        self.generators: dict[int, Value] = {}  # by address of the stand-in
        self.zeros: set[int] = set()  # storages of zeros without memory, by address: see Note [Zeros without memory]
        self.formulas: tuple[
            bool, ...
        ] = ()  # of backwards inside, as far as they are known: see Note [Formulas for data]
        self._taken: list[bool] = []
        self.default_dtype = torch.get_default_dtype()
        self.draws: dict[Value | None, Draws] = {None: Draws(self.trace, default_generators(), None)}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """To torch this mode is machinery, not the user's."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def recording(self) -> contextlib.AbstractContextManager[None]:
        """Ops are recorded inside, those of backwards too: they run on this thread."""
        return _Recording(self)

    # -- entry

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _PRIM_DEVICE:
            t = args[0]
            if type(t) is Replica:  # as its property says; autograd asks for each gradient that it hands on
                return _torch.META if t.kernels.inside else t.real_device
            return t.device
        # A function mode is told of all that is asked of a tensor; of what a tracer asks it has nothing to know.
        with _torch.without_torch_function():
            return self._dispatch(func, types, args, kwargs or {})

    def _dispatch(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _torch.another_tracer_active():
            raise UnsupportedError("another tracer inside", "the function traces one of its own, as linearize does")
        info = info_of(func)
        unusual = types or kwargs or self.depth or self.zeros or self.table.opaque or self.on_cast is not None
        if info.usual and not unusual and not torch.is_inference_mode_enabled():
            for a in args:
                if type(a) is Replica:
                    if a.is_inference():
                        break
                elif type(a) not in _PLAIN and not (type(a) is list and _INT.issuperset(map(type, a))):
                    break
            else:
                if _torch.has_saved_tensor_hooks():
                    self.only_computes = False
                if info.kind is Kind.PURE:
                    return pure_ops.pure(self, func, info, args, kwargs)
                return view_ops.view(self, func, args, kwargs)
        for t in types:
            if t is not Replica and t is not Tensor and t is not torch.nn.Parameter and t not in OPAQUE:
                self.only_computes = False
                return self._on_wrappers(func, types, args, kwargs)
        if self.on_cast is not None and (cast := self.on_cast(func, args, kwargs)) is not None:
            return cast
        if func is _LIFT or func is _LIFT_COPY:
            return self.lift(args[0])
        inference = below_autograd = torch.is_inference_mode_enabled()
        for a in args:
            if type(a) is Replica:
                below_autograd = below_autograd or a.is_inference()
            elif type(a) not in _PLAIN:
                if type(a) is list and _INT.issuperset(map(type, a)):  # a size, most often
                    continue
                if type(a) is complex and func in pure_ops.FILLS_BY_MASK:
                    args = pure_ops.filled_with_real(args)
                self._check(a)
                if type(a) in (list, tuple):
                    below_autograd = below_autograd or any(isinstance(x, Tensor) and x.is_inference() for x in a)
        for a in kwargs.values():
            if type(a) not in _PLAIN:
                self._check(a)
        apart = self.depth or below_autograd or func is _TANGENT_OP
        if apart and _torch.is_composite(func):
            # Autograd takes such ops apart before they come here, but for inference tensors, in what wrappers do, and
            # of tangents of forward mode.
            below = contextlib.nullcontext() if self.depth else _torch.as_before_dispatch()
            with below, self:
                return _torch.run_composite(func, args, kwargs)
        if inference and func in UNSAFE_VIEWS:
            with _torch.as_before_dispatch(), self:
                parts = _torch.run_composite_kernel(func, args, kwargs)
            self._count_apart(args[0], parts)
            view_ops.note(self, self.views, func, args, kwargs, parts, shares_version=False)
            return parts
        if below_autograd and not inference and beneath.is_beneath(args, kwargs):
            if func in _COMPUTE_INSIDE:
                with contextlib.nullcontext() if self.depth else _torch.as_before_dispatch(), self:
                    return _torch.run_composite_kernel(func, args, kwargs)
            if not self.depth:
                beneath.check(self, func, args, kwargs)
        if info.transparent and (key := self._transparent(info, args, kwargs)) is not None:
            with contextlib.nullcontext() if self.depth else _torch.as_before_dispatch(), self:
                return _torch.run_kernel(func, key, args, kwargs)
        if self.table.opaque and any(type(t) is not Replica for t in tensors_in(args, kwargs)):
            return sparse_ops.apply(self, func, info, args, kwargs)
        if info.takes_device and kwargs.get("device") == _torch.META:
            # Some formulas of autograd ask the implementation, not the tensor, and learn that replicas have no data.
            rest = {k: a for k, a in kwargs.items() if k != "device"}
            kwargs = {**rest, "device": self.device_of(args, rest)}
        if info.kind in _NOTED and torch.is_grad_enabled():
            self._note_write(func, args, kwargs)
        if _torch.has_saved_tensor_hooks():
            self.only_computes = False
        if info.kind is Kind.PURE:
            out = pure_ops.pure(self, func, info, args, kwargs)
            if func is zeros.ZEROS:
                zeros.note(self, out)
            elif self.zeros:
                zeros.propagate(self, func, args, kwargs, out)
            return out
        if info.kind is Kind.VIEW:
            return view_ops.view(self, func, args, kwargs)
        self.only_computes = False
        match info.kind:
            case Kind.IN_PLACE:
                if self.zeros:
                    zeros.refuse_write(self, func, args, kwargs)
                return writes.in_place(self, func, info, args, kwargs)
            case Kind.OUT:
                return writes.to_out(self, func, info, args, kwargs)
            case Kind.RESHAPING:
                return view_ops.reshaping(self, func, args, kwargs)
            case Kind.STORAGE:
                return view_ops.storage(self, func, args, kwargs)
            case Kind.STORAGE_SIZE:
                self.kernels.sizes_matter = True
                self.table.view(args[0])  # what it holds now is settled before
                _torch.storage_of(args[0]).resize_(args[1])
                return None
            case Kind.BATCH_NORM:
                return writes.batch_norm(self, func, args, kwargs)
            case Kind.VALUE_DEPENDENT:
                return self._value_dependent(func, args, kwargs)
            case Kind.WRITES:
                if func is aten.fill_diagonal_.default and not any(args[2:]) and not kwargs:
                    return view_ops.fill_diagonal(self, *args)
                return writes.by_form(self, func, info, args, kwargs)
            case Kind.UNKNOWN:
                raise higher_order_op(_torch.op_name(func))

    def _count_apart(self, source: Tensor, parts: Sequence[Tensor]) -> None:
        """Let ``parts``, views of ``source`` that count versions anew, be as much behind it as in eager.

        There they begin at 0, and autograd takes one for written if it does not stand where ``source`` did.
        """
        ahead = self.kernels.watcher.counts_ahead(source)
        for part in parts if ahead else ():
            if not part.is_inference():
                _torch.set_version(part, ahead if ahead > 0 else _torch.version_of(source) + 1)

    def _note_write(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what is about to be written through a view: see Note [Writes through views]."""
        written = args[0] if args and isinstance(args[0], (list, tuple)) else args[:1]
        if not self.depth and any(isinstance(t, Tensor) and _torch.base_of(t) is not None for t in written[:1]):
            self.kernels.note_write(func, args, kwargs)

    def _value_dependent(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What depends on values is known if those depend on no input: Python values, or tensors of a known shape."""
        if func is aten.linalg_lstsq.default and kwargs.get("driver", "gelsy") in _TELLING_NO_RANK:
            return pure_ops.pure(self, func, info_of(func), args, kwargs)
        values = [self.value_of(a) for a in args]
        certain, answer = folding.known(self.trace, func, values, {k: self.value_of(a) for k, a in kwargs.items()})
        if certain:
            return pytree.tree_map_only(Tensor, self.lift, answer)
        if func is aten.bincount.default and (made := counting.counts(self, *args, **kwargs)) is not None:
            return made
        if not _torch.schema_of(func).returns or "Tensor" in str(_torch.schema_of(func).returns[0].type):
            raise UnsupportedError("data-dependent", f"{func} gives a shape that depends on values")
        if func is aten.equal.default and (expected := self._expected(args[0], values)) is not None:
            return expected
        if func is aten._local_scalar_dense.default and self._is_validation(args[0]):
            self.expect(args[0])
            return True
        if func is aten._local_scalar_dense.default and self._is_objection(args[0], values[0]):
            self.expect(pure_ops.pure(self, _NOT, info_of(_NOT), (args[0],), {}))
            return False
        raise UnsupportedError("data-dependent", f"{func} needs values at trace time")

    def _is_validation(self, flag: Replica) -> bool:
        """Whether a distribution of torch's asks if all of its parameters, or of what it is given, are valid."""
        if flag.dtype is not torch.bool or flag.dim() or flag.real_device.type != "cpu" or self.depth:
            return False
        return calling_module().startswith("torch.distributions.")

    def _is_objection(self, flag: Replica, value: Value) -> bool:
        """Whether a loss of torch's asks if any element is what it may not be, as a variance below zero."""
        asked = value.op is aten.any.default and flag.real_device.type == "cpu" and not self.depth
        return asked and calling_module() == "torch.nn.functional"

    def _expected(self, flag: Replica, values: Sequence[Any]) -> bool | None:
        """What a check in torch's own code (of the window of ``istft``, say) expects to find; None where this is none.

        The graph checks that it is so. Where it is not, the original runs in its place.
        """
        usual, wanted = _USUAL.get(values[0].op), _FILLED.get(values[1].op)
        if usual is None or wanted is None or flag.dim() or flag.real_device.type != "cpu":
            return None  # on other devices a check that fails ruins them
        held = flag if usual else pure_ops.pure(self, _NOT, info_of(_NOT), (flag,), {})
        self.expect(held)
        return usual is wanted

    def expect(self, flag: Tensor) -> None:
        """Let the graph check that ``flag`` is true."""
        self._assert(flag, EXPECTATION)

    def divides(self, flag: Tensor) -> bool:
        """Which formula the next backward inside that depends on data takes; the graph checks that ``flag`` is so."""
        k = len(self._taken)
        answer = self.formulas[k] if k < len(self.formulas) else True
        other = "".join("01"[a] for a in (*self._taken, not answer))
        self._taken.append(answer)
        held = flag if answer else pure_ops.pure(self, _NOT, info_of(_NOT), (flag,), {})
        self._assert(held, f"{OTHER_FORMULA}{other}.")
        return answer

    def _assert(self, flag: Tensor, message: str) -> None:
        self.trace.effects.append(self.call(aten._assert_async.msg, (self.value_of(flag), message), {}))

    def _transparent(self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """The kernel that eager's autograd would look into in this call: see Note [Transparent ops]."""
        recorded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(args, kwargs))
        if not recorded and info.kind is not Kind.VIEW:
            return None
        own = self.device_of(args, kwargs).type.upper()
        return next((k for k in (own, "CompositeExplicitAutograd") if k in info.transparent), None)

    def _on_wrappers(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the wrappers' own classes say what ``func`` does: see Note [Wrappers]."""
        for a in () if func.overloadpacket in _ASKS_GEOMETRY else wrappers_in(args, kwargs):
            # A tensor of torch's own without data stands for a type.
            strangers = [x for x in leaves_of(a) if type(x) is not Replica and not x.is_meta]
            if strangers:
                raise RetraceWithCaptured(a if len(strangers) == len(leaves_of(a)) else strangers[0])
        if self.zeros and not self.depth and zeros.among(self, args, kwargs):
            if zeros.meets_class(func):
                return zeros.with_wrapper(self, func, args, kwargs)
            args, kwargs = zeros.materialized(self, args), zeros.materialized(self, kwargs)
        kind = info_of(func).kind
        if kind in _NOTED and torch.is_grad_enabled():
            self._note_write(func, args, kwargs)
        if kind is Kind.RESHAPING and is_wrapper(args[0]):
            view_ops.note_reshaping(self, func, args, kwargs)
        if kind is Kind.STORAGE and is_wrapper(args[0]):
            self.kernels.note_move(args[0], None)
            self.set_calls[id(args[0])] = not torch.is_inference_mode_enabled()
        out = NotImplemented
        self.depth += 1
        try:
            with self:
                for t in types:
                    out = t.__torch_dispatch__(func, types, args, kwargs)
                    if out is not NotImplemented:
                        break
        finally:
            self.depth -= 1
        results = out if isinstance(out, (list, tuple)) else [out]
        noted = args and isinstance(args[0], Tensor) and results and all(is_wrapper(r) for r in results)
        if noted and kind is Kind.VIEW:
            view_ops.note(self, self.views, *view_ops.told_by_size(func, args), kwargs, out)
        elif kind is Kind.VIEW and not self.depth and is_wrapper(args[0]) and all(type(r) is Replica for r in results):
            view_ops.note(self, self.plain_views, func, args, kwargs, out)
        return out

    @property
    def kernels_count_writes(self) -> bool:
        """Whether a kernel of eager's would count what it writes; below the class of a wrapper none does."""
        return not self.depth

    def count_write(self, t: Tensor) -> None:
        """Count a write that a kernel of eager's counts."""
        if self.kernels_count_writes:
            _torch.count_write(t)

    def _check(self, a: Any) -> None:
        """Every tensor must be a replica of this trace; another is a captured one."""
        if isinstance(a, Tensor):
            if type(a) is not Replica and type(a) not in OPAQUE:
                raise RetraceWithCaptured(a)
        elif type(a) in (list, tuple):
            for x in a:
                if isinstance(x, Tensor):
                    self._check(x)
        elif isinstance(a, torch.UntypedStorage) and a.device.type != "meta":
            raise UnsupportedError("captured storage", "set_ to a storage that belongs to no input")
        elif isinstance(a, torch.Generator) and _torch.generator_address(a) not in self.generators:
            raise RetraceWithCaptured(a)

    def lift(self, t: Tensor) -> Tensor:
        """The tensor ``t``, which no call brings, as a constant of the trace."""
        if isinstance(t, Replica):
            return t
        if t.layout is not torch.strided:
            raise UnsupportedError("layout", f"a constant is {t.layout}")
        if type(t) is not Tensor:
            raise UnsupportedError("constant of a subclass", type(t).__name__)
        elem = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=_torch.META)
        r = make_replica(elem, t.device, self.kernels)
        value = self.trace.call(_LIFT_COPY, (self.trace.constant(t.clone()),))
        self.table.bind(r, value)
        return r

    def generator(self, stand_in: torch.Generator) -> None:
        """``stand_in`` is for a random generator that each call brings along."""
        value = Value(PLACEHOLDER, (), {})
        value.constant, value.device = stand_in, stand_in.device
        self.generators[_torch.generator_address(stand_in)] = value
        self.draws[value] = Draws(self.trace, [stand_in], value)

    def swap(self, a: Tensor, b: Tensor) -> None:
        """Two objects exchanged the tensors that they are: what is known by object is now known of the other one."""
        for known in (self.views, self.plain_views, self.unsafe_views, self.reshapings, self.set_calls):
            exchange(known, id(a), id(b))
        for notes in (self.views, self.plain_views, self.unsafe_views):
            for key, made in notes.items():
                notes[key] = made.after_swap(a, b)
        ids = self.regeometried
        has_a, has_b = id(a) in ids, id(b) in ids
        ids.difference_update((id(a), id(b)))
        ids.update(({id(b)} if has_a else set()) | ({id(a)} if has_b else set()))

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
        except Exception as error:
            if "NestedTensorImpl" in str(error):
                raise UnsupportedError("layout", f"{func} makes a nested tensor that is no ragged one") from error
            lacking = error if _torch.lacks_meta_kernel(error) else None
            # A kernel written in Python may refuse what the real ones take; all refuse a ragged size, in other words.
            asks_eager = _torch.has_python_meta_kernel(func) or holds_ragged_size([*args, *kwargs.values()])
            asks_eager = asks_eager and not (self.kernels.function_runs and _torch.schema_of(func).is_mutable)
            if lacking is None and (isinstance(error, UnsupportedError) or not asks_eager):
                raise
        finally:
            self.kernels.inside = False
        return no_meta.results_of(func, args, kwargs, lacking)

    def device_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
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
                if isinstance(x, Replica):
                    if x.real_device.type != "cpu" or x.dim() > 0:
                        return x.real_device
                    found = found or x.real_device
        return found or torch.get_default_device()

    def values_of(self, args: Any) -> Any:
        """Positional or keyword arguments as the functional program names them."""
        if isinstance(args, dict):
            return {k: self.value_of(a) for k, a in args.items()}
        return tuple([self.value_of(a) for a in args])

    def value_of(self, a: Any, lies: Mapping[int, Geometry] = MappingProxyType({})) -> Any:
        """An argument as the functional program names it; ``lies`` has geometries that are known, by id."""
        if type(a) in _PLAIN:
            return a
        if isinstance(a, Replica):
            geometry = lies.get(id(a))
            return self.table.read(a) if geometry is None else self.table.read_at(a, geometry)
        if type(a) in (list, tuple):
            return [self.value_of(x, lies) for x in a]
        if type(a) is torch.Generator:
            return self.generators[_torch.generator_address(a)]
        return a

    def fresh(self, geometry: Geometry, device: torch.device, value: Value) -> Replica:
        """A replica on a storage of its own that holds ``value``."""
        elem = torch.empty_strided(geometry.shape, geometry.stride, dtype=geometry.dtype, device=_torch.META)
        elem = _torch.conj_view(elem) if geometry.conj else elem
        elem = _torch.neg_view(elem) if geometry.neg else elem
        r = make_replica(elem, device, self.kernels)
        self.table.bind_new(r, value, geometry, device)
        return r

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], random: bool = False) -> Value:
        """``func`` recorded with the user's line, and as an effect if it draws random numbers (or is ``random``)."""
        random = random or info_of(func).random
        draws = self._draws(args, kwargs) if random else None
        if draws is not None and (known := draws.repeated(func, args, kwargs)) is not None:
            return known
        value = Value(func, args, kwargs or NO_KWARGS)
        self.trace.values.append(value)
        value.where = self.outside if self.only_ours else user_frame(self.outside)
        value.sequence = _torch.autograd_sequence_number()
        if draws is not None:
            self.trace.effects.append(value)
            draws.drawn(value)
        return value

    def _draws(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draws:
        """Those from the generator that an op with these arguments draws from."""
        given = [a for a in (*args, *kwargs.values()) if type(a) is Value and a in self.draws]
        return self.draws[given[0] if given else None]

    def drawing(self, later: bool = False) -> contextlib.AbstractContextManager[None]:
        """See Note [Draws]; inside, the generators are ours. ``later``: for a backward."""
        return _Drawing(list(self.draws.values()), later)

    # -- pure ops

    def bind_results(self, out: Any, value: Value, device: torch.device) -> Any:
        """What an op gave, on fresh storages, as replicas that hold ``value`` or its items."""
        if isinstance(out, SparseResult):
            return sparse_ops.bind(self, out, value, device)
        if isinstance(out, Tensor):
            return self._bind_fresh(out, value, device)
        if isinstance(out, (list, tuple)):
            bound: list[Any] = []
            for k, o in enumerate(out):
                if isinstance(o, SparseResult):
                    bound.append(sparse_ops.bind(self, o, self.trace.call(getitem, (value, k)), device))
                elif not isinstance(o, Tensor):
                    bound.append(o)
                elif any(isinstance(x, Tensor) and not is_sparse(x) and _same_window(x, o) for x in bound):
                    # Some ops give one tensor twice (the gradients of an LSTM's biases): it is bound once.
                    bound.append(o if type(o) is Replica else make_replica(o, device, self.kernels))
                else:
                    bound.append(self._bind_fresh(o, self.trace.call(getitem, (value, k)), device))
            value.parts = tuple([_measured(b) for b in bound])
            value.device = device
            return type(out)(bound)
        if out is None:
            self.trace.effects.append(value)
        return out

    def _bind_fresh(self, out: Tensor, value: Value, device: torch.device) -> Tensor:
        if type(out) is not Replica:
            out = make_replica(out, device, self.kernels)
        if _torch.storage_address(_torch.storage_of(out)) in self.table.states:
            raise UnsupportedError(
                "unannotated alias", "an op returned a tensor that shares memory with another, against its schema"
            )
        self.table.bind(out, value)
        return out


def _same_window(a: Tensor, b: Tensor) -> bool:
    storages = [_torch.storage_address(_torch.storage_of(t)) for t in (a, b)]
    return storages[0] == storages[1] and geometry_of(a) == geometry_of(b)


def _measured(a: Any) -> Any:
    """What a result measures, or the result itself where it is no tensor."""
    if isinstance(a, SparseReplica):
        return a.geometry
    return geometry_of(a) if isinstance(a, Tensor) else a
