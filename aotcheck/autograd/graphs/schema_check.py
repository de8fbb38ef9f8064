"""Debug mode: custom ops are held to their schemas the first time that a graph of theirs runs.

A graph is right only if an op writes and aliases what its schema says. One that does more is wrong in ways that show
elsewhere and later, so in debug mode the graph runs once op by op, on copies, and what each custom op did is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import SchemaError
from aotcheck.autograd.graphs import failing
from aotcheck.autograd.graphs.graph import Graph
from aotcheck.autograd.ir.stand_ins import tensors_in
from aotcheck.autograd.ir.trace import CONSTANT, Value, real
from aotcheck.autograd.ops.autocast_forms import runs_under_autocast
from aotcheck.autograd.ops.functional_forms import original_of
from aotcheck.autograd.ops.twins import Kind, info_of


def checked(graph: Graph, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, which runs ``graph``, with the custom ops of the graph held to their schemas on the first call."""
    if not any(_is_custom(v.op) for v in graph.values):
        return run
    todo = [graph]

    def first(*args: Any) -> Any:
        if todo:
            states = failing.generator_states(*[a for a in args if isinstance(a, torch.Generator)])
            try:
                _check(todo.pop(), args)
            finally:
                failing.restore_generators(states)
        return run(*args)

    return first


def _is_custom(op: Any) -> bool:
    return isinstance(op, _torch.HigherOrderOperator) or (
        isinstance(op, _torch.OpOverload)
        and op.namespace not in ("aten", "prims", "prim")
        and not runs_under_autocast(op)
    )


def _check(graph: Graph, args: Sequence[Any]) -> None:
    known: dict[Value, Any] = {v: _copy(a) for v, a in zip(graph.inputs, args, strict=True)}
    with torch.no_grad():
        for v in graph.values:
            if v.op is CONSTANT:
                known[v] = v.constant.clone()
                continue
            given = tuple(real(a, known) for a in v.args), {k: real(a, known) for k, a in v.kwargs.items()}
            if not _is_custom(v.op):
                known[v] = v.op(*given[0], **given[1])
                continue
            op = next((a for a in v.args if isinstance(a, _torch.OpOverload)), original_of(v.op))
            before = [(t, t.clone()) for t in tensors_in(*given)]
            known[v] = v.op(*given[0], **given[1])
            if any(not _same(t, was) for t, was in before):
                raise SchemaError(f"{op} writes an argument that its schema does not say it writes: {_schema(op)}")
            if not _is_view(v.op):
                _check_aliases(op, [t for t, _ in before], tensors_in((known[v],), {}))


def _is_view(op: Any) -> bool:
    return isinstance(op, _torch.OpOverload) and info_of(op).kind is Kind.VIEW


def _check_aliases(op: Any, given: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    owners = {_torch.storage_address(_torch.storage_of(t)) for t in given}
    for r in results:
        address = _torch.storage_address(_torch.storage_of(r))
        if address in owners:
            raise SchemaError(f"{op} returns memory that is not its own, and its schema does not say so: {_schema(op)}")
        owners.add(address)


def _schema(op: Any) -> str:
    return str(_torch.schema_of(op)) if isinstance(op, _torch.OpOverload) else "a higher-order op"


def _copy(a: Any) -> Any:
    return a.detach().clone() if isinstance(a, Tensor) else a


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
