"""Where meta kernels do not know how eager's results lie in memory: eager is asked once, on small real tensors.

How a result lies decides values where random numbers fill it, where the program asks ``is_contiguous``, and where
``reshape`` copies. So an op of ``UNSURE`` is run for real where an operand does not lie in rows; what it gave is
remembered by how its operands lie. So is any op of torch's of which a small operand is expanded, has a dimension of
one element or none with a stride that rows would not have, or one of each. Custom ops, and ops that read another's
workspace, are never asked.

An in-place random op hands its numbers out in the order of memory. The functional variant draws the same numbers, but
may lay them out otherwise: eager is asked which order to follow; of symbolic sizes on tensors of some larger sizes
too, and all must give one answer.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry, geometry_of, row_major, same_strides
from aotcheck.autograd2.ir.size import SYMBOLIC, dense_strides, term
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Replica, replicas_in, state_of
from aotcheck.autograd2.trace.symbols import Symbols

aten = torch.ops.aten
_UPSAMPLED = ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d", "nearest1d", "nearest3d")
SIZED = {getattr(aten, f"upsample_{kind}_backward").default for kind in _UPSAMPLED}
SIZED |= {aten._upsample_nearest_exact1d_backward.default, aten._upsample_nearest_exact3d_backward.default}
"""Ops whose third argument is the size of what they give, and whose meta kernels know only ints."""
_PADS = ("reflection_pad2d", "reflection_pad3d", "replication_pad2d", "replication_pad3d")
_SHUFFLES = ("channel_shuffle", "native_channel_shuffle", "pixel_shuffle", "roll")
_LAYERS = ("convolution", "convolution_backward", "slow_conv_transpose2d", "native_batch_norm")
_NORMAL = ("Tensor_float", "float_Tensor", "Tensor_Tensor")
_POINTWISE = ("softplus_backward", "log_sigmoid_forward", "_log_softmax_backward_data", "binary_cross_entropy_backward")
_BROADCAST = ("heaviside", "logaddexp", "logaddexp2", "logical_and", "logical_or", "logical_xor", "logit_backward")
_FFTS = ("_fft_c2c", "_fft_c2r", "_fft_r2c")
_IN_ROWS = {getattr(aten, x).default for x in ("linalg_eig", *_FFTS, "max_unpool2d", "max_unpool3d")}
"""Ops that are asked though their operands lie in rows."""
UNSURE = SIZED | _IN_ROWS | {getattr(aten, name).default for name in (*_PADS, *_SHUFFLES, *_LAYERS, *_POINTWISE)}
UNSURE |= {aten.xlogy.Tensor, aten.special_xlog1py.default, *(getattr(aten, name).default for name in _BROADCAST)}
UNSURE |= {aten.copysign.Tensor, aten.float_power.Scalar, aten.pow.Scalar, aten.floor_divide.default}
UNSURE |= {aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats, aten._standard_gamma.default}
UNSURE |= {aten.isin.Tensor_Tensor, aten.poisson.default, *(getattr(aten.normal, x) for x in _NORMAL)}
SUMMED = {getattr(aten, x).default for x in ("mse_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy")}
"""Losses whose sum or mean lies in the memory of their summands."""
_MOST_BYTES, _MOST_ODD = 1 << 30, 1 << 16
_known: dict[Any, Any] = {}


def as_eager(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:
    """What the meta kernel of ``func`` gave, with the strides that eager's kernel gives."""
    known = [_in_numbers(t) for t in replicas_in(args)]
    if any(None in (*g.shape, *g.stride) for g in known):  # as where data decide one
        return out
    lies = [(g, row_major(g.shape, g.dtype).stride) for g in known]
    odd = any({0, 1} <= {*g.shape} for g, _ in lies)  # beside a scalar, that of one element gets stride 0
    if not odd and func not in _IN_ROWS and all(g.stride == row for g, row in lies):  # of dimensions of size 1 too
        return out
    count = sum(g.numel * g.dtype.itemsize for g, _ in lies)
    odd |= any(s != r if n < 2 else s == 0 for g, row in lies for n, s, r in zip(g.shape, g.stride, row, strict=True))
    workspaces = (a.name.lower().startswith(("workspace", "reserve")) for a in _torch.schema_of(func).arguments)
    if func not in UNSURE and (not odd or count > _MOST_ODD or any(workspaces)):  # made up, one may crash
        return out
    devices = [state_of(t).device for t in replicas_in(args)]
    key = (func, repr([_in_numbers(a) for a in (*args, *kwargs.values())]), repr(sorted(kwargs)), *devices)
    strides, several = _known.get(key), isinstance(out, (list, tuple))
    if strides is None:
        if count > _MOST_BYTES:
            refuse(Event.LAYOUT, f"{func} is too large to be tried")
        try:
            index = None if torch.Tag.pointwise in func.tags else torch.int64  # zeros, which are in range
            asked = {k: a for k, a in kwargs.items() if k not in ("device", "generator")}
            given = eagerly(func, args, asked, lambda n, dtype: torch.ones(n, dtype=dtype) * (dtype != index))
        except (RuntimeError, IndexError):
            return out
        strides = [g.stride() if isinstance(g, Tensor) else None for g in (given if several else (given,))]
        _known[key] = strides
    named = {_torch.hint_of(s): s for t in replicas_in(args) for s in t.stride()} | {0: 0, 1: 1}
    laid = [_laid_out(o, s, named) for o, s in zip(out if several else (out,), strides, strict=True)]
    return type(out)(laid) if several else laid[0]


