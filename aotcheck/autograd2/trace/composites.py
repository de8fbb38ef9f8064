"""Functions of torch's whose C++ calls other ops and knows only ints: what they call is seen, and called with symbols.

Such a function runs on replicas of fixed sizes: those of the traced call, and three sets of larger ones. Where it calls
the same ops each time, a number that differs is the term that has these values, and the ops are called on the replicas
of symbolic sizes. A symbol for which it does not is guarded to be what it is.
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
from aotcheck.autograd2.ir.graph import CONSTANT, Node
from aotcheck.autograd2.ir.meta import geometry_of
from aotcheck.autograd2.ir.size import is_static, term
from aotcheck.autograd2.ir.size import symbols as symbols_in
from aotcheck.autograd2.trace.gate import met
from aotcheck.autograd2.trace.mode import Tracer
from aotcheck.autograd2.trace.replica import Needs, Replica, disarm, state_of
from aotcheck.autograd2.trace.symbols import Symbols

_RECURRENT = (torch.lstm, torch.gru, torch.rnn_relu, torch.rnn_tanh)
_CELLS = (torch.lstm_cell, torch.gru_cell, torch.rnn_relu_cell, torch.rnn_tanh_cell)
_OTHERS = (torch.stft, torch.kron, torch.cov, torch.corrcoef, torch.take_along_dim, Tensor.take_along_dim)
_POOLED = (torch.nn.functional.interpolate, torch.nn.functional.max_pool1d)
COMPOSITES: frozenset[Any] = frozenset({*_RECURRENT, *_CELLS, *_OTHERS, *_POOLED})
_MORE = {1: (1, 8), 2: (8, 400), 3: (8, 400)}
_NOT_AGAIN = (CONSTANT, torch.ops.aten.copy.default, torch.ops.aten.zero.default)  # autograd cannot derive the latter


class _Run:
    """What a function calls: run 0 in the traced call, others where the symbols are larger that ``moving`` has."""

    def __init__(self, symbols: Symbols, func: Callable[..., Any], given: Any, number: int, moving: Any) -> None:
        self.symbols, self.number, self.moving, self.tracer = symbols, number, moving, Tracer(Needs())
        self.numbers: dict[Any, int] = {}
        self.replicas: dict[Tensor, Replica] = {}
        args, kwargs = pytree.tree_map(self._fixed, given)
        with _torch.without_modes(), self.tracer.draws.stretch(), self.tracer:
            leaves, self.structure = pytree.tree_flatten(func(*args, **kwargs))
            self.tracer.graph.call(tuple, ([*self.tracer.values(leaves)],))
        self.nodes = [*self.tracer.graph.placeholders, *self.tracer.graph.nodes]
        table = self.tracer.table
        if any(x.is_conj() or x.is_neg() or table.storage_state(r).version for x, r in self.replicas.items()):
            raise ValueError
        disarm(self.tracer.alive)

    def _fixed(self, x: Any) -> Any:
        """What stands for an argument: a number, or a replica whose sizes are numbers."""
        if type(x) is not Replica:
            return self._size(term(x))
        if x not in self.replicas:
            g, device = geometry_of(x)._replace(offset=0).mapped(self._size), state_of(x).device
            self.replicas[x] = self.tracer.fresh_at(g, self.tracer.graph.placeholder(g, device), device)
            Tensor.requires_grad_(self.replicas[x], _torch.requires_grad(x))
        return self.replicas[x]

    def _size(self, x: Any) -> Any:
        if is_static((x,)):
            return x
        return self.numbers.setdefault(x, _torch.valued(self.symbols.env, x, self._more))

    def _more(self, symbol: Any, value: int) -> int:
        """What is added to a symbol in this run; random, so that no two terms agree in all runs by chance."""
        drawn = random.Random(f"{self.number} {self.moving.get(symbol)}")
        return drawn.randrange(*_MORE[self.number]) if self.number and symbol in self.moving else 0


def with_symbols(symbols: Symbols, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What ``func`` gives, called with symbols. Those that cannot be larger, alone or with equal ones, are guarded."""
    given = args, kwargs = pytree.tree_map(lambda x: float(x) if type(x) is torch.SymFloat else x, (args, kwargs))
    lies = [(*x.shape, *x.stride()) if type(x) is Replica else (x,) for x in pytree.tree_leaves(given)]
    found = sorted(symbols_in([term(n) for numbers in lies for n in numbers]), key=str)
    values = {s: n for s in found if (n := _torch.hint_of(symbols.number(s))) is not None}

    def tried(moving: dict[Any, Any]) -> tuple[_Run, list[tuple[Any, ...]]] | None:
        try:
            runs = [_Run(symbols, func, given, number, moving) for number in range(2)]
            if len(runs[0].nodes) == len(runs[1].nodes):  # else not as often, as of the steps of an RNN
                runs += [_Run(symbols, func, given, number, moving) for number in (2, 3)]
            return runs[0], _common(symbols, runs)
        except Exception:  # of what the function says of such sizes, or as runs differ
            met()  # a refusal of such a run is none of the trace
            return None

    moving: dict[Any, Any] = {}
    for s, n in values.items():
        for key, group in ((s, [s]), (n, [t for t in values if values[t] == n])):
            if s not in moving and tried(dict.fromkeys(group, key)):
                moving[s] = key
    if not values or (done := tried(moving)) is None:
        return func(*args, **kwargs)
    run, calls = done
    last = {key: s for s, key in moving.items()}
    for s, n in values.items():
        symbols.holds(sympy.Eq(s, last.get(moving.get(s), n)))
    known: dict[Any, Any] = dict(zip(run.nodes, run.replicas, strict=False))
    with _torch.autocast_off():
        for node, op, *rest in calls:
            args, kwargs = pytree.tree_map(lambda x: known[x] if type(x) is Node else x, rest)
            known[node] = op(*args, **kwargs)
    return pytree.tree_unflatten(known[run.nodes[-1]], run.structure)


def _common(symbols: Symbols, runs: list[_Run]) -> list[tuple[Any, ...]]:
    """What all runs call: the node of the first, the op, arguments, and keyword arguments.

    Raises:
        ValueError: they differ.
    """
    numbers = {tuple(run.numbers[x] for run in runs): x for x in runs[0].numbers}
    known = {values: x for values, x in numbers.items() if values[0] != values[1]}
    first: list[dict[Any, Any]] = [dict(zip(run.nodes, runs[0].nodes, strict=True)) for run in runs]
    calls = []
    for nodes in list(zip(*[run.nodes for run in runs], strict=True))[len(runs[0].replicas) :]:
        flat = [pytree.tree_flatten((n, n.op, n.args, dict(n.kwargs))) for n in nodes]
        leaves = zip(*[[same.get(x, x) for x in xs] for same, (xs, _) in zip(first, flat, strict=True)], strict=True)
        calls.append(pytree.tree_unflatten([_agreed(symbols, known, xs) for xs in leaves], flat[0][1]))
    return calls


def _agreed(symbols: Symbols, known: dict[tuple[int, ...], Any], values: tuple[Any, ...]) -> Any:
    """The value that all runs have; or the known term, or that times a factor plus a constant, that has theirs."""
    if values[0] not in _NOT_AGAIN and all(type(value) is type(values[0]) and value == values[0] for value in values):
        return values[0]
    for xs, x in known.items():
        factor, rest = divmod(values[1] - values[0], xs[1] - xs[0])
        more = values[0] - factor * xs[0]
        if not rest and all(factor * n + more == value for n, value in zip(xs, values, strict=True)):
            return symbols.number(factor * x + more)
    raise ValueError
