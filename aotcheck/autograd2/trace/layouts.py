"""Ops whose meta kernels lay results out otherwise than eager: eager is asked once, on tensors of ones.

How a result lies decides values where random numbers fill it, where the program asks ``is_contiguous``, and where
``reshape`` copies. So an op of ``UNSURE`` is run for real where an operand does not lie in rows; what it gave is
remembered by how its operands lie. Only ops of torch's are asked, never a custom op.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import geometry_of
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Replica, state_of

__all__ = ["UNSURE", "as_eager", "check_dtypes"]

aten = torch.ops.aten
UNSURE = frozenset(
    {
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten.channel_shuffle.default,
        aten.convolution.default,
        aten.convolution_backward.default,
        aten.native_batch_norm.default,
        aten.native_channel_shuffle.default,
        aten.pixel_shuffle.default,
        aten.reflection_pad2d.default,
        aten.reflection_pad3d.default,
        aten.replication_pad2d.default,
        aten.replication_pad3d.default,
        aten.roll.default,
        aten.slow_conv_transpose2d.default,
    }
)
_MOST_BYTES = 1 << 30
_MOST_ASKED = 1 << 20
_known: dict[Any, Any] = {}


def check_dtypes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise as eager does for operands of several floating dtypes, for which meta kernels do not look.

    Eager is asked on zeros: whether it raises, and does not where all these have one dtype.
    """
    operands = [a for a in args if type(a) is Replica]
    dtypes = list(dict.fromkeys(a.dtype for a in operands if a.is_floating_point()))
    if len(dtypes) < 2 or torch.Tag.pointwise in func.tags or torch.Tag.nondeterministic_seeded in func.tags:
        return
    if any(type(n) is not int for a in operands for n in a.shape) or sum(a.numel() for a in operands) > _MOST_ASKED:
        return
    with _torch.without_modes(), torch.no_grad(), _torch.autocast_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zeros = [_ones(a).zero_() if type(a) is Replica else a for a in args]
        try:
            func(*zeros, **kwargs)
        except RuntimeError as error:
            alike = [z.to(dtypes[0]) if isinstance(z, Tensor) and z.is_floating_point() else z for z in zeros]
            try:
                func(*alike, **kwargs)
            except RuntimeError:
                return
            raise RuntimeError(str(error)) from None


def as_eager(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:
    """What the meta kernel of ``func`` gave, with the strides that eager's kernel gives."""
    operands = [a for a in args if type(a) is Replica]
    geometries = [geometry_of(a) for a in operands]
    if all(g.is_contiguous for g in geometries):
        return out
    if any(type(n) is not int for g in geometries for n in g.shape):
        refuse(Event.LAYOUT, f"{func} with symbolic sizes on tensors that do not lie in rows")
    key = (func, tuple(geometry_of(a) if type(a) is Replica else repr(a) for a in args), repr(sorted(kwargs)))
    strides = _known.get(key)
    if strides is None:
        if sum(a.numel() * a.itemsize for a in operands) > _MOST_BYTES:
            refuse(Event.LAYOUT, f"{func} is too large to be tried")
        strides = _known[key] = _asked(func, args, kwargs)
    several = isinstance(out, (list, tuple))
    laid = [_laid_out(o, s) for o, s in zip(out if several else (out,), strides, strict=True)]
    return type(out)(laid) if several else laid[0]


def _asked(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    with _torch.without_modes(), torch.no_grad(), _torch.autocast_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = func(*[_ones(a) for a in args], **kwargs)
    several = given if isinstance(given, (list, tuple)) else (given,)
    return [g.stride() if isinstance(g, Tensor) else None for g in several]


def _ones(a: Any) -> Any:
    if type(a) is not Replica:
        return a
    return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=state_of(a).device).fill_(1)


def _laid_out(out: Any, stride: Any) -> Any:
    if not isinstance(out, Tensor) or stride is None or out.stride() == stride:
        return out
    with _torch.without_modes():
        return torch.empty_strided(out.shape, stride, dtype=out.dtype, device=_torch.META)
