"""Ops that write nothing and give no views: what their results measure, and how they are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.stand_ins import tensors_in
from aotcheck.autograd.ir.trace import Geometry, Value, geometry_of, getitem, row_major
from aotcheck.autograd.ops import layouts, no_meta, sparse_ops, view_ops
from aotcheck.autograd.ops.autocast_forms import under_autocast
from aotcheck.autograd.ops.foretold import learn, metadata
from aotcheck.autograd.ops.lazy_bits import operand_values
from aotcheck.autograd.ops.room import make_room
from aotcheck.autograd.ops.twins import OpInfo, info_of
from aotcheck.autograd.replicas.replicas import Replica, make_replica
from aotcheck.autograd.replicas.sparse import SparseResult
from aotcheck.autograd.replicas.windows import copies_more_than_itself, shares_storage

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten
_INDEX = aten.index.Tensor
_REPEAT = aten.repeat_interleave.Tensor
_DROPOUT = aten.native_dropout.default
_ZEROS_WITHOUT_MEMORY = aten._efficientzerotensor.default
_BETWEEN = {
    getattr(packet, name)
    for packet in (aten.linspace, aten.logspace)
    for name in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
}
"""Ops on ends that are tensors, of which meta kernels (and compilers) foretell a real dtype."""
FILLS_BY_MASK = frozenset({aten.masked_fill.Scalar, aten.masked_fill_.Scalar})
"""Ops that take a complex number for a real tensor, where meta kernels do not."""
_COMPLEX_OF = {torch.float64: torch.complex128, torch.float16: torch.complex32}
_LIKE = frozenset(
    overload
    for name in ("empty", "full", "ones", "rand", "randint", "randn", "zeros")
    for packet in [getattr(aten, f"{name}_like")]
    for overload in [getattr(packet, o) for o in packet.overloads()]
)
"""Ops of which the first argument says how the result lies, if ``memory_format`` does not."""
_BY_COLUMNS = {aten._linalg_svd.default: 2, aten.linalg_eig.default: 1}
"""Which result of an op its CPU kernel leaves by columns, and its meta kernel by rows; derivatives go by that."""
_SMALL = 1 << 16  # elements of what is computed only to see how it lies


def pure(tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that writes nothing and, says its schema, gives no view."""
    if func is _INDEX and any(type(i) is Replica and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
        if sparse_ops.selects_padding():
            return sparse_ops.select(tracer, args)
        raise UnsupportedError("data-dependent", "indexing by a mask gives a shape that depends on values")
    if func is _REPEAT and kwargs.get("output_size") is None:
        raise UnsupportedError("data-dependent", "repeat_interleave without output_size")
    if func is _DROPOUT and not args[0].numel():
        return _undropped(tracer, args[0])
    if torch.get_default_dtype() is not tracer.default_dtype:
        kwargs = _with_default_dtype(tracer, func, info, args, kwargs)
    if info.takes_device and func in _BETWEEN:
        kwargs = _with_complex_dtype(args, kwargs)
    looked_into = info.looked_into and not tracer.past_autocast
    if looked_into and (form := under_autocast(func, tensors_in(args, kwargs))) is not func:
        out = no_meta.results_of(form, args, kwargs)
        device = tracer.device_of(args, kwargs)
        return tracer.bind_results(out, tracer.call(form, tracer.values_of(args), tracer.values_of(kwargs)), device)
    lies: dict[int, Geometry] = {}
    key, known = metadata(func, info, args, kwargs, lies)
    if tracer.asks_layouts:
        known = layouts.reopened(key, known)
    if known is None:
        run_kwargs = (
            {**kwargs, "device": _torch.META}
            if info.takes_device and (kwargs.get("device") is not None or not _has_tensor(args))
            else kwargs
        )
        out = tracer.run(func, args, run_kwargs)
        if func is _ZEROS_WITHOUT_MEMORY:  # ops on it would be done by kernels that know no replicas
            out = torch.empty_like(out)
        device = tracer.device_of(args, kwargs)
        if isinstance(out, Tensor) and out.layout is not torch.strided:
            out = no_meta.results_of(func, args, kwargs)
        if not _has_tensor((out,)) and out is not None:
            return out
        if args and type(args[0]) is Replica and shares_storage(out, args[0]):
            if not info.random or isinstance(out, Tensor):
                return view_ops.bind(tracer, tracer.unsafe_views, func, args, kwargs, out)
            # Without noise to add a meta kernel may give its argument; others draw all the same, and copy.
            out = tuple([torch.empty_like(o) if shares_storage(o, args[0]) else o for o in out])
        if _may_be_foretold_otherwise(func, args, out):
            out = _restrided_as_in_eager(func, args, kwargs, out)
        elif func in _BY_COLUMNS and device is not None and device.type == "cpu":
            out = _by_columns(out, _BY_COLUMNS[func])
        if tracer.asks_layouts:
            out = layouts.as_in_eager(key, func, args, kwargs, out, device)
        learn(key, out, device)
    value_args, value_kwargs = operand_values(tracer, func, info, args, kwargs, lies)
    if info.takes_device and kwargs.get("device") is None and not _has_tensor(args):
        value_kwargs["device"] = tracer.device_of(args, kwargs)
    value = tracer.call(func, value_args, value_kwargs)
    if info.copies_storage and copies_more_than_itself(args[0]):
        return _in_copied_storage(tracer, args[0], value)
    if key is not None:
        tracer.keys[value] = key
    if info.leaves_room:
        found = tracer.bind_results(out, value, device) if known is None else tracer.fresh(known[1][0], known[2], value)
        return make_room(tracer, func, args, kwargs, found, value_args)
    if known is None:
        return tracer.bind_results(out, value, device)
    container, geometries, device = known
    if container is None:
        return tracer.fresh(geometries[0], device, value)
    value.parts, value.device = geometries, device
    fresh, call = tracer.fresh, tracer.trace.call
    return container(
        [None if g is None else fresh(g, device, call(getitem, (value, k))) for k, g in enumerate(geometries)]
    )


def filled_with_real(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of such an op, with the number that eager's kernel makes of a complex one."""
    t, mask, number = args[:3]
    if t.dtype.is_complex or (number.imag and t.dtype is not torch.bool):  # the latter eager refuses
        return args
    return (t, mask, bool(number) if t.dtype is torch.bool else number.real, *args[3:])


def _undropped(tracer: Tracer, t: Replica) -> tuple[Tensor, Tensor]:
    """What dropout gives of nothing: kernels give their argument back, and a mask of its dtype."""
    if not tracer.depth and torch.is_grad_enabled() and t.requires_grad and _torch.leafness(t):
        raise UnsupportedError("unannotated alias", "dropout of an empty leaf makes the leaf its result")
    like = aten.empty_like.default
    return t, pure(tracer, like, info_of(like), (t,), {})


def _may_be_foretold_otherwise(func: Any, args: tuple[Any, ...], out: Any) -> bool:
    """Whether real kernels choose strides between which meta kernels see no difference: operands do not lie in rows,
    and are broadcast or have dimensions with one element, or none.

    Where no operand has any elements a kernel may return early, with shapes of its own even.
    """
    operands = [a for a in args if type(a) is Replica]
    if out is not None and operands and all(0 in a.shape for a in operands):
        draws = torch.Tag.nondeterministic_seeded in func.tags
        return not draws and len(tensors_in(args, {})) == len(operands)
    if all(a.stride() == row_major(a.shape, a.dtype).stride for a in operands):
        return False
    if not isinstance(out, Tensor) or not out.dim() or out.numel() > _SMALL:
        return False
    if torch.Tag.pointwise not in func.tags and func not in _LIKE:
        return False
    return len({a.shape for a in operands}) > 1 or any(n < 2 for n in out.shape)


def _restrided_as_in_eager(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """``out``, or each tensor in it, lying as the op's results do for real operands that lie as those of ``args``."""
    with _torch.without_modes(), torch.no_grad():
        real = [
            torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).fill_(1) if type(a) is Replica else a for a in args
        ]
        try:
            if func in _LIKE:  # without its drawing anything
                given = aten.empty_like.default(real[0], memory_format=kwargs.get("memory_format"))
            else:
                given = func(*real, **kwargs)
        except (RuntimeError, TypeError, IndexError):  # what it objects to is found where the graph runs
            return out
    if isinstance(out, (list, tuple)):
        return type(out)([_restrided_as(o, like) for o, like in zip(out, given, strict=True)])
    return _restrided_as(out, given)


def _by_columns(out: Any, k: int) -> Any:
    """``out`` with its part ``k``, matrices, laid out by columns."""
    with _torch.without_modes(), torch.no_grad():
        part = torch.empty(out[k].mT.shape, dtype=out[k].dtype, device=_torch.META).mT
    return [*out[:k], part, *out[k + 1 :]]


def _restrided_as(out: Any, like: Any) -> Any:
    if not isinstance(out, Tensor) or (like.stride() == out.stride() and like.shape == out.shape):
        return out
    with _torch.without_modes(), torch.no_grad():
        return torch.empty_strided(like.shape, like.stride(), dtype=out.dtype, device=_torch.META)


def _with_default_dtype(
    tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments with the default dtype that the program has set, where the op would take another one later."""
    tensors = tensors_in(args, kwargs)
    if any(t.is_floating_point() or t.is_complex() for t in tensors):
        return kwargs
    run_kwargs = {**kwargs, "device": _torch.META} if info.takes_device and not tensors else kwargs
    results = tensors_in((tracer.run(func, args, run_kwargs),), {})
    if not any(t.is_floating_point() or t.is_complex() for t in results):
        return kwargs
    if tensors or not any(a.name == "dtype" for a in _torch.schema_of(func).arguments):
        raise UnsupportedError("global state", f"{func} depends on a default dtype that is set inside")
    return {**kwargs, "dtype": results[0].dtype}


def _with_complex_dtype(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the dtype that eager gives what lies between complex ends."""
    given = kwargs.get("dtype") is not None
    if given or not any(a.is_complex() if isinstance(a, Tensor) else isinstance(a, complex) for a in args):
        return kwargs
    return {**kwargs, "dtype": _COMPLEX_OF.get(torch.get_default_dtype(), torch.complex64)}


def _in_copied_storage(tracer: Tracer, source: Replica, value: Value) -> Replica:
    """A fresh tensor that holds ``value`` and lies in a copy of its storage as ``source`` does in its own."""
    flat = tracer.table.flat(tracer.table.state(source))
    copy = tracer.trace.call(aten.clone.default, (tracer.table.read_view(flat),))
    whole = tracer.fresh(flat.geometry, source.real_device, copy)
    g = geometry_of(source)
    elem = torch.empty(0, dtype=g.dtype, device=_torch.META)
    _torch.set_geometry(elem, _torch.storage_of(whole), g.offset, g.shape, g.stride)
    r = make_replica(elem, source.real_device, tracer.kernels)
    tracer.table.write(tracer.table.view(r), value)
    tracer.table.state(r).sized = True
    return r


def _has_tensor(args: tuple[Any, ...]) -> bool:
    kinds = (Tensor, SparseResult)
    return any(
        isinstance(a, kinds) or (type(a) in (list, tuple) and any(isinstance(x, kinds) for x in a)) for a in args
    )
