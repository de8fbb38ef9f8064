"""Ops that write their arguments, recorded as functional operations and new values of the storages written."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.places import Move
from aotcheck.autograd.ir.stand_ins import tensors_in
from aotcheck.autograd.ir.trace import Geometry, Value, geometry_of, getitem
from aotcheck.autograd.ops import foretold, layouts, lazy_bits, no_meta, overlap, pure_ops
from aotcheck.autograd.ops.functional_forms import WRITES_UNSAID, form_of, written_names
from aotcheck.autograd.ops.random_order import Order, inverse, order_of
from aotcheck.autograd.ops.twins import Kind, OpInfo, foreach_element_op, info_of, writes_are_order_free
from aotcheck.autograd.replicas.replicas import Replica

if TYPE_CHECKING:
    from aotcheck.autograd.ops.tracer import Tracer

aten = torch.ops.aten


def in_place(tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op whose name ends in ``_``: its functional twin, and a write of what that gives to the first argument."""
    target = args[0]
    if type(target) in (list, tuple):
        if len(info.written) > 1:
            return by_form(tracer, func, info, args, kwargs)
        return _foreach(tracer, func, info, args, kwargs)
    if len(info.written) > 1:
        return by_form(tracer, func, info, args, kwargs)
    overlap.check(func, info, args, kwargs)
    if torch.Tag.pointwise in func.tags and not writes_are_order_free(func) and geometry_of(target).overlaps_itself:
        raise UnsupportedError("overlapping operands", f"{func} writes an address more than once, reading it each time")
    in_memory = func is not aten.copy_.default and lazy_bits.reads_memory(tracer, info.twin, args)
    value_of = functools.partial(lazy_bits.memory_of, tracer) if in_memory else tracer.value_of
    value_args = tuple([value_of(a) for a in args])
    value_kwargs = {k: value_of(a) for k, a in kwargs.items()} if kwargs else {}
    lies = geometry_of(target)
    if info.twin is aten.copy.default and not tracer.table.view(target).in_whole_elements:
        value_args = (tracer.call(aten.clone.default, (value_args[0],), {}), *value_args[1:])
    tracer.run(func, args, kwargs)
    if target.shape != lies.shape:
        _refuse_shape(tracer, target, lies)
    if func is aten.bernoulli_.float and len(value_args) == 1 and "p" not in value_kwargs:
        value_args, args = (*value_args, 0.5), (*args, 0.5)
    order = geometry_of(target).dense_order
    if info.random and order_of(func, info.twin, target, args[1:], kwargs) is Order.MEMORY and order is not None:
        permuted = tracer.trace.call(aten.permute.default, (value_args[0], order))
        dense = tracer.trace.call(aten.clone.default, (permuted,), {"memory_format": torch.contiguous_format})
        drawn = tracer.call(info.twin, (dense, *value_args[1:]), value_kwargs)
        value = tracer.trace.call(aten.permute.default, (drawn, inverse(order)))
        tracer.table.write(tracer.table.view(target), value)
        return target
    value = tracer.call(info.twin, info.for_twin(value_args), value_kwargs)
    if in_memory:
        value = lazy_bits.shown(tracer, target, value)
    _write(tracer, target, info.twin, info.for_twin(args), kwargs, value)
    return target


def _refuse_shape(tracer: Tracer, target: Replica, lies: Geometry) -> None:
    """Raise what eager does where an operand is too large for ``target``, which meta kernels resize; undo that."""
    found, storage = list(target.shape), _torch.storage_of(target)
    with _torch.meta_kernels():
        storage.resize_(tracer.table.state(target).nbytes)
        _torch.set_geometry(target, storage, lies.offset, lies.shape, lies.stride)
    raise RuntimeError(f"output with shape {list(lies.shape)} doesn't match the broadcast shape {found}")


def _write(
    tracer: Tracer, target: Replica, twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Value
) -> None:
    """``target`` now holds ``value``, converted where the twin gives another dtype or strides than eager writes."""
    geometry = _twin_geometry(tracer, twin, args, kwargs)
    if geometry is not None:
        value = conform(tracer, value, geometry, geometry_of(target))
    tracer.table.write(tracer.table.view(target), value)


