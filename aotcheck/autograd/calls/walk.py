"""A walk from a function over the Python values around it; see Note [Surroundings]."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import importlib.util
import os
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.contents import (
    ARRAYS,
    GENERATORS,
    ITERATORS,
    SEQUENCES,
    WITH_CONTENT,
    content_of,
    has_tensor,
    in_this_thread,
    items_of,
    without_tensors,
)
from aotcheck.autograd.calls.naming import (
    MAKING,
    Named,
    called_implicitly,
    code_called,
    functions_of,
    globals_in,
    imports_in,
    is_looked_into,
    is_of_others,
    named_in,
)
from aotcheck.autograd.calls.places import ABSENT, TENSOR, Attributes, Place, Reached, Route, key_of, read
from aotcheck.autograd.calls.serials import serial_of
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.tensors.plain_values import plain_key, variables_of
from aotcheck.autograd.tracing.presented_types import PresentedType

STEPS = 6  # from the function to what is looked at
MOST = 2048  # items of a container that is looked through
_OBJECTS = 4000

_OF_CONTAINERS = frozenset((dict, OrderedDict, defaultdict, *SEQUENCES))
_OF_MODULES = frozenset(vars(torch.nn.Module())) - {"training"}


class Walk:
    """What there is now: ``found``, by place, and what tells later whether any of it was assigned."""

    __slots__ = (
        "_alike",
        "_assigned",
        "_attributes",
        "_bound",
        "_cells",
        "_contents",
        "_counted",
        "_dicts",
        "_empty",
        "_functions",
        "_globals",
        "_ignored",
        "_items",
        "_logs",
        "_loose",
        "_next",
        "_only",
        "_reads",
        "_seen",
        "_shared",
        "_slots",
        "_stores",
        "_tensors",
        "_to_import",
        "_versions",
        "_watched",
        "asking_types",
        "attributes",
        "caches",
        "cells",
        "classes",
        "code",
        "containers",
        "found",
        "generators",
        "iterator",
        "key",
        "keyed",
        "modules",
        "names_matter",
        "objects",
        "owners",
        "scripted",
        "sequences",
        "stores_matter",
        "unread",
        "values",
    )

    def __init__(self, root: Any, named: Named, ignored: Mapping[Place, Any], classes: Iterable[type]) -> None:
        self.found: dict[Place, Any] = {}
        self.values: dict[Place, tuple[Any, Any]] = {}  # what has it, and what it is
        self.modules: list[torch.nn.Module] = []
        self.code: set[types.CodeType] = set()
        self.classes: set[type] = set()
        self.containers: dict[Place, Any] = {}
        self.owners: dict[int, Any] = {}
        self.objects: dict[int, Attributes] = {}
        self.attributes: dict[int, Attributes] = {}  # by id of the dictionary
        self.cells: list[types.CellType] = []
        self.generators: list[Any] = []
        self.caches: list[Any] = []
        self.asking_types: dict[int, dict[str, Any]] = {}  # globals of code that calls `type`
        self.iterator: str | None = None
        self.scripted = False  # whether there is a module of TorchScript's
        self.keyed = False  # whether dictionaries have tensors for keys, or sets for members
        self.unread: list[tuple[Any, frozenset[str]]] = []  # what has names that are counted or only assigned
        self._ignored = ignored
        self._reads, self._watched = named.reads, named.watched
        self._counted, self._assigned, self._logs = named.counted, named.assigned, named.logs
        self.names_matter = bool(self._counted or self._assigned)  # another walk may find more
        self.stores_matter = False  # it may where anything is assigned to attributes
        self._attributes = None if named.dynamic else self._watched | self._counted | {"forward"}
        self._only = self._counted | self._assigned
        self._stores = bool(named.stores or named.adds or named.dynamic)
        self._dicts: list[tuple[dict[Any, Any], frozenset[str] | None, list[Any]]] = []
        self._globals: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self._empty: list[dict[Any, Any]] = []
        self._cells: list[tuple[types.CellType, str]] = []
        self._functions: list[types.FunctionType] = []
        self.sequences: list[Any] = []
        self._slots: list[tuple[Any, str]] = []
        self._to_import: list[str] = []
        self._contents: list[tuple[Any, Any]] = []
        self._seen: dict[int, Any] = {}  # by id, and kept so that ids are of these
        self._tensors: dict[int, list[tuple[Any, Any]]] = {}  # by id, where each is
        self._shared: dict[int, list[Place]] = {}  # where each container is
        self._next: list[tuple[Any, int]] = [(root, 0), *[(cls, 0) for cls in classes]]
        while self._next and len(self._seen) < _OBJECTS:
            level, self._next = self._next, []
            for obj, depth in level:
                if id(obj) not in self._seen:
                    self._seen[id(obj)] = obj
                    self._visit(obj, depth)
        for variables, names in self._globals.values():
            self._dicts.append((variables, frozenset(names), self._values(variables, frozenset(names))))
        self._seen.clear()
        self._versions = self._versions_now() if self._dicts else []
        self._loose = self._loose_now()
        self._items = [without_tensors(s) for s in self.sequences] if self.sequences else []
        looked_up = self._dicts or self._empty or self._functions or self._slots or self.sequences or self._contents
        looked_up = looked_up or self._to_import
        self._bound = None if looked_up else self._cells_bound()
        self._alike = [places for places in self._tensors.values() if len(places) > 1] if self._tensors else []
        self._tensors.clear()
        if self._shared:
            self._shared = {k: places for k, places in self._shared.items() if len(places) > 1}
        self.key = (tuple([serial_of(m) for m in self.modules]), (*self.found.values(), *self.groups(self.found)))

    @property
    def anything(self) -> bool:
        """Whether there is anything to look at, or to do after a call."""
        return bool(self.found or self.modules or self.unread or self.generators or self.iterator or self.scripted)

    def groups(self, places: Collection[Place]) -> tuple[Any, ...]:
        """Which of these places have the same tensor or container."""
        # Which places of a tensor's the function reads is not known.
        tensors = [tuple([key_of(name) for _, name in alike]) for alike in self._alike] if self._alike else []
        if not self._shared:
            return tuple(tensors)
        numbers = {place: k for k, place in enumerate(places)}
        shared = [tuple([numbers.get(place, -1) for place in alike]) for alike in self._shared.values()]
        return (*tensors, *shared)

    def logs(self) -> list[Any]:
        """What there is now at places that are ignored."""
        ignored = self._ignored
        return [read(self.owners.get(p[0]), p[1]) for p in self.containers if p in ignored] if ignored else []

    def route_to(self, tensor: Tensor) -> Route | None:
        """The way to the tensor."""
        above = self._above()
        for (_, name), (owner, value) in self.values.items():
            if value is TENSOR and read(owner, name) is tensor:
                route = self._route(owner, name, above)
                if route.now() is tensor:
                    return route
        return None

    def routes(self) -> Callable[[Any, Any], Route]:
        """The way to what an owner has by a name."""
        return functools.partial(self._route, above=self._above())

    def _above(self) -> dict[int, Place]:
        return {id(c): place for place, c in reversed(self.containers.items())}

    def _route(self, owner: Any, name: Any, above: Mapping[int, Place]) -> Route:
        names = [name]
        while (place := above.get(id(owner))) is not None and place[0] in self.owners and len(names) <= STEPS:
            owner = self.owners[place[0]]
            names.insert(0, place[1])
        return Route(self.attributes.get(id(owner), owner), tuple(names))

    def reached(self) -> Reached:
        """Everything that may be assigned."""
        above = self._above()
        names: dict[int, set[str]] = {}
        owners = dict(self.owners)
        for owner, some in self.unread:
            owners[id(owner)] = owner
            names.setdefault(id(owner), set()).update(some)
        for obj, name in self._slots:
            names.setdefault(id(obj), set()).add(name)
        for d, watched, _ in self._dicts:
            if "__builtins__" in d:  # of a Python module's variables those that are named
                names.setdefault(id(d), set()).update(watched or ())
        variables: list[tuple[Any, tuple[Any, ...] | None]] = [(c, ("cell_contents",)) for c in self.cells]
        for k, owner in owners.items():
            if isinstance(owner, dict):
                if k not in above:
                    variables.append((owner, tuple(names[k]) if "__builtins__" in owner else None))
            elif isinstance(owner, type):
                variables.append((owner, None))
            elif not isinstance(owner, (types.CellType, types.FunctionType, functools.partial, *SEQUENCES)):
                variables.append((owner, tuple(names.get(k, ()))))
        nested: list[Route] = []
        containers: dict[int, Route] = {}
        for (k, name), container in self.containers.items():
            if k in owners and isinstance(container, (dict, list, deque, set)):
                route = self._route(owners[k], name, above)
                containers.setdefault(id(container), route)
                if k in above or isinstance(owners[k], (types.FunctionType, functools.partial)):
                    nested.append(route)
        return Reached(tuple(variables), tuple(nested), containers, self.objects, self.attributes)

    def met(self, x: Any) -> bool:
        """Whether this container or object is around the function."""
        known = self.objects.get(id(x))
        if known is None:
            return self.owners.get(id(x)) is x
        return bool(known.of() is x)

    def holds(self) -> bool:
        """Whether nothing that matters was assigned since."""
        if self._bound is not None:  # all there is to look at
            return self._are_bound(self._bound)
        versions = self._versions_now()
        if versions != self._versions:
            for (d, names, was), before, now in zip(self._dicts, self._versions, versions, strict=True):
                if before != now and not _same(self._values(d, names), was):
                    return False
            self._versions = versions
        if any(self._empty) or (self._loose and not _same(self._loose_now(), self._loose)):
            return False
        for s, was in zip(self.sequences, self._items, strict=True):
            if not (len(s) == len(was) and all(map(is_, s, was))) and not _same(without_tensors(s), was):
                return False
        if self._to_import and any(name in sys.modules for name in self._to_import):
            return False
        for places in self._alike:
            one = read(*places[0])
            if any(read(*p) is not one for p in places):
                return False
        return all(content_of(obj) == was for obj, was in self._contents)

    def _cells_bound(self) -> list[tuple[types.CellType, Any]] | None:
        """Cells and what each has; None if that is not exactly what was seen."""
        bound = []
        for (c, name), seen in zip(self._cells, self._loose, strict=False):
            value = read(c, name)
            if seen is ABSENT or seen is not value:
                return None
            bound.append((c, value))
        return bound

    def _are_bound(self, bound: list[tuple[types.CellType, Any]]) -> bool:
        try:
            for cell, value in bound:
                if cell.cell_contents is not value:
                    return False
        except ValueError:  # nothing is assigned any more
            return False
        return True

    @property
    def contexts(self) -> list[Any]:
        """Context variables and what holds attributes of each thread's own."""
        return [obj for obj, _ in self._contents if isinstance(obj, (contextvars.ContextVar, threading.local))]

    @property
    def arrays(self) -> list[tuple[Any, Any]]:
        """Arrays, and what they hold."""
        return [(obj, was) for obj, was in self._contents if isinstance(obj, ARRAYS)]

    def has_slots(self, obj: Any) -> bool:
        """Whether attributes of it that were looked at are slots."""
        return any(obj is o for o, _ in self._slots)

    def _versions_now(self) -> list[int]:
        version = _torch.dict_version
        return [version(d) for d, _, _ in self._dicts]

    def _loose_now(self) -> list[Any]:
        found: list[Any] = []
        for c, name in self._cells:
            found.append(self._seen_as(name, read(c, name)))
        for f in self._functions:
            found += (f.__defaults__, f.__kwdefaults__, f.__code__)
        for obj, name in self._slots:
            found.append(self._seen_as(name, read(obj, name)))
        return found

    def _seen_as(self, name: Any, value: Any) -> Any:
        if issubclass(type(value), Tensor):
            return TENSOR
        return type(value) if name in self._counted and type(value) is int else value

    def _values(self, d: dict[Any, Any], names: frozenset[str] | None) -> list[Any]:
        """Keys and values that matter; tensors are all alike, and so are numbers that are counted."""
        items = dict.items(d) if names is None else [(n, dict.__getitem__(d, n)) for n in sorted(names.intersection(d))]
        return [x for n, v in list(items) for x in (n, self._seen_as(n, v))]

    # -- what is met

    def _visit(self, obj: Any, depth: int) -> None:
        kind = type(obj)
        if issubclass(kind, torch.nn.Module):
            self._module(obj, depth)
        elif kind is types.FunctionType:
            self._function(obj, depth)
        elif kind is types.MethodType:
            self._next += [(obj.__self__, depth), (obj.__func__, depth)]
        elif kind is types.BuiltinFunctionType and (owner := _torch.class_applied(obj)) is not None:
            raise UnsupportedError(
                "custom function bound before",
                f"on this torch {owner.__qualname__}.apply cannot be traced once it was put under another name before "
                "aotcheck was imported; import aotcheck first, or call it as a method of its class",
            )
        elif kind is types.ModuleType:
            self.names_matter = True
            self._watch(vars(obj), vars(obj), self._watched, depth)
        elif issubclass(kind, functools.partial):
            self._next.append((obj.func, depth))
            self.owners[id(obj)] = obj
            for k, value in enumerate(obj.args):
                self._value(obj, k, value, depth)
            self._watch(obj.keywords, obj.keywords, None, depth)
        elif kind is functools._lru_cache_wrapper:
            self.caches.append(obj)
            self._next.append((obj.__wrapped__, depth))
        elif issubclass(kind, type):
            self._class(obj, depth)
            self._made(obj, depth)
        elif issubclass(kind, WITH_CONTENT):
            self._content(obj, depth)
        elif issubclass(kind, (*GENERATORS, torch.Generator)):
            self.generators.append(obj)
        elif kind is types.MappingProxyType:
            self._next += [(d, depth) for d in gc.get_referents(obj) if issubclass(type(d), dict)]
        else:
            if issubclass(kind, dict):
                if len(obj) <= MOST:
                    self._watch(obj, obj, None, depth)
            elif issubclass(kind, SEQUENCES) and len(obj) <= MOST:
                self.owners[id(obj)] = obj
                self.sequences.append(obj)
                for k, value in enumerate(items_of(obj)):
                    self._value(obj, k, value, depth)
            if kind not in _OF_CONTAINERS and kind is not types.BuiltinFunctionType:
                self._object(obj, depth)

    def _content(self, obj: Any, depth: int) -> None:
        content = content_of(obj)
        self._contents.append((obj, content))
        self._note(obj, "", content, obj)
        if isinstance(obj, weakref.ref) and (referent := obj()) is not None and depth < STEPS:
            self._next.append((referent, depth + 1))
        if isinstance(obj, threading.local) and depth < STEPS:
            self._class(type(obj), depth)
            held = in_this_thread(obj).values()
            self._next += [(v, depth + 1) for v in held if plain_key(v) is None and not isinstance(v, Tensor)]

    def _object(self, obj: Any, depth: int) -> None:
        kind = type(obj)
        self.names_matter = True
        variables = variables_of(obj)
        if variables is not None:
            original = variables.get("original") if kind.__module__.startswith("aotcheck.") else None
            if original is not None:  # a compiled function: it runs inline
                self._next.append((original, depth))
                return
            self._watch(variables, variables, self._attributes, depth)
        self._known(obj, variables)
        for c in kind.__mro__:
            slots = vars(c).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else tuple(slots):
                if isinstance(vars(c).get(name), types.MemberDescriptorType):
                    self._slot(obj, name, depth)
        self._class(kind, depth)

    def _known(self, obj: Any, variables: dict[str, Any] | None) -> None:
        reference: Callable[[], Any]
        try:
            reference = weakref.ref(obj)
        except TypeError:
            reference = functools.partial(_itself, obj)
        self.objects[id(obj)] = Attributes(reference, itself=True)
        if variables is not None:
            self.attributes[id(variables)] = Attributes(reference)

    def _slot(self, obj: Any, name: str, depth: int) -> None:
        if name in self._only:
            self.unread.append((obj, frozenset((name,))))
        if (self._attributes is None or name in self._attributes) and name not in self._assigned:
            self.owners[id(obj)] = obj
            self._slots.append((obj, name))
            self._value(obj, name, read(obj, name), depth)

    def _class(self, cls: type, depth: int) -> None:
        """Attributes of classes that are not of a library, and the globals of their methods."""
        if cls in self.classes:
            return
        self.classes.add(cls)
        self.names_matter = True
        methods = called_implicitly(cls) | self._reads
        for c in cls.__mro__:
            if id(c) in self.owners or not is_looked_into(c) or c.__module__.split(".")[0] in ("builtins", "torch"):
                continue
            variables = gc.get_referents(vars(c))[0]
            self._watch(c, variables, methods | self._watched | self._counted, depth)
            for name in methods.intersection(variables):
                if name[:2] == "__" or not isinstance(variables[name], types.FunctionType):
                    self._next += [(f, depth) for f in functions_of(variables[name])]
                else:
                    self._next.append((variables[name], depth))
            if type(c) is not type:
                self._class(type(c), depth)

    def _made(self, cls: type, depth: int) -> None:
        """What makes objects of a class that is at hand."""
        for c in cls.__mro__:
            if is_looked_into(c) and c.__module__.split(".")[0] not in ("builtins", "torch"):
                for name in MAKING:
                    self._next += [(f, depth) for f in functions_of(vars(c).get(name))]

    def _module(self, m: torch.nn.Module, depth: int) -> None:
        if isinstance(m, torch.jit.ScriptModule):
            self.scripted = True
            return
        if not self.modules:
            for hooks in _torch.GLOBAL_HOOKS:
                self._inner(hooks)
        self.modules.append(m)
        names = self._attributes
        if names is None:
            names = frozenset(vars(m)) - _OF_MODULES
        self._watch(vars(m), vars(m), names, depth)
        children = _torch.children_of(m)
        self.owners[id(children)] = children
        if children:
            self._dicts.append((children, None, self._values(children, None)))
            for name, child in children.items():
                self._note(children, name, None if child is None else serial_of(child), child)
                if child is not None:
                    self._next.append((child, depth))
        else:
            self._empty.append(children)
        inner: tuple[dict[Any, Any], ...] = (*_torch.state_of(m), *_torch.hooks_of(m))
        for d in inner:
            self._inner(d)
        for hook in _torch.forward_hooks_of([m]):  # a library's are not looked into, what they ask for is
            self.code.update(code_called(hook))
        self._class(type(m), depth)

    def _inner(self, d: dict[Any, Any]) -> None:
        """A dictionary of a module's own; most are empty and stay so."""
        if d:
            self._watch(d, d, None, STEPS - 3)
        else:
            self._empty.append(d)

    def _function(self, f: types.FunctionType, depth: int) -> None:
        if is_of_others(f.__module__):
            if depth == 0 and (wrapped := getattr(f, "__wrapped__", None)) is not None:
                self._next.append((wrapped, depth))
            return
        code = f.__code__
        wraps = is_of_others(f.__globals__.get("__name__"))  # what is the user's: a wrapper of a library's
        if not wraps:
            self.code.add(code)
        self.cells += f.__closure__ or ()
        for name, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
            if name in self._only:
                self.unread.append((cell, frozenset((name,))))
            value = read(cell, name)
            if not issubclass(type(value), Tensor) and name not in self._assigned:
                self.owners[id(cell)] = cell
                there = value is not ABSENT
                if self._value(cell, name, value, depth) if there else self._note(cell, name, "nothing", value):
                    self._cells.append((cell, name))
        if not wraps:
            self._variables(f, depth)
        if f.__defaults__ or f.__kwdefaults__:
            self._functions.append(f)
            self.owners[id(f)] = f
        for k, value in enumerate(f.__defaults__ or ()):
            self._value(f, k, value, depth)
        if f.__kwdefaults__:
            self._watch(f.__kwdefaults__, f.__kwdefaults__, None, depth)
        if vars(f):
            self.names_matter = True
            self._watch(vars(f), vars(f), self._watched | self._counted | {"__wrapped__"}, depth)
        elif depth:
            self.stores_matter = True
            if self._stores:  # perhaps an attribute of it
                self.owners[id(vars(f))] = vars(f)
                self._empty.append(vars(f))

    def _variables(self, f: types.FunctionType, depth: int) -> None:
        """The globals that ``f`` uses."""
        variables = f.__globals__
        only = self._only and self._only.intersection(named_in(f.__code__).stores | named_in(f.__code__).adds)
        if only:
            self.unread.append((variables, frozenset(only)))
        for name in sorted(globals_in(f.__code__)):
            value = variables.get(name, ABSENT)
            if value is PresentedType:  # another thread's trace has put it there
                value = ABSENT
            if value is ABSENT:
                if name == "type":
                    self.asking_types[id(variables)] = variables
                if name in _BUILTIN:
                    continue
            elif type(value) is types.ModuleType and is_of_others(value.__name__):
                self._python_module(value, depth)
                continue
            known = self._globals.setdefault(id(variables), (variables, set()))[1]
            if name not in known:
                known.add(name)
                self.owners[id(variables)] = variables
                if value is not ABSENT:
                    self._value(variables, name, value, depth)
        for level, name in imports_in(f.__code__):
            within = "." * level + name
            with contextlib.suppress(ImportError, TypeError):  # of a package that is none
                parts = importlib.util.resolve_name(within, variables.get("__package__")).split(".")
                for module in () if is_of_others(parts[0]) else [".".join(parts[: k + 1]) for k in range(len(parts))]:
                    if module in sys.modules:
                        self._python_module(sys.modules[module], depth)
                    else:
                        self._to_import.append(module)

    def _watch(self, owner: Any, d: dict[Any, Any], names: frozenset[str] | None, depth: int) -> None:
        attributes = names is not None or d is not owner
        self.owners[id(owner)] = owner
        if names is not None and self._only:
            self.unread.append((owner, self._only))
        self._dicts.append((d, names, self._values(d, names)))
        for name in list(dict.keys(d)) if names is None else sorted(names.intersection(d)):
            if not (attributes and name in self._assigned):
                self._value(owner, name, dict.__getitem__(d, name), depth)

    def _value(self, owner: Any, name: Any, value: Any, depth: int) -> bool:
        """Note a value; whether it is looked at."""
        kind = type(value)
        if issubclass(kind, Tensor):
            self._tensors.setdefault(id(value), []).append((owner, name))
            return self._note(owner, name, "tensor", TENSOR)
        if kind is int and name in self._counted and type(name) is str:
            return self._note(owner, name, "counted", value)
        key = plain_key(value)
        if key is not None:
            return self._note(owner, name, key, value)
        if issubclass(kind, types.ModuleType):
            self._python_module(value, depth)
            return False
        if issubclass(kind, ITERATORS):
            self.names_matter = True
            if depth < 2 or "next" in self._reads:
                self.iterator = str(name)
        if kind is types.BuiltinFunctionType and issubclass(type(value.__self__), (*GENERATORS, torch.Generator)):
            self.generators.append(value.__self__)
        if issubclass(kind, (dict, *SEQUENCES)):
            self.containers[id(owner), name] = value
            self._shared.setdefault(id(value), []).append((id(owner), name))
            many = not issubclass(kind, dict) or len(value) > MOST
            key = (serial_of(kind), len(value) if many else None)
            if issubclass(kind, (set, frozenset)) and len(value) <= MOST and any(map(has_tensor, items_of(value))):
                self.names_matter = True  # logs are not looked up in
                self.keyed |= name not in self._logs
        else:
            key = serial_of(value)
        there = self._note(owner, name, key, value)
        if there and depth < STEPS:
            self._next.append((value, depth + 1))
        return there

    def _python_module(self, module: types.ModuleType, depth: int) -> None:
        if module is os:
            self.names_matter = True
            if self._reads.isdisjoint(("environ", "getenv")):
                return
            self._next.append((vars(os.environ)["_data"], STEPS - 2))
        elif not is_of_others(module.__name__) and depth < STEPS:
            self._next.append((module, depth + 1))

    def _note(self, owner: Any, name: Any, key: Any, value: Any) -> bool:
        place = id(owner), name
        if place in self._ignored:
            return False
        if type(name) not in (str, int) and plain_key(name) is None:
            self._known(name, None)
            self.keyed |= has_tensor(name)
        self.found[place] = key_of(name), key
        self.values[place] = owner, value
        return True


def _itself(obj: Any) -> Any:
    return obj


_BUILTIN = frozenset(vars(__import__("builtins")))


def _same(now: Sequence[Any], was: Sequence[Any]) -> bool:
    return len(now) == len(was) and all(map(is_, now, was))
