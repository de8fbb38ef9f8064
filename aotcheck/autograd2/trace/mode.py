"""The dispatch mode under which the user's function runs on replicas: which handler records an op.

Ops whose results have a size that data decide are here: a new symbol stands for it, which the forward graph returns. A
mask is the same as where it is true. What was asked of a value once has the same size when it is asked again, also in
a backward. Branches on such sizes and values are refused, but for values that numbers among the arguments decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import getitem
from aotcheck.autograd2.ir.meta import Geometry, geometry_of, row_major
from aotcheck.autograd2.ir.size import Size, dense_strides, same, symbols_in, term
from aotcheck.autograd2.trace import writes
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.info import Kind, OpInfo, info_of
from aotcheck.autograd2.trace.recorder import Recorder
from aotcheck.autograd2.trace.replica import ASKED, Replica, make_replica, replicas_in, state_of

aten = torch.ops.aten


def _sized_by_data(tracer: Recorder, func: Any, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op that depends on data; refused if it gives what cannot be a symbol."""
    computed, numbers = tracer.of_constants(func, args, kwargs)
    if computed is not None and not numbers:
        return tracer.lift(known) if isinstance(known := computed(), Tensor) else known
    is_number = func is aten._local_scalar_dense.default
    if func in (aten.equal.default, aten.is_nonzero.default):
        refuse(Event.DATA, str(func))
    x: Tensor = args[0]
    values, named = tracer.values(args), tracer.value_of(dict(kwargs))
    asked = (func, *values, *named.values())
    if computed is not None and is_number and asked not in tracer.answered and tracer.symbols is not None:
        tracer.answered[asked] = [], tracer.symbols.computed(computed, [tracer.numbers[n] for n in numbers]), []
    if asked not in tracer.answered:
        if is_number and (x.is_complex() or x.dtype is torch.bool):
            tracer.needs = tracer.needs.also(symbols=True, values=True)
            refuse(Event.DATA, f"the value of a {x.dtype} tensor")
        tracer.needs = tracer.needs.also(symbols=True)
        if tracer.symbols is None or tracer.in_backward:
            refuse(Event.DATA, f"{func} in a backward" if tracer.in_backward else str(func))
        node = tracer.call(func, values, named)
        kind = float if is_number and x.is_floating_point() else int
        size = _torch.unbacked_number(tracer.symbols.env, kind, not is_number)
        (name,) = symbols_in(term(size))
        schema = enumerate(_torch.schema_of(func).arguments)
        given = {a.name: args[k] if k < len(args) else kwargs.get(a.name, a.default_value) for k, a in schema}
        parts = [] if is_number else _results(func, x, term(size), given)
        nodes = [tracer.graph.call(getitem, (node, k)) for k in range(len(parts))] if len(parts) > 1 else [node]
        tracer.graph.effects += nodes
        at = next((d for d, n in enumerate(parts[0].shape) if n == term(size)), 0) if parts else None
        tracer.graph.defined[name] = (nodes[0], at)
        tracer.answered[asked] = nodes, size, parts
    nodes, size, parts = tracer.answered[asked]
    if is_number:
        return size
    made = [tracer.fresh_at(lies, n, state_of(x).device) for n, lies in zip(nodes, parts, strict=True)]
    return tuple(made) if len(made) > 1 else made[0]


def _results(func: Any, x: Tensor, size: Size, given: Mapping[str, Any]) -> list[Geometry]:
    """How the results of an op on ``x`` lie, where data decide ``size``."""
    if func is aten.nonzero.default:
        return [Geometry(0, (size, x.dim()), (1, size), torch.int64, False, False)]
    if func is aten.bincount.default:
        weights = given["weights"]
        single = weights is not None and weights.dtype is torch.float32
        return [row_major((size,), torch.int64 if weights is None else torch.float32 if single else torch.float64)]
    values = row_major((size,), x.dtype)
    if "return_inverse" not in given:
        return [values]
    shape, dim = geometry_of(x).shape, given.get("dim")
    places, counts = shape if given["return_inverse"] else (0,), (size if given["return_counts"] else 0,)
    if dim is not None:
        d = dim % max(x.dim(), 1)
        sizes, order = [*shape[:d], size, *shape[d + 1 :]], [d, *(k for k in range(x.dim()) if k != d)]
        values = values._replace(shape=tuple(sizes), stride=dense_strides(sizes, order))
        places, counts = (shape[d],), (size,)
    return [values, row_major(places, torch.int64), row_major(counts, torch.int64)]


def nonzero(tracer: Recorder, mask: Tensor) -> Any:
    """Where a mask is true."""
    return _sized_by_data(tracer, aten.nonzero.default, info_of(aten.nonzero.default), (mask,), {})


