"""Functions of torch's for which the trace takes another way.

Checks of values that only raise: the graph checks; where that fails, it raises, and the original runs in its place and
raises what eager does. Indices whose numbers are symbols, or that data decide: torch guards or asks for these where
``select`` takes them as they are.

Functions whose C++ calls other ops and knows only ints (RNNs, ``interpolate``): such a function runs on replicas of
fixed sizes, those of the traced call and three sets of larger ones. Where it calls the same ops each time, a number
that differs is the term that has these values, and the ops are called on the replicas of symbolic sizes. A symbol for
which it does not is guarded to be what it is.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import math
import random
from collections.abc import Callable, Iterator
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
from aotcheck.autograd2.trace.gate import Event, met, refuse
from aotcheck.autograd2.trace.generators import Draws
from aotcheck.autograd2.trace.mode import Tracer
from aotcheck.autograd2.trace.replica import Needs, Replica, disarm, state_of
from aotcheck.autograd2.trace.symbols import Symbols

_RECURRENT = (torch.lstm, torch.gru, torch.rnn_relu, torch.rnn_tanh)
_CELLS = (torch.lstm_cell, torch.gru_cell, torch.rnn_relu_cell, torch.rnn_tanh_cell)
_OTHERS = (torch.stft, torch.kron, torch.cov, torch.corrcoef, torch.take_along_dim, Tensor.take_along_dim)
_POOLED = (torch.nn.functional.interpolate, torch.nn.functional.max_pool1d, torch.nn.functional.affine_grid)
_BUILT = (torch.linalg.multi_dot, torch.chain_matmul, torch.gradient)
_MORE_BUILT = (torch.block_diag, torch.vander, torch.combinations)
_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, torch.nn.functional.linear}
_OLD = _PRODUCTS if torch.__version__ < "2.13" else set()  # their C++ knew only ints, their Python more
COMPOSITES: frozenset[Any] = frozenset({*_RECURRENT, *_CELLS, *_OTHERS, *_POOLED, *_BUILT, *_MORE_BUILT, *_OLD})
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
        return x if is_static((x,)) else self.numbers.setdefault(x, _torch.valued(self.symbols.env, x, self._more))

    def _more(self, symbol: Any, value: int) -> int:
        """What is added to a symbol in this run; random, so that no two terms agree in all runs by chance."""
        drawn = random.Random(f"{self.number} {self.moving.get(symbol)}")
        return drawn.randrange(*_MORE[self.number]) if self.number and symbol in self.moving else 0


def with_symbols(symbols: Symbols, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What ``func`` gives, called with symbols. Those that cannot be larger, alone or with equal ones, are guarded."""
    if func in _OLD:
        with _torch.enable_python_dispatcher():
            return func(*args, **kwargs)
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
    """What all runs call: the node of the first, the op, and arguments of both kinds; a ValueError if they differ."""
    known = {tuple(run.numbers[x] for run in runs): x for x in runs[0].numbers}
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
        apart = xs[1] - xs[0]
        factor, rest = divmod(values[1] - values[0], apart) if apart else (1, 0)
        more = values[0] - factor * xs[0]
        if not rest and all(factor * n + more == value for n, value in zip(xs, values, strict=True)):
            return symbols.number(factor * x + more)
    raise ValueError


