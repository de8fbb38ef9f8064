"""Sizes and numbers that are symbols: torch's ShapeEnv, and what the second compiler asks of it."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._guards import ShapeGuard
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

__all__ = [
    "PYTHON_TYPES", "FloatNode", "GuardOnDataDependentSymNode", "PythonPrinter", "ShapeEnv", "applied", "asked_by_user",
    "decided", "evaluated", "expression_of", "hint_of", "marks_of", "new_symbol", "range_of", "remainder",
    "simplified", "symbol_named", "symbolic_int", "unbacked_number", "valued",
]  # fmt: skip


class FloatNode(SymNode):
    """A float that differs from call to call.

    Its arithmetic is not sympy's, which reorders it and so changes last bits: each result is a symbol of its own. The
    env's ``derive`` makes that, given Python source with places for the operands, these, and the value in this call.
    """

    def wrap_float(self, num: float) -> FloatNode:
        """A constant operand."""
        return FloatNode(sympy.Float(num), self.shape_env, float, num, constant=num)


def _derived(source: str, function: Callable[..., Any], *operands: SymNode) -> Any:
    """What a function gives for them, as a symbol; None if that is no float, or data decide it."""
    values, env = [x.hint for x in operands], operands[0].shape_env
    value = None if None in values else function(*values)
    given = type(value) is float and math.isfinite(value)
    return vars(env)["derive"](source, [x.expr for x in operands], value) if given else None


def _derives(name: str, source: str, function: Callable[..., Any]) -> None:
    plain = getattr(SymNode, name)
    setattr(FloatNode, name, lambda *nodes: _derived(source, function, *nodes) or plain(*nodes))


for _name, _source, _function in (
    ("add", "{} + {}", operator.add),
    ("sub", "{} - {}", operator.sub),
    ("mul", "{} * {}", operator.mul),
    ("float_truediv", "{} / {}", operator.truediv),
    ("float_pow", "{} ** {}", operator.pow),
    ("mod", "{} % {}", operator.mod),
    ("neg", "-{}", operator.neg),
    ("abs", "abs({})", abs),
):
    _derives(_name, _source, _function)


def _to_float(plain: Any, self: SymNode, *others: Any) -> Any:
    """What an int becomes: a float as above in an env that derives."""
    made, env = plain(self, *others), self.shape_env
    known = made.hint is not None and hasattr(env, "derive")
    return FloatNode(made.expr, env, float, made.hint, constant=made.constant) if known else made


for _name in ("sym_float", "int_truediv"):
    setattr(SymNode, _name, functools.partialmethod(functools.partial(_to_float, getattr(SymNode, _name))))


def _floored(plain: Any, swapped: bool, *operands: Any) -> Any:
    """Python's own ``//`` where one operand is a float, which torch rounds otherwise."""
    floats = any(type(x) in (float, torch.SymFloat) for x in operands)
    first, other = (getattr(torch.sym_float(x), "node", x) if floats else None for x in operands)
    if type(first) is not FloatNode or not isinstance(other, (int, float, FloatNode)):
        return plain(*operands)
    nodes = first, other if isinstance(other, FloatNode) else first.wrap_float(float(other))
    made = _derived("{} // {}", operator.floordiv, *nodes[:: -1 if swapped else 1])
    return plain(*operands) if made is None else torch.SymFloat(made)


for _type, _name in itertools.product((torch.SymFloat, torch.SymInt), ("floordiv", "rfloordiv")):
    _plain = functools.partial(_floored, vars(_type)[f"__{_name}__"], _name == "rfloordiv")
    setattr(_type, f"__{_name}__", functools.partialmethod(_plain))


def applied(function: Callable[..., float], x: Any, /, *more: Any) -> Any:
    """What a function of ``math`` gives: for a number that is symbolic a symbol, unless data decide it."""
    node = torch.sym_float(x).node if type(x) in (torch.SymInt, torch.SymFloat) and not more else None
    made = _derived(f"math.{function.__name__}({{}})", function, node) if type(node) is FloatNode else None
    return function(x, *more) if made is None else torch.SymFloat(made)


