"""Compares a function compiled by the second compiler with itself run eagerly."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from aotcheck.autograd2.api import aot_function

__all__ = ["agrees"]


def agrees(function: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]]) -> None:
    """Both ways the function gives the same results, errors, inputs afterwards, and gradients of all leaves."""
    eager, compiled = (_observed(f, inputs) for f in (function, aot_function(function)))
    assert len(eager) == len(compiled), (eager, compiled)
    for expected, found in zip(eager, compiled, strict=True):
        assert expected == found, (expected, found)


def _observed(function: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]]) -> list[Any]:
    torch.manual_seed(0)
    given = inputs()
    tensors = [t for t in pytree.tree_leaves(given) if isinstance(t, Tensor)]
    leaves = [t for t in tensors if t.requires_grad and t.is_leaf]
    try:
        result = function(*given)
    except RuntimeError as error:
        return [type(error), str(error), *map(_facts, tensors)]
    found = [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor)]
    facts = [_facts(t) for t in (*tensors, *found)]
    facts += [[any(_shares(t, u) for u in tensors) for t in found]]
    roots = [t for t in (*found, *tensors) if _asked(t, "requires_grad") is True and _asked(t, "is_leaf") is False]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(t) for t in roots])
    return facts + [_facts(t.grad) if t.grad is not None else None for t in leaves]


def _shares(t: Tensor, u: Tensor) -> bool:
    return t.untyped_storage().data_ptr() == u.untyped_storage().data_ptr() != 0


def _asked(t: Tensor, name: str) -> Any:
    try:
        return getattr(t, name)
    except RuntimeError:
        return "refused"


def _facts(t: Tensor) -> list[Any]:
    size = t.untyped_storage().nbytes()
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    whole = t.numel() == 0 or (t.storage_offset() + last) * t.itemsize < size
    lies = t.shape, t.stride(), t.storage_offset(), t.dtype, size
    data = t.detach().resolve_conj().tolist() if whole else None
    return [*lies, _asked(t, "requires_grad"), _asked(t, "is_leaf"), t.is_inference(), data]
