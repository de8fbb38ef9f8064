"""Operators: names, signatures, and the kernels that dispatch would choose among."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch._higher_order_ops

from aotcheck._torch.dispatch import as_before_dispatch

_C = torch._C
OpOverload = torch._ops.OpOverload
BEFORE_OPS = frozenset(("torch._tensor", "torch.overrides", "torch._ops", "torch.utils._contextlib"))
"""Modules whose code stands between a program and the ops that it calls."""
HigherOrderOperator = torch._ops.HigherOrderOperator
PRIM_DEVICE = torch.ops.prim.device.default
PRIM_LAYOUT = torch.ops.prim.layout.default
TAG_ACTIVATION_CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
CONTROL_FLOW = frozenset(
    getattr(torch.ops.higher_order, name)
    for name in (
        "associative_scan",
        "cond",
        "flex_attention",
        "flex_attention_backward",
        "map_impl",
        "scan",
        "switch",  # from torch 2.15 on
        "while_loop",
        "while_loop_stack_output",
    )
    if hasattr(torch.ops.higher_order, name)
)
"""Higher-order ops that take functions which autograd, transforms or modes of torch's are to trace."""


def op_name(op: Any) -> str:
    """The name of an op without namespace and overload, as error messages and rules by name use it."""
    return str(op.overloadpacket.__name__) if isinstance(op, OpOverload) else str(getattr(op, "__name__", "op"))


def overload_name(op: Any) -> str:
    """Which overload of its name the op is, as ``Tensor`` in ``add.Tensor``."""
    return str(op._overloadname)


def schema_of(op: Any) -> Any:
    """The op's signature: names and types of its arguments, and which of them it writes or returns views of."""
    return op._schema


def raw_op(op: Any) -> Any:
    """The C++ callable behind an OpOverload: same result, less Python per call."""
    return op._op if isinstance(op, OpOverload) else op


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


def generator_address(generator: torch.Generator) -> int:
    """What two Python objects for the same generator have in common; valid while it is alive."""
    return int(cast(Any, generator)._cdata)
