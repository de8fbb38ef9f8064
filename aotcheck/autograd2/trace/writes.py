"""Ops that write: their functional variants, and what the written tensors hold afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import Node, getitem
from aotcheck.autograd2.ir.meta import Geometry, disjoint, geometry_of, is_leaf, row_major, same_strides
from aotcheck.autograd2.ir.signature import Step
from aotcheck.autograd2.ir.size import by_size
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.info import OpInfo, info_of
from aotcheck.autograd2.trace.layouts import eagerly, in_memory_order
from aotcheck.autograd2.trace.recorder import Recorder, check_bounds, terms
from aotcheck.autograd2.trace.replica import Replica, place_of, replicas_in, state_of
from aotcheck.autograd2.trace.view import View

aten = torch.ops.aten
_WHOLE = frozenset({aten.copy_.default, aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default})
"""What overwrites every element: the result lies as the target does, whatever is written."""
_NOT_ASKED = frozenset({aten.fill_.Scalar, aten.zero_.default, aten.masked_fill_.Scalar})
"""What eager lets write a tensor whose elements share memory."""
_BY_PLACE = ("index_", "put_", "scatter")
"""How names of ops begin that do not take what they write for an operand."""
_SHARE = "unsupported operation: {} to a single memory location. "
_SHARE += "Please clone() the tensor before performing the operation."


def in_place(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that writes its first argument, a tensor or a list of them."""
    target = args[0]
    if type(target) in (list, tuple):
        return _foreach(tracer, func, info, args, kwargs)
    _check_overlap(func, info, target, args, kwargs)
    if info.functional is aten.bernoulli.p and len(args) == 1:
        args = (*args, 0.5)
    values, named = tracer.values(args), tracer.value_of(dict(kwargs))
    if func in _WHOLE:
        tracer.run(func, args, kwargs)
        has = geometry_of(target)
    else:
        functional = tracer.measured(info.functional, info_of(info.functional), args, kwargs)
        if functional.shape != target.shape or (target.is_complex() and functional.is_floating_point()):
            raise RuntimeError(f"output with shape {target.shape} doesn't match the broadcast shape {functional.shape}")
        has = geometry_of(functional)
    if info.random:
        node, has = _drawn(tracer, func, info, args, kwargs, values)
    else:
        node = tracer.call(info.functional, values, named)
    node.device = state_of(target).device
    _write(tracer, target, node, has)
    return target


def _drawn(
    tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], values: tuple[Any, ...]
) -> tuple[Node, Geometry]:
    """Random numbers in the order in which eager hands them out; the operand lies as the written tensor does."""
    lies, device = geometry_of(args[0]), state_of(args[0]).device
    given = {k: v for k, v in kwargs.items() if k != "generator"}
    order = in_memory_order(func, info.functional, lies, device, (args[1:], given), tracer.symbols)
    if lies.is_contiguous and not tracer.table.storage_state(args[0]).version:
        operand = values[0]
    elif order or lies.is_contiguous:
        shape = [lies.shape[d] for d in order or range(len(lies.shape))]
        operand = tracer.call(aten.empty.memory_format, (shape,), {"dtype": lies.dtype, "device": device})
    else:
        strides = [*lies.shape], [*lies.stride]
        operand = tracer.call(aten.empty_strided.default, strides, {"dtype": lies.dtype, "device": device})
    operand.device = device
    node = tracer.draw_or_call(info.functional, (operand, *values[1:]), kwargs, device)
    node.device = device
    if not order:
        return node, row_major(lies.shape, lies.dtype)
    back = [order.index(d) for d in range(len(order))]
    return tracer.graph.like(node, aten.permute.default, node, back), lies._replace(offset=0)


