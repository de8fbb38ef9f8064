"""bind: finds the tensors and plain values that a call brings, in its arguments and around the function.

Looked at are: arguments; closure cells, defaults, and globals that the function's code names; modules found there, and
their attributes; lists, tuples, dicts and attributes of objects found there, each object once. Functions are
looked into as well. Nothing else is walked: Python state elsewhere is baked in.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from aotcheck.autograd2.ir.meta import is_leaf
from aotcheck.autograd2.ir.signature import Arg, Buffer, Captured, Descriptor, GradOf, Param
from aotcheck.autograd2.ir.size import SYMBOLIC
from aotcheck.autograd2.ir.structure import PLAIN

__all__ = ["Bound", "Globals", "bind"]

_OPAQUE = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    torch.Generator,
    torch.Size,
    torch.UntypedStorage,
    torch.cuda.Stream,
    torch.finfo,
    torch.iinfo,
)
_NOT_LOOKED_INTO = ("torch.", "aotcheck.autograd2", "numpy")
_LOOKED_INTO = ("torch.nn.", "torch.optim", "torch.distributions", "torch.ao")
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_HOOKS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_non_persistent_buffers_set",
    "_is_full_backward_hook",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


@dataclass(frozen=True, eq=False)
class Globals:
    """Those globals that a function's code names."""

    owner: dict[str, Any]
    names: tuple[str, ...]


@dataclass
class Bound:
    """What a call brings.

    Attributes:
        tensors: each tensor once, with what it is.
        containers: lists, dicts and objects that were walked, in order; ``names`` has the path of each.
        tables: dicts, lists and cells that hold what was found, in order: what the function may assign.
        key: what must be equal for a call to be of the same kind: types, structure, plain values.
    """

    tensors: list[tuple[Descriptor, Tensor]] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)
    tables: list[Any] = field(default_factory=list)
    key: list[Any] = field(default_factory=list)
    position: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def add_gradients(self) -> None:
        """Gradients of leaves are inputs as well."""
        for descriptor, t in list(self.tensors):
            gradient = t.grad if t.requires_grad and is_leaf(t) else None
            self.key.append(gradient is not None)
            if gradient is not None:
                self.tensor(gradient, GradOf(descriptor))

    def tensor(self, t: Tensor, descriptor: Descriptor) -> None:
        """A tensor was found."""
        index = self.position.get(id(t))
        if index is None:
            index = self.position[id(t)] = len(self.tensors)
            self.tensors.append((descriptor, t))
        self.key.append(("tensor", index))

    def container(self, x: Any) -> int | None:
        """The position among ``containers`` of a list, dict or object that was walked."""
        return self.seen.get(id(x))

    def enter(self, x: Any, path: str) -> bool:
        """Whether a container is met for the first time."""
        index = self.seen.get(id(x))
        if index is not None:
            self.key.append(("again", index))
            return False
        self.seen[id(x)] = len(self.containers)
        self.containers.append(x)
        self.names.append(path)
        return True


