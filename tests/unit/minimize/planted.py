"""Backends that take their process with them or lose a flag, and an op that kills in eager."""

import os
import signal
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from aotcheck.program import Program, register_op
from aotcheck.program.ops.registry import Form, Group, Kind, Op, Param, UnknownOpError, find
from tests.meta.bugs import BUGS

FATAL = "tests.unit.minimize.planted.fatal"


def fatal(x: torch.Tensor) -> torch.Tensor:
    """Kills its process if the tensor has a single element, whoever runs it."""
    if x.numel() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return x.clone()


try:
    find(FATAL)
except UnknownOpError:
    register_op(Op(FATAL, (Param(Kind.SELF),), Group.POINTWISE, Form.FUNCTION, weight=0), fatal)


def dies_of_many(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Kills its process if an argument has more than two elements."""

    def compiled(*args: Any) -> Any:
        if any(arg.numel() > 2 for arg in args):
            os.kill(os.getpid(), signal.SIGKILL)
        return fn(*args)

    return compiled


def detaches(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What it returns has no history."""
    return lambda *args: fn(*args).detach()


def wants_two_elements(program: Program) -> None:
    """An inspection that finds the outcome of any program without a two-element input badly defined."""
    if not any(t.size == (2,) for call in program.calls if call.inputs for t in call.inputs.tensors):
        raise ValueError("planted")


def both(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A backend with several of the bugs of ``tests.meta.bugs``."""

    def compile_function(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            fn = BUGS[name](fn)
        return fn

    return compile_function


class _Doubling(TorchFunctionMode):
    """The gradients of some functions' results are doubled."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.exp, torch.neg) and result.requires_grad:
            result.register_hook(lambda gradient: gradient * 2)
        return result


def gradients_of_two(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of ``exp`` and of ``neg`` are wrong."""

    def compiled(*args: Any) -> Any:
        with _Doubling():
            return fn(*args)

    return compiled


class _Refusing(TorchFunctionMode):
    """An exporter that knows neither ``new_full`` nor ``clone``, and says the same of both."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.new_full, torch.Tensor.clone):
            raise RuntimeError("planted: no rule for this op")
        return func(*args, **(kwargs or {}))


def refuses_two(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``new_full`` and ``clone`` are refused by the same message."""

    def compiled(*args: Any) -> Any:
        with _Refusing():
            return fn(*args)

    return compiled


two_views = both("slice_copies", "detach_forgets")
two_values = both("neg_wrong", "cumsum_wrong")
two_writes = both("masked_fill_lost", "zero_lost")
four_values = both("neg_wrong", "cumsum_wrong", "sum_wrong", "amax_wrong")
