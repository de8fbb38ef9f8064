"""How results lie that meta kernels lay out otherwise than eager's, where random numbers are drawn too.

A tensor that an in-place random op fills gets its numbers in an order that its strides decide, and so another mask if a
trace takes a channels-last tensor for a contiguous one. The strides of most results do not decide any value, and what
of them the caller sees the first run puts right (Note [First run]). So a trace that has drawn numbers, and met ops
whose strides were not asked of eager, is made once more, in which each of these ops is run for real.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.metadata import METADATA
from aotcheck.autograd.ir.trace import Geometry, row_major
from aotcheck.autograd.ops.foretold import learn
from aotcheck.autograd.ops.twins import info_of
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.state.global_state import AutocastOff
from aotcheck.autograd.tensors.memory import ones

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

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
"""Ops whose meta kernels give other strides than real ones where an operand does not lie in rows."""
_INFOS = frozenset(map(info_of, UNSURE))
_MOST_TO_TRY = 1 << 30  # bytes of operands


def matter(tracer: Tracer) -> bool:
    """Whether the trace drew random numbers and met results of which nobody has asked eager how they lie."""
    return bool(tracer.trace.effects) and any(map(_is_open, tracer.keys.values()))


def as_in_eager(
    key: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, device: torch.device
) -> Any:
    """What the meta kernel of ``func`` gave, ``out``, lying as eager's results do, which is remembered for ``key``.

    Raises UnsupportedError where eager cannot be asked, and what eager raises.
    """
    if not _is_open(key):
        return out
    operands = [a for a in args if type(a) is Replica]
    if sum(_torch.storage_of(a).nbytes() for a in operands) > _MOST_TO_TRY:
        raise UnsupportedError("random op on a strided tensor", f"behind {func}: too large to try how its results lie")
    with _torch.without_modes(), torch.no_grad(), AutocastOff(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = func(*[_real(a) for a in args], **kwargs)
        if isinstance(out, (list, tuple)):
            out = type(out)([_laid_out(o, like) for o, like in zip(out, given, strict=True)])
        else:
            out = _laid_out(out, given)
    learn(key, out, device)
    METADATA.correct(key, METADATA.get(key))
    return out


def reopened(key: Any, known: Any) -> Any:
    """``known``, what is remembered for ``key``; None where eager is still to be asked."""
    return None if _is_open(key) else known


def _is_open(key: Any) -> bool:
    if key is None or key[0] not in _INFOS:
        return False
    known = METADATA.corrections.get(key)
    if known is not None and known == METADATA.get(key):  # which may have been forgotten, and foretold again
        return False
    lie = [part[0] for part in key if type(part) is tuple and part and type(part[0]) is Geometry]
    return any(g.stride != row_major(g.shape, g.dtype).stride for g in lie)


def _real(a: Any) -> Any:
    if type(a) is not Replica:
        return a
    return ones(Geometry(0, tuple(a.shape), a.stride(), a.dtype, a.is_conj(), a.is_neg()), a.real_device)


def _laid_out(out: Any, like: Any) -> Any:
    if not isinstance(out, Tensor) or out.stride() == like.stride():
        return out
    return torch.empty_strided(out.shape, like.stride(), dtype=out.dtype, device=_torch.META)
