"""Everything private to torch that the project touches, under names of our own.

The rest of the project imports private torch names from here alone, so that a torch release which renames one breaks
one file, with one clear error at import. Each name is used as a primitive; what it does was learned by running it.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx

try:
    import torch.utils._pytree as pytree
    from torch._C._dynamo.guards import TensorGuards
    from torch._higher_order_ops.auto_functionalize import auto_functionalized, can_auto_functionalize
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, UnsupportedOperatorException
    from torch.fx import _symbolic_trace
    from torch.nested._internal.nested_tensor import NestedTensor
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

    _C = torch._C
    _creation_meta = _C._autograd._get_creation_meta
    _set_version = _C._autograd._unsafe_set_version_counter
    _set_creation_meta = _C._autograd._set_creation_meta
    CreationMeta = _C._autograd.CreationMeta
    SavedTensor: Any = _C._autograd.SavedTensor
    _DisableTorchDispatch = _C._DisableTorchDispatch
    _PreserveDispatchKeyGuard = _C._PreserveDispatchKeyGuard
    _pre_dispatch_modes: Callable[[], int] = torch._ops._len_torch_dispatch_stack_pre_dispatch
    _set_meta_in_tls = _C._set_meta_in_tls_dispatch_include
    _function_apply = _C._FunctionBase.__dict__["apply"]
    _restore_dispatch = vars(_C)["_RestorePythonTLSSnapshot"]
    _top_hooks: Callable[[bool], Any] = _C._autograd._top_saved_tensors_default_hooks
    _throw_on_data = _C._set_throw_on_mutable_data_ptr
    _warn_on_data = _C._set_warn_deprecated_on_mutable_data_ptr
    _skip_one_hop = _C._skip_one_hop_torch_function
    swap_impls: Callable[[Tensor, Tensor], None] = vars(_C)["_swap_tensor_impl"]
    set_grad_enabled_raw: Callable[[bool], None] = _C._set_grad_enabled
    storage_address: Callable[[torch.UntypedStorage], int] = torch.UntypedStorage._cdata.__get__
    conj_view = torch.ops.aten._conj.default
    neg_view = torch.ops.aten._neg_view.default
except (ImportError, AttributeError) as error:  # pragma: no cover - depends on the installed torch
    raise ImportError(
        f"aotcheck needs torch >= 2.11; torch {torch.__version__} lacks a name it uses: {error}"
    ) from error

__all__ = [
    "CreationMeta",
    "FakeTensor",
    "FakeTensorMode",
    "NestedTensor",
    "SavedTensor",
    "TensorGuards",
    "TorchDispatchMode",
    "auto_functionalized",
    "can_auto_functionalize",
    "pytree",
]

OpOverload = torch._ops.OpOverload
HigherOrderOperator = torch._ops.HigherOrderOperator
OpOverloadPacket = torch._ops.OpOverloadPacket
META = torch.device("meta")
PRIM_DEVICE = torch.ops.prim.device.default


# -- dispatch


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """No torch-dispatch mode is active inside; for work of ours that a tracer must not record."""
    if not _C._len_torch_dispatch_stack() and not _pre_dispatch_modes():
        return contextlib.nullcontext()
    return cast("contextlib.AbstractContextManager[Any]", _disable_current_modes())


class meta_kernels:
    """Below this, ops on tensors of any device run their meta kernels: shapes and strides only, no data."""

    __slots__ = ("_dispatch", "_keys")

    def __enter__(self) -> None:
        """Meta kernels from now on."""
        self._dispatch = _DisableTorchDispatch()
        self._dispatch.__enter__()
        self._keys = _PreserveDispatchKeyGuard()
        self._keys.__enter__()
        _set_meta_in_tls(True)

    def __exit__(self, *_: object) -> None:
        """As before."""
        self._keys.__exit__(None, None, None)
        self._dispatch.__exit__(None, None, None)


class FunctionMode(torch.overrides.TorchFunctionMode):
    """Public base of our function mode, named here beside the dispatch mode."""


def past_function_modes(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call ``func``, of which function modes are not told, while they are active for what it calls."""
    return _skip_one_hop(func, (), args, kwargs)