def conform(tracer: Tracer, value: Value, has: Geometry, wants: Geometry) -> Value:
    """``value``, which lies as ``has`` says, converted to what is written where a tensor lies as ``wants`` says."""
    if has.dtype != wants.dtype:
        if not torch.can_cast(has.dtype, wants.dtype):
            raise RuntimeError(f"result type {has.dtype} can't be cast to the desired output type {wants.dtype}")
        value = tracer.trace.call(aten._to_copy.default, (value,), {"dtype": wants.dtype})
    if 0 in wants.shape or wants.may_self_overlap or _same_strides(has, wants):
        return value
    order = wants.dense_order
    if order is None:  # a window: of its layout only the order of dimensions shows in what is computed from it
        order = stride_order(wants)
        if has.dense_order is not None and stride_order(has) == order:
            return value
    permuted = tracer.trace.call(aten.permute.default, (value, order))
    copied = tracer.trace.call(aten.clone.default, (permuted,), {"memory_format": torch.contiguous_format})
    back = [order.index(d) for d in range(len(order))]
    return tracer.trace.call(aten.permute.default, (copied, back))


def stride_order(g: Geometry) -> list[int]:
    """The dimensions of more than one element from outermost to innermost, then the others."""
    return sorted(range(len(g.shape)), key=lambda i: (g.shape[i] == 1, -g.stride[i], -g.shape[i]))


