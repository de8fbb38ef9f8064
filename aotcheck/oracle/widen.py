"""The float64 version of a program, the reference for inexact programs."""

from dataclasses import replace

from aotcheck.program import (
    Block,
    DictExpr,
    DType,
    Expr,
    Inputs,
    ListExpr,
    OpCall,
    Program,
    Statement,
    TupleExpr,
    flat_calls,
)

_WIDE = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128"}

_MEANING_CHANGES = (
    *("arg", "sort", "topk", "kthvalue", "bucketize", "cummax", "cummin", "angle", "atan2"),
    *("round", "floor", "ceil", "trunc", "resize", "storage", "finfo"),
)
"""Parts of the names of ops whose result is not continuous in its operand, or whose arguments count bytes."""


def widened(program: Program) -> Program | None:
    """``program`` with every floating dtype made float64 and every complex one complex128.

    None if it would mean something else: if bits are reinterpreted (``view(dtype)``, a storage read in another dtype),
    or if an op's result is not continuous in its operand.
    """
    if any(_changes_meaning(call) for call in flat_calls(program.body)):
        return None
    calls = []
    for call in program.calls:
        inputs = call.inputs
        if inputs is not None:
            dtypes = {storage.name: storage.dtype for storage in inputs.storages}
            if any(tensor.dtype != dtypes[tensor.storage] for tensor in inputs.tensors):
                return None
            if any(_changes_meaning(op) for op in flat_calls(inputs.derived)):
                return None
            inputs = _inputs(inputs)
        calls.append(replace(call, inputs=inputs))
    return replace(program, body=_body(program.body), calls=tuple(calls))


def _changes_meaning(call: OpCall) -> bool:
    name = call.path.rpartition(".")[2]
    reinterprets = name == "view" and any(isinstance(arg, DType) for arg in call.args)
    return reinterprets or any(part in call.path for part in _MEANING_CHANGES)


def _inputs(inputs: Inputs) -> Inputs:
    return replace(
        inputs,
        storages=tuple(replace(s, dtype=_WIDE.get(s.dtype, s.dtype)) for s in inputs.storages),
        tensors=tuple(replace(t, dtype=_WIDE.get(t.dtype, t.dtype)) for t in inputs.tensors),
        derived=_body(inputs.derived),
    )


def _body(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    return tuple(_statement(statement) for statement in body)


def _statement(statement: Statement) -> Statement:
    if isinstance(statement, Block):
        return replace(statement, body=_body(statement.body))
    kwargs = tuple((name, _expr(value)) for name, value in statement.kwargs)
    return replace(statement, args=tuple(map(_expr, statement.args)), kwargs=kwargs)


def _expr(expr: Expr) -> Expr:
    match expr:
        case DType(name):
            return DType(_WIDE.get(name, name))
        case TupleExpr(items):
            return TupleExpr(tuple(map(_expr, items)))
        case ListExpr(items):
            return ListExpr(tuple(map(_expr, items)))
        case DictExpr(pairs):
            return replace(expr, items=tuple((key, _expr(value)) for key, value in pairs))
        case _:
            return expr