def as_before_dispatch() -> contextlib.AbstractContextManager[Any]:
    """Ops that a dispatch mode's handler calls inside are dispatched from the top again, view tracking included."""
    return cast("contextlib.AbstractContextManager[Any]", _restore_dispatch())


without_torch_function: Callable[[], contextlib.AbstractContextManager[Any]] = torch._C.DisableTorchFunction
disabled_torch_function = torch._C._disabled_torch_function_impl
disabled_torch_dispatch: Any = torch._C._disabled_torch_dispatch_impl


def make_subclass(cls: type[Tensor], elem: Tensor, device: torch.device) -> Tensor:
    """``elem`` as a ``cls`` on the same storage, answering the dispatch keys (autograd, autocast) of ``device``."""
    return Tensor._make_subclass(cls, elem, False, dispatch_device=True, device_for_backend_keys=device)


def dispatch_mode_depth() -> int:
    """How many torch-dispatch modes are active on this thread."""
    return int(_C._len_torch_dispatch_stack())


def lacks_meta_kernel(error: Exception) -> bool:
    """Whether an op that was run without data raised ``error`` because it has no kernel for that."""
    if isinstance(error, (NotImplementedError, UnsupportedOperatorException)):
        return True
    return isinstance(error, RuntimeError) and "There was no fake impl registered" in str(error)


def functorch_active() -> bool:
    """Whether a torch.func transform (vmap, grad, jvp ...) is running on this thread."""
    return bool(_C._are_functorch_transforms_active())


def dual_level() -> int:
    """The level of forward-mode differentiation that is active; -1 if none is."""
    return int(torch.autograd.forward_ad._current_level)


def autograd_node_running() -> str | None:
    """The name of the node whose backward is running on this thread; None if none is."""
    node = _C._current_autograd_node()
    return None if node is None else str(node.name())


def another_tracer_active() -> bool:
    """Whether FX is tracing on this thread, as ``make_fx`` does."""
    return bool(_symbolic_trace._is_fx_tracing_flag)


def determinism() -> tuple[bool, bool]:
    """Whether deterministic algorithms are asked for, and whether their lack is but warned about."""
    return _C._get_deterministic_algorithms(), _C._get_deterministic_algorithms_warn_only()


AMBIENT: dict[str, Any] = {
    "modes": _C._len_torch_dispatch_stack,
    "function_modes": _C._len_torch_function_stack,
    "transforms": _C._are_functorch_transforms_active,
    "hooks": _top_hooks,
    "forward_ad": torch.autograd.forward_ad,
    "deterministic": _C._get_deterministic_algorithms,
    "warn_only": _C._get_deterministic_algorithms_warn_only,
}
"""What the sources of ``ambient_state`` name."""


def ambient_state() -> dict[str, Any]:
    """What is in force on this thread: sources in terms of ``AMBIENT``, each with what it gives now.

    Active dispatch modes and function modes; whether torch.func transforms are in force, or no saved-tensor hooks; the
    level of forward-mode differentiation; determinism.
    """
    return {
        "modes()": _C._len_torch_dispatch_stack(),
        "function_modes()": _C._len_torch_function_stack(),
        "transforms()": _C._are_functorch_transforms_active(),
        "(hooks(True) is None)": not has_saved_tensor_hooks(),
        "forward_ad._current_level": dual_level(),
        "deterministic()": _C._get_deterministic_algorithms(),
        "warn_only()": _C._get_deterministic_algorithms_warn_only(),
    }


# -- autograd


def base_of(t: Tensor) -> Tensor | None:
    """The tensor of which ``t`` is a differentiable view, or None."""
    return t._base


def view_func_of(t: Tensor) -> Callable[[Tensor], Tensor]:
    """Rebuilds the view ``t`` from another base of the same geometry, by view replay where torch recorded it."""
    return cast("Callable[[Tensor], Tensor]", t._view_func_unsafe)


def made_with_tensors(t: Tensor) -> bool:
    """Whether other tensors took part in making the view ``t``, as the offsets of a ragged tensor do."""
    base, met = base_of(t), list[Tensor]()
    assert base is not None

    def note(x: Tensor) -> Tensor:
        met.append(x)
        return x

    with torch.no_grad():
        t._view_func_unsafe(base, tensor_visitor_fn=note)
    return bool(met)


