"""The function or method that calls an op fastest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from aotcheck._torch.dispatch import without_modes
from aotcheck._torch.ops import OpOverload, raw_op

_C = torch._C


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


_quick_ops: dict[Any, tuple[Any, Any]] = {}  # by the id of an op, as ops hash slowly; each is kept
_NEVER_NESTED = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout))

_EXAMPLES = [(shape, dtype) for dtype in (torch.float32, torch.int64) for shape in ((1,), ())]


def quick_op(op: Any, args: Sequence[Any], kwargs: dict[str, Any], tensor: type) -> Any:
    """What calls ``op`` fastest with such arguments, those of type ``tensor`` standing for tensors.

    The functions and methods behind ``torch.add`` and ``Tensor.view`` parse their arguments faster than an OpOverload
    does, but choose the overload by what they are given. They are used where they were seen to choose ``op`` for these
    kinds of arguments, whatever the tensors' dimensions and dtypes.
    """
    if not isinstance(op, OpOverload):
        return op
    key: Any = id(op), tensor, _kinds(args, tensor)
    if kwargs:
        key = *key, *kwargs, _kinds(kwargs.values(), tensor)
    known = _quick_ops.get(key)
    if known is None:
        name = op.overloadpacket.__name__
        found = getattr(_C._VariableFunctions, name, None) or getattr(_C.TensorBase, name, None)
        with without_modes():
            if op.namespace != "aten" or found is None or not _chooses(found, op, args, kwargs, tensor):
                found = raw_op(op)
        known = _quick_ops[key] = found, op
    return known[0]


def _kinds(arguments: Iterable[Any], tensor: type) -> tuple[Any, ...]:
    kinds = tuple(map(type, arguments))
    for kind in kinds:
        if kind is not tensor and kind not in _NEVER_NESTED:
            return tuple([_kinds(a, tensor) if isinstance(a, (list, tuple)) else type(a) for a in arguments])
    return kinds


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
