"""Backends that take their process with them or lose a flag, and an op that kills in eager."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import torch

from aotcheck.program import Program, register_op
from aotcheck.program.ops import Form, Group, Kind, Op, Param, UnknownOpError, find

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