aten = torch.ops.aten
_INDICES = (torch.int64, torch.int32, torch.int16, torch.int8)


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Refused below, as data dependent, where the number of classes is not given."""
    if num_classes < 0:
        return torch.nn.functional.one_hot(tensor, num_classes)
    within = ((tensor >= 0) & (tensor < num_classes)).all()
    aten._assert_async.msg(within, "one_hot: a class is not among the classes")
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64).contiguous()


def _max_pool1d(func: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """On the CPU a kernel without indices gives rows, where none are needed; it calls no op that the trace sees."""
    found: Tensor = func(input, *args, **kwargs)
    without = input.device.type == "cpu" and not (input.requires_grad and torch.is_grad_enabled())
    return found.contiguous() if without else found


def _place(x: Any, count: Any) -> Any:
    """Which of ``count`` entries ``x`` selects. Where data decide, a graph asserts that there is such an entry."""
    if type(x) is not Replica and _torch.hint_of(x) is not None:
        return x
    within = x if type(x) is Replica else torch.full((), x, dtype=torch.int64)
    aten._assert_async.msg((within >= -count) & (within < count), "an index is out of bounds")
    return _torch.remainder((x.item() if type(x) is Replica else x), count)


def _is_place(x: Any) -> bool:
    """Whether it is one index that data decide."""
    return type(x) is Replica and x.dim() == 0 and x.dtype in _INDICES


def _cut(t: Tensor, dim: int, x: slice) -> Tensor:
    """``t[start:stop]`` of a dimension, where data decide a bound, and so the size."""
    count = t.shape[dim]
    bounds = 0 if x.start is None else x.start, count if x.stop is None else x.stop
    ends = [n.long() if type(n) is Replica else torch.full((), n, dtype=torch.int64) for n in bounds]
    first, last = (torch.where(n < 0, n + count, n).clamp(0, count) for n in ends)
    length = (last - first).clamp(min=0).item()
    start = 0 if x.start is None else _torch.remainder(first.item(), count + 1)
    return t.narrow(dim, start, _torch.remainder(length, count - start + 1))


def _selected(t: Tensor, index: Any) -> tuple[Tensor, Any]:
    """``t`` with each number of ``index`` selected that is a symbol or that data decide, and the rest of ``index``."""
    parts = [*index] if type(index) is tuple else [index]
    takes = [x.dim() if getattr(x, "dtype", None) is torch.bool else x is not None and x is not ... for x in parts]
    for k, x in [*enumerate(parts)][::-1]:
        dim = -sum(takes[k:]) if any(y is ... for y in parts[:k]) else sum(takes[:k])
        ends = [n for n in (x.start, x.stop) if n is not None] if type(x) is slice and x.step is None else []
        if any(n.dtype in _INDICES if type(n) is Replica else _torch.hint_of(n) is None for n in ends):
            t, parts[k] = _cut(t, dim, x), slice(None)
        if type(x) is torch.SymInt or _is_place(x):
            t = t.select(dim, _place(x, t.shape[dim]))
            del parts[k], takes[k]
    return t, tuple(parts) if type(index) is tuple or not parts else parts[0]


def _get_item(t: Tensor, index: Any) -> Any:
    """As ``t[index]``; an index of one number gives the selected view itself."""
    at, rest = _selected(t, index)
    return at if at is not t and rest == () else Tensor.__getitem__(at, rest)


def _is_whole(x: slice, size: Any) -> bool:
    """Whether a slice takes all of a dimension: a guard where the size is a symbol, False if that is not given."""
    first, step = 0 if x.start is None else x.start, 1 if x.step is None else x.step
    whole = type(first) is int and first == 0 and type(step) is int and step == 1
    return whole and (x.stop is None or (size is not None and bool(x.stop >= size)))


def _set_item(t: Tensor, index: Any, value: Any) -> None:
    """With symbols torch makes a view of slices of whole dimensions, where eager writes the tensor itself."""
    t, index = _selected(t, index)
    parts = index if type(index) is tuple else (index,)
    sizes = (None,) * len(parts) if any(x is ... for x in parts) else t.shape
    whole = all(type(x) is slice and _is_whole(x, n) for x, n in zip(parts, sizes, strict=False) if x is not ...)
    Tensor.__setitem__(t, ... if whole and len(parts) <= t.dim() else index, value)


def _narrow(func: Any, input: Tensor, dim: int, start: Any, length: Any) -> Any:
    """The beginning may be a tensor. Of a size that data decide torch cuts off what is beyond, where eager raises."""
    count = input.shape[dim]
    if _is_place(start):
        first = torch.where(start < 0, start + count, start)
        aten._assert_async.msg((first >= 0) & (first <= count - length), "narrow: the part is beyond the end")
        start = _torch.remainder(first.item(), count - length + 1)
    if _torch.hint_of(count) is None:
        aten._assert_async.msg(torch.full((), count) >= start + length, "narrow: the part is beyond the end")
    return func(input, dim, start, length)


def _is_all_true(x: Tensor) -> Any:
    """Distributions ask it, to raise an error."""
    if type(x) is Replica:
        aten._assert_async.msg(x.all(), "a value is not within the support of a distribution")
    return type(x) is Replica or _torch.is_all_true(x)


def _as_python(func: Any, t: Any) -> Any:
    """A tensor as an int or float, which would be compiled for each that an argument holds: no guard, but a refusal."""
    if type(t) is Replica and state_of(t).trace.of_constants(aten._local_scalar_dense.default, (t,), {})[1]:
        refuse(Event.DATA, "a number that data decide")
    return func(t)


def _of_numbers(func: Any, *args: Any, **kwargs: Any) -> Tensor:
    """What a factory makes of Python numbers that are symbols, where torch guards their values."""
    k = int(func is Tensor.new_tensor)
    flat, plain = pytree.tree_leaves(args[k : k + 1]), {torch.SymInt: 0, torch.SymFloat: 0.0}
    alike: Tensor = func(*pytree.tree_map(lambda x: plain.get(type(x), x), args), **kwargs)
    if not any(type(x) in plain for x in flat):
        return alike
    made = [torch.full((), x, dtype=alike.dtype, device=alike.device) for x in flat]
    return torch.stack(made).view(alike.shape).requires_grad_(alike.requires_grad)


def without_cache(cached: Any, draws: Draws) -> Callable[..., Any]:
    """Runs ``cached`` past its cache, which must not keep tensors of a trace; refuses where eager would show that."""
    held = gc.get_referents(cached)
    written = any(isinstance(t, Tensor) and _torch.version_of(t) for t in (*held, *gc.get_referents(*held)))

    @functools.wraps(cached.__wrapped__)
    def run(*args: Any, **kwargs: Any) -> Any:
        before, found = draws.count(), cached.__wrapped__(*args, **kwargs)
        if written or draws.count() != before:
            refuse(Event.CAPTURED, "a cached function draws, or what it gave was written since")
        return found

    return run


def _cast_inside(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Its kernel calls ops that autocast casts, or raises an error of other halves: the trace does not see these."""
    t = input[0] if isinstance(input, (list, tuple)) else input
    cast = dict(_torch.casts()).get(t.device.type, t.dtype)
    if t.dtype is not cast and (t.dtype.itemsize == 2 or (func in _OF_FLOATS and t.dtype is torch.float32)):
        refuse(Event.CAST, f"{func.__name__} of {t.dtype}")
    return func(input, *args, **kwargs)


