"""Functions of torch's that look at values only to raise an error: the trace takes another way, and the graph checks.

Where the check fails, the graph raises, and the original runs in its place and raises what eager does.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.trace.composites import COMPOSITES, with_symbols
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.mode import Tracer
from aotcheck.autograd2.trace.replica import Replica

aten = torch.ops.aten


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Refused below, as data dependent, where the number of classes is not given."""
    if num_classes < 0:
        return torch.nn.functional.one_hot(tensor, num_classes)
    within = ((tensor >= 0) & (tensor < num_classes)).all()
    aten._assert_async.msg(within, "one_hot: a class is not among the classes")
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)


def _max_pool1d(func: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """On the CPU a kernel without indices gives rows, where none are needed; it calls no op that the trace sees."""
    found: Tensor = func(input, *args, **kwargs)
    without = input.device.type == "cpu" and not (input.requires_grad and torch.is_grad_enabled())
    return found.contiguous() if without else found


def _cast_inside(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Its kernel calls ops that autocast casts, or raises an error of other halves: the trace does not see these."""
    t = input[0] if isinstance(input, (list, tuple)) else input
    cast = dict(_torch.casts()).get(t.device.type, t.dtype)
    if t.dtype is not cast and (t.dtype.itemsize == 2 or (func is torch.linalg.pinv and t.dtype is torch.float32)):
        refuse(Event.CAST, f"{func.__name__} of {t.dtype}")
    return func(input, *args, **kwargs)


_KERNELS = (torch.linalg.pinv, torch.roll, Tensor.roll, torch.fft.fftshift, torch.isin, torch.matrix_exp)
_OTHERWISE: dict[Any, Callable[..., Any]] = {torch.nn.functional.one_hot: _one_hot}
_OTHERWISE |= dict.fromkeys((torch.detach_, Tensor.detach_), lambda input: input.detach_())  # what notes it
_OTHERWISE |= {x: functools.partial(_cast_inside, x) for x in (*_KERNELS, _torch.chunk_cat)}
_OTHERWISE |= {x: functools.partial(_max_pool1d, x) for x in (torch.max_pool1d, torch.nn.functional.max_pool1d)}


class WithoutLooking(torch.overrides.TorchFunctionMode):
    """Inside, those functions do not look at values. ``differentiates``: whether gradients were asked for."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.differentiates = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What ``func`` gives."""
        self.differentiates |= func is torch.autograd.grad or func is Tensor.backward
        if func in COMPOSITES and self.tracer.symbols is not None:
            return with_symbols(self.tracer.symbols, func, args, kwargs or {})
        return _OTHERWISE.get(func, func)(*args, **(kwargs or {}))


@contextlib.contextmanager
def lengths(symbolic: bool) -> Iterator[None]:
    """Inside, ``len`` of a replica may be a symbol: Python's own fixes it. One trace is made at a time."""
    if not symbolic:
        yield
        return
    own = builtins.len
    vars(builtins)["len"] = lambda x, /: x.shape[0] if type(x) is Replica and x.dim() else own(x)
    try:
        yield
    finally:
        vars(builtins)["len"] = own
