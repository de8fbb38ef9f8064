"""A pass over the tensors of the inputs: plainer, smaller, of simpler dtypes and values."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from math import prod

from aotcheck.minimize.edit import edited, inputs_of, mapped, with_inputs
from aotcheck.minimize.size import DTYPES, contiguous
from aotcheck.program import (
    DType,
    Expr,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Storage,
    Strided,
    TupleExpr,
    flat_calls,
)

__all__ = ["shrink_data", "shrink_shapes", "simplify_dtypes", "simplify_tensors"]

Change = Callable[[Inputs, Strided], Inputs | None]


def _everywhere(program: Program, change: Callable[[Inputs], Inputs | None]) -> Iterator[Program]:
    """A change of inputs made in every call at once, then in each."""
    changed = {i: new for i, inputs in inputs_of(program) if (new := change(inputs)) is not None and new != inputs}
    if len(changed) > 1:
        yield with_inputs(program, changed)
    for index, inputs in changed.items():
        yield with_inputs(program, {index: inputs})


def _with_tensor(inputs: Inputs, new: Strided) -> Inputs:
    return replace(inputs, tensors=tuple(new if t.name == new.name else t for t in inputs.tensors))


def _extent(t: Strided) -> int:
    """How many elements of its dtype a tensor needs its storage to hold."""
    return 1 + t.offset + sum((n - 1) * s for n, s in zip(t.size, t.stride, strict=True)) if prod(t.size) else 0


def _of_its_dtype(inputs: Inputs, storage: str) -> list[Strided] | None:
    """The tensors on a storage, where all are of its dtype."""
    dtype = next(s.dtype for s in inputs.storages if s.name == storage)
    found = [t for t in inputs.tensors if t.storage == storage]
    return found if all(t.dtype == dtype for t in found) else None


def _fitted(inputs: Inputs) -> Inputs:
    """Storages cut to what the tensors on them need; grown by ones where that is more than there is."""

    def fit(s: Storage) -> Storage:
        tensors = _of_its_dtype(inputs, s.name)
        if not tensors:
            return s
        wanted = max(map(_extent, tensors)) * (2 if s.dtype.startswith("complex") else 1)
        return replace(s, data=(*s.data[:wanted], *([1] * (wanted - len(s.data)))))

    return replace(inputs, storages=tuple(map(fit, inputs.storages)))


def _reshaped(t: Strided, size: tuple[int, ...]) -> Strided:
    """``t`` with another size; a row-major one stays so."""
    plain = t.stride == contiguous(t.size)
    if plain or len(size) != len(t.size):
        return replace(t, size=size, stride=contiguous(size))
    return replace(t, size=size)


def simplify_tensors(program: Program) -> Iterator[Program]:
    """Every tensor plain; then each without ``requires_grad``, at offset 0, row-major, on a storage of its own."""
    yield from _everywhere(program, _all_plain)
    names = dict.fromkeys(t.name for _, inputs in inputs_of(program) for t in inputs.tensors)
    for name in names:
        for change in _PLAINER:

            def one(inputs: Inputs, name: str = name, change: Change = change) -> Inputs | None:
                found = next((t for t in inputs.tensors if t.name == name), None)
                return change(inputs, found) if found is not None else None

            yield from _everywhere(program, one)


def _all_plain(inputs: Inputs) -> Inputs | None:
    for t in inputs.tensors:
        for change in (_without_grad, _alone):
            now = next(u for u in inputs.tensors if u.name == t.name)
            inputs = change(inputs, now) or inputs
    return inputs


def _without_grad(inputs: Inputs, t: Strided) -> Inputs | None:
    return _with_tensor(inputs, replace(t, requires_grad=False))


def _at_zero(inputs: Inputs, t: Strided) -> Inputs | None:
    return _with_tensor(inputs, replace(t, offset=0))


def _row_major(inputs: Inputs, t: Strided) -> Inputs | None:
    changed = _with_tensor(inputs, replace(t, stride=contiguous(t.size)))
    return _fitted(changed) if _of_its_dtype(changed, t.storage) else changed


def _alone(inputs: Inputs, t: Strided) -> Inputs | None:
    """``t`` row-major, at offset 0, on a storage of its own that it fills, of the values that it shows."""
    others = [u for u in inputs.tensors if u.storage == t.storage and u.name != t.name]
    storage = next(s for s in inputs.storages if s.name == t.storage)
    if t.dtype != storage.dtype:
        return None
    data = _values(storage, t)
    if data is None:
        return None
    name = storage.name if not others else _fresh({s.name for s in inputs.storages})
    made = Storage(name, storage.dtype, data)
    plain = replace(t, storage=name, stride=contiguous(t.size), offset=0)
    if others:
        return _with_tensor(replace(inputs, storages=(*inputs.storages, made)), plain)
    return _with_tensor(replace(inputs, storages=tuple(made if s is storage else s for s in inputs.storages)), plain)


def _fresh(taken: set[str]) -> str:
    return next(name for name in (f"s{i}" for i in count()) if name not in taken)


def _values(storage: Storage, t: Strided) -> tuple[int, ...] | None:
    if prod(t.size) > 4096:
        return None
    places = [t.offset]
    for n, step in zip(t.size, t.stride, strict=True):
        places = [place + i * step for place in places for i in range(n)]
    width = 2 if storage.dtype.startswith("complex") else 1
    if places and max(places) >= storage.numel:
        return None
    return tuple(storage.data[place * width + i] for place in places for i in range(width))


_PLAINER: tuple[Change, ...] = (_alone, _without_grad, _at_zero, _row_major)


# -- shapes


def _smaller(n: int) -> list[int]:
    return [m for m in dict.fromkeys((1, 2, n // 2, n - 1)) if 0 < m < n] if n else [1]


def shrink_shapes(program: Program) -> Iterator[Program]:
    """Sizes made smaller everywhere they occur, dimensions taken away; then tensor by tensor."""
    yield from _everywhere(program, _fitted)
    every = [t for _, inputs in inputs_of(program) for t in inputs.tensors]
    rank = max((len(t.size) for t in every), default=0)
    if rank and len(every) > 1:
        yield from _everywhere(program, lambda inputs: _each(inputs, lambda t: _reshaped(t, ())))
        for first in (True, False):
            yield from _everywhere(program, partial(_each, change=_dropper(rank, first)))
    for n in sorted({n for t in every for n in t.size}, reverse=True):
        for m in _smaller(n):
            sized = list(_everywhere(program, partial(_each, change=_resizer(n, m))))
            yield from (_renumbered(smaller, n, m) for smaller in sized[:1])
            yield from sized
    yield from _divided(program, every)
    for name in dict.fromkeys(t.name for t in every):
        yield from _tensor_by_tensor(program, name)


def _divided(program: Program, every: list[Strided]) -> Iterator[Program]:
    """A size that the body writes, as ``view`` does, made 1, and a size of the inputs that it divides, that much
    smaller."""
    written = {n for c in flat_calls(program.body) for arg in c.args for n in _sizes(arg)}
    for n in sorted(written, reverse=True):
        for k in sorted({k for t in every for k in t.size if k % n == 0}, reverse=True):
            for smaller in _everywhere(program, partial(_each, change=_resizer(k, k // n))):
                yield _renumbered(smaller, n, 1)


def _sizes(expr: Expr) -> Iterator[int]:
    if isinstance(expr, TupleExpr | ListExpr):
        for item in expr.items:
            if isinstance(item, Literal) and isinstance(item.value, int) and item.value > 1:
                yield item.value


def _each(inputs: Inputs, change: Callable[[Strided], Strided]) -> Inputs:
    return _fitted(replace(inputs, tensors=tuple(map(change, inputs.tensors))))


def _dropper(rank: int, first: bool) -> Callable[[Strided], Strided]:
    """Takes the first or last dimension from the tensors of the greatest rank."""

    def drop(t: Strided) -> Strided:
        return _without_dimension(t, 0 if first else rank - 1) if len(t.size) == rank else t

    return drop


def _without_dimension(t: Strided, dim: int) -> Strided:
    size = t.size[:dim] + t.size[dim + 1 :]
    if t.stride == contiguous(t.size):
        return replace(t, size=size, stride=contiguous(size))
    return replace(t, size=size, stride=t.stride[:dim] + t.stride[dim + 1 :])


def _resizer(n: int, m: int) -> Callable[[Strided], Strided]:
    def resize(t: Strided) -> Strided:
        return _reshaped(t, tuple(m if k == n else k for k in t.size))

    return resize


def _renumbered(program: Program, n: int, m: int) -> Program:
    """The constant ``n`` as ``m`` wherever the body says it."""

    def change(expr: Expr) -> Expr | None:
        return Literal(m) if expr == Literal(n) else None

    def call(_: int, c: OpCall) -> OpCall:
        kwargs = tuple((key, mapped(value, change)) for key, value in c.kwargs)
        return replace(c, args=tuple(mapped(arg, change) for arg in c.args), kwargs=kwargs)

    return replace(program, body=edited(program.body, call))


def _tensor_by_tensor(program: Program, name: str) -> Iterator[Program]:
    found = next(t for _, inputs in inputs_of(program) for t in inputs.tensors if t.name == name)

    def changed(change: Callable[[Strided], Strided]) -> Iterator[Program]:
        return _everywhere(program, lambda inputs: _each(inputs, lambda t: change(t) if t.name == name else t))

    if found.size:
        yield from changed(lambda t: _reshaped(t, ()))
    for dim in range(len(found.size)):

        def drop(t: Strided, dim: int = dim) -> Strided:
            return _without_dimension(t, dim) if dim < len(t.size) else t

        yield from changed(drop)
    for dim, n in enumerate(found.size):
        for m in _smaller(n):

            def resize(t: Strided, dim: int = dim, m: int = m) -> Strided:
                return _reshaped(t, (*t.size[:dim], m, *t.size[dim + 1 :])) if dim < len(t.size) else t

            yield from changed(resize)
    for offset in range(found.offset):
        yield from changed(partial(replace, offset=offset))


# -- dtypes and values


def simplify_dtypes(program: Program) -> Iterator[Program]:
    """Each dtype replaced by a simpler one, everywhere; then in the inputs or the body alone; then per storage."""
    used = dict.fromkeys(s.dtype for _, inputs in inputs_of(program) for s in inputs.storages)
    used |= dict.fromkeys(t.dtype for _, inputs in inputs_of(program) for t in inputs.tensors)
    written = {leaf.name for c in flat_calls(program.body) for leaf in _dtypes(c)}
    for old in [*used, *(sorted(written - set(used)))]:
        for new in DTYPES[: DTYPES.index(old) if old in DTYPES else len(DTYPES)]:
            inputs = {i: _retyped(each, old, new) for i, each in inputs_of(program)}
            yield with_inputs(_retyped_body(program, old, new), inputs)
            yield with_inputs(program, inputs)
            yield _retyped_body(program, old, new)
            for index, each in inputs_of(program):
                for s in each.storages:
                    yield with_inputs(program, {index: _retyped(each, old, new, s.name)})


def _dtypes(call: OpCall) -> Iterator[DType]:
    return (arg for arg in (*call.args, *(value for _, value in call.kwargs)) if isinstance(arg, DType))


def _retyped(inputs: Inputs, old: str, new: str, only: str | None = None) -> Inputs:
    def storage(s: Storage) -> Storage:
        if s.dtype != old or only not in (None, s.name):
            return s
        data = s.data[::2] if old.startswith("complex") and not new.startswith("complex") else s.data
        return replace(s, dtype=new, data=tuple(int(v != 0) for v in data) if new == "bool" else data)

    def tensor(t: Strided) -> Strided:
        return replace(t, dtype=new) if t.dtype == old and only in (None, t.storage) else t

    return replace(inputs, storages=tuple(map(storage, inputs.storages)), tensors=tuple(map(tensor, inputs.tensors)))


def _retyped_body(program: Program, old: str, new: str) -> Program:
    def change(expr: Expr) -> Expr | None:
        return DType(new) if expr == DType(old) else None

    def call(_: int, c: OpCall) -> OpCall:
        kwargs = tuple((key, mapped(value, change)) for key, value in c.kwargs)
        return replace(c, args=tuple(mapped(arg, change) for arg in c.args), kwargs=kwargs)

    return replace(program, body=edited(program.body, call))


MOST_ELEMENTS = 12
"""Storages that hold more are not looked at element by element."""


def shrink_data(program: Program) -> Iterator[Program]:
    """Zeros, ones; then element by element towards zero."""
    for value in (0, 1):
        yield from _everywhere(program, partial(_filled, value=value))
    for index, inputs in inputs_of(program):
        for s in inputs.storages:
            for value in (0, 1):
                yield with_inputs(program, {index: _filled(inputs, value, s.name)})
            for i, v in enumerate(s.data if len(s.data) <= MOST_ELEMENTS else ()):
                for smaller in dict.fromkeys((0, 1, -v, v // 2)):
                    data = (*s.data[:i], smaller, *s.data[i + 1 :])
                    yield with_inputs(program, {index: _with_data(inputs, s.name, data)})


def _with_data(inputs: Inputs, name: str, data: tuple[int, ...]) -> Inputs:
    storages = tuple(replace(s, data=data) if s.name == name else s for s in inputs.storages)
    return replace(inputs, storages=storages)


def _filled(inputs: Inputs, value: int, name: str | None = None) -> Inputs:
    for s in inputs.storages:
        if name in (None, s.name):
            inputs = _with_data(inputs, s.name, (value,) * len(s.data))
    return inputs
