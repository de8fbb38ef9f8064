"""How unlikely it is that somebody writes a given program.

Note [Oddity]
    There is no count of what people write, so oddity is a guess from the program alone: each thing that few programs
    have adds one, each that hardly any has adds three. Findings of one impact are reported in the order of oddity,
    then of size (:mod:`aotcheck.minimize.size`). If counts from traces of real models replace the guess, only this
    module changes.
"""

from collections.abc import Iterator

from aotcheck.minimize.edit import inputs_of
from aotcheck.program import (
    Around,
    Backward,
    Block,
    Call,
    Context,
    Fill,
    GradMode,
    Hook,
    Inputs,
    Of,
    Probe,
    Program,
    Statement,
    flat_calls,
)
from aotcheck.program.ops.registry import Group, UnknownOpError, find

__all__ = ["oddity", "oddity_of"]

HARDLY, FEW = 3, 1

_BY_GROUP = {
    Group.SET: HARDLY,
    Group.STORAGE: HARDLY,
    Group.STRIDED_VIEW: HARDLY,
    Group.SUBCLASS: HARDLY,
    Group.AUTOGRAD: HARDLY,
    Group.DTYPE_VIEW: FEW,
    Group.METADATA: FEW,
    Group.FUNCTION: FEW,
    Group.CONTAINER: FEW,
    Group.TRANSFORM: FEW,
    Group.OPTIMIZER: FEW,
    Group.FOREACH: FEW,
    Group.OUT: FEW,
}

_BY_PATH = {
    "Tensor.data=": HARDLY,
    "Tensor.data": FEW,
    "Tensor.as_strided_": HARDLY,
    "Tensor.resize_": HARDLY,
    "Tensor.detach_": FEW,
    "Inside.checkpointed": FEW,
    "setitem": 0,
}
"""Ops that are more or less likely than their group."""

_USUAL_DTYPES = frozenset({"float32", "float16", "bfloat16", "int64", "bool"})


def oddity_of(path: str) -> int:
    """How unlikely an op is: 0 for an op that people use every day."""
    if path in _BY_PATH:
        return _BY_PATH[path]
    try:
        found = find(path)
    except UnknownOpError:
        return FEW
    low = FEW if path.startswith("torch.ops.") else 0
    return max(low, min(_BY_GROUP.get(op.group, 0) for op in found))


def oddity(program: Program) -> int:
    """How unlikely a program is, see Note [Oddity]."""
    paths = {call.path for call in flat_calls(program.body)}
    found = sum(map(oddity_of, paths)) + sum(_contexts(program.body))
    found += max((sum(_inputs(inputs)) for _, inputs in inputs_of(program)), default=0)
    return found + sum(weight for _, weight in {pair for call in program.calls for pair in _plan(call)})


def _contexts(body: tuple[Statement, ...]) -> Iterator[int]:
    for statement in body:
        if isinstance(statement, Block):
            yield {Context.INFERENCE: HARDLY, Context.ENABLE_GRAD: FEW}.get(statement.context, 0)
            yield from _contexts(statement.body)


def _inputs(inputs: Inputs) -> Iterator[int]:
    """Views of one storage, sizes of 0, dtypes that few models have, what inputs are made by."""
    yield FEW * (len(inputs.tensors) > len({t.storage for t in inputs.tensors}))
    yield FEW * any(0 in t.size for t in inputs.tensors)
    yield FEW * any(t.dtype not in _USUAL_DTYPES for t in inputs.tensors)
    yield from map(oddity_of, {call.path for call in flat_calls(inputs.derived)})


def _plan(call: Call) -> Iterator[tuple[str, int]]:
    """What the caller does that few callers do; the same thing twice counts once."""
    if call.grad_mode is GradMode.INFERENCE:
        yield "inference", FEW
    for around in call.around:
        yield around.value, 0 if around is Around.AUTOCAST else FEW
    for step in (*call.before, *call.steps):
        match step:
            case Probe():
                yield "probe", FEW
            case Hook():
                yield "hook", FEW
            case Backward():
                yield "of", FEW * (step.of is not Of.OUTPUTS)
                yield "earlier call", HARDLY * (step.calls_ago > 0)
                yield "cotangent", FEW * any(c.fill not in (Fill.PATTERN, Fill.IMPLICIT) for c in step.cotangents)