def without_meta_kernel(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an op of torch's gives that has no meta kernel, on the meta device; None if that cannot be told.

    Eager is asked with two sets of values: what it gives must lie alike.
    """
    sizes = [n for a in replicas_in([*args, *kwargs.values()]) for n in a.shape]
    if func.namespace != "aten" or _torch.schema_of(func).is_mutable or any(type(n) is not int for n in sizes):
        return None
    found = []
    for values in (torch.ones, lambda n, dtype: (torch.arange(n) % 2).to(dtype)):
        try:
            out = eagerly(func, args, kwargs, values)
        except RuntimeError:  # as where an index is out of range
            try:
                out = eagerly(func, args, kwargs, torch.zeros)
            except RuntimeError:
                return None
        found.append((type(out), [*out] if isinstance(out, (list, tuple)) else [out]))
    (kind, one), (_, two) = found
    strided = all(isinstance(t, Tensor) and t.layout is torch.strided for t in (*one, *two))
    if not strided or list(map(geometry_of, one)) != list(map(geometry_of, two)):
        return None
    with _torch.without_modes():
        made = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=_torch.META) for t in one]
    return made[0] if issubclass(kind, Tensor) else kind(made) if kind in (list, tuple) else tuple(made)


def view_as_eager(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:
    """``out``, which torch's rules for symbols gave; as they look past dimensions of one element, the op is asked too.

    Raises:
        RuntimeError: the op raises this of the numbers in this call.
        UnsupportedError: its results lie otherwise then.
    """
    t, rest = args[0], [*args[1:], *kwargs.values()]
    numbers = _torch.pytree.tree_leaves([*t.shape, *t.stride(), t.storage_offset(), *rest])
    if any(type(n) in SYMBOLIC and _torch.hint_of(n) is None for n in numbers):  # as where data decide one
        return out
    g, given = _here(t), _in_numbers(rest)
    with _torch.without_modes(), torch.no_grad():
        room = torch.empty(g.end, dtype=g.dtype, device=_torch.META).as_strided(g.shape, g.stride, g.offset)
        lies = func(room, *given[: len(args) - 1], **dict(zip(kwargs, given[len(args) - 1 :], strict=True)))
    if func is aten.expand.default and not (g.conj or g.neg or torch.is_inference_mode_enabled()):
        stride = _of_one_element(lies.shape, lies.stride(), out.stride(), {0: 0, 1: 1})
        return _torch.lying_on(_torch.storage_of(out), out.dtype, out.shape, stride, out.storage_offset())
    pairs = zip(out, lies, strict=True) if isinstance(out, (list, tuple)) else [(out, lies)]
    if not all(_here(o).offset == x.storage_offset() and same_strides(_here(o), geometry_of(x)) for o, x in pairs):
        refuse(Event.LAYOUT, f"{func} of dimensions of one element or none, with symbolic sizes")
    return out


def _of_one_element(shape: Sequence[int], real: Sequence[int], stride: Sequence[Any], named: Any) -> list[Any]:
    """Strides, of dimensions of one element those that eager gave where they are ``named``, whatever the sizes are."""
    return [named.get(r, s) if n == 1 else s for n, r, s in zip(shape, real, stride, strict=True)]


def eagerly(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], values: Callable[..., Tensor]) -> Any:
    """What the op gives on real tensors, made of ``values``, that lie as the replicas do."""
    given = [_filled(a, values) for a in (*args, *kwargs.values())]
    with _torch.without_modes(), torch.no_grad(), _torch.autocast_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return func(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))


def _filled(a: Any, values: Callable[..., Tensor]) -> Any:
    """A real tensor that lies as a replica does, in lists too; a number as it is in this call."""
    if type(a) in (list, tuple):
        return [_filled(x, values) for x in a]
    known = _in_numbers(a)
    if type(a) is not Replica:
        return known
    return values(known.end, dtype=a.dtype).to(state_of(a).device).as_strided(known.shape, known.stride)


def _in_numbers(a: Any) -> Any:
    """The geometry of a tensor in this call, or a number or list of numbers as they are in it."""
    if isinstance(a, Tensor):
        return _here(a)._replace(offset=0)
    if type(a) in (list, tuple):
        return [_in_numbers(x) for x in a]
    return _torch.hint_of(a) if type(a) in SYMBOLIC else a


def _here(t: Tensor) -> Geometry:
    """The geometry of a tensor in this call."""
    shape, stride = (tuple(map(_torch.hint_of, x)) for x in (t.shape, t.stride()))
    return geometry_of(t)._replace(offset=_torch.hint_of(t.storage_offset()), shape=shape, stride=stride)


def _laid_out(out: Any, stride: Any, named: Any) -> Any:
    """``out`` with the strides that eager gave; of symbolic sizes, with dense ones in the same order."""
    if not isinstance(out, Tensor) or stride is None:
        return out
    shape = tuple(map(_torch.hint_of, out.shape))
    if tuple(map(_torch.hint_of, out.stride())) == stride:
        return out
    if shape != tuple(map(term, out.shape)):
        order = geometry_of(out)._replace(shape=shape, stride=stride).dense_order
        if order is None or 0 in shape:
            refuse(Event.LAYOUT, "a result with symbolic sizes that has gaps, or no elements")
        stride = _of_one_element(shape, stride, dense_strides(out.shape, order), named)
    with _torch.without_modes():
        return torch.empty_strided(out.shape, stride, dtype=out.dtype, device=_torch.META)


_MOST_DRAWN, _NUMBERS = 1 << 24, 1 << 14
_answers: dict[Any, set[tuple[int, ...] | None]] = {}


def in_memory_order(
    op: Any, variant: Any, g: Geometry, device: torch.device, given: tuple[Sequence[Any], Any], symbols: Symbols | None
) -> tuple[int, ...]:
    """The dimensions from outermost to innermost if the variant must draw for rows in the order of memory; else none.

    Raises:
        UnsupportedError: neither gives eager's numbers, or eager cannot be asked.
    """
    if g.is_contiguous:
        return ()
    said, (args, kwargs), g = f"{op} on a tensor that does not lie in rows", given, g._replace(offset=0)
    if any(isinstance(a, Tensor) for a in (*args, *kwargs.values())):
        refuse(Event.LAYOUT, said)
    lies, args = [g], [_torch.hint_of(a) for a in args]
    if symbols is not None:
        try:
            larger = (lambda *_: 0, lambda *_: 1, lambda *_: 4)
            lies = [g.mapped(functools.partial(_torch.valued, symbols.env, more=more)) for more in larger]
        except KeyError:
            refuse(Event.LAYOUT, f"{said} and whose size data decide")
    if any(one.end * one.dtype.itemsize > _MOST_DRAWN for one in lies):
        refuse(Event.LAYOUT, f"{said} and is too large to be tried")
    key = (op, tuple(lies), device, repr(args), repr(sorted(kwargs.items(), key=str)))
    if key not in _answers:
        _answers[key] = {_ask(op, variant, one, device, args, kwargs) for one in lies}
    (answer, *others) = _answers[key]
    if answer is None or others:
        refuse(Event.LAYOUT, said)
    return answer


def _ask(
    op: Any, variant: Any, g: Geometry, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """Of few elements the numbers may be the same in either order by chance: then others are drawn."""
    order = g.dense_order
    left: list[tuple[int, ...]] = [(), tuple(order)] if order is not None else [()]
    devices = [device] if device.type == "cuda" else []
    with _torch.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=devices):
        for seed in range(min(max(_NUMBERS // max(g.numel, 1), 4), 256)):

            def made(seed: int = seed) -> Tensor:
                torch.manual_seed(seed)
                return torch.zeros(g.end, dtype=g.dtype, device=device).as_strided(g.shape, g.stride)

            expected = op(made(), *args, **kwargs)
            drawn: dict[tuple[int, ...], Tensor] = {(): variant(made(), *args, **kwargs)}
            if order is not None:
                rows = variant(made().permute(order).contiguous(), *args, **kwargs)
                drawn[tuple(order)] = rows.permute([order.index(d) for d in range(len(order))])
            fits = {each: torch.equal(t.to(g.dtype), expected) for each, t in drawn.items()}
            left = [each for each in left if fits[each]]
            if not left or not all(fits.values()):
                break
    return left[0] if left else None