_OF_FLOATS = (torch.linalg.pinv, _torch.encoder_layer)
_KERNELS = (*_OF_FLOATS, torch.roll, Tensor.roll, torch.fft.fftshift, torch.isin, torch.matrix_exp)
_OTHERWISE: dict[Any, Callable[..., Any]] = {torch.nn.functional.one_hot: _one_hot, Tensor.__setitem__: _set_item}
_OTHERWISE |= {x: functools.partial(_narrow, x) for x in (torch.narrow, Tensor.narrow)}
_OTHERWISE |= {x: functools.partial(_as_python, x) for x in (Tensor.__int__, Tensor.__float__, Tensor.__index__)}
_OTHERWISE |= {Tensor.__getitem__: _get_item, _torch.is_all_true: _is_all_true}
_OTHERWISE |= {x: functools.partial(_of_numbers, x) for x in (torch.tensor, torch.as_tensor, Tensor.new_tensor)}
_OTHERWISE |= {x: functools.partial(_cast_inside, x) for x in (*_KERNELS, torch.fft.ifftshift, _torch.chunk_cat)}
_OTHERWISE |= dict.fromkeys((torch.detach_, Tensor.detach_), lambda input: input.detach_())  # what notes it
_OTHERWISE |= {x: functools.partial(_max_pool1d, x) for x in (torch.max_pool1d, torch.nn.functional.max_pool1d)}


class WithoutLooking(torch.overrides.TorchFunctionMode):
    """Inside, those functions do not look at values; and it is noted where gradients are asked for."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What ``func`` gives."""
        if func is torch.autograd.grad or func is Tensor.backward:
            place = 1 if func is torch.autograd.grad else 4
            asked = pytree.tree_leaves(args[place] if len(args) > place else (kwargs or {}).get("inputs"))
            to_some = any(type(t) is Replica and state_of(t).is_input for t in asked)
            self.tracer.backward_inside = max(self.tracer.backward_inside, 1 + to_some)
        if func in COMPOSITES and self.tracer.symbols is not None:
            return with_symbols(self.tracer.symbols, _OTHERWISE.get(func, func), args, kwargs or {})
        return _OTHERWISE.get(func, func)(*args, **(kwargs or {}))


_MATH = ("sqrt", "exp", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "atan")


@contextlib.contextmanager
def python_functions(tracer: Tracer) -> Iterator[None]:
    """Inside, lengths of replicas and ``math`` of symbols are symbols: Python's own fix them. One trace at a time.

    And the user's ``isinstance`` takes numbers that are symbols for what they stand for.
    """
    if tracer.symbols is None:
        yield
        return
    own, own_test, of_math = builtins.len, builtins.isinstance, {name: getattr(math, name) for name in _MATH}
    own_round = builtins.round
    plain = {**_torch.PYTHON_TYPES, torch.SymBool: bool}

    def test(x: Any, kinds: Any, /) -> bool:
        return own_test(x, kinds) or (type(x) in plain and issubclass(plain[type(x)], kinds) and _torch.asked_by_user())

    def rounded(number: Any, ndigits: Any = None) -> Any:
        to_tens = type(number) is torch.SymInt and ndigits is not None and ndigits < 0  # which torch does not round
        return own_round(int(number) if to_tens else number, ndigits)

    vars(builtins).update(isinstance=test, round=rounded)
    vars(builtins)["len"] = lambda x, /: x.shape[0] if type(x) is Replica and x.dim() else own(x)
    vars(math).update({name: functools.partial(_torch.applied, function) for name, function in of_math.items()})
    try:
        yield
    finally:
        vars(builtins).update(len=own, isinstance=own_test, round=own_round)
        vars(math).update(of_math)
