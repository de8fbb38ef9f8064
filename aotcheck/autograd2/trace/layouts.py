"""Ops whose meta kernels lay results out otherwise than eager: eager is asked once, on tensors of ones.

How a result lies decides values where random numbers fill it, where the program asks ``is_contiguous``, and where
``reshape`` copies. So an op of ``UNSURE`` is run for real where an operand does not lie in rows; what it gave is
remembered by how its operands lie. Only ops of torch's are asked, never a custom op.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry, geometry_of, row_major
from aotcheck.autograd2.ir.size import SYMBOLIC, dense_strides, term
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Replica, state_of

__all__ = ["UNSURE", "as_eager", "check_dtypes", "check_overlap", "without_meta_kernel"]

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
_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "addr"})
_MOST_BYTES = 1 << 30
_REDUCED = (torch.bfloat16, torch.float16)
_MOST_ASKED = 1 << 20
_known: dict[Any, Any] = {}


def check_dtypes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise as eager does for operands of several floating dtypes, reduced or complex ones: meta kernels do not look.

    Eager is asked on zeros: whether it raises, and does not where all these have one dtype, or says that it lacks one.
    """
    operands = [a for a in args if type(a) is Replica]
    products = func.namespace == "aten" and _torch.op_name(func) in _PRODUCTS
    dtypes = list(dict.fromkeys(a.dtype for a in operands if products or a.is_floating_point()))
    differ = len(dtypes) > 1 and torch.Tag.pointwise not in func.tags
    reduced = any(a.dtype in _REDUCED for a in operands)
    if (
        not (differ or reduced or any(a.is_complex() for a in operands))
        or torch.Tag.nondeterministic_seeded in func.tags
        or any(a.dtype is torch.uint8 for a in operands)  # it may be what another op left for this one
    ):
        return
    if any(type(n) is not int for a in operands for n in a.shape) or sum(a.numel() for a in operands) > _MOST_ASKED:
        return
    with _torch.without_modes(), torch.no_grad(), _torch.autocast_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zeros = [_ones(a, geometry_of(a)).zero_() if type(a) is Replica else a for a in args]
        try:
            func(*zeros, **kwargs)
        except RuntimeError as error:
            if "not implemented for" in str(error):
                raise RuntimeError(str(error)) from None
            if not (differ or reduced):
                return
            to = dtypes[-1] if differ else torch.float32
            alike = [z.to(to) if isinstance(z, Tensor) and (products or z.is_floating_point()) else z for z in zeros]
            try:
                func(*alike, **kwargs)
            except RuntimeError:
                return
            raise RuntimeError(str(error)) from None