def creation_meta(t: Tensor) -> Any:
    """How the view ``t`` was made: decides whether eager allows writing to it under grad."""
    return _creation_meta(t)


def set_creation_meta(t: Tensor, meta: Any) -> None:
    """Make eager treat writes to the view ``t`` as it treats those to a view made as ``meta`` says."""
    _set_creation_meta(t, meta)


def swap(a: Tensor, b: Tensor) -> None:
    """Each of two Python objects becomes the tensor that the other was."""
    attributes = a.__dict__
    a.__dict__, b.__dict__ = b.__dict__, attributes
    a.__class__, b.__class__ = b.__class__, a.__class__
    swap_impls(a, b)


def set_data(t: Tensor, data: Tensor) -> None:
    """``t.data = data``, past a subclass that looks at what is assigned to it."""
    Tensor.data.__set__(t, data)  # type: ignore[attr-defined]  # a C attribute, typed as a property of instances


def other_dtype_than(t: Tensor, device: torch.device) -> Tensor:
    """An empty tensor of another dtype that gradients can have."""
    return torch.empty(0, dtype=torch.float64 if t.dtype is torch.float32 else torch.float32, device=device)


def drop_accumulator(leaf: Tensor, other: Tensor) -> None:
    """Let ``leaf`` accumulate gradients anew; ``other`` is a tensor of another dtype.

    What gradients of a leaf arrived at is given up when it gets data of another dtype, which it then has for a moment.
    """
    with torch.no_grad():
        data = leaf.data
        set_data(leaf, other)
        set_data(leaf, data)


def use_count(t: Tensor) -> int:
    """How many hold the tensor that the object is: the object, its accumulator of gradients, saved variables."""
    count: int = Tensor._use_count(t)  # type: ignore[attr-defined]  # missing from the stubs
    return count


def leafness(t: Tensor) -> bool | None:
    """``t.is_leaf``; None where torch refuses to say, of a view made under no_grad whose base was written since.

    Or of a view that cannot be made again of its base, which has fewer dimensions since.
    """
    try:
        return t.is_leaf
    except (RuntimeError, IndexError):
        return None


def gradient_shape(node: Any, place: int = 0) -> tuple[int, ...]:
    """The shape of the gradient that ``node`` takes of a result of its, as it was when the node was made."""
    return tuple(node._input_metadata[place].shape)


def gradient_dtype(node: Any, place: int) -> torch.dtype:
    """The dtype of the same."""
    return cast("torch.dtype", node._input_metadata[place].dtype)


def outputs_of(node: Any) -> int:
    """How many results the node of autograd has gradients of."""
    return len(node._input_metadata)


def skip_backward(node: Any) -> None:
    """The custom Function whose node this is gives no gradients from now on, whatever it is given."""
    node.apply = lambda *grads: (None,) * 1024  # more than it took arguments: torch drops what is too many


def run_backward_again(node: Any) -> None:
    """The custom Function whose node this is gives gradients again."""
    del node.apply


def is_opaque(node: Any) -> bool:
    """Whether ``node`` keeps tensors for its backward of which it shows none."""
    return type(node).__name__ == "CppFunction" and node.name().startswith("Foreach")


def is_write_through_view(node: Any) -> bool:
    """Whether ``node`` is the history that a base has of a write through a view of it."""
    return type(node).__name__ == "CopySlices"


def error_of(node: Any) -> str | None:
    """What ``node`` raises if it is there for nothing else, as in the graph of what may be differentiated once."""
    if type(node).__name__ not in ("Error", "NotImplemented"):
        return None
    try:
        node(None)
    except RuntimeError as error:
        return str(error)
    return None


def run_without_gradients(node: Any) -> None:
    """Run a node's backward with no gradient defined.

    Raises:
        RuntimeError: what it keeps was written since.
    """
    node(*[None] * outputs_of(node))


@contextlib.contextmanager
def as_if_written(t: Tensor, times: int = 1) -> Iterator[None]:
    """The version counter of ``t``, if it has one, is so many writes further inside."""
    version = version_of(t)
    if version < 0:
        yield
        return
    _set_version((t,), (version + times,))
    try:
        yield
    finally:
        _set_version((t,), (version,))