def bind(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
    """All that the call ``fn(*args, **kwargs)`` brings."""
    bound = Bound()
    _Walk(bound, lambda path, _: Captured(path)).value(fn, _name_of(fn))
    walk = _Walk(bound, lambda path, _: Arg(path))
    bound.key.append(len(args))
    for k, a in enumerate(args):
        walk.value(a, f"args[{k}]")
    for name, a in kwargs.items():
        bound.key.append(name)
        walk.value(a, name)
    return bound


def _name_of(fn: Any) -> str:
    return "self" if isinstance(fn, nn.Module) else str(getattr(fn, "__name__", type(fn).__name__))


class _Walk:
    """Walks values; ``describe`` says what a tensor found outside of modules is."""

    def __init__(self, bound: Bound, describe: Callable[[str, Any], Descriptor]) -> None:
        self.bound = bound
        self.describe = describe

    def value(self, x: Any, path: str) -> None:
        """Anything."""
        bound = self.bound
        if isinstance(x, Tensor):
            bound.tensor(x, self.describe(path, x))
        elif isinstance(x, PLAIN):
            bound.key.append((type(x), x) if not isinstance(x, float) or x == x else (type(x), "nan"))
        elif type(x) in SYMBOLIC:
            bound.key.append((type(x), int(x)))
        elif isinstance(x, nn.Module):
            self.module(x, path, "")
        elif isinstance(x, types.FunctionType):
            self.function(x, path)
        elif isinstance(x, types.MethodType):
            self.value(x.__self__, path)
            self.value(x.__func__, path)
        elif isinstance(x, dict):
            self.mapping(x, path)
        elif isinstance(x, (list, collections.deque)):
            if bound.enter(x, path):
                bound.tables.append(x)
                bound.key.append((type(x), len(x)))
                for k, v in enumerate(x):
                    self.value(v, f"{path}[{k}]")
        elif isinstance(x, (tuple, set, frozenset)):
            bound.key.append((type(x), len(x)))
            for k, v in enumerate(x):
                self.value(v, f"{path}[{k}]")
        elif isinstance(x, slice):
            self.value((x.start, x.stop, x.step), path)
        else:
            self.object(x, path)

    def mapping(self, x: dict[Any, Any], path: str) -> None:
        """A dict. Tensors may be keys."""
        bound = self.bound
        if not bound.enter(x, path):
            return
        bound.tables.append(x)
        bound.key.append((type(x), len(x)))
        for k, v in list(x.items()):
            if isinstance(k, Tensor):
                bound.tensor(k, self.describe(f"a key of {path}", k))
            else:
                bound.key.append(k if isinstance(k, PLAIN) else (type(k), id(k)))
            self.value(v, f"{path}[{k!r}]" if not isinstance(k, Tensor) else f"{path}[...]")

    def module(self, x: nn.Module, path: str, prefix: str) -> None:
        """A module: parameters, buffers, what else it has, and its modules."""
        bound = self.bound
        if not bound.enter(x, path):
            return
        bound.key.append((type(x), x.training))
        attributes = x.__dict__
        bound.tables += (attributes, attributes["_parameters"], attributes["_buffers"], attributes["_modules"])
        for kind, table in ((Param, attributes["_parameters"]), (Buffer, attributes["_buffers"])):
            for name, t in table.items():
                bound.key.append(name)
                if t is None:
                    bound.key.append(None)
                else:
                    bound.tensor(t, kind(prefix + name))
        walk = _Walk(bound, lambda p, _: Buffer(p))
        for name, v in attributes.items():
            if name not in _MODULE_DICTS and name not in _HOOKS and name != "training":
                bound.key.append(name)
                walk.value(v, prefix + name)
        for name, m in attributes["_modules"].items():
            bound.key.append(name)
            if m is not None:
                self.module(m, f"{path}.{name}", f"{prefix}{name}.")

    def function(self, x: types.FunctionType, path: str) -> None:
        """A function: its cells, its defaults, and globals that its code names."""
        bound = self.bound
        if x.__module__.startswith("torch") or not bound.enter(x, path):
            return
        bound.key.append(id(x.__code__))
        if x.__defaults__ is not None:
            self.value(x.__defaults__, f"{path}.__defaults__")
        if x.__kwdefaults__ is not None:
            self.value(x.__kwdefaults__, f"{path}.__kwdefaults__")
        for name, cell in zip(x.__code__.co_freevars, x.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                bound.key.append("empty")
                continue
            bound.tables.append(cell)
            self.value(content, name)
        names = [n for n in _names(x.__code__) if n in x.__globals__ and not isinstance(x.__globals__[n], _OPAQUE)]
        if names:
            bound.tables.append(Globals(x.__globals__, tuple(names)))
            for name in names:
                self.value(x.__globals__[name], name)

    def object(self, x: Any, path: str) -> None:
        """An object: its attributes, if it is of a class that is not torch's."""
        bound = self.bound
        kind = type(x)
        module = kind.__module__
        opaque = isinstance(x, _OPAQUE) or (module == "torch" or module.startswith(_NOT_LOOKED_INTO))
        if opaque and not module.startswith(_LOOKED_INTO):
            bound.key.append((kind, id(x)))
            bound.containers.append(x)  # kept, so that its address stays its own
            bound.names.append(path)
            return
        attributes = getattr(x, "__dict__", None)
        if attributes is None or not bound.enter(x, path):
            bound.key.append(kind)
            return
        bound.tables.append(attributes)
        bound.key.append((kind, len(attributes)))
        for name, v in list(attributes.items()):
            bound.key.append(name)
            self.value(v, f"{path}.{name}")


def _names(code: types.CodeType) -> list[str]:
    """Names that the code may look up among globals, those of functions inside too."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(_names(constant)))
    return list(found)