def _twin_geometry(tracer: Tracer, twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Geometry | None:
    """What the twin gives for these arguments; None where it is known to keep its first argument's geometry."""
    if twin is aten.copy.default or twin is aten.fill.Scalar or twin is aten.zero.default:
        return None
    return foretold.first_geometry(tracer, twin, args, kwargs)


def _foreach(tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A write to each tensor of a list.

    One after another where the list's tensors share storages with each other or with operands.
    """
    targets = args[0]
    uncounted = any(x.is_inference() and _torch.version_of(x) < 0 for x in targets)
    if tracer.kernels_count_writes and uncounted and not torch.is_inference_mode_enabled():
        raise RuntimeError("eager's per-tensor kernels refuse an inference tensor outside inference mode")
    states = [tracer.table.state(x) for x in targets]
    operands = [x for a in args[1:] for x in (a if type(a) in (list, tuple) else (a,)) if type(x) is Replica]
    if len(set(map(id, states))) < len(states) or any(tracer.table.state(x) in states for x in operands):
        element_op = foreach_element_op(func)
        if element_op is None or kwargs:
            raise UnsupportedError("foreach on aliases", str(func))
        element_info = info_of(element_op)
        for k, x in enumerate(targets):
            rest = [a[k] if type(a) in (list, tuple) and len(a) == len(targets) else a for a in args[1:]]
            in_place(tracer, element_op, element_info, (x, *rest), {})
            tracer.count_write(x)
        return None
    overlap.check(func, info, args, kwargs)
    value_of = functools.partial(lazy_bits.memory_of, tracer) if tracer.depth else tracer.value_of
    value_args = tuple([value_of(a) for a in args])
    value_kwargs = {k: value_of(a) for k, a in kwargs.items()}
    out = tracer.run(info.twin, args, kwargs)
    tracer.run(func, args, kwargs)
    value = tracer.call(info.twin, value_args, value_kwargs)
    for k, (x, o) in enumerate(zip(targets, out, strict=True)):
        item = tracer.trace.call(getitem, (value, k))
        item = lazy_bits.shown(tracer, x, item) if tracer.depth else item
        tracer.table.write(tracer.table.view(x), conform(tracer, item, geometry_of(o), geometry_of(x)))
        tracer.count_write(x)  # eager counts in its per-tensor kernels, which do not run here
    return None


def to_out(tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op called with ``out=``: its functional twin, and a write of what that gives to each tensor it was given."""
    targets = [kwargs[str(w)] for w in info.written]
    rest = {k: a for k, a in kwargs.items() if k not in info.written}
    if info_of(info.twin).takes_device and not info.takes_device:  # a factory
        if info.random and not targets[0].is_contiguous():
            return by_form(tracer, func, info, args, kwargs)
        rest = {**rest, "dtype": targets[0].dtype, "device": targets[0].device}
    overlap.check(func, info, args, kwargs)
    in_memory = lazy_bits.reads_memory(tracer, info.twin, args)
    value_of = functools.partial(lazy_bits.memory_of, tracer) if in_memory else tracer.value_of
    value_args = tuple([value_of(a) for a in args])
    value_rest = {k: value_of(a) for k, a in rest.items()}
    reference = tracer.run(info.twin, args, {**rest, "device": _torch.META} if rest.get("device") is not None else rest)
    for t in targets:
        if isinstance(t, Tensor):
            tracer.table.view(t)
            tracer.regeometried.add(id(t))
            tracer.kernels.note_move(t, Move.RESHAPED)
            tracer.keep.append(t)
    wanted = [reference] if isinstance(reference, Tensor) else reference
    if all(t.shape == r.shape for t, r in zip(targets, wanted, strict=True)):
        out = tracer.run(func, args, kwargs)
    else:
        out = _resize(tracer, func, args, kwargs, targets)
    value = tracer.call(info.twin, value_args, value_rest)
    single = isinstance(reference, Tensor)
    for k, (t, r) in enumerate(zip(targets, [reference] if single else reference, strict=True)):
        item = value if single else tracer.trace.call(getitem, (value, k))
        state = tracer.table.state(t)
        if state.storage.nbytes() != state.nbytes:
            tracer.table.flat(state)
        item = lazy_bits.shown(tracer, t, item) if in_memory else item
        item = conform(tracer, item, geometry_of(r), geometry_of(t))
        tracer.table.write(tracer.table.view(t), item)
    return out


def _resize(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Replica]) -> Any:
    """Give ``targets`` the geometry that eager gives them; what the op returns."""
    for t in targets:
        geometry, nbytes = overlap.resized(func, args, kwargs)[id(t)]
        storage = _torch.storage_of(t)
        if storage.nbytes() != nbytes:
            storage.resize_(nbytes)
        with _torch.meta_kernels():
            _torch.set_geometry(t, storage, geometry.offset, geometry.shape, geometry.stride)
        _torch.count_write(t)
        tracer.table.state(t).sized = True
    return targets[0] if len(targets) == 1 else tuple(targets)


def by_form(tracer: Tracer, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that writes arguments and has no twin of the same arguments: see ``functional_forms``."""
    form, schema = form_of(func), _torch.schema_of(func)
    given = {**{schema.arguments[k].name: a for k, a in enumerate(args)}, **kwargs}
    targets = [given.get(name) for name in written_names(func)]
    written = tensors_in(tuple(targets), {})
    _check_apart(func, written, tensors_in(args, kwargs))
    values = {name: tracer.value_of(a) for name, a in given.items()}
    places = [geometry_of(t) for t in written]
    if func in WRITES_UNSAID:  # a meta kernel knows nothing of the memory that cuDNN reserves for the backward
        out = no_meta.results_of(func, args, kwargs)
    else:
        out = tracer.run(func, args, kwargs) if schema.returns else None
    if [geometry_of(t) for t in written] != places:
        raise UnsupportedError("op without a functional form", f"{func} changes the geometry of an argument")
    value = tracer.call(form.call, form.first, values, random=info.random)
    single = len(form.own) + len(targets) == 1 and not form.first
    items = iter(
        [value] if single else [tracer.trace.call(getitem, (value, k)) for k in range(len(form.own) + len(targets))]
    )
    results: list[Any] = [*(out or ())] if len(schema.returns) > 1 else [out]
    device = tracer.device_of(args, kwargs)
    for own, item in zip(form.own, items, strict=False):
        if own is not None:
            results[own] = tracer.bind_results(results[own], item, device)
    for target, item in zip(targets, items, strict=True):
        several = list(target) if isinstance(target, (list, tuple)) else None
        for k, t in enumerate([target] if several is None else several):
            if t is not None:
                new = item if several is None else tracer.trace.call(getitem, (item, k))
                tracer.table.write(tracer.table.view(t), new)
                if func.namespace != "aten":  # a custom op's kernel counts, and does not run here
                    _torch.refuse_custom_write(t)
                    _torch.count_write(t)
    return tuple(results) if len(schema.returns) > 1 else results[0]


def _check_apart(func: Any, written: list[Tensor], passed: list[Tensor]) -> None:
    """Refuse a write to memory that another argument shows as well: what the op then reads is its kernel's business."""
    for t in written:
        if geometry_of(t).overlaps_itself or sum(overlap.share_memory(t, other) for other in passed) > 1:
            raise UnsupportedError("overlapping operands", f"{func} writes memory that it is given twice")


def batch_norm(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Running statistics are written in training whatever the schema says; the functional form returns them."""
    name = _torch.op_name(func)
    updating = name == "cudnn_batch_norm" and args[3] is not None and args[4] is not None and bool(args[5])
    if name == "_batch_norm_with_update" or updating:
        return by_form(tracer, func, info_of(func), args, kwargs)
    if name == "cudnn_batch_norm":
        return pure_ops.pure(tracer, func, OpInfo(Kind.PURE, cacheable=True), args, kwargs)
    if name not in ("native_batch_norm", "_native_batch_norm_legit") or kwargs:
        raise UnsupportedError("batch norm variant", str(func))
    if len(args) != 8:
        return pure_ops.pure(tracer, func, OpInfo(Kind.PURE, cacheable=True), args, kwargs)
    x, _, _, mean, variance, training, _, _ = args
    if (mean is None) != (variance is None):
        raise UnsupportedError("batch norm variant", "only one running statistic is given")
    updates = mean is not None and bool(training)
    values = tuple([tracer.value_of(a) for a in args])
    key, known = foretold.metadata(func, OpInfo(Kind.PURE, cacheable=True), args, kwargs)
    if tracer.asks_layouts:
        known = layouts.reopened(key, known)
    if known is None:
        out = tracer.run(func, args, kwargs)
        if tracer.asks_layouts:
            out = layouts.as_in_eager(key, func, args, kwargs, out, x.real_device)
        foretold.learn(key, out, x.real_device)
        known = (tuple, tuple(geometry_of(o) for o in out), x.real_device)
    value = tracer.call(*_functional_batch_norm(func, values, updates), {})
    if updates:
        value = _update_statistics(tracer, args, values, value)
    tracer.keys[value] = key
    return tuple(tracer.fresh(g, x.real_device, tracer.trace.call(getitem, (value, k))) for k, g in enumerate(known[1]))


def _update_statistics(tracer: Tracer, args: tuple[Any, ...], values: tuple[Any, ...], value: Value) -> Value:
    """Write the running statistics that batch norm gave with its results ``value``; the results by then.

    Eager writes the mean, then the variance, and then computes the result: it shows where they share memory.
    """
    x, weight, bias, mean, variance, *_ = args
    functional = aten._native_batch_norm_legit_functional.default
    updated = tracer.trace.call(getitem, (value, 3))
    tracer.table.write(tracer.table.view(mean), updated)
    if tracer.value_of(variance) is not values[4]:
        if geometry_of(mean) != geometry_of(variance):
            raise UnsupportedError("overlapping operands", "the running statistics of batch norm overlap")
        value = tracer.call(functional, (*values[:4], updated, *values[5:]), {})
    tracer.table.write(tracer.table.view(variance), tracer.trace.call(getitem, (value, 4)))
    if tracer.value_of(x) is not values[0]:
        raise UnsupportedError("overlapping operands", "a running statistic of batch norm lies in what it normalizes")
    now = tracer.values_of((weight, bias))
    if any(a is not b for a, b in zip(now, values[1:3], strict=True)):
        value = tracer.call(functional, (values[0], *now, *values[3:]), {})
    return value


def _functional_batch_norm(func: Any, values: tuple[Any, ...], updates: bool) -> tuple[Any, tuple[Any, ...]]:
    """The op, with its arguments, that says what batch norm does to its running statistics.

    It is the one other compilers expect.
    """
    x, weight, bias, mean, variance, training, momentum, eps = values
    if updates:
        return aten._native_batch_norm_legit_functional.default, values
    if training:
        return aten._native_batch_norm_legit.no_stats, (x, weight, bias, True, momentum, eps)
    if mean is None:
        return func, values
    return aten._native_batch_norm_legit_no_training.default, (x, weight, bias, mean, variance, momentum, eps)


def _same_strides(a: Geometry, b: Geometry) -> bool:
    return (
        all(n == 1 or s == t for n, s, t in zip(b.shape, a.stride, b.stride, strict=True))
        if a.shape == b.shape
        else True
    )
