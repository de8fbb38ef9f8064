"""The dispatch mode under which the user's function runs on replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.trace import data, writes
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.info import Kind, OpInfo, info_of
from aotcheck.autograd2.trace.recorder import Recorder
from aotcheck.autograd2.trace.replica import ASKED, Replica, make_replica

aten = torch.ops.aten


class Tracer(Recorder, _torch.TorchDispatchMode):
    """Decides for each op what kind it is, and lets it be recorded."""

    supports_higher_order_operators = True  # they come here, to be refused by name
    fixes_text = True  # the text of a size that is a symbol is that of its number

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a wrapper around each dispatch that nothing needs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ASKED:
            return ASKED[func](args[0])
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
        if _torch.is_composite(func) and info.kind is not Kind.BATCH_NORM:
            with _torch.as_before_dispatch(), self:
                return _torch.run_composite(func, args, kwargs)
        kernel = _torch.kernel_in_python(func)
        if kernel is not None and any(t.requires_grad for t in writes.tensors_in([*args, *kwargs.values()])):
            with _torch.as_before_dispatch(), self:
                return kernel(*args, **kwargs)
        if func is aten.index.Tensor and any(map(data.is_mask, args[1])):
            args = (args[0], data.without_masks(self, args[1]))
        if func in (aten.index_put_.default, aten.index_put.default) and args[2].requires_grad:
            data.ask_of_masks(self, *args[:3])
        return _HANDLERS[info.kind](self, func, info, args, kwargs)

    def _admitted(self, a: Any) -> Any:
        """An argument. Tensors that are no replicas are refused."""
        if isinstance(a, Tensor):
            return a if type(a) is Replica else self._captured(a)
        if type(a) in (list, tuple):
            return type(a)(map(self._admitted, a))
        if isinstance(a, torch.UntypedStorage) and a.device.type != "meta":
            refuse(Event.CAPTURED, "a storage that belongs to no input")
        if type(a) is torch.Generator:
            self.draws.of(a, _torch.META)
        return a

    def _captured(self, a: Tensor) -> Tensor:
        if a.layout is not torch.strided:
            refuse(Event.SPARSE, str(a.layout))
        if not _torch.is_efficient_zero(a):
            refuse(Event.CAPTURED, f"a tensor of shape {tuple(a.shape)} that is no input")
        with _torch.without_modes():  # a view of a replica, which torch makes unseen
            return make_replica(a, a.device, self)


_HANDLERS: dict[Kind, Callable[[Tracer, Any, OpInfo, tuple[Any, ...], dict[str, Any]], Any]] = {
    Kind.PURE: Tracer.pure,
    Kind.IN_PLACE: writes.in_place,
    Kind.OUT: writes.to_out,
    Kind.RESHAPING: writes.reshape_in_place,
    Kind.STORAGE: writes.move,
    Kind.BATCH_NORM: writes.batch_norm,
    Kind.DATA: data.run,
    Kind.WRITES: writes.by_copy,
}
