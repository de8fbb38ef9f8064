"""Python values that a function finds around it, which a trace takes as they are: part of the key of a call.

Note [Surroundings]
A module may be told another dropout probability, lose a hook or a layer; a variable in a closure may be bound to
another number. A walk from the function finds such values: in its closure, globals and defaults, in lists and
dictionaries, in attributes that code near it names, in modules and their hooks. Numbers, strings and the like count by
value, what holds others by what it holds, anything else by identity. Tensors do not count: they are arguments once a
trace has met them.

What a walk found has a number, and equal finds have equal ones. A call asks only whether anything was assigned since
the last walk; dictionaries are asked for their versions.

What a trace itself changes (a flag that the first call sets, a step that is counted) is put back after it, and done by
every call of what was traced: what it becomes hangs on what it was, which is part of the key. Containers whose length a
trace changes are not looked at any more, as they are logs and caches for the most part, nor is a value that traces
changed for the eighth time, of which the caller is warned.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import itertools
import types
import warnings
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.plain_values import plain_key

_STEPS = 3  # from the function to what is looked at
_MOST = 256  # items of a container that is looked through
_CHANGES = 8  # of a value, by traces
_NUMBERED = 1024

_SEQUENCES = (list, tuple, deque, set, frozenset)
_DICTIONARIES = (dict, OrderedDict, defaultdict)
_CODE = (types.FunctionType, property, staticmethod, classmethod, functools.cached_property)
_UNSEEN = (types.ModuleType, types.BuiltinFunctionType, type)
_NOT_GLOBALS = (*_UNSEEN, Tensor)
_CALLED_IMPLICITLY = frozenset(
    ("forward", "__call__", "__iter__", "__len__", "__getitem__", "__contains__", "__getattr__", "__bool__")
)
_ASSIGNED = (*_DICTIONARIES, list, types.CellType)
_TENSOR = object()
_ABSENT = object()

_serials = itertools.count()
_known_objects: dict[int, tuple[Any, int]] = {}  # id -> what tells that it is still that object, its serial number


def serial_of(obj: Any) -> int:
    """A number that no other object has or will have."""
    known = _known_objects.get(id(obj))
    if known is not None and known[0]() is obj:
        return known[1]
    try:
        alive: Callable[[], Any] = weakref.ref(obj, functools.partial(_forget, id(obj)))
    except TypeError:
        alive = lambda: obj  # noqa: E731
    serial = next(_serials)
    _known_objects[id(obj)] = alive, serial
    return serial


def _forget(address: int, reference: Any) -> None:
    if (known := _known_objects.get(address)) is not None and known[0] is reference:
        del _known_objects[address]


_Place = tuple[int, Any]


@dataclasses.dataclass(frozen=True)
class Assignment:
    """Of a variable, attribute or item that a traced function changes."""

    owner: Any
    name: Any
    value: Any

    def __call__(self) -> None:
        """Do it."""
        if isinstance(self.owner, types.CellType):
            self.owner.cell_contents = self.value
        elif self.value is _ABSENT:  # in a dictionary
            self.owner.pop(self.name, None)
        else:
            self.owner[self.name] = self.value


@dataclasses.dataclass(frozen=True)
class Changes:
    """What a trace changed: the ``number`` of what there was, if some of it is not looked at any more."""

    number: int | None = None
    assignments: tuple[Assignment, ...] = ()


class _Walk:
    """What there is now: ``found``, by place, and what tells later whether any of it was assigned."""

    def __init__(self, root: Any, names: frozenset[str], ignored: frozenset[_Place]) -> None:
        self.found: dict[_Place, Any] = {}
        self.values: dict[_Place, tuple[Any, Any]] = {}  # what has it, and what it is
        self.modules: list[torch.nn.Module] = []
        self.code: set[types.CodeType] = set()
        self.classes: set[type] = set()
        self.containers: set[_Place] = set()
        self._names, self._ignored = names, ignored
        self._dicts: list[tuple[dict[Any, Any], frozenset[str] | None, list[Any]]] = []
        self._empty: list[dict[Any, Any]] = []
        self._cells: list[types.CellType] = []
        self._globals: list[tuple[dict[str, Any], str]] = []
        self._functions: list[types.FunctionType] = []
        self._sequences: list[Any] = []
        self._seen: set[int] = set()
        self._next: list[tuple[Any, int]] = [(root, 0)]
        self._kept: list[Any] = []  # ids are of these
        while self._next:
            level, self._next = self._next, []
            for obj, depth in level:
                if id(obj) not in self._seen:
                    self._seen.add(id(obj))
                    self._kept.append(obj)
                    self._visit(obj, depth)
        self._versions = self._versions_now()
        self._loose = self._loose_now()
        self.key = (tuple([serial_of(m) for m in self.modules]), tuple(self.found.values()))

    @property
    def anything(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.found or self.modules)

    def holds(self) -> bool:
        """Whether nothing that matters was assigned since."""
        versions = self._versions_now()
        if versions != self._versions:
            for (d, names, was), before, now in zip(self._dicts, self._versions, versions, strict=True):
                if before != now and not _same(_values(d, names), was):
                    return False
            self._versions = versions
        return not any(self._empty) and (not self._loose or _same(self._loose_now(), self._loose))

    def _versions_now(self) -> list[int]:
        version = _torch.dict_version
        return [version(d) for d, _, _ in self._dicts]

    def _loose_now(self) -> list[Any]:
        found = [_content(c) for c in self._cells]
        found += [variables.get(name, _ABSENT) for variables, name in self._globals]
        found += [d for f in self._functions for d in (f.__defaults__, f.__kwdefaults__)]
        for s in self._sequences:
            found += s
        return [_TENSOR if isinstance(v, Tensor) else v for v in found]

    def _visit(self, obj: Any, depth: int) -> None:
        if isinstance(obj, torch.nn.Module):
            self._module(obj, depth)
        elif isinstance(obj, types.MethodType):
            self._next += [(obj.__self__, depth), (obj.__func__, depth)]
        elif isinstance(obj, types.FunctionType):
            self._function(obj, depth)
        elif isinstance(obj, functools.partial):
            self._next.append((obj.func, depth))
            for k, value in enumerate((*obj.args, *obj.keywords.values())):
                self._value(obj, k, value, depth)
        elif type(obj) in _DICTIONARIES:
            if len(obj) <= _MOST:
                self._watch(obj, None, depth)
        elif type(obj) in _SEQUENCES:
            if len(obj) <= _MOST:
                self._sequences.append(obj)
                for k, value in enumerate(obj):
                    self._value(obj, k, value, depth)
        elif not isinstance(obj, _UNSEEN) and isinstance(getattr(obj, "__dict__", None), dict):
            original = vars(obj).get("original") if type(obj).__module__.startswith("aotcheck.") else None
            if original is not None:  # a compiled function: it runs inline
                self._next.append((original, depth))
                return
            self.classes.add(type(obj))
            self._watch(vars(obj), self._names, depth)
            self._called(type(obj), "__call__", depth)

    def _module(self, m: torch.nn.Module, depth: int) -> None:
        if not self.modules:
            for hooks in _torch.GLOBAL_HOOKS:
                self._inner(hooks)
        self.modules.append(m)
        self.classes.add(type(m))
        self._watch(vars(m), self._names, depth)
        children = _torch.children_of(m)
        if children:
            self._dicts.append((children, None, _values(children, None)))
            self._next += [(child, depth) for child in children.values() if child is not None]
            self._note(children, "", tuple(children), None)
        inner: tuple[dict[Any, Any], ...] = (*_torch.state_of(m), *_torch.hooks_of(m))
        for d in inner:
            self._inner(d)
        self._called(type(m), "forward", depth)

    def _inner(self, d: dict[Any, Any]) -> None:
        """A dictionary of a module's own; most are empty and stay so."""
        if d:
            self._watch(d, None, _STEPS - 1)
        else:
            self._empty.append(d)

    def _called(self, cls: type, name: str, depth: int) -> None:
        code = getattr(cls, name, None)
        if isinstance(code, types.FunctionType) and not _is_of_torch(code):
            self._next.append((code, depth))

    def _function(self, f: types.FunctionType, depth: int) -> None:
        if _is_of_torch(f):
            return
        self.code.add(f.__code__)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            value = _content(cell)
            if isinstance(value, Tensor):
                continue
            if self._value(cell, name, value, depth):
                self._cells.append(cell)
        variables = f.__globals__
        for name in _globals_of(f):
            value = variables[name]
            if isinstance(value, types.FunctionType):
                if depth < _STEPS:
                    self._next.append((value, depth + 1))
            elif self._value(variables, name, value, depth):
                self._globals.append((variables, name))
        if f.__defaults__ or f.__kwdefaults__:
            self._functions.append(f)
        for k, value in enumerate(f.__defaults__ or ()):
            self._value(f, k, value, depth)
        if f.__kwdefaults__:
            self._watch(f.__kwdefaults__, None, depth)
        wrapped = getattr(f, "__wrapped__", None)
        if wrapped is not None:
            self._next.append((wrapped, depth))

    def _watch(self, d: dict[Any, Any], names: frozenset[str] | None, depth: int) -> None:
        self._dicts.append((d, names, _values(d, names)))
        for name in d if names is None else names.intersection(d):
            self._value(d, name, d[name], depth)

    def _value(self, owner: Any, name: Any, value: Any, depth: int) -> bool:
        """Note a value; whether it is looked at."""
        if type(value) is types.FunctionType:
            there = self._note(owner, name, serial_of(value), value)
            if there and depth < _STEPS:
                self._next.append((value, depth + 1))
            return there
        if isinstance(value, Tensor):
            return self._note(owner, name, "tensor", value)
        key = plain_key(value)
        if key is not None:
            return self._note(owner, name, key, value)
        if isinstance(value, _UNSEEN[:1]):
            return False
        holds = type(value) in _SEQUENCES or type(value) in _DICTIONARIES
        if holds:
            self.containers.add((id(owner), name))
        there = self._note(owner, name, (type(value).__name__, len(value)) if holds else serial_of(value), value)
        if there and depth < _STEPS:
            self._next.append((value, depth + 1))
        return there

    def _note(self, owner: Any, name: Any, key: Any, value: Any) -> bool:
        place = id(owner), name
        if place in self._ignored:
            return False
        self.found[place] = name, key
        self.values[place] = owner, value
        return True


