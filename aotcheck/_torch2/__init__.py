"""Everything private to torch that the second compiler touches, under names of our own.

``aotcheck.autograd2`` imports private names of torch from here alone. Each is used as a primitive; what it does was
learned by running it.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards as TensorGuards
from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode as SchemaCheckMode
from torch.utils import _pytree
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes

from aotcheck._torch2.backward import *
from aotcheck._torch2.dispatch import *
from aotcheck._torch2.sizes import *

_C = torch._C
pytree = _pytree
META = torch.device("meta")
PRIM_DEVICE = torch.ops.prim.device.default
OpOverload = torch._ops.OpOverload
chunk_cat = torch._chunk_cat
encoder_layer = torch._transformer_encoder_layer_fwd
is_all_true = torch._is_all_true
disabled_torch_function: Any = _C._disabled_torch_function_impl
disabled_torch_dispatch: Any = _C._disabled_torch_dispatch_impl


# -- dispatch


def without_modes() -> contextlib.AbstractContextManager[Any]:
    """Inside, no torch-dispatch mode is active: for work of ours that a trace must not record."""
    return _disable_current_modes() if _C._len_torch_dispatch_stack() else contextlib.nullcontext()


def casts() -> tuple[tuple[str, torch.dtype], ...]:
    """Kinds of devices on which autocast is on, with the dtype that it casts to."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    return tuple([(kind, torch.get_autocast_dtype(kind)) for kind in kinds])


is_cast: Callable[[], bool] = vars(_C)["_is_any_autocast_enabled"]
"""Whether autocast is on for any kind of device."""

function_modes: Callable[[], int] = vars(_C)["_len_torch_function_stack"]
"""How many modes are active that are told of torch's functions. A default device is one."""


def autocast_off() -> contextlib.AbstractContextManager[Any]:
    """Inside, ops run in the dtypes of their operands: those of a graph are recorded below autocast."""
    stack = contextlib.ExitStack()
    for kind, _ in casts():
        stack.enter_context(torch.autocast(kind, enabled=False))
    return stack


BelowAutograd: Callable[[], object] = vars(_C)["_AutoDispatchBelowAutograd"]
"""While such an object lives, ops go past autograd to their kernels."""

as_before_dispatch: Callable[[], contextlib.AbstractContextManager[Any]] = vars(_C)["_RestorePythonTLSSnapshot"]
"""Inside a dispatch mode's handler, ops are dispatched from the top again, autograd included."""

make_subclass: Callable[..., Tensor] = functools.partial(Tensor._make_subclass, dispatch_device=True)
"""A class and a meta tensor: that tensor, as one of the class that answers for ``device_for_backend_keys``."""

set_class: Callable[[Any, type], None] = object.__dict__["__class__"].__set__
"""Gives an object another class, past a property of that name."""


def global_state() -> tuple[Any, ...]:
    """What ops hang on and a program may set for good: the default dtype, determinism, autocast."""
    casts = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    return torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), casts


def set_global_state(state: tuple[Any, ...]) -> None:
    """Set what ``global_state`` gave."""
    torch.set_default_dtype(state[0])
    torch.use_deterministic_algorithms(state[1])
    for kind, enabled, dtype in state[2]:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)


def saves_by_hooks() -> bool:
    """Whether what autograd saves now goes through hooks."""
    return _C._autograd._top_saved_tensors_default_hooks(True) is not None


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
    if function_modes() and {*map(type, torch.overrides._get_current_function_mode_stack())} - {DeviceContext}:
        return "a torch-function mode"
    return "saved-tensor hooks" if saves_by_hooks() else ""


# -- operators

overload_name: Callable[[Any], str] = operator.attrgetter("_overloadname")
"""Which overload of its name the op is, as ``Tensor`` in ``add.Tensor``."""
schema_of: Callable[[Any], Any] = operator.attrgetter("_schema")
"""The op's signature: names and types of its arguments, which of them it writes or returns views of."""
generator_address: Callable[[torch.Generator], int] = operator.attrgetter("_cdata")
"""What two Python objects for one generator have in common, while it is alive."""


