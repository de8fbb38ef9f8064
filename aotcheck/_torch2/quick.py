"""The function or method that calls an op fastest."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

TENSOR = type("TENSOR", (), {})()
"""Stands for a tensor among arguments."""

_WHERE: tuple[Any, ...] = (torch._C._VariableFunctions, torch._C._nn, torch._C.TensorBase)
_EXAMPLES = [(shape, dtype) for dtype in (torch.float32, torch.int64) for shape in ((1,), ())]
_known: dict[Any, Any] = {}


class _Met(Exception):
    """Ends a call as soon as it is known which op it is."""


class _FirstOp(TorchDispatchMode):
    """Stops at the first op and remembers it with its arguments."""

    met: Any = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.met = (func, args, kwargs or {})
        raise _Met


def quick_op(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What calls ``op`` fastest with such arguments, where ``TENSOR`` stands for tensors.

    The functions behind ``torch.add`` and ``Tensor.view`` parse their arguments faster than an OpOverload does, but
    choose the overload by what they are given. They are used where they were seen to choose ``op`` for these kinds of
    arguments, whatever the tensors' dimensions and dtypes.
    """
    if not isinstance(op, torch._ops.OpOverload):
        return op
    key = (op, _kinds(args), tuple(kwargs), _kinds(tuple(kwargs.values())))
    found = _known.get(key)
    if found is None:
        name = op.overloadpacket.__name__
        functions = [getattr(x, name) for x in _WHERE if hasattr(x, name)] if op.namespace == "aten" else []
        with _disable_current_modes():
            found = next((f for f in functions if _chooses(f, op, args, kwargs)), op._op)
        _known[key] = found
    return found


def _kinds(a: Any) -> Any:
    return (type(a), tuple(map(_kinds, a))) if isinstance(a, (list, tuple)) else type(a)


def _chooses(function: Any, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether ``function`` calls ``op``, with the very same arguments."""
    leaves, spec = pytree.tree_flatten((list(args), kwargs))
    places = [k for k, x in enumerate(leaves) if x is TENSOR]
    choices = [[e] * len(places) for e in _EXAMPLES]
    choices += [[e if k == j else _EXAMPLES[0] for j in places] for k in places for e in _EXAMPLES[1::2]]
    for choice in choices[:16]:
        filled = list(leaves)
        for k, (shape, dtype) in zip(places, choice, strict=True):
            filled[k] = torch.empty(shape, dtype=dtype)
        found, wanted = (_first_op(f, *pytree.tree_unflatten(filled, spec)) for f in (function, op))
        if found is None or wanted is None or found[0] is not op or wanted[0] is not op:
            return False
        ours, theirs = (pytree.tree_leaves(x[1:]) for x in (found, wanted))
        if list(found[2]) != list(wanted[2]) or len(ours) != len(theirs) or not all(map(_alike, ours, theirs)):
            return False
    return True


def _alike(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b))


def _first_op(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    mode = _FirstOp()
    with contextlib.suppress(Exception), mode, torch.no_grad():
        function(*args, **kwargs)
    return mode.met
