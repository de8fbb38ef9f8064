"""Whether a graph is functional: aten ops that write nothing, and arithmetic on sizes; users' ops keep to schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.errors import NotFunctionalError, SchemaError

_ARITHMETIC = ("_operator", "math", "torch")
_KEPT = ("copy_", "set_", "resize_")
"""What may be called on a placeholder at the end of a graph: a mutation that is kept there on purpose."""


def assert_functional(module: fx.GraphModule) -> None:
    """Raise NotFunctionalError unless each op of the graph leaves its arguments alone and names are unique."""
    module.graph.lint()
    written: set[fx.Node] = set()
    for node in module.graph.nodes:
        target = getattr(node.target, "overload", node.target)
        if node.op in ("call_method", "call_module"):
            raise NotFunctionalError(f"node {node.name} is a {node.op}, not an ATen op")
        if read := next((source for source in node.all_input_nodes if source in written), None):
            raise NotFunctionalError(f"node {node.name} reads {read.name} after it was written")
        if node.op != "call_function" or getattr(target, "__module__", "") in _ARITHMETIC:
            continue
        if target is _torch.auto_functionalized:
            continue
        if isinstance(target, _torch.OpOverload) and not _torch.schema_of(target).is_mutable:
            continue
        into = node.args[0] if node.args else None
        kept = isinstance(target, _torch.OpOverload) and _torch.op_name(target) in _KEPT and not node.users
        if not (kept and isinstance(into, fx.Node) and into.op == "placeholder"):
            raise NotFunctionalError(f"node {node.name} calls {target}, which writes its arguments or is no ATen op")
        written.add(into)


def held_to_schema(op: Any) -> Callable[..., Any]:
    """A user's op that raises SchemaError where it writes an argument or returns its memory, and its schema says no."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with _torch.SchemaCheckMode():
                return op(*args, **kwargs)
        except RuntimeError as error:
            if "is not defined" not in str(error):
                raise
            raise SchemaError(f"{op}: {error}") from error

    return call
