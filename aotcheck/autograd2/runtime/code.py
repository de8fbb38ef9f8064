"""Graphs as Python functions: what runs them where no compiler was given. Ops are called straight, without FX."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch

from aotcheck import _torch2 as _torch
from aotcheck._torch2.quick import TENSOR, quick_op
from aotcheck.autograd2.config import config
from aotcheck.autograd2.ir.graph import CONSTANT, Node, getitem
from aotcheck.autograd2.ir.size import text
from aotcheck.autograd2.runtime.functional import held_to_schema

_count = itertools.count()


class _Code:
    """Writes the source; ``names`` are what it names beside its own values."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"math": math, "torch": torch}
        self.lines: list[str] = []
        self.values: dict[Node, str] = {}
        self.ops: dict[Any, str] = {}
        self.terms: dict[Any, str] = {}

    def bind(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def argument(self, a: Any) -> str:
        """An argument of an op as source."""
        if type(a) is Node:
            return self.values[a]
        if type(a) in (list, tuple):
            return f"[{', '.join(map(self.argument, a))}]"
        if a is None or type(a) in (int, bool, str) or (type(a) is float and math.isfinite(a)):
            return repr(a)
        if not isinstance(a, sympy.Basic):
            return self.bind("c", a)
        if a not in self.terms:
            self.terms[a] = f"e{len(self.terms)}"
            self.lines.append(f"{self.terms[a]} = {text(a)}")
        return self.terms[a]

    def node(self, node: Node) -> None:
        """The line of a node."""
        name = self.values[node] = f"n{len(self.values)}"
        if node.op == CONSTANT:
            self.names[name] = node.constant
        elif node.op is getitem:
            self.lines.append(f"{name} = {self.argument(node.args[0])}[{node.args[1]}]")
        else:
            looked = config().debug and isinstance(node.op, _torch.OpOverload) and node.op.namespace != "aten"
            called = (
                held_to_schema(node.op) if looked else quick_op(node.op, _example(node.args), _example(node.kwargs))
            )
            op = self.ops.get(called) or self.ops.setdefault(called, self.bind("op", called))
            given = [*map(self.argument, node.args), *(f"{k}={self.argument(a)}" for k, a in node.kwargs.items())]
            self.lines.append(f"{name} = {op}({', '.join(given)})")


def function_of(
    inputs: Sequence[Node | str],
    nodes: Sequence[Node],
    outputs: Sequence[Node | None],
    defined: Mapping[str, tuple[Node, int | None]],
) -> Callable[..., Any]:
    """What takes ``inputs``, runs ``nodes`` and returns ``outputs`` and then the values of symbols that nodes define.

    Each value is let go of after its last use.
    """
    code = _Code()
    taken = [n if isinstance(n, str) else code.values.setdefault(n, f"a{k}") for k, n in enumerate(inputs)]
    sizes: dict[Node, list[str]] = {}
    for symbol, (of, dim) in defined.items():
        sizes.setdefault(of, []).append(f"{symbol} = {{}}" if dim is None else f"{symbol} = {{}}.size({dim})")
    last = {operand: k for k, n in enumerate(nodes) for operand in n.inputs()}
    dying: dict[int, list[Node]] = {}
    kept = set(outputs)
    for operand, k in last.items():
        if operand not in kept and operand.op != CONSTANT:
            dying.setdefault(k, []).append(operand)
    for k, node in enumerate(nodes):
        code.node(node)
        code.lines += [line.format(code.values[node]) for line in sizes.get(node, ())]
        gone = [*dying.get(k, ()), *([node] if node not in last and node not in kept and node.op != CONSTANT else ())]
        if gone:
            code.lines.append(f"del {', '.join([code.values[n] for n in gone])}")
    given = ["None" if n is None else code.values[n] for n in outputs]
    body = _indented([*code.lines, f"return ({''.join(f'{x}, ' for x in [*given, *defined])})"])
    source = f"def graph({', '.join(taken)}):\n{body}"
    exec(compile(source, f"<aotcheck graph {next(_count)}>", "exec"), code.names)
    function: Callable[..., Any] = code.names["graph"]
    return function


def _indented(lines: Iterable[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)


def _example(a: Any) -> Any:
    """Arguments with ``TENSOR`` for nodes and a number for terms."""
    if type(a) is Node:
        return TENSOR
    if isinstance(a, (list, tuple)):
        return [_example(x) for x in a]
    if isinstance(a, Mapping):
        return {k: _example(x) for k, x in a.items()}
    return (2 if a.is_integer else 2.5) if isinstance(a, sympy.Basic) else a