def ask_of_masks(tracer: Recorder, x: Tensor, indices: Any, values: Tensor) -> None:
    """Ask forward what the backward of a write of ``values`` at these indices of ``x`` will ask.

    Values that are not broadcast say how often a mask is true: a graph whose data say otherwise raises.
    """
    for k, mask in [(k, i) for k, i in enumerate(indices) if is_mask(i)]:
        d = values.dim() - 1 - (x.dim() - k - mask.dim())
        count = geometry_of(values).shape[d] if d >= 0 and all(i is None or i is mask for i in indices) else 1
        taken = tracer.values((mask,))
        asked = (aten.nonzero.default, *taken)
        if same(count, 1) or asked in tracer.answered:
            nonzero(tracer, mask)
        else:
            node = tracer.call(aten.nonzero.default, taken, {})
            shape = (count, mask.dim())
            tracer.graph.effects.append(tracer.call(aten._assert_tensor_metadata.default, (node, shape), {}))
            tracer.answered[asked] = [node], None, [Geometry(0, shape, (1, count), torch.int64, False, False)]


def is_mask(i: Any) -> bool:
    """Whether an index says of each element whether it is meant."""
    return isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8)


def without_masks(tracer: Any, indices: Any) -> Any:
    """Indices with, for each mask, where it is true."""
    select, info, found = aten.select.int, info_of(aten.select.int), []
    for i in indices:
        rows = nonzero(tracer, i) if is_mask(i) else None
        found += [i] if rows is None else [tracer.pure(select, info, (rows, 1, d), {}) for d in range(i.dim())]
    return found


class Tracer(Recorder, _torch.TorchDispatchMode):
    """Decides for each op what kind it is, and lets it be recorded."""

    supports_higher_order_operators = True  # they come here, to be refused by name
    fixes_text = True  # the text of a size that is a symbol is that of its number

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a wrapper around each dispatch that nothing needs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (asked := ASKED.get(func)) is not None:
            return asked(args[0])
        kwargs = kwargs or {}
        if torch.get_default_dtype() is not self.ambient[0]:
            refuse(Event.GLOBAL, "the default dtype")
        if _torch.saves_by_hooks() and torch.is_grad_enabled():
            refuse(Event.HOOK, "saved-tensor hooks")
        if isinstance(func, _torch.OpOverload) and func.namespace == "profiler":
            return func(*args, **kwargs)
        if not isinstance(func, _torch.OpOverload):
            refuse(Event.HIGHER_ORDER, _torch.op_name(func))
        for kind in types:
            if kind is not Replica and kind is not Tensor and kind is not torch.nn.Parameter:
                refuse(Event.WRAPPER, kind.__name__)
        if func is aten.lift_fresh.default:
            return self.lift(args[0])
        args = tuple(map(self._admitted, args))
        kwargs = {k: self._admitted(a) for k, a in kwargs.items()}
        info = info_of(func)
        if info.is_composite or (info.is_users and _torch.is_composite(func)):
            with _torch.as_before_dispatch(), self:
                return _torch.run_composite(func, args, kwargs)
        kernel = _torch.kernel_in_python(func) if info.is_users else None
        if kernel is not None and any(t.requires_grad for t in replicas_in([*args, *kwargs.values()])):
            with _torch.as_before_dispatch(), self:
                return kernel(*args, **kwargs)
        if func is aten.index.Tensor and any(map(is_mask, args[1])):
            args = (args[0], without_masks(self, args[1]))
        if func in (aten.index_put_.default, aten.index_put.default) and args[2].requires_grad:
            ask_of_masks(self, *args[:3])
        return _HANDLERS[info.kind](self, func, info, args, kwargs)

    def _admitted(self, a: Any) -> Any:
        """An argument. Tensors that are no replicas are refused."""
        if type(a) is Replica:
            return a
        if isinstance(a, Tensor):
            if a.layout is not torch.strided:
                refuse(Event.SPARSE, str(a.layout))
            if not _torch.is_efficient_zero(a):
                refuse(Event.CAPTURED, f"a tensor of shape {tuple(a.shape)} that is no input")
            with _torch.without_modes():  # a view of a replica, which torch makes unseen
                return make_replica(a, a.device, self)
        if type(a) in (list, tuple):
            return type(a)(map(self._admitted, a))
        if isinstance(a, torch.UntypedStorage) and a.device.type != "meta":
            refuse(Event.CAPTURED, "a storage that belongs to no input")
        if type(a) is torch.Generator:
            self.draws.of(a, _torch.META)
        return a


_HANDLERS: dict[Kind, Callable[[Tracer, Any, OpInfo, tuple[Any, ...], dict[str, Any]], Any]] = {
    Kind.PURE: Tracer.pure,
    Kind.IN_PLACE: writes.in_place,
    Kind.OUT: writes.to_out,
    Kind.RESHAPING: writes.reshape_in_place,
    Kind.STORAGE: writes.move,
    Kind.BATCH_NORM: writes.batch_norm,
    Kind.DATA: _sized_by_data,
    Kind.WRITES: writes.by_copy,
}