def at_another_version(t: Tensor) -> contextlib.AbstractContextManager[None]:
    """Inside, the version counter of ``t`` stands where no number of writes to come will bring it."""
    return as_if_written(t, 1 << 30)


def variable_of(accumulator: Any) -> Tensor:
    """The leaf into which the node ``accumulator`` puts its gradients."""
    return cast(Tensor, accumulator.variable)


def grad_fn_of(t: Tensor) -> Any:
    """The node of autograd that made ``t``; None for leaves, and where torch refuses to say (see ``leafness``)."""
    try:
        return t.grad_fn
    except (RuntimeError, IndexError):
        return None


def set_hooks(t: Tensor, hooks: OrderedDict[int, Callable[[Tensor], Any]]) -> None:
    """Let the hooks that are registered on ``t``, which has a history, be kept in ``hooks``, by their handles' ids."""
    t._backward_hooks = hooks
    t.grad_fn._register_hook_dict(t)  # type: ignore[union-attr]  # it has a history


def has_saved_tensor_hooks() -> bool:
    """Whether default saved-tensor hooks are active on this thread."""
    return _top_hooks(True) is not None


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """The default saved-tensor hooks of this thread are not in force inside."""
    taken = []
    while (hooks := _top_hooks(True)) is not None:
        taken.append(hooks)
        _C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(taken):
            _C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def unpack_some(ctx: Any, which: Sequence[int]) -> tuple[Tensor, ...]:
    """Those of an autograd Function's saved tensors; the others may have been written since without harm."""
    saved = ctx._raw_saved_tensors
    return tuple([saved[k].unpack() for k in which])


def saved_of(node: Any) -> Sequence[Any]:
    """What the node of an autograd Function saved, as it is saved."""
    return cast("Sequence[Any]", node._raw_saved_tensors)


class _Noted:
    """A member of a class of torch's whose use is told to those who asked for it, on their own threads.

    While anybody does, ``member``, which is given this object and does what torch's own does, stands in its place.
    """

    def __init__(self, owner: Any, name: str, member: Callable[[_Noted], Any]) -> None:
        self.owner = owner
        self.name = name
        self.member = member(self)
        self._notes: list[tuple[int, Callable[[Any], None]]] = []
        self._lock = threading.Lock()
        self._own = vars(owner).get(name)

    def tell(self, ctx: Any) -> None:
        """``ctx`` is used."""
        for thread, note in tuple(self._notes):
            if thread == threading.get_ident():
                note(ctx)

    @contextlib.contextmanager
    def to(self, note: Callable[[Any], None]) -> Iterator[None]:
        """``note`` is called on this thread inside."""
        entry = threading.get_ident(), note
        with self._lock:
            if not self._notes:
                setattr(self.owner, self.name, self.member)
            self._notes.append(entry)
        try:
            yield
        finally:
            with self._lock:
                self._notes.remove(entry)
                if not self._notes and self._own is None:
                    delattr(self.owner, self.name)
                elif not self._notes:
                    setattr(self.owner, self.name, self._own)


def _asking(noted: _Noted) -> Any:
    own = _C._FunctionBase.__dict__["saved_tensors"]

    def saved_tensors(node: Any) -> Any:
        noted.tell(node)
        return own.__get__(node)

    return property(saved_tensors)


def _writing(noted: _Noted) -> Any:
    own = torch.autograd.function.FunctionCtx.mark_dirty

    def mark_dirty(ctx: Any, *args: Tensor) -> None:
        own(ctx, *args)
        noted.tell(ctx)

    return mark_dirty


_asked = _Noted(torch.autograd.function.BackwardCFunction, "saved_tensors", _asking)
_dirtied = _Noted(torch.autograd.function.FunctionCtx, "mark_dirty", _writing)


