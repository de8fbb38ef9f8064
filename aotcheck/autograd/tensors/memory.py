"""What generated code does to memory, and to where tensors lie on it."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.tensors.subclasses import Outer


def flat_view(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The whole storage of ``t`` as one dimension of ``dtype``, unknown to autograd."""
    storage = t.untyped_storage()
    whole = torch.empty(0, dtype=dtype, device=t.device)
    return _torch.set_geometry(whole, storage, 0, (storage.nbytes() // dtype.itemsize,), (1,))


def flat_write(t: Tensor, dtype: torch.dtype, value: Tensor) -> None:
    """Overwrite the whole storage of ``t``; no version counter moves."""
    if value.numel():
        _copy(flat_view(t, dtype)[: value.numel()], value)


def hidden_write(t: Tensor, value: Tensor) -> None:
    """Overwrite ``t`` without autograd or its version counter noticing."""
    with torch.no_grad():
        _copy(t.data, value)


def version_write(t: Tensor, value: Tensor) -> None:
    """Overwrite ``t`` as a write under no_grad does."""
    if not torch.is_grad_enabled():
        _copy(t, value)
        return
    with torch.no_grad():
        _copy(t, value)


def _copy(t: Tensor, value: Tensor) -> None:
    if t.dtype is torch.bool and value.dtype is torch.bool:  # its bytes may be others than 0 and 1, as integers show
        t, value = t.view(torch.uint8), value.view(torch.uint8)
    t.copy_(value)


def stand_in(shape: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of this shape that takes no memory to speak of and whose data nobody looks at."""
    with torch.no_grad():
        return torch.empty((), dtype=dtype, device=device).expand(shape).detach()


def holder_of(t: Tensor) -> Tensor:
    """A tensor without memory that holds ``t``, the very tensor, until it ends: see Note [Arguments held]."""
    holder = torch.empty_strided(t.shape, (0,) * t.dim(), dtype=t.dtype, device=t.device)
    holder.grad = t
    return holder


def restride_wrapper(t: Tensor, outer: Outer, counted: bool = True) -> None:
    """Change the geometry that the wrapper ``t`` claims to have; its class is not asked."""
    version = _torch.version_of(t)
    with torch.inference_mode() if t.is_inference() else torch.no_grad(), _torch.meta_kernels():
        t.as_strided_(*outer)
    if not counted and version >= 0:
        _torch.set_version(t, version)


def restride(t: Tensor, shape: Any, stride: Any, offset: int) -> None:
    """Change the geometry of ``t`` in place; its history does not show it."""
    with torch.inference_mode() if t.is_inference() else torch.no_grad():
        t.as_strided_(shape, stride, offset)


def restride_uncounted(t: Tensor, shape: Any, stride: Any, offset: int) -> None:
    """The same where no write is counted, as below the class of a wrapper that holds ``t``."""
    version = _torch.version_of(t)
    restride(t, shape, stride, offset)
    if version >= 0:
        _torch.set_version(t, version)


def point_at(t: Tensor, holder: Tensor, g: Geometry, relative: bool, inference: bool) -> None:
    """``t`` moves to the storage of ``holder``; its history does not show it.

    If it is an ``inference`` tensor then, or is none, that is by data that it was given before.
    """
    if t.is_inference() != inference:
        point_data_at(t, holder, g, relative, inference)
    offset = g.offset + (int(holder.storage_offset()) if relative else 0)
    _torch.set_geometry(t, holder.untyped_storage(), offset, g.shape, g.stride)


def point_at_untold(t: Tensor, holder: Tensor, g: Geometry, relative: bool, inference: bool) -> None:
    """The same in inference mode: a leaf goes on taking gradients of the shape that it had."""
    with torch.inference_mode():
        point_at(t, holder, g, relative, inference)


def point_data_at(t: Tensor, holder: Tensor, g: Geometry, relative: bool, inference: bool) -> None:
    """The same by ``.data =``, after which ``t`` is an inference tensor, or is none."""
    offset = g.offset + (int(holder.storage_offset()) if relative else 0)
    t.data = window_of_kind(holder, g._replace(offset=offset), None, True, inference)


def window_on(holder: Tensor, g: Geometry, anchor: int | None, own_version: bool) -> Tensor:
    """A tensor on the storage of ``holder`` that autograd does not relate to it; it shares the version counter unless
    ``own_version``.

    ``anchor`` is the offset ``holder`` had when traced; None where the storage is the caller's own and offsets are
    absolute.
    """
    offset = g.offset if anchor is None else g.offset - anchor + int(holder.storage_offset())
    d = holder.data if own_version else holder.detach()
    if d.is_conj():
        d = _torch.conj_view(d)
    if d.is_neg():
        d = _torch.neg_view(d)
    with torch.no_grad():
        if d.dtype != g.dtype:
            nbytes = d.untyped_storage().nbytes()
            # Outside inference mode the same memory in another dtype would be no inference tensor.
            with torch.inference_mode() if d.is_inference() else contextlib.nullcontext():
                if nbytes % d.itemsize or nbytes % g.dtype.itemsize:
                    d = _torch.set_geometry(
                        torch.empty(0, dtype=g.dtype, device=d.device), d.untyped_storage(), offset, g.shape, g.stride
                    )
                else:
                    d = d.as_strided((nbytes // d.itemsize,), (1,), 0).view(g.dtype)
        if (d.storage_offset(), d.shape, d.stride()) == (offset, g.shape, g.stride):  # which may be freed memory
            return _lazily(d, g).detach()
        return _lazily(d.as_strided(g.shape, g.stride, offset), g).detach()


def _lazily(t: Tensor, g: Geometry) -> Tensor:
    """``t``, conjugated and negated lazily as ``g`` says; to autograd it is a view then."""
    t = _torch.conj_view(t) if g.conj else t
    return _torch.neg_view(t) if g.neg else t


def window_of_kind(holder: Tensor, g: Geometry, anchor: int | None, own_version: bool, inference: bool) -> Tensor:
    """The same, and an inference tensor, or (not ``inference``) one that is none; versions are shared within a kind."""
    with torch.inference_mode(inference):
        if holder.is_inference() == inference:
            return window_on(holder, g, anchor, own_version)
        offset = g.offset if anchor is None else g.offset - anchor + int(holder.storage_offset())
        return plain_window(holder.untyped_storage(), g._replace(offset=offset), holder.device)


def plain_window(storage: torch.UntypedStorage, g: Geometry, device: torch.device) -> Tensor:
    """A tensor on ``storage`` that lies as ``g`` says."""
    t = torch.empty(0, dtype=g.dtype, device=device)
    _torch.set_geometry(t, storage, g.offset, g.shape, g.stride)
    return _lazily(t, g).detach() if g.conj or g.neg else t


def as_inference(t: Tensor, wanted: bool) -> Tensor:
    """``t``, which nobody else has, as an inference tensor on the same memory; or as one that is none."""
    with torch.inference_mode(wanted):
        return plain_window(t.untyped_storage(), geometry_of(t), t.device)


def counting_with(t: Tensor, other: Tensor) -> Tensor:
    """``t``, which nobody else has, as a tensor that counts its versions with ``other``."""
    made = other.detach()
    made.data = t
    return made


def as_saved(t: Tensor) -> Tensor:
    """``t``, which the forward computed for the backward, as a tensor that autograd lets be saved."""
    return as_inference(t, False) if t.is_inference() and not is_sparse(t) else t


def ones(g: Geometry, device: torch.device | None) -> Tensor:
    """A tensor of the geometry ``g`` in whose memory there are ones."""
    room = torch.ones(g.elements_reached, dtype=g.dtype, device=device)
    made = torch.empty(0, dtype=g.dtype, device=device)
    _torch.set_geometry(made, room.untyped_storage(), g.offset, g.shape, g.stride)
    return _lazily(made, g)


def with_layout(t: Tensor, g: Geometry) -> Tensor:
    """``t`` copied to the geometry ``g``, storage offset included."""
    room = torch.empty(g.elements_reached, dtype=g.dtype, device=t.device)
    laid_out = torch.empty(0, dtype=g.dtype, device=t.device)
    with torch.no_grad():
        _torch.set_geometry(laid_out, room.untyped_storage(), g.offset, g.shape, g.stride)
        return _lazily(laid_out, g).copy_(t).detach()