def op_name(op: Any) -> str:
    """The name of an op without namespace and overload."""
    return str(op.overloadpacket.__name__) if isinstance(op, OpOverload) else str(getattr(op, "__name__", "op"))


def is_composite(op: Any) -> bool:
    """Whether the op has no kernel of its own, to autograd's view tracking either, but calls others."""
    if not isinstance(op, OpOverload) or not op._can_decompose():
        return False
    return not any(_C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in ("ADInplaceOrView", "CPU"))


def run_composite(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a composite op calls in eager, dispatched from the top again."""
    key = _C.DispatchKey.CompositeImplicitAutograd
    has_own = _C._dispatch_has_kernel_for_dispatch_key(op.name(), key)
    return op._op_dk(key, *args, **kwargs) if has_own else op.decompose(*args, **kwargs)


@functools.cache
def kernel_in_python(op: Any) -> Any:
    """What calls the Python kernel of a user's op that has no kernel for autograd; None of other ops.

    Autograd records the ops that such a kernel calls. A device without a kernel of its own gets the CPU's.
    """
    if _C._dispatch_has_kernel_for_dispatch_key(op.name(), "AutogradCPU"):
        return None
    name = op.name().replace("::", "/")
    for key in ("CompositeExplicitAutograd", "CPU"):
        if f"{name}/{key}" in torch.library._impls:
            return functools.partial(op.redispatch, _C.DispatchKeySet(getattr(_C.DispatchKey, key)))
    return None


# -- storages

ITS_BASE, ITS_ADDRESS = "._base", "._cdata"
"""What generated code writes after a tensor to ask of what it is a view, and after a storage to ask which it is."""

storage_of = Tensor.untyped_storage
has_symbols: Callable[[Tensor], bool] = vars(_C.TensorBase)["_has_symbolic_sizes_strides"].__get__
"""Whether a size, a stride or the offset of a tensor is a SymInt."""
storage_address: Callable[[torch.UntypedStorage], int] = torch.UntypedStorage._cdata.__get__
"""An integer that two objects for one storage have in common, while it is alive."""
_as_strided = functools.partial(torch.ops.aten.as_strided.default.redispatch, _C.DispatchKeySet(_C.DispatchKey.Meta))


def address_of(t: Tensor) -> int:
    """The address of the storage on which a tensor lies."""
    return storage_address(storage_of(t))


def lying_on(storage: torch.UntypedStorage, dtype: torch.dtype, shape: Any, stride: Any, offset: Any) -> Tensor:
    """A meta tensor that lies so on ``storage``. Nobody asks whether the storage is large enough."""
    with without_modes(), torch.no_grad():
        start = torch.empty(0, dtype=dtype, device=META).set_(storage, 0, (0,), (1,))
        return cast(Tensor, _as_strided(start, shape, stride, offset))


data_of: Callable[[Tensor], Tensor] = vars(_C.TensorBase)["data"].__get__
"""``t.data``: the same memory with a version counter of its own."""
is_efficient_zero: Callable[[Tensor], bool] = vars(_C.TensorBase)["_is_zerotensor"]
"""Whether it is made of zeros that have no memory."""
copy_all: Callable[..., None] = torch._foreach_copy_  # each of some tensors is given the data of one of others
set_data: Callable[[Tensor, Tensor], None] = vars(_C.TensorBase)["data"].__set__
"""``t.data = data``, past a subclass that looks at what is assigned."""


# -- autograd

CreationMeta: Any = _C._autograd.CreationMeta
creation_meta: Callable[[Tensor], Any] = _C._autograd._get_creation_meta
set_creation_meta: Callable[[Tensor, Any], None] = _C._autograd._set_creation_meta
sequence_number: Callable[[], int] = vars(_C._autograd)["_get_sequence_nr"]
"""The number that autograd gives to the next node."""
_running_node: Callable[[], Any] = vars(_C)["_current_autograd_node"]
_version: Any = vars(_C.TensorBase)["_version"]
_set_version: Any = _C._autograd._unsafe_set_version_counter
base_of: Callable[[Tensor], Tensor | None] = vars(_C.TensorBase)["_base"].__get__
"""The tensor of which autograd takes another for a view."""
view_function: Callable[[Tensor], Callable[[Tensor], Tensor]] = operator.attrgetter("_view_func_unsafe")
"""What makes a view again from a base of the same geometry."""
sequence_of: Callable[[Any], int] = operator.methodcaller("_sequence_nr")
"""The number of a node: of those that are ready, the engine runs the one made last."""


def version_of(t: Tensor) -> int:
    """The version counter of ``t``; -1 for inference tensors, which have none."""
    try:
        return int(_version.__get__(t))
    except RuntimeError:
        return -1


def sharing_versions(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """For each tensor the position of the first that has the same version counter, as detached aliases have.

    The counters are changed for an instant and set back.
    """
    before, first = [version_of(t) for t in tensors], 1 << 30
    try:
        _set_version(tensors[::-1], [first + k for k in reversed(range(len(tensors)))])
        return tuple([version_of(t) - first for t in tensors])
    finally:
        _set_version(tensors, before)


def shared_counters(tensors: Iterable[Tensor]) -> dict[Tensor, int]:
    """Where several of these lie on one storage, and are no views of one base, the first that counts with each."""
    roots: dict[int, dict[Tensor, None]] = {}
    for t in tensors:
        base = base_of(t)
        root = t if base is None else base
        if t.layout is torch.strided and version_of(root) >= 0:
            roots.setdefault(address_of(root), {})[root] = None
    found = [t for group in roots.values() if len(group) > 1 for t in group]
    return dict(zip(found, sharing_versions(found), strict=True))


def running_sequence_number() -> int | None:
    """The number of the node whose backward runs on this thread, if one does."""
    return None if (node := _running_node()) is None else sequence_of(node)


def accumulator_of(t: Tensor) -> Any:
    """The node that puts gradients into a leaf; None of a view made under no_grad, to which autograd gives none."""
    with without_modes(), torch.inference_mode(False), torch.enable_grad():
        node: Any = t.view_as(t).grad_fn
    return None if node is None else node.next_functions[0][0]


def nodes_after(node: Any) -> list[Any]:
    """The nodes to which the backward goes from ``node``."""
    return [n for n, _ in node.next_functions if n is not None]


def accumulates(node: Any) -> bool:
    """Whether the node of autograd puts gradients into a leaf."""
    return type(node) is AccumulateGrad


def recorded_gradient(node: Any, place: int) -> tuple[tuple[int, ...], torch.dtype, torch.device]:
    """Shape, dtype and device of the gradient that ``node`` takes of its result ``place``."""
    like = node._input_metadata[place]
    return tuple(like.shape), like.dtype, like.device


requires_grad: Callable[[Tensor], bool] = vars(_C.TensorBase)["requires_grad"].__get__
_grad: Any = vars(_C.TensorBase)["grad"]


def gradient_of(t: Tensor) -> Tensor | None:
    """``t.grad``, past a subclass that looks who asks, and past torch's warning of what can have none."""
    try:
        has = t.is_leaf or t.retains_grad
    except RuntimeError:  # of a view made under no_grad whose base was written since
        has = True
    return _grad.__get__(t) if has else None


set_gradient: Callable[[Tensor, Tensor | None], None] = _grad.__set__
"""``t.grad = gradient``, in the same way."""


def has_hooks(t: Tensor) -> bool:
    """Whether gradients of ``t`` go through hooks, or are retained."""
    return bool(t._backward_hooks) or bool(getattr(t, "_post_accumulate_grad_hooks", None)) or t.retains_grad


single_threaded_backward = functools.partial(torch.autograd.set_multithreading_enabled, False)
"""Inside, backwards run on this thread."""
