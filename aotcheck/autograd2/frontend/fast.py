"""A fast check for the usual call, as straight Python: one like the last one, with the state around it as it was.

``bind`` and its key tell everything of a call, and take longer than a small graph. Most calls are like the last one: as
many tensors in the same lists, tuples and dicts, the same plain values, the same objects around the function. So code
is generated that takes the arguments apart, asks all that the key holds, and runs the specialization. A compiled check
of torch's tells whether tensors look alike; what it does not look at is asked tensor by tensor.
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy
import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.frontend.bind import Bound, Spot
from aotcheck.autograd2.ir.meta import Geometry, geometry_of, is_leaf
from aotcheck.autograd2.ir.structure import GONE, Globals, content_of, unchanged

MISS: Any = object()
"""What the code gives for another kind of call."""

_PLAIN = (Tensor, torch.nn.Parameter)
_MOST_PAIRS = 64


@dataclass
class _Source:
    """The code: ``lines`` take arguments apart, ``checks`` are asked then.

    Attributes:
        tensors: those that ``bind`` finds, with the name of each.
        fits: whether numbers of tensors and of Python fit, where some are symbols; None where all are as they were.
        containers: the arguments' lists and dicts with their names, in order.
        numbers: the arguments' ints and floats, by their names, in order.
    """

    names: dict[str, Any]
    tensors: dict[Tensor, str]
    fits: Callable[[Sequence[Tensor], Sequence[Any]], bool] | None
    containers: list[tuple[Any, str]] = field(default_factory=list)
    numbers: dict[str, int | float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)

    def bind(self, prefix: str, value: Any) -> str:
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def value(self, x: Any, name: str) -> bool:
        """Take ``x`` apart; whether that can be."""
        kind = type(x)
        if kind in _PLAIN:
            if _torch.base_of(x) is not None:  # of what is no tensor no base is asked
                self.lines.append(f"if type({name}) is not {self.bind('Tensor', kind)}: return MISS")
            if (known := self.tensors.setdefault(x, name)) != name:
                self.checks.append(f"{name} is {known}")
            return True
        if kind in (int, bool, str, float):
            differs = f" or {name} != {self.bind('value', x)}" if self.fits is None or kind in (bool, str) else ""
            nan = f" or not {name} or {name} != {name}" if kind is float else ""  # -0.0 is not 0.0
            self.lines.append(f"if type({name}) is not {kind.__name__}{differs}{nan}: return MISS")
            if kind in (int, float):
                self.numbers[name] = x
            return kind is not float or (bool(x) and x == x)
        if x is None or kind in (torch.dtype, torch.device):
            self.lines.append(f"if {name} is not {self.bind('value', x)}: return MISS")
            return True
        if kind not in (list, dict) and getattr(kind, "__iter__", None) is not tuple.__iter__:
            return False  # named tuples are tuples
        inside = f"{name}.values()" if kind is dict else name
        self.lines.append(f"if type({name}) is not {self.bind('kind', kind)} or len({name}) != {len(x)}: return MISS")
        if kind is dict:
            if not all(type(k) in (str, int) for k in x):
                return False
            self.lines.append(f"if list({name}) != {self.bind('keys', list(x))}: return MISS")
        if kind in (list, dict):
            if other := next((n for y, n in self.containers if y is x), None):
                self.checks.append(f"{name} is {other}")
                return True
            self.containers.append((x, name))
        return self.values(list(x.values()) if kind is dict else x, inside, name)

    def values(self, items: Sequence[Any], source: str, prefix: str) -> bool:
        """Take items apart, which the code finds in ``source``."""
        names = [f"{prefix}_{k}" for k in range(len(items))]
        if items:
            self.lines.append(f"{''.join(f'{n}, ' for n in names)} = {source}")
        return all(map(self.value, items, names))


def fast_call(
    bound: Bound,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    call: Callable[..., Any],
    sources: Sequence[tuple[int, bool]],
    fits: Callable[[Sequence[Tensor], Sequence[Any]], bool] | None,
    assigned: Collection[Spot] = (),
) -> Callable[..., Any] | None:
    """What takes ``args`` and ``kwargs``, and gives the result of a call like this one; None if it has no such code.

    ``call``, ``sources`` and ``fits`` are a specialization's; ``assigned`` are the places that each call sets: table
    and key, None of one that is no constant.
    """
    count, containers, tables, numbers = bound.around
    s = _Source({"MISS": MISS}, {t: f"t{k}" for k, (_, t) in enumerate(bound.tensors[:count])}, fits)
    fixed = {name: t for t, name in s.tensors.items()}
    s.lines.append(f"if foreign_state() or len(args) != {len(args)} or len(kwargs) != {len(kwargs)}: return MISS")
    if kwargs:
        s.lines.append(f"if list(kwargs) != {s.bind('keys', list(kwargs))}: return MISS")
    around_tables = [s.bind("table", table) for table in bound.tables[:tables]]
    read = {spot: name for spot in assigned if (name := _assigned(s, bound, spot, around_tables))}
    if any(spot[0] < tables and spot not in read for spot in assigned):
        return None  # what is around is not as it was again, and would be kept alive
    s.names |= {name: fixed[name] for name in fixed.keys() & set(s.tensors.values())}
    s.numbers.clear()
    taken = s.values(args, "args", "x") and s.values(list(kwargs.values()), "kwargs.values()", "k")
    tensors = [t for _, t in bound.tensors]
    alike = len(tensors) == len(s.tensors) and all(map(operator.is_, tensors, s.tensors))
    alike = alike and list(s.numbers.values()) == list(bound.numbers.values())[numbers:]
    around_numbers = list(bound.numbers.items())[:numbers]
    s.numbers = {read.get(spot) or s.bind("number", x): x for spot, x in around_numbers} | s.numbers
    if not taken or not alike or any(map(_is_unusual, tensors)) or _torch.function_modes():
        return None
    own = [name for _, name in s.containers]
    found = [s.bind("around", x) for x in bound.containers[:containers] if type(x) in (list, dict)]
    for a, b in itertools.combinations([*own, *found], 2):
        if a in own:
            s.checks.append(f"{a} is not {b}")
    if len(s.checks) > _MOST_PAIRS or any(issubclass(type(x), numpy.ndarray) for x in bound.containers):
        return None
    _modes(s)
    looked = s.bind("looked", tuple(bound.containers[:containers]))
    s.checks.append(f"[*map(type, {looked})] == {s.bind('kinds', [*map(type, s.names[looked])])}")
    keys: dict[int, list[Any]] = {}
    for k, key in read:
        keys.setdefault(k, []).append(key)
    whole = {k: table for k, table in enumerate(bound.tables[:tables]) if isinstance(table, dict) and k not in keys}
    _dicts(s, [*whole.values()])
    for k, name in enumerate(around_tables):
        if k not in whole:
            _table(s, bound.tables[k], name, keys.get(k, ()))
    if not _tensors(s, tensors):
        return None
    names = list(s.tensors.values())
    inputs = [f"{names[k]}{_torch.ITS_BASE}" if base else names[k] for k, base in sources]
    s.names |= {"call": call, "foreign_state": _torch.foreign_state, "unchanged": unchanged}
    s.names |= {"is_": operator.is_, "leaf": is_leaf}
    held = s.bind("tables", tuple(bound.tables[:tables]))
    looked, held = (_tuple([f"*{name}", *own]) if own else name for name in (looked, held))
    s.lines.append(f"if {' and '.join(s.checks)}: return call({_tuple(inputs)}, {looked}, {held}, {_tuple(s.numbers)})")
    source = "def fast(args, kwargs):\n" + "".join(f"    {line}\n" for line in [*s.lines, "return MISS"])
    exec(compile(source, "<aotcheck check>", "exec"), s.names)
    return cast(Callable[..., Any], s.names["fast"])


def _tuple(names: Iterable[str]) -> str:
    return f"({''.join(f'{n}, ' for n in names)})"


def _is_unusual(t: Tensor) -> bool:
    if type(t) not in _PLAIN or t.layout is not torch.strided or is_leaf(t) is None:
        return True
    base = _torch.base_of(t)
    requires = t.requires_grad and is_leaf(t) is True  # of itself, or as its base does
    return base is not None and (base.dtype is not t.dtype or requires)


def _assigned(s: _Source, bound: Bound, spot: Spot, names: Sequence[str]) -> str | None:
    """The name of the tensor or number in a place that each call sets, looked up each time; None of another place."""
    k, key = spot
    table = bound.tables[k] if k < len(names) else None
    value = table.get(key) if type(table) is dict else None
    if type(value) not in (Tensor, int) and not (type(value) is float and value and value == value):
        return None
    name = f"v_{len(s.lines)}"
    s.lines.append(f"{name} = {names[k]}.get({s.bind('key', key)})")
    if type(value) is Tensor:
        s.tensors[value] = name if s.tensors[value].startswith("t") else s.tensors[value]
    s.value(value, name)
    return name


def _dicts(s: _Source, tables: Sequence[dict[Any, Any]]) -> None:
    """Ask that dicts hold what they hold now: of many modules, which have few items each, all in one go."""
    s.checks.append(f"not any({s.bind('empty', [table for table in tables if not table])})")
    tables = [table for table in tables if table]
    s.names |= {"dicts": tables, "values": dict.values, "keys": dict.keys, "joined": itertools.chain.from_iterable}
    s.checks.append(f"[*map(len, dicts)] == {s.bind('lengths', [*map(len, tables)])}")
    for name, part in (("keys", dict.keys), ("values", dict.values)):
        held = s.bind("content", [x for table in tables for x in part(table)])
        s.checks.append(f"all(map(is_, joined(map({name}, dicts)), {held}))")


def _table(s: _Source, table: Any, name: str, read: Collection[Any]) -> None:
    """Ask that a table holds what it holds now, but where it is read at each call."""
    held = content_of(table)
    if type(table) is types.CellType and held is not GONE:
        s.checks.append(f"{name}.cell_contents is {s.bind('content', held)}")
    elif type(table) is Globals:
        owner = s.bind("globals", table.owner)
        s.checks += [f"{owner}.get({n!r}) is {s.bind('content', v)}" for n, v in held.items()]
    elif type(table) is dict:
        kept = tuple(key for key in held if key not in read)
        keys, content = s.bind("keys", tuple(held)), s.bind("content", tuple(map(held.get, kept)))
        same = f"all(map(is_, map({name}.get, {s.bind('keys', kept)}), {content})) and all(map(is_, {name}, {keys}))"
        s.checks.append(f"len({name}) == {len(held)} and {same}")
    else:
        s.checks.append(f"unchanged({name}, {s.bind('content', held)})")


def _modes(s: _Source) -> None:
    """Ask for the modes in force now."""
    s.names |= {
        "grad": torch.is_grad_enabled, "inference": torch.is_inference_mode_enabled,
        "dtype": torch.get_default_dtype, "deterministic": torch.are_deterministic_algorithms_enabled,
        "function_modes": _torch.function_modes, "is_cast": _torch.is_cast, "casts": _torch.casts,
    }  # fmt: skip
    s.checks += [f"{name}() is {s.names[name]()}" for name in ("grad", "inference", "deterministic")]
    s.checks.append(f"casts() == {s.bind('value', _torch.casts())}" if _torch.is_cast() else "not is_cast()")
    s.checks.append("not function_modes()")  # a default device is one
    s.checks.append(f"dtype() is {s.bind('value', torch.get_default_dtype())}")


def _tensors(s: _Source, tensors: Sequence[Tensor]) -> bool:
    """Ask for how tensors lie, for the storages that they share, and for what they are views of."""
    if not tensors:
        return True
    named, given = dict(s.tensors), ", ".join(s.tensors.values())
    for t, name in s.tensors.items():
        base = _torch.base_of(t)
        if base is not None and base not in named:
            named[base] = f"{name}{_torch.ITS_BASE}"
            both = [f"{x}.untyped_storage(){_torch.ITS_ADDRESS}" for x in (named[base], name)]
            s.checks.append(f"{named[base]} is not None and {both[0]} == {both[1]}")  # else it was given other data
    free: Any = None if s.fits is None else [[None] * t.dim() for t in named]
    guards = _torch.TensorGuards(*named, dynamic_dims_sizes=free, dynamic_dims_strides=free)
    s.checks.append(f"{s.bind('guards', guards.check)}({', '.join(named.values())})")
    if s.fits is not None:
        s.checks.append(f"{s.bind('fits', s.fits)}(({given},), {_tuple(s.numbers)})")
    shared: dict[int, list[tuple[str, Tensor, Geometry]]] = {}
    for t, name in s.tensors.items():
        storage = t.untyped_storage()
        whole, offset = f"(s_{name} := {name}.untyped_storage())", f"{name}.storage_offset() == {t.storage_offset()}"
        s.checks += [offset, f"{whole}.nbytes() == {storage.nbytes()}"] if s.fits is None else [whole]
        if _torch.base_of(t) is None:
            s.checks.append(f"{name}{_torch.ITS_BASE} is None")
            s.checks += [f"{name}.is_leaf is {t.is_leaf}"] if t.requires_grad else []
        else:
            s.checks.append(f"leaf({name}) is {t.is_leaf}")
        if torch.is_inference_mode_enabled() or t.is_inference():
            s.checks.append(f"{name}.is_inference() is {t.is_inference()}")
        shared.setdefault(_torch.storage_address(storage), []).append((name, t, geometry_of(t)))
    if len(tensors) > 1:
        addresses = "".join(f"s_{group[0][0]}{_torch.ITS_ADDRESS}, " for group in shared.values())
        s.checks.append(f"len({{{addresses}}}) == {len(shared)}")
    if counters := _torch.shared_counters(tensors):
        counted, names = s.bind("counted", _torch.sharing_versions), "".join(f"{named[t]}, " for t in counters)
        s.checks.append(f"{counted}(({names})) == {tuple(counters.values())}")
    return all(_aliases(s, group) for group in shared.values())


def _aliases(s: _Source, group: Sequence[tuple[str, Tensor, Geometry]]) -> bool:
    """Ask that tensors share a storage, that none is another of them, and for the bases of those that are views."""
    first, address = group[0][0], _torch.ITS_ADDRESS
    s.checks += [f"s_{name}{address} == s_{first}{address}" for name, _, _ in group[1:]]
    known = {t: name for name, t, _ in group}
    unknown: dict[Tensor, str] = {}
    for name, t, _ in group:
        if (base := _torch.base_of(t)) is not None:
            its = f"{name}{_torch.ITS_BASE}"
            other = known.get(base) or unknown.get(base)
            s.checks += [f"{its} is {other}"] if other else [f"{its} is not {n}" for n in known.values()]
            if other is None:
                s.checks += [f"{its} is not {n}" for n in unknown.values()]
                unknown[base] = its
    alike = [(a, b) for (a, _, g), (b, _, h) in itertools.combinations(group, 2) if g == h] if len(group) < 64 else None
    s.checks += [f"{a} is not {b}" for a, b in alike or ()]
    return alike is not None and len(alike) <= _MOST_PAIRS
