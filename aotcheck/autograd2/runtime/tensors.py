"""What emitted code calls to make tensors on memory that is there, and to move them; and what autocast has cast."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.trace.gate import Event, refuse


def flat_of(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The whole storage of ``t`` in one dimension."""
    return _placed(t, dtype, 0, (t.untyped_storage().nbytes() // dtype.itemsize,), (1,))


def _placed(t: Tensor, dtype: torch.dtype, offset: Any, shape: Sequence[int], stride: Sequence[int]) -> Tensor:
    return torch.empty(0, dtype=dtype, device=t.device).set_(t.untyped_storage(), offset, shape, stride)


def check_memory(tensors: Sequence[Tensor]) -> None:
    """Refuse tensors whose storages share memory, as what another library lends may."""
    storages = {t.untyped_storage() for t in tensors}
    if not all(s.resizable() for s in storages):
        spans = sorted((s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages if s.nbytes())
        if any(start < end for (_, end), (start, _) in itertools.pairwise(spans)):
            refuse(Event.MEMORY)


def as_base(t: Tensor) -> Tensor:
    """``t``, as a view of nothing."""
    return t if _torch.base_of(t) is None else t.detach()


def restrided(t: Tensor, stride: tuple[int, ...]) -> Tensor:
    """``t`` with these strides."""
    own = t.stride()
    if own == stride:
        return t
    if t.numel() == 0 or all(n == 1 or a == b for n, a, b in zip(t.shape, own, stride, strict=True)):
        with torch.inference_mode(t.is_inference()):
            return _placed(t, t.dtype, t.storage_offset(), t.shape, stride)
    return torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device).copy_(t)


def as_inference(t: Tensor, inference: bool) -> Tensor:
    """``t`` as an inference tensor, or as none, on the same memory."""
    with torch.inference_mode(inference):
        return _placed(t, t.dtype, t.storage_offset(), t.shape, t.stride())


def raw_alias(t: Tensor, g: Geometry, shift: int) -> Tensor:
    """A tensor without history at ``g`` on the storage of ``t``; its offset counts from ``shift``."""
    made = _placed(t, g.dtype, g.offset + shift, g.shape, g.stride)
    made = torch.ops.aten._conj.default(made) if g.conj else made
    return torch.ops.aten._neg_view.default(made) if g.neg else made


class _Region(threading.local):
    """Where autocast is on, it casts a leaf once: the probe tells whether it has, ``versions`` those of leaves then."""

    def __init__(self) -> None:
        self.probe, self.value = torch.ones(1, 1, requires_grad=True), 1
        self.versions: dict[weakref.ref[Tensor], int] = {}


_region = _Region()


def check_casts(leaves: Sequence[Tensor]) -> None:
    """Refuse leaves written since a call before in a region of the CPU's autocast: eager uses the cast of then."""
    if not torch.is_autocast_cache_enabled():
        return
    with torch.enable_grad():
        cast = torch.mm(_region.probe, _region.probe).item()
    if cast == _region.value**2:  # as it is now: this is the first call of a region
        _region.value = 3 - _region.value
        _region.probe.data.fill_(_region.value)
        _region.versions.clear()
    known = _region.versions
    for t in leaves:
        version = _torch.version_of(t)
        if known.setdefault(weakref.ref(t), version) != version:
            refuse(Event.STALE)