class Surroundings:
    """What there is around ``function``, be it a module or not."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._names: frozenset[str] = frozenset()
        self._ignored: frozenset[_Place] = frozenset()
        self._changes: dict[_Place, int] = {}
        self._numbers: dict[Any, int] = {}
        self._count = itertools.count()
        self._look()

    @property
    def anything(self) -> bool:
        """Whether there is anything to look at in a call."""
        return self._walk.anything

    def number(self) -> int:
        """The number of what there is now."""
        if not self._walk.holds():
            self._look()
        return self._number

    @property
    def modules(self) -> tuple[int, ...]:
        """The serial numbers of the modules there are."""
        return self._walk.key[0]

    def before_trace(self) -> Any:
        """What there is, for ``after_trace``."""
        return self._walk

    def after_trace(self, walk: Any) -> Changes:
        """Put back what a trace has changed since ``walk``."""
        if self._walk is walk and walk.holds():
            return Changes()
        self._look()
        now = self._walk
        there = {id(owner) for owner, _ in walk.values.values()}
        new = [p for p in now.found if p not in walk.found and p[0] in there]
        ignored, assignments = set(), []
        for place in (*walk.found, *new):
            if now.found.get(place) == walk.found.get(place):
                continue
            if place in walk.containers or place in now.containers:
                ignored.add(place)
                continue
            self._changes[place] = self._changes.get(place, 0) + 1
            if self._changes[place] == _CHANGES:
                ignored.add(place)
                warnings.warn(
                    f"aotcheck traced a function {_CHANGES} times because it changes {place[1]!r} when it is called; "
                    "from now on it is taken for what it was",
                    RuntimeWarning,
                    stacklevel=6,
                )
            owner, was = walk.values.get(place) or (now.values[place][0], _ABSENT)
            _, becomes = now.values.get(place, (owner, _ABSENT))
            if becomes is _ABSENT and (not isinstance(owner, dict) or place[1] in owner):
                continue  # it is not looked at any more
            if isinstance(owner, list) and was is _ABSENT:
                continue  # a list that grows, as a log does
            if isinstance(owner, _ASSIGNED) and not isinstance(was, Tensor) and not isinstance(becomes, Tensor):
                Assignment(owner, place[1], was)()
                assignments.append(Assignment(owner, place[1], becomes))
        self._ignored |= ignored
        self._look()
        kept = tuple([key for place, key in walk.found.items() if place in self._walk.found])
        return Changes(self._number_of(self.modules, kept) if ignored else None, tuple(assignments))

    def _look(self) -> None:
        walk = _Walk(self._function, self._names, self._ignored)
        # Names matter to the attributes of objects alone.
        while walk.classes and not self._names >= (
            names := self._names | _names_read(walk.code, walk.classes, self._names)
        ):
            self._names = names
            walk = _Walk(self._function, names, self._ignored)
        self._number = self._number_of(*walk.key)
        self._walk = walk

    def _number_of(self, modules: tuple[int, ...], found: tuple[Any, ...]) -> int:
        if len(self._numbers) > _NUMBERED:
            self._numbers = {}
        return self._numbers.setdefault((modules, found), next(self._count))


def _same(now: list[Any], was: list[Any]) -> bool:
    return len(now) == len(was) and all(a is b for a, b in zip(now, was, strict=True))


def _values(d: dict[Any, Any], names: frozenset[str] | None) -> list[Any]:
    """Keys and values that matter; tensors are all alike."""
    items = list(d.items()) if names is None else [(n, d[n]) for n in sorted(names.intersection(d))]
    return [x for n, v in items for x in (n, _TENSOR if isinstance(v, Tensor) else v)]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return _ABSENT


def _globals_of(f: types.FunctionType) -> Iterable[str]:
    """The globals of ``f`` that are looked at; to tell its globals from attributes takes longer."""
    variables = f.__globals__
    named = [n for n in _names_in(f.__code__) if n in variables and _matters(variables[n])]
    return sorted(_globals_in(f.__code__).intersection(named)) if named else ()


def _matters(value: Any) -> bool:
    """Whether a global is looked at: it is none of what code usually names."""
    if isinstance(value, types.FunctionType):
        return not _is_of_torch(value)
    return value is not None and not isinstance(value, _NOT_GLOBALS)


def _is_of_torch(f: types.FunctionType) -> bool:
    return (f.__module__ or "").split(".")[0] == "torch"


@functools.lru_cache(4096)
def _names_in(code: types.CodeType) -> frozenset[str]:
    """What the code names: globals, attributes, and strings that may be names of attributes."""
    strings = (c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
    inner = (n for c in code.co_consts if isinstance(c, types.CodeType) for n in _names_in(c))
    return frozenset((*code.co_names, *strings, *inner))


@functools.lru_cache(4096)
def _globals_in(code: types.CodeType) -> frozenset[str]:
    own = (i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL")
    inner = (n for c in code.co_consts if isinstance(c, types.CodeType) for n in _globals_in(c))
    return frozenset((*own, *inner))


def _names_read(code: Iterable[types.CodeType], classes: Iterable[type], names: frozenset[str]) -> frozenset[str]:
    """Names of attributes in the code, and in methods of the classes that it names."""
    found = set(names).union(_CALLED_IMPLICITLY if classes else (), *map(_names_in, code))
    pending = found
    while pending:
        named = {n for cls in classes for name in pending for c in _code_of(cls, name) for n in _names_in(c)}
        pending = named - found
        found |= pending
    return frozenset(found)


def _code_of(cls: type, name: str) -> Iterator[types.CodeType]:
    for c in cls.__mro__:
        if c is torch.nn.Module:
            return
        attribute = vars(c).get(name)
        if isinstance(attribute, _CODE):
            for part in ("fget", "__func__", "func"):
                attribute = getattr(attribute, part, attribute)
            while isinstance(attribute, types.FunctionType):
                yield attribute.__code__
                attribute = getattr(attribute, "__wrapped__", None)
