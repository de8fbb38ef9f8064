"""The tensor behind a Python object: exchanged, given other data, counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_swap_impls: Callable[[Tensor, Tensor], None] = vars(torch._C)["_swap_tensor_impl"]
_address: Any = vars(torch._C.TensorBase)["_cdata"]
_data: Any = vars(torch._C.TensorBase)["data"]
_use_count: Callable[[Tensor], int] = vars(torch._C.TensorBase)["_use_count"]


def is_kept_by_torch(name: str) -> bool:
    """Whether torch itself keeps something in the attribute ``name`` of a tensor: where sizes and strides are told."""
    return name.startswith(("_sym_sizes_capsule", "_sym_strides_capsule"))


def _references_for_others() -> int:
    with torch.inference_mode(False):  # whatever mode the project is imported in
        t = torch.empty(0)
        before = sys.getrefcount(t)
        view = t.view(0)
        held = sys.getrefcount(t) - before
    del view
    return held


# How many references to a tensor's object there are because others than the object hold the tensor.
_FOR_OTHERS = _references_for_others()


def swap(a: Tensor, b: Tensor) -> None:
    """Each of two Python objects becomes the tensor that the other was."""
    attributes = a.__dict__
    a.__dict__, b.__dict__ = b.__dict__, attributes
    a.__class__, b.__class__ = b.__class__, a.__class__
    _swap_impls(a, b)


def swapped_with(t: Tensor) -> Tensor | None:
    """What ``swap_tensors`` is about to swap ``t`` with, if it is that which asks the caller who holds ``t``."""
    frame = sys._getframe(3)
    if frame.f_code is not torch.utils.swap_tensors.__code__:
        return None
    first, second = frame.f_locals["t1"], frame.f_locals["t2"]
    other: Tensor = second if first is t else first
    return other


def tensor_address(t: Tensor) -> int:
    """Which tensor the Python object is: another one after it was swapped."""
    return int(_address.__get__(t))


def set_data(t: Tensor, data: Tensor) -> None:
    """``t.data = data``, past a subclass that looks at what is assigned to it.

    Torch asks first whether the two are of one kind, which in inference mode makes what is conjugated or negated lazily
    what it stands for: a replica has no memory for that.
    """
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False):
            _data.__set__(t, data)
    else:
        _data.__set__(t, data)


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
    return _use_count(t)


def own_references(t: Tensor) -> int:
    """How many references to the object ``t`` are torch's, which keeps it for whatever else holds the tensor."""
    return _FOR_OTHERS if _use_count(t) > 1 else 0