def _check_overlap(func: Any, info: OpInfo, target: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise as eager does where operands share memory; refuse what depends on the order in which a kernel writes."""
    lies, address = geometry_of(target), _torch.address_of(target)
    read = [*args, *(x for name, x in kwargs.items() if name not in info.written)]
    itself = args[0] is target and hasattr(aten, f"{_torch.op_name(func).rstrip('_')}_")  # as in ``addmm(x, …, out=x)``
    others = [x for x in replicas_in(read) if _torch.address_of(x) == address][itself:]
    if lies.may_overlap_itself:
        within = any(s == 0 and n != 1 for n, s in zip(lies.shape, lies.stride, strict=True))
        if within and func not in _NOT_ASKED:
            raise RuntimeError(_SHARE.format("more than one element of the written-to tensor refers"))
        if func not in _WHOLE or func is aten.copy_.default:  # what one element gets depends on the order of writes
            refuse(Event.OVERLAP, f"{func} writes a tensor whose elements share memory")
    by_place = _torch.op_name(func).startswith(_BY_PLACE)
    fills = func is aten.index_put_.default and lies.dtype is torch.bool and args[2].numel() == 1 and not any(args[3:])
    pointwise = fills or torch.Tag.pointwise in info.functional.tags or func is aten.copy_.default
    for x in others:
        g = geometry_of(x)
        if (pointwise and g[:4] == lies[:4]) or ((x is not target or not by_place) and disjoint(g, lies)):
            continue
        dense = g.dense_order is not None and lies.dense_order is not None
        if (pointwise and dense) or (by_place and (dense or x is target)):
            raise RuntimeError(_SHARE.format("some elements of the input tensor and the written-to tensor refer"))
        refuse(Event.OVERLAP, f"{func} reads memory that it writes")


def _write(tracer: Recorder, target: Tensor, node: Node, has: Geometry) -> None:
    """``target`` holds ``node``, which lies as ``has``, converted to how the target lies."""
    tracer.table.write(tracer.table.view(target), conform(tracer, node, has, geometry_of(target)))


def conform(tracer: Recorder, value: Node, has: Geometry, wants: Geometry) -> Node:
    """``value`` in the dtype and the order of dimensions of what is written."""
    if has.dtype != wants.dtype:
        if not torch.can_cast(has.dtype, wants.dtype):
            raise RuntimeError(f"result type {has.dtype} can't be cast to the desired output type {wants.dtype}")
        value = tracer.graph.like(value, aten._to_copy.default, value, dtype=wants.dtype)
    if wants.is_empty or wants.may_overlap_itself or same_strides(has, wants):
        return value
    if (order := wants.dense_order) is None:
        order = _stride_order(wants)
        if has.dense_order is not None and _stride_order(has) == order:
            return value
    permuted = tracer.graph.like(value, aten.permute.default, value, order)
    copied = tracer.graph.like(value, aten.clone.default, permuted, memory_format=torch.contiguous_format)
    return tracer.graph.like(value, aten.permute.default, copied, [order.index(d) for d in range(len(order))])


def _stride_order(g: Geometry) -> list[int]:
    """Dimensions of more than one element from outermost to innermost, then the others."""
    if any(type(n) is not int for n in (*g.shape, *g.stride)):
        return list(range(len(g.shape)))
    return sorted(range(len(g.shape)), key=lambda i: (g.shape[i] == 1, -g.stride[i], -g.shape[i]))


def _foreach(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A write to each tensor of a list: to one after the other, as on the CPU in eager, where they share memory."""
    targets: Sequence[Tensor] = args[0]
    if any(geometry_of(t).may_overlap_itself for t in targets):
        refuse(Event.OVERLAP, f"{func} writes a tensor whose elements share memory")
    if any(t.is_inference() for t in targets) and not torch.is_inference_mode_enabled():
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode")
    torch.autograd.graph.increment_version([*targets])  # eager's kernels are made of ops that count
    addresses = {_torch.address_of(t) for t in targets}
    lists = [a if type(a) in (list, tuple) else [a] * len(targets) for a in args[1:]]
    others = [x for a in lists for x, t in zip(a, targets, strict=True) if type(x) is Replica and x is not t]
    read = [x for x in dict.fromkeys(others) if _torch.address_of(x) in addresses]
    recorded = torch.is_grad_enabled() and any(_torch.requires_grad(t) for t in (*targets, *others))
    if recorded and len(addresses) < len(targets) and any(geometry_of(t).is_empty for t in targets):
        refuse(Event.OVERLAP, f"a view without elements is in a list of {func} with others of its base")
    if not _lie_apart(targets) or not all(_lie_apart([*targets, x]) for x in read):
        if len(targets) < 2 or state_of(targets[0]).device.type != "cpu":
            refuse(Event.OVERLAP, f"tensors in the lists of {func} share memory")
        for k in range(len(targets)):
            tracer.table.storage_state(targets[k]).in_lists |= recorded
            _foreach(tracer, func, info, tuple(a[k : k + 1] if type(a) in (list, tuple) else a for a in args), kwargs)
        return None
    values, named = tracer.values(args), tracer.value_of(dict(kwargs))
    out = tracer.run(info.functional, args, kwargs)
    if any(t.shape != o.shape or (t.is_complex() and o.is_floating_point()) for t, o in zip(targets, out, strict=True)):
        raise RuntimeError("in-place abs of complex tensors, or a result of another shape than what is written")
    node = tracer.call(info.functional, values, named)
    for k, (t, o) in enumerate(zip(targets, out, strict=True)):
        _write(tracer, t, _item(tracer, node, k, t), geometry_of(o))
    return None


def _lie_apart(tensors: Sequence[Tensor]) -> bool:
    """Whether each tensor ends before the next one on its storage begins."""
    lies = [(_torch.address_of(t), geometry_of(t)) for t in tensors]
    spans = [(a, by_size(g.offset * g.dtype.itemsize), g.end * g.dtype.itemsize) for a, g in lies if not g.is_empty]
    spans.sort(key=lambda span: span[:2])
    return all(a[0] != b[0] or by_size(a[2]) <= b[1] for a, b in itertools.pairwise(spans))


def to_out(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op called with ``out=``: its functional variant, and a write to each tensor that it was given."""
    targets = [kwargs[str(w)] for w in info.written]
    here = rest = {k: a for k, a in kwargs.items() if k not in info.written}
    if info_of(info.functional).takes_device and not info.takes_device:  # it makes tensors
        rest = {**rest, "dtype": targets[0].dtype, "device": state_of(targets[0]).device}
        here = {**rest, "device": _torch.META}
    values = tracer.values(args)
    reference = tracer.run(info.functional, args, here)
    single = isinstance(reference, Tensor)
    wanted = [reference] if single else list(reference)
    if any(t.dtype != r.dtype for t, r in zip(targets, wanted, strict=True)):
        if info.random:
            refuse(Event.LAYOUT, f"{func} draws in another dtype")
        eagerly(func, args, kwargs, torch.ones)  # some kernels convert nothing, which meta kernels do not say
    for t, r in zip(targets, wanted, strict=True):
        if t.shape != r.shape and not r.is_contiguous():
            refuse(Event.STORAGE, f"{func} gives the tensor for its result another shape")
        if t.shape != r.shape:
            move(tracer, aten.resize_.default, info, (t, [*r.shape]), {})
        _check_overlap(func, info, t, args, kwargs)
    device = state_of(targets[0]).device
    node = tracer.draw_or_call(info.functional, values, rest, device)
    node.device = device
    for k, (t, r) in enumerate(zip(targets, wanted, strict=True)):
        _write(tracer, t, node if single else _item(tracer, node, k, t), geometry_of(r))
    return targets[0] if len(targets) == 1 else tuple(targets)


def by_copy(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that writes some arguments: a functional one gives its results, and what these arguments hold then.

    Ops of torch's have a variant that does so, as fused optimizers do. Those of users' are run on copies.
    """
    functional = _variant_with_results(func) if func.namespace == "aten" else _torch.auto_functionalized
    if functional is None or (func.namespace != "aten" and not _torch.can_auto_functionalize(func)):
        refuse(Event.UNKNOWN_WRITE, str(func))
    names = [a.name for a in _torch.schema_of(func).arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    written = {name: given.get(name) for name in (w if isinstance(w, str) else names[w] for w in info.written)}
    every, targets = [replicas_in(list(x.values())) for x in (given, written)]
    addresses = [_torch.address_of(t) for t in every]
    if any(t.is_inference() for t in targets) and not torch.is_inference_mode_enabled():
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode")
    if any(addresses.count(_torch.address_of(t)) > 1 for t in targets):
        refuse(Event.OVERLAP, f"tensors given to {func} share memory")
    device, values, named = tracer.device_of(args, kwargs), tracer.values(args), tracer.value_of(dict(kwargs))
    if functional is not _torch.auto_functionalized:
        order = [a.name for a in _torch.schema_of(functional).arguments]
        if order[: len(args)] != names[: len(args)]:  # as of polygamma
            values = tuple([tracer.value_of(given[name]) for name in order if name in given])
    else:
        values, named = (func,), tracer.value_of({**written, **given})
    out = tracer.run(func, args, kwargs)
    node = tracer.call(functional, values, named)
    if info.random:
        tracer.graph.effects.append(node)
    several = isinstance(out, (list, tuple))
    itself = any(r.alias_info is not None for r in _torch.schema_of(func).returns)
    nothing = itself or (out is None and functional is not _torch.auto_functionalized)  # which gives None for no result
    results = [*out] if several else [] if nothing else [out]
    for k, o in enumerate(results):
        if isinstance(o, Tensor):
            results[k] = tracer.fresh(o, tracer.graph.call(getitem, (node, k)), device)
    alone = functional is not _torch.auto_functionalized and len(_torch.schema_of(functional).returns) == 1
    for k, w in enumerate(written.values(), len(results)):
        item = node if alone else tracer.graph.call(getitem, (node, k))
        for j, t in enumerate(replicas_in(w)):
            value = item if t is w else tracer.graph.call(getitem, (item, j))
            value.device = state_of(t).device
            _write(tracer, t, value, geometry_of(t))
    return args[0] if itself else type(out)(results) if several else results[0] if results else None


def _variant_with_results(func: Any) -> Any:
    """The op that returns what ``func`` returns, and then what it writes; None if there is none."""
    name, schema = _torch.op_name(func), _torch.schema_of(func)
    own = [r for r in schema.returns if r.alias_info is None]
    packet = getattr(aten, f"{name.rstrip('_')}_functional", None)
    if packet is None and name.endswith("_") and not own:
        packet = getattr(aten, name[:-1], None)
    found = getattr(packet, _torch.overload_name(func), None)
    if found is None or _torch.schema_of(found).is_mutable:
        return None
    written = sum(a.alias_info is not None for a in schema.arguments)
    return found if len(_torch.schema_of(found).returns) == len(own) + written else None


def reshape_in_place(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that gives its argument another shape on the same memory."""
    target, name = args[0], _torch.op_name(func)
    if name == "detach_":
        return tracer.run(func, args, kwargs)
    parent = tracer.table.view(target)
    if parent.state.backwards_begun < tracer.table.backwards_begun:
        refuse(Event.BACKWARD_WRITE)
    state = state_of(target)
    is_view = state.was_a_view or _torch.base_of(target) is not None
    modes, rest = (torch.is_grad_enabled(), torch.is_inference_mode_enabled()), tuple(map(terms, args[1:]))
    swaps = name in ("transpose_", "swapaxes_", "swapdims_")
    op = aten.transpose.int if swaps else getattr(getattr(aten, name[:-1]), _torch.overload_name(func))
    if is_view and target.requires_grad and not is_leaf(target):
        refuse(Event.HISTORY, f"{func} of a view")
    state.born = state.born or place_of(target)
    tracer.run(func, args, kwargs)
    state.reshapes += (Step(func, rest, kwargs, None, *modes),)
    tracer.keep.append(target)
    geometry = geometry_of(target)
    check_bounds(func, target, geometry)
    if geometry in parent.state.views or name == "as_strided_":
        tracer.table.view(target)
        return target
    view = parent.state.views[geometry] = View(parent.state, geometry)
    view.derive(parent, op, tuple(args[1:]), kwargs)
    return target


def move(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``set_`` and ``resize_``: another storage, or another size of it."""
    target, name = args[0], _torch.op_name(func)
    if name not in ("set_", "resize_", "resize_as_") or (target.requires_grad and not target.is_leaf):
        refuse(Event.STORAGE, str(func))
    before = tracer.table.view(target).state
    if torch.is_grad_enabled() and any(isinstance(a, Tensor) and _torch.requires_grad(a) for a in args[1:2]):
        refuse(Event.STORAGE, f"{func} to a tensor that requires grad")
    if any(isinstance(a, Tensor) and a.is_inference() is not target.is_inference() for a in args[1:2]):
        refuse(Event.INFERENCE, f"{func} between an inference tensor and one that is none")
    if any(isinstance(a, torch.UntypedStorage) for a in args[1:2]) and len(args) < 5 and not target.is_contiguous():
        refuse(Event.STORAGE, f"{func} without strides of a tensor that does not lie in rows")
    sources = [_torch.storage_of(a) if isinstance(a, Tensor) else a for a in args[1:2]]
    sources = [(s, s.nbytes()) for s in sources if isinstance(s, torch.UntypedStorage)]
    before_bytes, lies, place = _torch.storage_of(target).nbytes(), geometry_of(target), place_of(target)
    state_of(target).need(bases=state_of(target).was_a_view)
    tracer.run(func, args, kwargs)
    if name != "set_" and geometry_of(target) == lies and _torch.storage_of(target).nbytes() == before_bytes:
        return target
    state_of(target).born = state_of(target).born or place
    if any(s.nbytes() != nbytes for s, nbytes in sources):
        refuse(Event.STORAGE, f"{func} to memory that the storage does not have")
    if name != "set_" and geometry_of(target).offset != lies.offset:
        refuse(Event.STORAGE, f"{func} of a view, to a size that is a symbol, forgets where it begins")
    if torch.are_deterministic_algorithms_enabled() and _torch.storage_of(target).nbytes() != before_bytes:
        refuse(Event.FILL, f"{func}")
    state_of(target).own_counter |= tracer.table.storage_state(target) is not before
    state_of(target).is_reset = not torch.is_inference_mode_enabled()
    tracer.keep.append(target)
    state = tracer.table.storage_state(target)
    if not state.roots:
        count = state.nbytes // target.dtype.itemsize
        elem = _torch.lying_on(state.storage, target.dtype, (count,), (1,), 0)
        given = {"dtype": target.dtype, "device": state.device}
        tracer.table.hold(elem, tracer.call(aten.empty.memory_format, ([count],), given))
    tracer.table.read(target)
    return target


def batch_norm(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Running statistics are written in training, whatever the schema says; the functional variant returns them."""
    if kwargs or len(args) != 8 or (args[3] is None) != (args[4] is None):
        refuse(Event.UNKNOWN_WRITE, str(func))
    mean, variance, training = args[3:6]
    if mean is not None and not all(geometry_of(t).is_contiguous for t in (mean, variance)):
        refuse(Event.LAYOUT, "running statistics with gaps, which kernels of batch norm read otherwise")
    if mean is None or not training:
        return tracer.pure(func, info, args, kwargs)
    read, written = ({_torch.address_of(t) for t in ts if t is not None} for ts in (args[:3], args[3:5]))
    if len(written) < 2 or read & written:
        refuse(Event.OVERLAP, "running statistics of batch norm share memory")
    values, out = tracer.values(args), tracer.measured(func, info, args, kwargs)
    node = tracer.call(aten._native_batch_norm_legit_functional.default, values)
    made = tracer.results(out, node, state_of(args[0]).device)
    for k, t in ((3, mean), (4, variance)):
        _write(tracer, t, _item(tracer, node, k, t), geometry_of(t))
    return made


def _item(tracer: Recorder, node: Node, k: int, target: Tensor) -> Node:
    """The ``k``-th result of a node, which ``target`` is to hold."""
    item = tracer.graph.call(getitem, (node, k))
    item.device = state_of(target).device
    return item
