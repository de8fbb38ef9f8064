"""Runs statements one at a time in eager; an environment maps names to values."""

from collections.abc import Callable, Iterable, MutableMapping
from contextlib import AbstractContextManager, redirect_stdout
from typing import Any

import torch

from aotcheck.program.called.objects import OBJECTS
from aotcheck.program.data.model import (
    Block,
    Context,
    DeviceOf,
    DictExpr,
    DType,
    Expr,
    ListExpr,
    Literal,
    OpCall,
    Ref,
    SliceExpr,
    Statement,
    TupleExpr,
)
from aotcheck.program.ops.registry import Form, find, implementation

__all__ = ["context_of", "dtype_of", "evaluate", "execute", "run_body"]

Before = Callable[[OpCall, MutableMapping[str, Any]], None]
"""Called before each op call, with the environment."""


def dtype_of(name: str) -> torch.dtype:
    """The dtype ``torch.<name>``."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch.{name} is not a dtype")
    return dtype


def evaluate(expr: Expr, env: MutableMapping[str, Any]) -> Any:
    """The value of an expression."""
    match expr:
        case Ref(name):
            return env[name]
        case Literal(value):
            return value
        case DType(name):
            return dtype_of(name)
        case DeviceOf(name):
            return env[name].device
        case SliceExpr(start, stop, step):
            return slice(start, stop, step)
        case TupleExpr(items):
            return tuple(evaluate(item, env) for item in items)
        case ListExpr(items):
            return [evaluate(item, env) for item in items]
        case DictExpr(pairs, of):
            made = {key: evaluate(item, env) for key, item in pairs}
            return OBJECTS[of](**made) if of else made


def context_of(context: Context) -> AbstractContextManager[Any]:
    """A new context manager for a block."""
    match context:
        case Context.NO_GRAD:
            return torch.no_grad()
        case Context.ENABLE_GRAD:
            return torch.enable_grad()
        case Context.INFERENCE:
            return torch.inference_mode()
        case Context.AUTOCAST:
            return torch.autocast("cpu", torch.bfloat16)


def execute(statement: Statement, env: MutableMapping[str, Any], before: Before | None = None) -> None:
    """Run one statement, binding its targets in ``env``; ``before`` is called before each op. Errors are passed on."""
    if isinstance(statement, Block):
        with context_of(statement.context):
            run_body(statement.body, env, before)
        return
    if before is not None:
        before(statement, env)
    result = call(statement, env)
    if isinstance(statement.target, str):
        env[statement.target] = result
    elif statement.target is not None:
        values = tuple(result)
        if len(values) != len(statement.target):
            raise ValueError(f"not {len(statement.target)} values to unpack but {len(values)}")
        env.update(zip(statement.target, values, strict=True))


def call(statement: OpCall, env: MutableMapping[str, Any]) -> Any:
    """The result of an op call."""
    args = [evaluate(a, env) for a in statement.args]
    match find(statement.path)[0].form:
        case Form.GETITEM:
            return args[0][args[1]]
        case Form.SETITEM:
            args[0][args[1]] = args[2]
            return None
        case Form.ATTRIBUTE:
            return getattr(args[0], statement.path.partition(".")[2])
        case Form.ASSIGN:
            setattr(args[0], statement.path.partition(".")[2].removesuffix("="), args[1])
            return None
        case _:
            kwargs = {k: evaluate(a, env) for k, a in statement.kwargs}
            with redirect_stdout(None):  # it may print, or run a hook that does
                return implementation(statement.path)(*args, **kwargs)


def run_body(body: Iterable[Statement], env: MutableMapping[str, Any], before: Before | None = None) -> None:
    """Run statements in order."""
    for statement in body:
        execute(statement, env, before)
