"""Storages, and tensors as windows of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

storage_of = Tensor.untyped_storage
storage_address: Callable[[torch.UntypedStorage], int] = torch.UntypedStorage._cdata.__get__


def storage_key(tensor: torch.Tensor) -> int:
    """An integer that two tensors have in common iff they share a storage; valid while both are alive."""
    return int(tensor.untyped_storage()._cdata)


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


def is_without_memory(t: torch.Tensor) -> bool:
    """Whether ``t`` is one of autograd's tensors of zeros that have no memory."""
    return t._is_zerotensor()


def zeros_without_memory(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Such a tensor."""
    return torch._efficientzerotensor(shape, dtype=dtype, device=device)
