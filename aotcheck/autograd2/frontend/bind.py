"""bind: finds the tensors and plain values that a call brings, in its arguments and around the function.

Looked at are: arguments; closure cells, defaults, and globals that the function's code names; modules found there, and
their attributes; lists, tuples, dicts and attributes of objects found there, each object once, and small NumPy arrays.
Functions are looked into as well. Nothing else is walked: Python state elsewhere is baked in.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from aotcheck.autograd2.ir.meta import is_leaf
from aotcheck.autograd2.ir.signature import Descriptor, GradOf, Named
from aotcheck.autograd2.ir.size import SYMBOLIC
from aotcheck.autograd2.ir.structure import PLAIN, Attributes, Globals, attribute_tables, content_of, own_attributes

_PASSED_OVER: tuple[type, ...] = (type, types.ModuleType, types.BuiltinFunctionType, torch.finfo, torch.iinfo)
_OPAQUE = (*_PASSED_OVER, torch.Generator, torch.UntypedStorage, torch.cuda.Stream)
_CONTAINERS = (dict, list, set, collections.OrderedDict, collections.defaultdict, collections.deque)
_NOT_LOOKED_INTO = ("torch.", "aotcheck.autograd2.", "numpy.", "logging.")
_HEAP_TYPE = 1 << 9  # of a class's flags: the class is not one of those that are part of the interpreter
_NO_MORE_THAN_SEEN = (object, types.SimpleNamespace, types.EllipsisType)
_LOOKED_INTO = ("torch.nn.", "torch.optim", "torch.distributions", "torch.ao")
_UNINITIALIZED = (nn.UninitializedParameter, nn.UninitializedBuffer)
_PASSED = frozenset(vars(nn.Module())) - {"_forward_hooks", "_forward_pre_hooks"}
"""What each module has; of that only these hooks are called while it is traced."""
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_MOST_BYTES = 1 << 16  # of an array that is compared by what it holds


class Itself:
    """An object in a key, equal to itself alone. The key keeps it alive: no other object gets its address."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return type(other) is Itself and other.x is self.x

    def __hash__(self) -> int:
        return id(self.x)


Spot = tuple[Any, ...]
"""Where a number lies: the position of a table, or ``ARGUMENTS``; the key in it; then indices into tuples."""

ARGUMENTS = -1


@dataclass
class Bound:
    """What a call brings.

    Attributes:
        tensors: each tensor once, with what it is.
        containers: lists, dicts and objects that were walked, in order; ``names`` has the path of each.
        tables: dicts, lists and cells that hold what was found, in order: what the function may assign; ``titles`` has
            the name of each.
        key: what must be equal for a call to be of the same kind: types, structure, plain values.
        numbers: ints and floats that may differ between calls of one kind, by where each lies.
        values: plain values, numbers too, with the path of each, for messages.
        generators: those that ops may be given.
        uninitialized: whether a parameter of a lazy module has no shape yet.
        refused: what cannot be looked into, by the name of the event, and where it is.
        around: how many tensors, containers, tables and numbers come before those of the arguments.
    """

    tensors: list[tuple[Descriptor, Tensor]] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)
    tables: list[Any] = field(default_factory=list)
    key: list[Any] = field(default_factory=list)
    position: dict[int, int] = field(default_factory=dict, init=False)
    seen: dict[int, int] = field(default_factory=dict, init=False)
    names: list[str] = field(default_factory=list, init=False)
    titles: list[str] = field(default_factory=list, init=False)
    numbers: dict[Spot, Any] = field(default_factory=dict)
    values: list[tuple[str, Any]] = field(default_factory=list, init=False)
    generators: list[torch.Generator] = field(default_factory=list, init=False)
    uninitialized: bool = field(default=False, init=False)
    refused: list[tuple[str, str]] = field(default_factory=list, init=False)
    around: tuple[int, int, int, int] = field(default=(0, 0, 0, 0), init=False)

    def add_gradients(self) -> None:
        """Gradients of leaves are inputs as well."""
        for descriptor, t in list(self.tensors):
            gradient = t.grad if is_leaf(t) else None
            self.key.append(gradient is not None)
            if gradient is not None:
                self.tensor(gradient, GradOf(descriptor))

    def tensor(self, t: Tensor, descriptor: Descriptor) -> None:
        """A tensor was found."""
        if (index := self.position.get(id(t))) is None:
            index = self.position[id(t)] = len(self.tensors)
            self.tensors.append((descriptor, t))
            self.uninitialized |= type(t) in _UNINITIALIZED
            self.key += [(name, type(v), repr(v)) for name, v in own_attributes(t).items()]
        self.key.append(("tensor", index))

    def table(self, x: Any, title: str) -> int:
        """The position of a table that was found."""
        self.tables.append(x)
        self.titles.append(title)
        return len(self.tables) - 1

    def container(self, x: Any) -> int | None:
        """The position among ``containers`` of a list, dict or object that was walked."""
        return self.seen.get(id(x))

    def enter(self, x: Any, path: str) -> bool:
        """Whether a container is met for the first time."""
        if (index := self.container(x)) is not None:
            self.key.append(("again", index))
            return False
        self.seen[id(x)] = len(self.containers)
        self.containers.append(x)
        self.names.append(path)
        return True


