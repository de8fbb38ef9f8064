"""Everything private to torch that the second compiler touches, under names of our own.

``aotcheck.autograd2`` imports private names of torch from here alone. Each is used as a primitive; what it does was
learned by running it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from aotcheck._torch2.backward import (
    freed_error,
    is_custom,
    keeps_graph,
    kept_by,
    skipped,
    tells_of_lost_values,
    unpack,
    wants,
    wants_all,
)
from aotcheck._torch2.dispatch import meta_kernels
from aotcheck._torch2.dynamo import compiling, hide_from_dynamo, without_dynamo
from aotcheck._torch2.graphs import as_joint, auto_functionalized, decomposed, with_values
from aotcheck._torch2.sizes import (
    GuardOnDataDependentSymNode,
    PythonPrinter,
    ShapeEnv,
    decided,
    evaluated,
    expression_of,
    guards_of,
    hint_of,
    learnt,
    marks_of,
    new_number,
    new_symbol,
    python_dispatcher,
    range_of,
    simplified,
    sizes_as_text,
    symbol_named,
    symbolic_int,
    unbacked_int,
    valued,
)

__all__ = [
    "ITS_ADDRESS",
    "ITS_BASE",
    "META",
    "PRIM_DEVICE",
    "CreationMeta",
    "FakeTensor",
    "FakeTensorMode",
    "GuardOnDataDependentSymNode",
    "HigherOrderOperator",
    "OpOverload",
    "PythonPrinter",
    "ShapeEnv",
    "TensorGuards",
    "TorchDispatchMode",
    "accepts_gradients",
    "accumulates",
    "as_before_dispatch",
    "as_joint",
    "auto_functionalized",
    "autocast_devices",
    "autocast_off",
    "base_of",
    "bound_apply",
    "casts",
    "compiling",
    "creation_meta",
    "data_of",
    "decided",
    "decomposed",
    "disabled_torch_dispatch",
    "disabled_torch_function",
    "evaluated",
    "expression_of",
    "foreign_state",
    "freed_error",
    "function_modes",
    "generator_address",
    "gradient_of",
    "guards_of",
    "has_gradient",
    "has_hooks",
    "hide_from_dynamo",
    "hint_of",
    "is_cast",
    "is_composite",
    "is_custom",
    "is_tree_node",
    "is_zero_tensor",
    "keeps_graph",
    "kept_by",
    "learnt",
    "make_subclass",
    "marks_of",
    "meta_kernels",
    "new_number",
    "new_symbol",
    "one_level",
    "op_name",
    "overload_name",
    "python_dispatcher",
    "pytree",
    "range_of",
    "recorded_gradient",
    "requires_grad",
    "run_composite",
    "running_sequence_number",
    "schema_of",
    "sequence_number",
    "set_class",
    "set_creation_meta",
    "set_data",
    "set_geometry",
    "set_gradient",
    "simplified",
    "single_threaded_backward",
    "sizes_as_text",
    "skipped",
    "storage_address",
    "storage_of",
    "symbol_named",
    "symbolic_int",
    "tells_of_lost_values",
    "unbacked_int",
    "unpack",
    "valued",
    "version_of",
    "view_function",
    "wants",
    "wants_all",
    "with_values",
    "without_dynamo",
    "without_modes",
]

_C = torch._C
_restore_dispatch: Any = vars(_C)["_RestorePythonTLSSnapshot"]
META = torch.device("meta")
PRIM_DEVICE = torch.ops.prim.device.default
OpOverload = torch._ops.OpOverload
HigherOrderOperator = torch._ops.HigherOrderOperator
disabled_torch_function: Any = _C._disabled_torch_function_impl
disabled_torch_dispatch: Any = _C._disabled_torch_dispatch_impl


# -- dispatch


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """Inside, no torch-dispatch mode is active: for work of ours that a trace must not record."""
    return _disable_current_modes() if _C._len_torch_dispatch_stack() else contextlib.nullcontext()


_NOTHING = contextlib.nullcontext()


def casts() -> tuple[tuple[str, torch.dtype], ...]:
    """Kinds of devices on which autocast is on, with the dtype that it casts to."""
    return tuple([(kind, torch.get_autocast_dtype(kind)) for kind in autocast_devices()])


is_cast: Callable[[], bool] = vars(_C)["_is_any_autocast_enabled"]
"""Whether autocast is on for any kind of device."""

function_modes: Callable[[], int] = vars(_C)["_len_torch_function_stack"]
"""How many modes are active that are told of torch's functions. A default device is one."""


