"""Gradients that tensors hold, and the hooks for when they arrive."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from aotcheck._torch.nodes import leafness


def set_hooks(t: Tensor, hooks: OrderedDict[int, Callable[[Tensor | None], Any]]) -> None:
    """Let the hooks that are registered on ``t``, which has a history, be kept in ``hooks``, by their handles' ids."""
    with torch._C.DisableTorchFunctionSubclass():  # a subclass need not know
        t._backward_hooks = cast(Any, hooks)
        cast(Any, t.grad_fn)._register_hook_dict(t)


def has_hooks(t: Tensor) -> bool:
    """Whether tensor hooks were registered on ``t``."""
    return bool(t._backward_hooks)


def has_hooks_of_any_kind(t: Tensor) -> bool:
    """Whether tensor hooks were registered on ``t``, or hooks for after the accumulation of its gradient, or
    ``retain_grad`` was called on it.
    """
    return bool(t._backward_hooks) or bool(t._post_accumulate_grad_hooks) or t.retains_grad


def has_tensor_hooks(t: Tensor) -> bool:
    """Whether hooks were registered on ``t`` that see its gradient before it goes on."""
    return bool(t._backward_hooks)


def has_accumulation_hooks(t: Tensor) -> bool:
    """Whether hooks for after the accumulation of its gradient were registered on ``t``."""
    return bool(t._post_accumulate_grad_hooks)


_SILENT = [("ignore", None, Warning, None, 0)]
_gradient: Callable[[Tensor], Tensor | None] = vars(torch._C.TensorBase)["grad"].__get__  # whatever a subclass asks
_silencing = threading.RLock()  # or one thread would put back what another has put there for a moment


def held_gradient(t: Tensor) -> Tensor | None:
    """``t.grad``, also where ``t`` is no leaf, without a warning.

    The list of filters is exchanged for a moment: ``catch_warnings`` would let all modules forget what they warned of.
    """
    if leafness(t) or t.retains_grad:
        return _gradient(t)
    with _silencing:
        filters = warnings.filters
        warnings.filters = _SILENT
        try:
            return _gradient(t)
        finally:
            warnings.filters = filters


def asked_for_gradient_edge() -> bool:
    """Whether the caller of the caller is torch, finding out where the gradients of a tensor arrive."""
    return sys._getframe(2).f_globals is vars(torch.autograd.graph)