def bind(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
    """All that the call ``fn(*args, **kwargs)`` brings."""
    bound = Bound()
    walk = _Walk(bound)
    walk.value(fn, "self" if isinstance(fn, nn.Module) else str(getattr(fn, "__name__", type(fn).__name__)))
    bound.around = len(bound.tensors), len(bound.containers), len(bound.tables), len(bound.numbers)
    bound.key.append(len(args))
    for k, a in enumerate(args):
        kind: Any = type(a)
        if _is_closed(kind):
            bound.refused.append(("OBJECT", f"args[{k}] is a {kind.__name__}"))
        walk.item(a, f"args[{k}]", (ARGUMENTS, k))
    for name, a in kwargs.items():
        bound.key.append(name)
        walk.item(a, name, (ARGUMENTS, name))
    return bound


@dataclass
class _Walk:
    """Walks values; ``kind`` is that of tensors among them."""

    bound: Bound
    kind: str = ""

    def value(self, x: Any, path: str) -> None:
        """Anything."""
        kind: Any = type(x)
        _walk_of(kind)(self, x, path)

    def item(self, x: Any, path: str, spot: Spot) -> None:
        """Anything that lies in a place where it can be replaced."""
        kind, bound = type(x), self.bound
        if kind is int or (kind is float and math.isfinite(x) and repr(x) != "-0.0"):
            bound.key.append(kind)
            bound.numbers[spot] = x
            bound.values.append((path, x))
        elif kind in (tuple, torch.Size) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            bound.key.append((kind, len(x)))
            for k, v in enumerate(x):
                self.item(v, f"{path}[{k}]", (*spot, k))
        else:
            self.value(x, path)

    def state(self, x: Tensor, path: str) -> None:
        """A tensor."""
        self.bound.tensor(x, Named(path, self.kind))

    def plain(self, x: Any, path: str) -> None:
        """A plain value: calls with another are of another kind."""
        number = isinstance(x, (float, complex)) and not (x and x == x)  # -0.0 is not 0.0, and nan is nan
        self.bound.key.append((type(x), repr(x) if number else x))
        self.bound.values.append((path, x))

    def symbolic(self, x: Any, path: str) -> None:
        """A size of the caller's."""
        self.bound.key.append((type(x), int(x)))

    def array(self, x: Any, path: str) -> None:
        """What NumPy computes is fixed: calls with other values are of another kind."""
        if x.nbytes > _MOST_BYTES or x.dtype.hasobject:
            self.opaque(x, path)
        elif self.bound.enter(x, path):
            self.bound.key.append((type(x), x.dtype, x.shape, x.tobytes()))

    def script(self, x: Any, path: str) -> None:
        """What TorchScript has compiled already."""
        self.bound.refused.append(("SCRIPT", path))

    def method(self, x: types.MethodType, path: str) -> None:
        """A function and what it is bound to."""
        self.value(x.__self__, path)
        self.value(x.__func__, path)

    def partial(self, x: functools.partial[Any], path: str) -> None:
        """A function and those arguments that it has."""
        if self.bound.enter(x, path):
            self.item(x.args, path, (self.bound.table(Attributes(x, ("args",)), path), "args"))
            self.value((x.func, x.keywords), path)

    def elements(self, x: Any, path: str) -> None:
        """A tuple, or a list, deque or set, which are the caller's own."""
        bound, ordered = self.bound, isinstance(x, (list, collections.deque))
        fixed = isinstance(x, (tuple, frozenset))
        if not fixed and not bound.enter(x, path):
            return
        bound.key.append((type(x), len(x)))
        table = -1 if fixed else bound.table(x, path)
        for k, v in enumerate(x):
            self.item(v, f"{path}[{k}]", (table, k)) if ordered else self.value(v, f"{path}[{k}]")
        if type(x) not in _CONTAINERS and not fixed:
            self.attributes(x, path)

    def reference(self, x: weakref.ref[Any], path: str) -> None:
        """A weak reference: what it refers to, if that is a tensor."""
        target = x()
        self.value(target, path) if isinstance(target, Tensor) else self.opaque(x, path)

    def limits(self, x: slice, path: str) -> None:
        """What a slice holds."""
        self.value((x.start, x.stop, x.step), path)

    def mapping(self, x: dict[Any, Any], path: str) -> None:
        """A dict. Tensors may be keys."""
        bound = self.bound
        if not bound.enter(x, path):
            return
        table = bound.table(x, path)
        bound.key.append((type(x), len(x)))
        for k, v in list(dict.items(x)):
            if isinstance(k, Tensor):
                bound.tensor(k, Named(f"a key of {path}", self.kind))
            else:
                bound.key.append(k if isinstance(k, PLAIN) else Itself(k))
            self.item(v, f"{path}[{k!r}]" if not isinstance(k, Tensor) else f"{path}[...]", (table, k))
        if type(x) not in _CONTAINERS:
            self.attributes(x, path)

    def module(self, x: nn.Module, path: str, prefix: str = "") -> None:
        """A module: parameters, buffers, what else it has, and its modules; ``prefix`` is of one found in another."""
        bound = self.bound
        if not bound.enter(x, path):
            return
        bound.key.append((type(x), x.training))
        attributes = x.__dict__
        own = bound.table(attributes, f"{path}.__dict__")
        for name in ("_parameters", "_buffers", "_modules", *_BACKWARD_HOOKS):
            bound.table(attributes[name], f"{path}.{name}")
        bound.key += [Itself(hook) for name in _BACKWARD_HOOKS for hook in attributes[name].values()]
        for kind in ("parameter", "buffer"):
            for name, t in attributes[f"_{kind}s"].items():
                bound.key.append(name)
                bound.key.append(None) if t is None else bound.tensor(t, Named(prefix + name, kind))
        walk = _Walk(bound, "buffer")
        for name, v in attributes.items():
            if name not in _PASSED:
                bound.key.append(name)
                walk.item(v, prefix + name, (own, name))
        for name, m in attributes["_modules"].items():
            bound.key.append(name)
            if isinstance(m, torch.jit.ScriptModule):
                self.script(m, f"{path}.{name}")
            elif m is not None:
                self.module(m, f"{path}.{name}", f"{prefix}{name}.")

    def function(self, x: types.FunctionType, path: str) -> None:
        """A function: its cells, its defaults, and globals that its code names."""
        bound = self.bound
        if (x.__module__ or "").startswith("torch"):
            self.opaque(x, path)
            return
        if not bound.enter(x, path):
            return
        bound.key.append(Itself(x.__code__))
        self.attributes(x, path)
        if x.__defaults__ is not None or x.__kwdefaults__ is not None:
            table = bound.table(Attributes(x, ("__defaults__", "__kwdefaults__")), path)
            self.item(x.__defaults__, f"{path}.__defaults__", (table, "__defaults__"))
            self.value(x.__kwdefaults__, f"{path}.__kwdefaults__")
        for name, cell in zip(x.__code__.co_freevars, x.__closure__ or (), strict=True):
            self.item(content_of(cell), name, (bound.table(cell, name), None))  # ``GONE`` of an empty one
        held = x.__globals__
        if names := [n for n in _names(x.__code__) if not isinstance(held.get(n), _PASSED_OVER)]:  # it may set more
            table = bound.table(Globals(held, tuple(names)), "globals")
            for name in names:
                if name in held:
                    self.item(held[name], name, (table, name))

    def object(self, x: Any, path: str) -> None:
        """An object of a class that is not torch's: its attributes."""
        kind: Any = type(x)
        if attribute_tables(x):
            if self.bound.enter(x, path):
                self.bound.key.append(kind)
                self.attributes(x, path)
        elif _compares_values(kind):
            self.bound.key.append((kind, x))
        else:
            self.opaque(x, path)

    def attributes(self, x: Any, path: str) -> None:
        """The attributes of an object, those in slots too."""
        bound = self.bound
        for table in attribute_tables(x):
            index = bound.table(table, path if type(table) is Attributes else f"{path}.__dict__")
            held = content_of(table)
            bound.key.append(len(held))
            for name, v in held.items():
                bound.key.append(name)
                self.item(v, f"{path}.{name}", (index, name))

    def opaque(self, x: Any, path: str) -> None:
        """An object that is not looked into: it counts as the same only if it is itself."""
        if type(x) is torch.Generator:
            self.bound.generators.append(x)
        self.bound.key.append(Itself(x))


_WALKS: tuple[tuple[Any, Callable[[_Walk, Any, str], None]], ...] = (
    (Tensor, _Walk.state),
    (PLAIN, _Walk.plain),
    (SYMBOLIC, _Walk.symbolic),
    (numpy.ndarray, _Walk.array),
    ((torch.jit.ScriptModule, torch.jit.ScriptFunction), _Walk.script),
    (nn.Module, _Walk.module),
    (types.FunctionType, _Walk.function),
    (types.MethodType, _Walk.method),
    (functools.partial, _Walk.partial),
    (dict, _Walk.mapping),
    ((list, collections.deque, set, tuple, frozenset), _Walk.elements),
    (weakref.ref, _Walk.reference),
    (slice, _Walk.limits),
)


@functools.cache
def _walk_of(kind: Any) -> Callable[[_Walk, Any, str], None]:
    """How values of a class are walked."""
    module = kind.__module__
    opaque = issubclass(kind, _OPAQUE) or f"{module}.".startswith(_NOT_LOOKED_INTO)
    other = _Walk.opaque if opaque and not module.startswith(_LOOKED_INTO) else _Walk.object
    return next((walk for kinds, walk in _WALKS if issubclass(kind, kinds)), other)


@functools.cache
def _is_closed(kind: Any) -> bool:
    """Whether the state of objects of a class, which is written in C, can change and cannot be seen."""
    seen = kind in _NO_MORE_THAN_SEEN or kind.__flags__ & _HEAP_TYPE or _compares_values(kind)
    return _walk_of(kind) is _Walk.object and not seen


@functools.cache
def _compares_values(kind: Any) -> bool:
    """Whether equal objects of a class without attributes are alike, as with decimals and patterns."""
    return kind.__hash__ is not None and any("__eq__" in vars(c) for c in kind.__mro__[:-1])


def _names(code: types.CodeType) -> list[str]:
    """Names that the code may look up among globals, those of functions inside too."""
    inside = [_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return list(dict.fromkeys(itertools.chain(code.co_names, *inside)))
