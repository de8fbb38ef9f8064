"""Sizes and numbers that are symbols: torch's ShapeEnv, and what the second compiler asks of it."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

__all__ = [
    "FloatNode", "GuardOnDataDependentSymNode", "PythonPrinter", "ShapeEnv", "decided", "evaluated", "expression_of",
    "hint_of", "marks_of", "new_number", "new_symbol", "range_of", "simplified", "symbol_named", "symbolic_int",
    "unbacked_number", "valued",
]  # fmt: skip


def new_symbol(env: ShapeEnv, value: int, name: str) -> tuple[Any, Any]:
    """A symbol that is ``value`` in this call, and the SymInt of it."""
    source = ConstantSource(name)
    symbol = env.create_symbol(value, source, dynamic_dim=DimDynamic.DYNAMIC)
    return symbol, env.create_symintnode(symbol, hint=value, source=source)


class FloatNode(SymNode):
    """A float that differs from call to call.

    Its arithmetic is not sympy's, which reorders it and so changes last bits: each result is a symbol of its own.
    ``derive`` makes that, given Python source with places for the operands, these, and the value in this call.
    """

    derive: Callable[[str, Sequence[Any], float], Any]

    def wrap_float(self, num: float) -> FloatNode:
        """A constant operand."""
        assert self.shape_env is not None
        return _float_node(self.shape_env, sympy.Float(num), num, self.derive, num)


def _float_node(env: ShapeEnv, expression: Any, value: float, derive: Any, constant: float | None = None) -> FloatNode:
    node = FloatNode(expression, env, float, value, constant=constant)
    node.derive = derive
    return node


def _derives(name: str, source: str, function: Callable[..., Any]) -> None:
    plain = getattr(SymNode, name)

    def method(self: FloatNode, *others: Any) -> Any:
        operands = (self, *others)
        values = [x.hint for x in operands]
        value = None if None in values else function(*values)
        if type(value) is not float or not math.isfinite(value):
            return plain(self, *others)
        return self.derive(source, [x.expr for x in operands], value)

    setattr(FloatNode, name, method)


for _name, _source, _function in (
    ("add", "{} + {}", operator.add),
    ("sub", "{} - {}", operator.sub),
    ("mul", "{} * {}", operator.mul),
    ("float_truediv", "{} / {}", operator.truediv),
    ("float_pow", "{} ** {}", operator.pow),
    ("neg", "-{}", operator.neg),
    ("abs", "abs({})", abs),
):
    _derives(_name, _source, _function)


def new_number(env: ShapeEnv, value: float, name: str, derive: Any) -> tuple[Any, Any]:
    """A symbol that is the Python number ``value`` in this call, and the SymInt or SymFloat of it."""
    source = ConstantSource(name)
    symbol = env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
    if type(value) is int:
        return symbol, env.create_symintnode(symbol, hint=value, source=source)
    return symbol, torch.SymFloat(_float_node(env, symbol, value, derive))


def unbacked_number(env: ShapeEnv, kind: type, is_size: bool) -> Any:
    """A SymInt or SymFloat of which nothing is known, as data decide it; but that a size is no less than zero."""
    made = env.create_unbacked_symfloat() if kind is float else env.create_unbacked_symint()
    if is_size:
        torch._check(made >= 0)
    return made


def symbol_named(env: ShapeEnv, name: str) -> Any:
    """The env's symbol of that name."""
    return next(symbol for symbol in env.var_to_range if str(symbol) == name)


def symbolic_int(env: ShapeEnv, expression: Any) -> Any:
    """The SymInt or SymFloat of an expression over the env's symbols, or the number that it is known to be."""
    if expression.is_Integer:
        return int(expression)
    if not expression.is_integer:
        return torch.SymFloat(SymNode(expression, env, float, None))
    backed = not any(env.is_unbacked_symint(symbol) for symbol in expression.free_symbols)
    hint = env.size_hint(expression) if backed else None
    return env.create_symintnode(expression, hint=None if hint is None else int(hint))