def noting_who_asks(note: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
    """On this thread, ``note`` is called inside with each node of a custom Function that is asked for what it saved."""
    return _asked.to(note)


def noting_who_writes(note: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
    """On this thread, ``note`` is called inside with each node of a custom Function that marks what it wrote."""
    return _dirtied.to(note)


def is_packed(saved: Any) -> bool:
    """Whether hooks packed what is saved."""
    return saved.unpack_hook is not None


def backward_keeps_graph() -> bool:
    """Whether the backward that is running on this thread leaves the graph as it is (``retain_graph``)."""
    return bool(_C._autograd._get_current_graph_task_keep_graph())


def after_backward(action: Callable[[], None]) -> None:
    """Do ``action`` when the backward that is running on this thread is over."""
    torch.autograd.Variable._execution_engine.queue_callback(action)


def will_run(node: Any) -> bool:
    """Whether the backward that is running on this thread comes to ``node``; of a leaf's, in ``torch.autograd.grad``,
    the engine does not say, and it is taken for granted.
    """
    try:
        comes: bool = torch._C._will_engine_execute_node(node)
    except RuntimeError:
        return True
    return comes


def bound_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without the Python layer that handles torch.func transforms."""
    return cast("Callable[..., Any]", _function_apply.__get__(None, function))


warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf", module=__name__)


def held_gradient(t: Tensor) -> Tensor | None:
    """``t.grad``, also where ``t`` is no leaf, without a warning."""
    return t.grad


def asked_for_gradient_edge() -> bool:
    """Whether the caller of the caller is torch, finding out where the gradients of a tensor arrive."""
    return sys._getframe(2).f_globals is vars(torch.autograd.graph)


def has_hooks(t: Tensor) -> bool:
    """Whether tensor hooks were registered on ``t``."""
    return bool(t._backward_hooks)


def has_hooks_of_any_kind(t: Tensor) -> bool:
    """Whether tensor hooks were registered on ``t``, or hooks for after the accumulation of its gradient, or
    ``retain_grad`` was called on it.
    """
    return bool(t._backward_hooks) or bool(t._post_accumulate_grad_hooks) or t.retains_grad


def gradient_of(t: Tensor) -> Tensor | None:
    """``t.grad``; None, without a warning, for what is no leaf and keeps no gradient."""
    return t.grad if leafness(t) or t.retains_grad else None


def sequence_number(node: Any) -> int:
    """When autograd made ``node``: the later, the greater. A backward comes by later ones first."""
    return int(node._sequence_nr())


def autograd_sequence_number() -> int:
    """The number that autograd will give to the next node of the graph."""
    return int(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]


def count_write(t: Tensor) -> None:
    """Move the version counter of ``t``, if it has one."""
    if version_of(t) >= 0:
        torch.autograd.graph.increment_version(t)


def refuse_inference_write() -> None:
    """Raise what torch raises where an inference tensor is written outside inference mode."""
    with torch.inference_mode():
        written = torch.zeros(0)
    with as_before_dispatch():
        written.zero_()


def set_version(t: Tensor, version: int) -> None:
    """Give the version counter of ``t`` this value."""
    _set_version((t,), (version,))


def version_groups(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor the index of the first that counts versions with it, as views, bases and detached aliases do.

    Found by moving each counter for an instant; every counter is as before when this returns.
    """
    groups = list(range(len(tensors)))
    before = [version_of(t) for t in tensors]
    for i, t in enumerate(tensors):
        if groups[i] != i or before[i] < 0:
            continue
        moved = before[i] + 1_000_003
        _set_version((t,), (moved,))
        try:
            for j in range(i + 1, len(tensors)):
                if groups[j] == j and version_of(tensors[j]) == moved:
                    groups[j] = i
        finally:
            _set_version((t,), (before[i],))
    return groups


def counted_by(tensors: Sequence[Tensor], counters: Sequence[Tensor]) -> list[int | None]:
    """For each of ``tensors`` the index of one of ``counters`` that counts versions with it; the last if several do."""
    counters = [t for t in counters if version_of(t) >= 0]
    before = [version_of(t) for t in counters]
    first = 1_000_003
    try:
        for k, t in enumerate(counters):
            _set_version((t,), (first + k,))
        found = [version_of(t) - first for t in tensors]
    finally:
        for t, version in zip(reversed(counters), reversed(before), strict=True):
            _set_version((t,), (version,))
    return [k if 0 <= k < len(counters) else None for k in found]


# -- storages and ops

storage_of = Tensor.untyped_storage


def content_of(t: Tensor) -> bytes:
    """The bytes of the storage of ``t``, on the CPU, read without dispatching anything."""
    storage = t.untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())


def set_geometry(
    t: Tensor, storage: torch.UntypedStorage, offset: int, shape: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """``t`` becomes a window of ``storage``; autograd is not told."""
    with torch.no_grad():
        t.set_(storage, offset, tuple(shape), tuple(stride))
    return t


def raw_op(op: Any) -> Any:
    """The C++ callable behind an OpOverload: same result, less Python per call."""
    return op._op if isinstance(op, OpOverload) else op


class _Met(Exception):
    """Ends a call as soon as it is known which op it is."""


class _FirstOp(TorchDispatchMode):
    """Stops at the first op and remembers it and its arguments."""

    met: Any = None

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.met = (func, args, kwargs or {})
        raise _Met


_quick_ops: dict[Any, Any] = {}
_EXAMPLES = [(shape, dtype) for dtype in (torch.float32, torch.int64) for shape in ((1,), ())]


def quick_op(op: Any, args: Sequence[Any], kwargs: dict[str, Any], tensor: type) -> Any:
    """What calls ``op`` fastest with such arguments, those of type ``tensor`` standing for tensors.

    The functions and methods behind ``torch.add`` and ``Tensor.view`` parse their arguments faster than an OpOverload
    does, but choose the overload by what they are given. They are used where they were seen to choose ``op`` for these
    kinds of arguments, whatever the tensors' dimensions and dtypes.
    """
    if not isinstance(op, OpOverload):
        return op
    key = (op, _kinds(args, tensor), tuple(kwargs), _kinds(list(kwargs.values()), tensor))
    found = _quick_ops.get(key)
    if found is None:
        name = op.overloadpacket.__name__
        found = getattr(_C._VariableFunctions, name, None) or getattr(_C.TensorBase, name, None)
        with without_modes():
            if op.namespace != "aten" or found is None or not _chooses(found, op, args, kwargs, tensor):
                found = raw_op(op)
        _quick_ops[key] = found
    return found


def _kinds(a: Any, tensor: type) -> Any:
    if isinstance(a, (list, tuple)):
        return tuple([_kinds(x, tensor) for x in a])
    return type(a)


def _chooses(function: Any, op: Any, args: Sequence[Any], kwargs: dict[str, Any], tensor: type) -> bool:
    """Whether ``function`` calls ``op``, with the very same arguments."""

    def is_leaf(x: Any) -> bool:
        return type(x) is tensor or not isinstance(x, (list, tuple, dict))

    leaves, spec = pytree.tree_flatten((list(args), kwargs), is_leaf=is_leaf)
    places = [k for k, x in enumerate(leaves) if type(x) is tensor]
    choices = [[e] * len(places) for e in _EXAMPLES]
    choices += [[e if k == j else _EXAMPLES[0] for j in places] for k in places for e in _EXAMPLES[1::2]]
    for choice in choices:
        filled = list(leaves)
        for k, (shape, dtype) in zip(places, choice, strict=True):
            filled[k] = torch.empty(shape, dtype=dtype)
        found, wanted = (_first_op(f, *pytree.tree_unflatten(filled, spec)) for f in (function, op))
        if found is None or wanted is None or found[0] is not op or wanted[0] is not op:
            return False
        ours, theirs = (pytree.tree_leaves(x[1:]) for x in (found, wanted))
        if (
            list(found[2]) != list(wanted[2])
            or len(ours) != len(theirs)
            or not all(
                a is b or (type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b))
                for a, b in zip(ours, theirs, strict=True)
            )
        ):
            return False
    return True


def _first_op(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    mode = _FirstOp()
    with contextlib.suppress(Exception), _disable_current_modes(), mode, torch.no_grad():
        function(*args, **kwargs)
    return mode.met


def op_name(op: Any) -> str:
    """The name of an op without namespace and overload, as error messages and rules by name use it."""
    return str(op.overloadpacket.__name__) if isinstance(op, OpOverload) else str(getattr(op, "__name__", "op"))


def generator_address(generator: torch.Generator) -> int:
    """What two Python objects for the same generator have in common; valid while it is alive."""
    return int(generator._cdata)  # type: ignore[attr-defined]


def schema_of(op: Any) -> Any:
    """The op's signature: names and types of its arguments, and which of them it writes or returns views of."""
    return op._schema


def is_composite(op: Any) -> bool:
    """Whether the op has no kernel of its own but is written in terms of others, to autograd's view tracking too."""
    return (
        isinstance(op, OpOverload)
        and bool(op._can_decompose())
        and not _C._dispatch_has_kernel_for_dispatch_key(op.name(), "ADInplaceOrView")
    )


def run_composite(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a composite op as eager does: torch's decompositions in Python draw other random numbers."""
    key = _C.DispatchKey.CompositeImplicitAutograd
    if _C._dispatch_has_kernel_for_dispatch_key(op.name(), key):
        return op._op_dk(key, *args, **kwargs)
    return op.decompose(*args, **kwargs)


def run_composite_in(mode: Any, op: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a composite op that came whole to the handler of ``mode``, as in inference mode it does: under the caller's
    autocast, and with what it calls coming to ``mode`` too, except what wrapper subclasses make of it."""
    if any(hasattr(t, "__tensor_flatten__") for t in types):
        with as_before_dispatch():
            return op(*args, **kwargs)
    with as_before_dispatch(), mode:
        return run_composite(op, args, kwargs)


def run_composite_kernel(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The kernel that ``op`` has for every backend, which calls other ops."""
    return op._op_dk(_C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)


def transparent_kernels(op: Any) -> frozenset[str]:
    """The dispatch keys under which ``op`` has a kernel in Python, if it has none for autograd."""
    if any(
        _C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in ("Autograd", "AutogradCPU", "AutogradCUDA")
    ):
        return frozenset()
    namespace, _, name = op.name().partition("::")
    keys = ("CPU", "CUDA", "CompositeExplicitAutograd")
    return frozenset(key for key in keys if f"{namespace}/{name}/{key}" in torch.library._impls)


def run_kernel(op: Any, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the kernel of ``op`` for ``key`` gives."""
    return op.redispatch(_C.DispatchKeySet(getattr(_C.DispatchKey, key)), *args, **kwargs)


def overload_name(op: Any) -> str:
    """Which overload of its name the op is, as ``Tensor`` in ``add.Tensor``."""
    return str(op._overloadname)


# -- fx


def append_node(
    graph: fx.Graph, name: str, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node:
    """A node at the end of ``graph`` under exactly ``name``; the caller keeps names unique."""
    node = fx.Node(graph, name, op, target, args, kwargs)
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def direct_graph_module(write: Callable[[fx.GraphModule], Callable[..., Any] | None]) -> type[fx.GraphModule]:
    """A class of GraphModules whose ``forward``, made when first needed, is what ``write`` makes of the module.

    ``write`` takes a module to a method; None leaves that module to FX. The printed code is always FX's.
    """
    from torch.fx._lazy_graph_module import _LazyGraphModule
    from torch.fx.graph import CodeGen

    class DirectGraphModule(_LazyGraphModule):
        def real_recompile(self) -> None:
            if self._needs_recompile() and not self._write():
                self._real_recompile()

        def _write(self) -> bool:
            forward = write(self) if type(self.graph._codegen) is CodeGen else None
            if forward is not None:
                type(self).forward = forward
            return forward is not None

        def _print(self) -> None:
            self._real_recompile()
            self._write()

        @property
        def code(self) -> str:
            self._print()
            return str(self._code)

        def __str__(self) -> str:
            self._print()
            return fx.GraphModule.__str__(self)

    return cast("type[fx.GraphModule]", DirectGraphModule)


def ready_forward(module: fx.GraphModule) -> Callable[..., Any]:
    """The module's forward with its source made; a lazy one bound before that would stay slow for ever."""
    real = getattr(module, "real_recompile", None)
    if real is not None:
        real()
    return module.forward


class Fakes:
    """Makes FakeTensors of one mode: the first on a device as torch does, others with the attributes that it got."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._attributes: dict[torch.device, dict[str, Any]] = {}
        self._guard = _warn_on_data if self.mode._allow_unsafe_data_ptr_access else _throw_on_data

    def from_meta(self, elem: Tensor, device: torch.device) -> Tensor:
        """A FakeTensor on the meta tensor ``elem``, which requires no grad, as if on ``device``."""
        attributes = self._attributes.get(device)
        if attributes is None:
            attributes = self._attributes[device] = dict(vars(FakeTensor(self.mode, elem, device)))
        fake = make_subclass(FakeTensor, elem, attributes["_fake_device"])
        self._guard(fake)
        fake.__dict__.update(attributes)
        return fake


def take_lists(module: fx.GraphModule, lists: dict[str, int]) -> None:
    """From now on ``module`` is called with lists by these names and of these lengths, not with single inputs."""
    from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

    example: tuple[Any, ...] = (tuple([0] * n for n in lists.values()), {})
    spec = pytree.tree_flatten(example)[1]
    module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(list(lists), spec, None)))
    module.recompile()


def rename_placeholders(graph: fx.Graph, names: Sequence[str]) -> None:
    """Give the graph's inputs these names; other nodes make way."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    taken = {n.name for n in graph.nodes} | set(names)
    for node in graph.nodes:
        if node.op != "placeholder" and node.name in names:
            number = 1
            while f"{node.name}_{number}" in taken:
                number += 1
            node.name = f"{node.name}_{number}"
            taken.add(node.name)
    for node, name in zip(placeholders, names, strict=True):
        node.name = node.target = name


# -- modules


def state_of(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The module's own parameters and buffers, as the dictionaries in which it keeps them."""
    return module._parameters, module._buffers


# -- pytrees


def pytree_children(node: Any) -> list[Any] | None:
    """What a pytree node holds; None for a leaf."""
    definition = pytree.SUPPORTED_NODES.get(pytree._get_node_type(node))
    return None if definition is None else list(definition.flatten_fn(node)[0])


# -- oracle ------------------------------------------------------------------------------------------------------------
# What the oracle observes and torch shows under private names only. Imports stay inside the functions where they are
# heavy (Dynamo) or needed by the fuzzer alone.


def storage_key(tensor: torch.Tensor) -> int:
    """An integer that two tensors have in common iff they share a storage; valid while both are alive."""
    return int(tensor.untyped_storage()._cdata)


def version_of(tensor: torch.Tensor) -> int:
    """The version counter of ``tensor``; -1 where it has none: inference tensors, and what is put on their memory."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return -1


def is_view(tensor: torch.Tensor) -> bool:
    """Whether autograd takes ``tensor`` for a view of another tensor."""
    return bool(tensor._is_view())


def mode_depths() -> tuple[int, int]:
    """How many dispatch modes and how many function modes are active."""
    return int(torch._C._len_torch_dispatch_stack()), int(torch._C._len_torch_function_stack())


def autograd_flags() -> tuple[bool, bool]:
    """Autograd's hidden switches: view replay and multithreading."""
    return bool(torch._C._is_view_replay_enabled()), bool(torch._C._is_multithreading_enabled())


def unwrap_dynamo(error: BaseException) -> BaseException:
    """The user's error inside the wrappers that Dynamo puts around it; ``error`` itself where there is none."""
    import sys

    exc = sys.modules.get("torch._dynamo.exc")
    found: BaseException = error
    while exc is not None and isinstance(found, exc.TorchDynamoException):
        inner = getattr(found, "inner_exception", None) or found.__cause__ or found.__context__
        if not isinstance(inner, BaseException):
            break
        found = inner
    return found


def dispatch_mode_class() -> type:
    """``TorchDispatchMode``, to subclass."""
    from torch.utils._python_dispatch import TorchDispatchMode

    return TorchDispatchMode


def inductor_compiler(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """What Inductor makes of a functional graph of ATen ops, without torch's AOT autograd in between."""
    from torch._inductor.compile_fx import compile_fx_inner

    compiled: Callable[..., Any] = compile_fx_inner(module, examples)
    return compiled


def inductor_decompositions() -> dict[Any, Any]:
    """The decompositions that Inductor expects to have been made."""
    from torch._inductor.decomposition import select_decomp_table

    table: dict[Any, Any] = select_decomp_table()
    return table