def autocast_devices() -> list[str]:
    """Kinds of devices on which autocast is on."""
    return [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]


def autocast_off() -> contextlib.AbstractContextManager[Any]:
    """Inside, ops run in the dtypes of their operands: those of a graph are recorded below autocast."""
    devices = autocast_devices()
    if not devices:
        return _NOTHING
    stack = contextlib.ExitStack()
    for kind in devices:
        stack.enter_context(torch.autocast(kind, enabled=False))
    return stack


def as_before_dispatch() -> contextlib.AbstractContextManager[Any]:
    """Inside a dispatch mode's handler, ops are dispatched from the top again, autograd included."""
    guard: contextlib.AbstractContextManager[Any] = _restore_dispatch()
    return guard


make_subclass: Callable[..., Tensor] = functools.partial(Tensor._make_subclass, dispatch_device=True)
"""A class and a meta tensor: that tensor, as one of the class that answers for ``device_for_backend_keys``."""

set_class: Callable[[Any, type], None] = object.__dict__["__class__"].__set__
"""Gives an object another class, past a property of that name."""


def foreign_state() -> str:
    """What is at work on this thread that a call cannot be traced under; empty if nothing is."""
    if _C._len_torch_dispatch_stack():
        return "a torch-dispatch mode"
    if _C._are_functorch_transforms_active():
        return "a transform of torch.func"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation"
    if _C._is_tracing():
        return "torch.jit.trace"
    if _C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "saved-tensor hooks"
    return ""


# -- operators


def op_name(op: Any) -> str:
    """The name of an op without namespace and overload."""
    return str(op.overloadpacket.__name__) if isinstance(op, OpOverload) else str(getattr(op, "__name__", "op"))


def overload_name(op: Any) -> str:
    """Which overload of its name the op is, as ``Tensor`` in ``add.Tensor``."""
    return str(op._overloadname)


def schema_of(op: Any) -> Any:
    """The op's signature: names and types of its arguments, which of them it writes or returns views of."""
    return op._schema


def is_composite(op: Any) -> bool:
    """Whether the op has no kernel of its own, to autograd's view tracking either, but calls others."""
    if not isinstance(op, OpOverload) or not op._can_decompose():
        return False
    return not any(_C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in ("ADInplaceOrView", "CPU"))