def new_symbol(env: ShapeEnv, value: float, name: str, is_size: bool = False) -> tuple[Any, Any]:
    """A symbol that is ``value`` in this call, and the SymInt or SymFloat of it; a size is no less than two."""
    source = ConstantSource(name)
    create = env.create_symbol if is_size else env.create_unspecified_symbol
    symbol = create(value, source, DimDynamic.DYNAMIC)
    if type(value) is int:
        return symbol, env.create_symintnode(symbol, hint=value, source=source)
    return symbol, torch.SymFloat(FloatNode(symbol, env, float, value))


def unbacked_number(env: ShapeEnv, kind: type, is_size: bool) -> Any:
    """A SymInt or SymFloat of which nothing is known, as data decide it; but that a size is no less than zero."""
    made = env.create_unbacked_symfloat() if kind is float else env.create_unbacked_symint()
    if is_size:
        torch._check(made >= 0)
    return made


def remainder(x: Any, count: Any) -> Any:
    """``x % count``, of which the env learns that it is at least 0 and less than ``count``."""
    found = x % count
    torch._check(found >= 0)
    torch._check(found < count)
    return found


def symbol_named(env: ShapeEnv, name: str) -> Any:
    """The env's symbol of that name."""
    return next(symbol for symbol in env.var_to_range if symbol.name == name)


def symbolic_int(env: ShapeEnv, expression: Any) -> Any:
    """The SymInt or SymFloat of an expression over the env's symbols, or the number that it is known to be."""
    if expression.is_Integer:
        return int(expression)
    if not expression.is_integer:
        return torch.SymFloat(SymNode(expression, env, float, None))
    backed = not any(env.is_unbacked_symint(symbol) for symbol in expression.free_symbols)
    return env.create_symintnode(expression, hint=valued(env, expression, lambda *_: 0) if backed else None)


def range_of(env: ShapeEnv, name: str) -> tuple[int | None, int | None]:
    """The least and the greatest value that the env knows an integer to have; None for none."""
    bounds = env.var_to_range[symbol_named(env, name)]
    low, high = (int(x) if x.is_Integer else None for x in (bounds.lower, bounds.upper))
    return low, high


def simplified(env: ShapeEnv, expression: Any) -> Any:
    """An expression with what the env has learnt of its symbols applied; an int if that tells its value."""
    found = env.replace(expression)
    return int(found) if found.is_Integer else found


_own_text: Any = torch.SymInt.__repr__  # which is SymFloat's


def asked_by_user() -> bool:
    """Whether the function that calls this was called by the user's code, below a mode that ``fixes_text``."""
    caller = f"{sys._getframe(2).f_globals.get('__name__', '')}."
    users = not caller.startswith(("torch.", "aotcheck.", "sympy."))
    return users and getattr(_get_current_dispatch_mode(), "fixes_text", False)


def _text(x: Any) -> str:
    """In the user's code below a mode that ``fixes_text``, the text of the number, which is then fixed."""
    return repr(PYTHON_TYPES[type(x)](x)) if asked_by_user() else _own_text(x)


PYTHON_TYPES: dict[type, Any] = {torch.SymInt: int, torch.SymFloat: float}
"""The numbers that are symbols, and what they stand for."""
for _kind in PYTHON_TYPES:  # set once; it asks what runs on its own thread
    type.__setattr__(_kind, "__repr__", _text)


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
    return set().union(*(getattr(t, kind, ()) for kind in kinds)), set(getattr(t, "_dynamo_static_indices", ()))


def decided(env: ShapeEnv, relation: Any) -> bool:
    """Whether a relation of expressions holds in the call that is traced, with a guard; False if data decide it."""
    known = vars(env).get("backed_var_to_val", vars(env).get("var_to_val", {}))
    if isinstance(relation, sympy.GreaterThan) and relation.free_symbols <= known.keys():
        if (found := env.axioms.get(relation, env._maybe_evaluate_static(relation))) is None:
            found = env.axioms[relation] = relation.xreplace(known)  # evaluated, it would narrow ranges for half a ms
            env.guards.append(ShapeGuard(relation if found else sympy.Not(relation), env._get_sloc(), False))
        return bool(found)
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
    known = vars(env).get("backed_var_to_val", vars(env).get("var_to_val", {}))
    return int(expression.xreplace({s: (n := int(known[s])) + more(s, n) for s in expression.free_symbols}))


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
