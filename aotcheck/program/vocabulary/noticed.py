"""The traits of what a program does to storages, aliases and containers."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from aotcheck.program.data.model import (
    Block,
    Context,
    Expr,
    GradMode,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Statement,
    TupleExpr,
    flat_calls,
)
from aotcheck.program.ops.registry import Group, find
from aotcheck.program.running.interpret import evaluate
from aotcheck.program.running.memory import extent_in_bytes, fits, tensors_of

__all__ = ["after", "around", "before", "contexts", "in_source", "is_expanded", "is_leaf", "out_sizes", "when_returned"]

_BY_PATH = {
    "Tensor.data=": "source:data-assigned",
    "torch.utils.swap_tensors": "source:swapped",
    "list.append": "event:container-written",
}
_BY_GROUP = {
    Group.STORAGE: "source:storage-resized",
    Group.FUNCTION: "source:custom-function",
    Group.CONTAINER: "event:container-written",
    Group.SUBCLASS: "source:subclass",
    Group.AUTOGRAD: "source:autograd-inside",
    Group.MODULE: "source:module-called",
    Group.TRANSFORM: "source:autograd-inside",
    Group.OPTIMIZER: "source:autograd-inside",
}
_MULTIPLYING = ("Tensor.index_add_", "Tensor.index_put_", "Tensor.scatter_add_", "torch.index_add")


def _blocks(body: tuple[Statement, ...]) -> Iterator[Block]:
    for statement in body:
        if isinstance(statement, Block):
            yield statement
            yield from _blocks(statement.body)


def contexts(program: Program) -> set[Context]:
    """The contexts of a program's blocks."""
    return {block.context for block in _blocks(program.body)}


def _holds_complex(expr: Expr) -> bool:
    match expr:
        case Literal(complex()):
            return True
        case TupleExpr(items) | ListExpr(items):
            return any(map(_holds_complex, items))
        case _:
            return False


def in_source(program: Program) -> Iterator[str]:
    """The traits that a program's source shows."""
    derived = [s for call in program.calls if call.inputs is not None for s in call.inputs.derived]
    if any(find(call.path)[0].group is Group.SUBCLASS for call in flat_calls(tuple(derived))):
        yield "source:subclass"
    for call in flat_calls(program.body):
        kind = _BY_PATH.get(call.path) or _BY_GROUP.get(find(call.path)[0].group)
        if kind:
            yield kind
        if any(map(_holds_complex, (*call.args, *(expr for _, expr in call.kwargs)))):
            yield "source:complex-number"
    if Context.INFERENCE in contexts(program):
        yield "source:inference-block"
    if any(call.grad_mode is GradMode.INFERENCE for call in program.calls):
        yield "source:inference-call"


def is_expanded(t: torch.Tensor) -> bool:
    """True if several elements of ``t`` share memory."""
    return any(n > 1 and step == 0 for n, step in zip(t.shape, t.stride(), strict=True))


def _reach(t: torch.Tensor) -> tuple[int, int]:
    return int(t.storage_offset()) * t.itemsize, extent_in_bytes(t)


def _same_storage(t: torch.Tensor, u: torch.Tensor) -> bool:
    return t.untyped_storage() is u.untyped_storage()


def before(call: OpCall, env: dict[str, Any]) -> Iterator[str]:
    """The traits of an op call that is about to run."""
    op = find(call.path)[0]
    if op.group is Group.FOREACH and call.args and isinstance(call.args[0], ListExpr):
        listed = list(tensors_of(evaluate(call.args[0], env)))
        if any(t is u for i, t in enumerate(listed) for u in listed[:i]):
            yield "event:foreach-twice"
        elif any(_same_storage(t, u) for i, t in enumerate(listed) for u in listed[:i]):
            yield "event:foreach-alias"
    if op.writes and call.args and call.path != "setitem":
        for t in tensors_of(evaluate(call.args[0], env)):
            if is_expanded(t):
                yield "event:expanded-write"
    if call.path == "setitem" and not isinstance(evaluate(call.args[0], env), torch.Tensor):
        yield "event:container-written"
    if call.path in _MULTIPLYING:
        for t in (t for arg in call.args[1:] for t in tensors_of(evaluate(arg, env))):
            if t.dtype == torch.int64 and t.dim() and t.numel() > t.unique().numel():
                yield "event:duplicate-indices"


def out_sizes(call: OpCall, env: dict[str, Any]) -> list[torch.Size]:
    """The shapes of the tensors that an op call writes by keyword (``out=``)."""
    return [t.shape for keyword, expr in call.kwargs if keyword == "out" for t in tensors_of(evaluate(expr, env))]


def after(call: OpCall, env: dict[str, Any], sizes: list[torch.Size]) -> Iterator[str]:
    """The traits of an op call that has run; ``sizes`` is the result of :func:`out_sizes` before it ran."""
    if sizes != out_sizes(call, env):
        yield "event:out-resized"
    if call.path in ("Tensor.as_strided", "Tensor.as_strided_") and isinstance(call.target, str):
        base, made = evaluate(call.args[0], env), env[call.target]
        (low, high), (first, last) = _reach(base), _reach(made)
        if made.numel() and (first < low or last > high):
            yield "event:beyond-the-view"


def around(named: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """The traits of the tensors that a call's inputs name."""
    tensors = list(named.values())
    if any(t.is_inference() for t in tensors):
        yield "input:inference"
    if not all(map(fits, tensors)):
        yield "input:freed"
    for i, t in enumerate(tensors):
        for u in tensors[:i]:
            if _same_storage(t, u) and (t.dtype, t.is_conj(), t.is_neg()) != (u.dtype, u.is_conj(), u.is_neg()):
                yield "input:otherwise-read"
    if any(map(is_expanded, tensors)):
        yield "event:expanded-input"
    leaves = [t for t in tensors if t.requires_grad and is_leaf(t)]
    if any(_same_storage(t, u) for i, t in enumerate(leaves) for u in leaves[:i]):
        yield "input:one-buffer"


def is_leaf(t: torch.Tensor) -> bool | None:
    """True if ``t`` is a leaf; None if torch raises, as for a view made under no_grad whose base was then written."""
    try:
        return t.is_leaf
    except Exception:
        return None


def _containers(value: object) -> Iterator[object]:
    if isinstance(value, list | dict):
        yield value
    if isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


def when_returned(result: object, args: tuple[Any, ...]) -> Iterator[str]:
    """The traits of a result."""
    tensors = list(tensors_of(result))
    if any(t is u for i, t in enumerate(tensors) for u in tensors[:i]):
        yield "output:twice"
    given = {id(container) for container in _containers(args)}
    if any(id(container) in given for container in _containers(result)):
        yield "output:container-of-caller"
    if any(t.is_inference() for t in tensors):
        yield "output:inference"
    if not all(map(fits, tensors)):
        yield "output:freed"
