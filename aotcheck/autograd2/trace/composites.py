"""Functions of torch's whose C++ calls other ops and knows only ints: what they call is seen, and called with symbols.

Such a function runs on replicas of fixed sizes: those of the traced call, and two sets of larger ones. Where it calls
the same ops each time, a number that differs is the term that has these values, and the ops are called on the replicas
of symbolic sizes. Where it does not, or no term is known, it gets ints, guarded to be these.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck._torch2 import pytree
from aotcheck.autograd2.ir.graph import Node
from aotcheck.autograd2.ir.meta import geometry_of
from aotcheck.autograd2.ir.size import is_static, term
from aotcheck.autograd2.trace.gate import met
from aotcheck.autograd2.trace.mode import Tracer
from aotcheck.autograd2.trace.replica import Needs, Replica, disarm, state_of
from aotcheck.autograd2.trace.symbols import Symbols

_RECURRENT = (torch.lstm, torch.gru, torch.rnn_relu, torch.rnn_tanh)
_CELLS = (torch.lstm_cell, torch.gru_cell, torch.rnn_relu_cell, torch.rnn_tanh_cell)
COMPOSITES: frozenset[Any] = frozenset({*_RECURRENT, *_CELLS, torch.stft, torch.nn.functional.interpolate})


def _results(*found: Any) -> Any:
    """The last node of a run: what the function returns."""
    return found


class _Run:
    """What a function calls: run 0 with sizes of the traced call, others with larger ones, equal ones maybe apart."""

    def __init__(self, symbols: Symbols, func: Callable[..., Any], given: Any, number: int, apart: bool) -> None:
        self.symbols, self.number, self.apart, self.tracer = symbols, number, apart, Tracer(Needs())
        self.numbers: dict[Any, int] = {}
        self.replicas: dict[Tensor, Replica] = {}
        args, kwargs = pytree.tree_map(self._fixed, given)
        with _torch.without_modes(), self.tracer.draws.stretch(), self.tracer:
            leaves, self.structure = pytree.tree_flatten(func(*args, **kwargs))
            self.tracer.graph.call(_results, self.tracer.values(leaves))
        self.nodes = [*self.tracer.graph.placeholders, *self.tracer.graph.nodes]
        disarm(self.tracer.alive)

    def _fixed(self, x: Any) -> Any:
        """What stands for an argument: a number, or a replica whose sizes are numbers."""
        if type(x) is not Replica:
            return self._size(term(x))
        if x not in self.replicas:
            g, device = geometry_of(x), state_of(x).device
            g = g._replace(offset=0, shape=tuple(map(self._size, g.shape)), stride=tuple(map(self._size, g.stride)))
            self.replicas[x] = self.tracer.fresh_at(g, self.tracer.graph.placeholder(g, device), device)
            Tensor.requires_grad_(self.replicas[x], _torch.requires_grad(x))
        return self.replicas[x]

    def _size(self, x: Any) -> Any:
        if is_static((x,)):
            return x
        self.numbers[x] = found = _torch.valued(self.symbols.env, x, self._more)
        return found

    def _more(self, symbol: Any, value: int) -> int:
        """What is added to a symbol in this run; random, so that no two terms agree in all runs by chance."""
        drawn = random.Random(f"{self.number} {symbol if self.apart else value}")
        return drawn.randrange(8, 400) if self.number else 0


def with_symbols(symbols: Symbols, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What ``func``, one of ``COMPOSITES``, gives. Where it raises for sizes that differ, equal ones are guarded."""
    given = args, kwargs
    if all(is_static(map(term, x.shape)) for x in pytree.tree_leaves(given) if type(x) is Replica):
        return func(*args, **kwargs)
    for apart in (True, False):
        try:
            runs = [_Run(symbols, func, given, number, apart) for number in range(3)]
            calls = _common(symbols, runs)
            break
        except Exception:  # of what the function says of such sizes, or as runs differ
            met()  # a refusal of such a run is none of the trace
    else:
        args, kwargs = pytree.tree_map(lambda x: x.view([*map(int, x.shape)]) if type(x) is Replica else x, given)
        return func(*args, **kwargs)
    values: dict[Any, Any] = dict(zip(runs[0].nodes, runs[0].replicas, strict=False))
    with _torch.autocast_off():
        for node, op, *rest in calls:
            args, kwargs = pytree.tree_map(lambda x: values[x] if type(x) is Node else x, rest)
            values[node] = op(*args, **kwargs)
    return pytree.tree_unflatten(values[runs[0].nodes[-1]], runs[0].structure)


def _common(symbols: Symbols, runs: list[_Run]) -> list[tuple[Any, ...]]:
    """What all runs call: the node of the first, the op, arguments, and keyword arguments.

    Raises:
        ValueError: they differ.
    """
    known: dict[tuple[int, ...], Any] = {}
    for x in runs[0].numbers:
        found = known.setdefault(tuple(run.numbers[x] for run in runs), x)
        if found is not x and not symbols.holds(sympy.Eq(found, x)):
            raise ValueError
    first: list[dict[Any, Any]] = [dict(zip(run.nodes, runs[0].nodes, strict=True)) for run in runs]
    calls = []
    for nodes in list(zip(*[run.nodes for run in runs], strict=True))[len(runs[0].replicas) :]:
        flat = [pytree.tree_flatten((n, n.op, n.args, dict(n.kwargs))) for n in nodes]
        leaves = zip(*[[same.get(x, x) for x in xs] for same, (xs, _) in zip(first, flat, strict=True)], strict=True)
        calls.append(pytree.tree_unflatten([_agreed(symbols, known, xs) for xs in leaves], flat[0][1]))
    return calls


def _agreed(symbols: Symbols, known: dict[tuple[int, ...], Any], values: tuple[Any, ...]) -> Any:
    """The value that all runs have; or the known term, or that times a factor plus a constant, that has theirs."""
    if all(type(value) is type(values[0]) and value == values[0] for value in values):
        return values[0]
    for xs, x in known.items():
        factor, rest = divmod(values[1] - values[0], xs[1] - xs[0])
        more = values[0] - factor * xs[0]
        if not rest and all(factor * n + more == value for n, value in zip(xs, values, strict=True)):
            return symbols.number(factor * x + more)
    raise ValueError