def check_overlap(tracer: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise as eager does for operands that share memory, which meta kernels do not see. Eager is asked on zeros."""
    storages: dict[int, torch.UntypedStorage] = {}

    def real(a: Any) -> Any:
        if type(a) in (list, tuple):
            return [real(x) for x in a]
        if type(a) is not Replica:
            return a
        state, offset = tracer.table.state(a), _torch.hint_of(a.storage_offset())
        shape, stride = (tuple(map(_torch.hint_of, x)) for x in (a.shape, a.stride()))
        address, nbytes = _torch.storage_address(state.storage), _torch.hint_of(state.storage.nbytes())
        if None in (nbytes, offset, *shape, *stride) or nbytes > _MOST_ASKED:
            raise _TooLargeError
        if address not in storages:
            zeros = torch.zeros(nbytes, dtype=torch.uint8, device=state_of(a).device)
            storages[address] = _torch.storage_of(zeros)
        made = torch.empty(0, dtype=a.dtype, device=state_of(a).device)
        return _torch.set_geometry(made, storages[address], offset, shape, stride)

    with _torch.without_modes(), torch.no_grad(), _torch.autocast_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            func(*[real(a) for a in args], **{k: real(a) for k, a in kwargs.items()})
        except RuntimeError as error:
            if "memory location" in str(error):
                raise RuntimeError(str(error)) from None
        except _TooLargeError:
            return


class _TooLargeError(Exception):
    """Operands are too large for eager to be asked."""


def as_eager(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:
    """What the meta kernel of ``func`` gave, with the strides that eager's kernel gives."""
    operands = [geometry_of(a) for a in args if type(a) is Replica]
    if all(g.stride == row_major(g.shape, g.dtype).stride for g in operands):  # of dimensions of size 1 too
        return out
    known = [_in_numbers(a) for a in args]
    key = (func, tuple(g if type(g) is Geometry else repr(g) for g in known), repr(sorted(kwargs)))
    strides = _known.get(key)
    if strides is None:
        if sum(g.numel * g.dtype.itemsize for g in known if type(g) is Geometry) > _MOST_BYTES:
            refuse(Event.LAYOUT, f"{func} is too large to be tried")
        strides = _known[key] = _asked(func, args, known, kwargs)
    several = isinstance(out, (list, tuple))
    laid = [_laid_out(o, s) for o, s in zip(out if several else (out,), strides, strict=True)]
    return type(out)(laid) if several else laid[0]


def without_meta_kernel(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an op of torch's gives that has no meta kernel, on the meta device; None if that cannot be told.

    Eager is asked with two sets of values: what it gives must lie alike.
    """
    sizes = [n for a in _replicas([*args, *kwargs.values()]) for n in a.shape]
    if func.namespace != "aten" or _torch.schema_of(func).is_mutable or any(type(n) is not int for n in sizes):
        return None
    found = []
    for values in (torch.ones, lambda n: torch.arange(n) % 2):
        try:
            out = _real(func, args, kwargs, values)
        except RuntimeError:  # as where an index is out of range
            try:
                out = _real(func, args, kwargs, torch.zeros)
            except RuntimeError:
                return None
        found.append((type(out), [*out] if isinstance(out, (list, tuple)) else [out]))
    (kind, one), (_, two) = found
    if not all(isinstance(t, Tensor) and t.layout is torch.strided for t in (*one, *two)):
        return None
    if list(map(geometry_of, one)) != list(map(geometry_of, two)):
        return None
    with _torch.without_modes():
        made = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=_torch.META) for t in one]
    return made[0] if issubclass(kind, Tensor) else kind(made) if kind in (list, tuple) else tuple(made)


def _real(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], values: Callable[[int], Tensor]) -> Any:
    given = [_filled(a, values) for a in (*args, *kwargs.values())]
    with _torch.without_modes(), torch.no_grad(), _torch.autocast_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return func(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))


def _replicas(a: Any) -> list[Tensor]:
    return [r for x in a for r in _replicas(x)] if type(a) in (list, tuple) else [a] if type(a) is Replica else []


def _filled(a: Any, values: Callable[[int], Tensor]) -> Any:
    """A real tensor that lies as a replica does, in lists too; anything else as it is."""
    if type(a) in (list, tuple):
        return [_filled(x, values) for x in a]
    if type(a) is not Replica:
        return a
    with _torch.without_modes():
        made = torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=state_of(a).device)
        return made.copy_(values(a.numel()).reshape(a.shape))


def _in_numbers(a: Any) -> Any:
    """The geometry of a tensor in this call, or a number or list of numbers as they are in it."""
    if type(a) is Replica:
        g = geometry_of(a)
        shape, stride = (tuple(map(_torch.hint_of, x)) for x in (a.shape, a.stride()))
        return g._replace(offset=0, shape=shape, stride=stride)
    if type(a) in (list, tuple):
        return [_in_numbers(x) for x in a]
    return _torch.hint_of(a) if type(a) in SYMBOLIC else a


def _asked(func: Any, args: Sequence[Any], known: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    with _torch.without_modes(), torch.no_grad(), _torch.autocast_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = func(*[_ones(a, g) for a, g in zip(args, known, strict=True)], **kwargs)
    several = given if isinstance(given, (list, tuple)) else (given,)
    return [g.stride() if isinstance(g, Tensor) else None for g in several]


def _ones(a: Any, g: Any) -> Any:
    if type(g) is not Geometry:
        return g
    return torch.empty_strided(g.shape, g.stride, dtype=g.dtype, device=state_of(a).device).fill_(1)


def _laid_out(out: Any, stride: Any) -> Any:
    """``out`` with the strides that eager gave; of symbolic sizes, with dense ones in the same order."""
    if not isinstance(out, Tensor) or stride is None:
        return out
    shape = tuple(map(_torch.hint_of, out.shape))
    if tuple(map(_torch.hint_of, out.stride())) == stride:
        return out
    if shape != tuple(map(term, out.shape)):
        order = geometry_of(out)._replace(shape=shape, stride=stride).dense_order
        if order is None:
            refuse(Event.LAYOUT, "a result with symbolic sizes that has gaps")
        stride = dense_strides(out.shape, order)
    with _torch.without_modes():
        return torch.empty_strided(out.shape, stride, dtype=out.dtype, device=_torch.META)