def run_composite(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a composite op calls in eager, dispatched from the top again."""
    key = _C.DispatchKey.CompositeImplicitAutograd
    if _C._dispatch_has_kernel_for_dispatch_key(op.name(), key):
        return op._op_dk(key, *args, **kwargs)
    return op.decompose(*args, **kwargs)


def generator_address(generator: torch.Generator) -> int:
    """What two Python objects for one generator have in common, while it is alive."""
    return int(cast(Any, generator)._cdata)


# -- trees


def is_tree_node(kind: type) -> bool:
    """Whether torch's pytree has been told how to take objects of the class apart."""
    return kind in pytree.SUPPORTED_NODES


def one_level(x: Any) -> tuple[list[Any], Any]:
    """The children of a tree node, and what builds it again of those."""
    children, spec = pytree.tree_flatten(x, is_leaf=lambda y: y is not x)
    return children, spec


# -- storages

ITS_BASE, ITS_ADDRESS = "._base", "._cdata"
"""What generated code writes after a tensor to ask of what it is a view, and after a storage to ask which it is."""

storage_of = Tensor.untyped_storage
storage_address: Callable[[torch.UntypedStorage], int] = torch.UntypedStorage._cdata.__get__
"""An integer that two objects for one storage have in common, while it is alive."""
_data: Any = vars(_C.TensorBase)["data"]


def set_geometry(t: Tensor, storage: torch.UntypedStorage, offset: Any, shape: Any, stride: Any) -> Tensor:
    """``t`` lies on ``storage`` from now on; autograd is not told."""
    with torch.no_grad():
        t.set_(storage, offset, tuple(shape), tuple(stride))
    return t


data_of: Callable[[Tensor], Tensor] = _data.__get__
"""``t.data``: the same memory with a version counter of its own."""


def set_data(t: Tensor, data: Tensor) -> None:
    """``t.data = data``, past a subclass that looks at what is assigned."""
    _data.__set__(t, data)


def is_zero_tensor(t: Tensor) -> bool:
    """Whether ``t`` is one of autograd's zeros that have no memory."""
    return t._is_zerotensor()


# -- autograd

CreationMeta: Any = _C._autograd.CreationMeta
creation_meta: Callable[[Tensor], Any] = _C._autograd._get_creation_meta
set_creation_meta: Callable[[Tensor, Any], None] = _C._autograd._set_creation_meta
sequence_number: Callable[[], int] = vars(_C._autograd)["_get_sequence_nr"]
"""The number that autograd gives to the next node."""
_running_node: Callable[[], Any] = vars(_C)["_current_autograd_node"]
_base: Any = Tensor._base
_version: Any = vars(_C.TensorBase)["_version"]
_apply = vars(_C._FunctionBase)["apply"]
with torch.inference_mode(False), torch.enable_grad():
    _AccumulateGrad = type(torch.autograd.graph.get_gradient_edge(torch.zeros((), requires_grad=True)).node)


def base_of(t: Tensor) -> Tensor | None:
    """The tensor of which autograd takes ``t`` for a view."""
    base: Tensor | None = _base.__get__(t)
    return base


def version_of(t: Tensor) -> int:
    """The version counter of ``t``; -1 for inference tensors, which have none."""
    try:
        return int(_version.__get__(t))
    except RuntimeError:
        return -1


def view_function(t: Tensor) -> Callable[[Tensor], Tensor]:
    """What makes the view ``t`` again from a base of the same geometry."""
    return t._view_func_unsafe


def running_sequence_number() -> int | None:
    """The number of the node whose backward runs on this thread, if one does."""
    node = _running_node()
    return None if node is None else int(node._sequence_nr())


def accepts_gradients(t: Tensor) -> bool:
    """Whether a leaf that requires grad can be given one: a view made under no_grad cannot, though its base does."""
    with without_modes(), torch.inference_mode(False), torch.enable_grad():
        node: Any = t.view_as(t).grad_fn
    return node is not None and node.next_functions[0][0] is not None


def accumulates(node: Any) -> bool:
    """Whether the node of autograd puts gradients into a leaf."""
    return type(node) is _AccumulateGrad


def recorded_gradient(node: Any, place: int) -> tuple[tuple[int, ...], torch.dtype, torch.device]:
    """Shape, dtype and device of the gradient that ``node`` takes of its result ``place``."""
    like = node._input_metadata[place]
    return tuple(like.shape), like.dtype, like.device


requires_grad: Callable[[Tensor], bool] = vars(_C.TensorBase)["requires_grad"].__get__
_grad: Any = vars(_C.TensorBase)["grad"]


def gradient_of(t: Tensor) -> Tensor | None:
    """``t.grad``, past a subclass that looks who asks."""
    found: Tensor | None = _grad.__get__(t)
    return found


def set_gradient(t: Tensor, gradient: Tensor | None) -> None:
    """``t.grad = gradient``, in the same way."""
    _grad.__set__(t, gradient)


def has_gradient(t: Tensor) -> bool:
    """Whether ``t`` has a ``.grad``."""
    return gradient_of(t) is not None


def has_hooks(t: Tensor) -> bool:
    """Whether gradients of ``t`` go through hooks, or are retained."""
    return bool(t._backward_hooks) or bool(getattr(t, "_post_accumulate_grad_hooks", None)) or t.retains_grad


def bound_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without the Python layer for transforms of torch.func."""
    apply: Callable[..., Any] = _apply.__get__(None, function)
    return apply


@contextlib.contextmanager
def single_threaded_backward() -> Iterator[None]:
    """Inside, backwards run on this thread, and views of written bases are made again by their ops."""
    threads, replay = _C._is_multithreading_enabled(), _C._is_view_replay_enabled()
    _C._set_multithreading_enabled(False)
    _C._set_view_replay_enabled(True)
    try:
        yield
    finally:
        _C._set_multithreading_enabled(threads)
        _C._set_view_replay_enabled(replay)