def range_of(env: ShapeEnv, name: str) -> tuple[int | None, int | None]:
    """The least and the greatest value that the env knows an integer to have; None for none."""
    found = next(bounds for symbol, bounds in env.var_to_range.items() if str(symbol) == name)
    low, high = (int(x) if x.is_Integer else None for x in (found.lower, found.upper))
    return low, high


def simplified(env: ShapeEnv, expression: Any) -> Any:
    """An expression with what the env has learnt of its symbols applied; an int if that tells its value."""
    found = env.replace(expression)
    return int(found) if found.is_Integer else found


_own_text = torch.SymInt.__repr__


def _text(x: torch.SymInt) -> str:
    """In the user's code below a mode that ``fixes_text``, the text of the number, which is then fixed."""
    fixes = getattr(_get_current_dispatch_mode(), "fixes_text", False)
    of_torch = fixes and sys._getframe(1).f_globals.get("__name__", "").startswith(("torch.", "aotcheck."))
    return repr(int(x)) if fixes and not of_torch else _own_text(x)


torch.SymInt.__repr__ = _text  # type: ignore[method-assign]  # set once; it asks what runs on its own thread


def evaluated(expression: Any, values: dict[Any, Any]) -> Any:
    """What an expression gives for values of its symbols, which may be FX proxies."""
    return sympy_interp(PythonReferenceAnalysis, values, expression)


def expression_of(x: Any) -> Any:
    """The number that a SymInt, SymFloat or SymBool is known to be, or its expression, what is known by now applied.

    A float of several operations becomes the number that it is in this call, with a guard: sympy has reordered them.
    """
    known = x.node.maybe_as_int() if type(x) is torch.SymInt else None
    expression = x.node.expr if known is None else known
    if type(x) is torch.SymFloat and (expression.is_number or _operations(expression) > 1):
        return float(x)
    return expression


def marks_of(t: Tensor) -> tuple[set[int], set[int]]:
    """The dimensions of a tensor that were marked as dynamic, in any of torch's ways, and those marked as static."""
    kinds = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices")
    dynamic: set[int] = set().union(*(getattr(t, kind, ()) for kind in kinds))
    static: set[int] = set(getattr(t, "_dynamo_static_indices", ()))
    return dynamic, static


def decided(env: ShapeEnv, relation: Any) -> bool:
    """Whether a relation of expressions holds in the call that is traced, with a guard; False if data decide it."""
    try:
        return bool(env.evaluate_expr(relation))
    except GuardOnDataDependentSymNode:
        return False


def valued(env: ShapeEnv, expression: Any, more: Callable[[Any, int], int]) -> int:
    """An expression where each symbol is larger than in the traced call, by what ``more`` says for it and its value.

    Raises:
        KeyError: data decide it.
    """
    if type(expression) is int:
        return expression
    known = getattr(env, "backed_var_to_val", None) or vars(env)["var_to_val"]
    values = {symbol: int(known[symbol]) for symbol in expression.free_symbols}
    return int(expression.xreplace({symbol: n + more(symbol, n) for symbol, n in values.items()}))


def hint_of(x: Any) -> Any:
    """The value of a number, symbolic or not, in the call that is traced; None if data decide it."""
    return x.node.hint if type(x) in (torch.SymInt, torch.SymFloat, torch.SymBool) else x


def _operations(expression: Any) -> int:
    """How many operations on floats there are in an expression; those on ints that became floats are exact."""
    exact = expression.is_Add and all(
        x.func.__name__ == "ToFloat" or (x.is_number and float(x).is_integer()) for x in expression.args
    )
    if expression.is_Symbol or expression.is_integer or expression.is_number or exact:
        return 0
    own = 0 if expression.func.__name__ == "ToFloat" else max(1, len(expression.args) - 1)
    return own + sum(map(_operations, expression.args))
