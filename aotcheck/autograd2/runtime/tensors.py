"""What emitted code calls to make tensors on memory that is there, and to move them."""

from __future__ import annotations

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry

__all__ = ["as_inference", "flat_of", "raw_alias", "restrided", "set_storage"]


def flat_of(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The whole storage of ``t`` in one dimension."""
    storage = t.untyped_storage()
    return torch.empty(0, dtype=dtype, device=t.device).set_(storage, 0, (storage.nbytes() // dtype.itemsize,), (1,))


def as_base(t: Tensor) -> Tensor:
    """``t``, as a view of nothing."""
    return t if _torch.base_of(t) is None else t.detach()


def restrided(t: Tensor, stride: tuple[int, ...]) -> Tensor:
    """``t`` with these strides."""
    if all(n == 1 or a == b for n, a, b in zip(t.shape, t.stride(), stride, strict=True)):
        return t
    return torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device).copy_(t)


def as_inference(t: Tensor, inference: bool) -> Tensor:
    """``t`` as an inference tensor, or as none, on the same memory."""
    with torch.inference_mode(inference):
        return torch.empty(0, dtype=t.dtype, device=t.device).set_(
            t.untyped_storage(), t.storage_offset(), t.shape, t.stride()
        )


def raw_alias(t: Tensor, g: Geometry, shift: int | None) -> Tensor:
    """A tensor without history at ``g`` on the storage of ``t``. Offsets count from that of ``t``, less ``shift``."""
    offset = g.offset if shift is None else t.storage_offset() + g.offset - shift
    made = torch.empty(0, dtype=g.dtype, device=t.device).set_(t.untyped_storage(), offset, g.shape, g.stride)
    made = torch.ops.aten._conj.default(made) if g.conj else made
    return torch.ops.aten._neg_view.default(made) if g.neg else made


def set_storage(t: Tensor, base: Tensor, g: Geometry, shift: int | None, by_data: bool) -> None:
    """``t`` lies at ``g`` on the storage of ``base`` from now on."""
    with torch.no_grad():
        offset = g.offset if shift is None else base.storage_offset() + g.offset - shift
        if by_data:
            made = torch.empty(0, dtype=g.dtype, device=base.device)
            t.data = made.set_(base.untyped_storage(), offset, g.shape, g.stride)
        else:
            t.set_(base.untyped_storage(), offset, g.shape, g.stride)
