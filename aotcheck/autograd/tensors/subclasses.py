"""Traceable wrapper subclasses: taken apart into the tensors that they hold, and put together again.

Note [Wrappers]
A wrapper is a tensor without memory of its own whose class says what each op does to it (``__torch_dispatch__``), which
tensors it holds (``__tensor_flatten__``) and how it is made from such (``__tensor_unflatten__``). What a call is given
is *expanded*: the tensors that wrappers hold, wrappers among them, and the bases of which wrappers are views become
further arguments. So memory is the business of plain tensors alone, and whatever holds of arguments (aliasing, writes,
geometries, identity) holds of inner tensors without another line. What is left to a wrapper is what autograd knows of
it: that it requires grad, its history, its version, of what it is a view.

The function runs on wrappers of the very same classes that hold replicas. Their classes' own code runs then, below
autograd and above the tracing mode, which only ever records ops on plain tensors.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError

_INDICES = (torch.int64, torch.int32)
_MOST_TO_COMPARE = 1 << 12
Outer = tuple[tuple[Any, ...], tuple[Any, ...], Any]


PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter})
"""Classes of tensors that are no wrappers."""


def is_wrapper(t: Any) -> bool:
    """Whether ``t`` is a tensor of a traceable wrapper subclass."""
    kind: Any = type(t)
    return is_wrapper_type(kind)


@functools.lru_cache(maxsize=1024)
def is_wrapper_type(kind: Any) -> bool:
    """Whether ``kind`` is a traceable wrapper subclass."""
    if kind is Tensor or kind is torch.nn.Parameter or not issubclass(kind, Tensor):
        return False
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def held_by(t: Any) -> tuple[list[tuple[str, Tensor]], Any]:
    """The tensors that a wrapper holds, by name, and the rest of what it is made from, its context."""
    names, context = t.__tensor_flatten__()
    return [(name, getattr(t, name)) for name in names], context


def leaves_of(t: Tensor) -> list[Tensor]:
    """The plain tensors that ``t`` is made of, depth first; ``t`` itself if it is plain."""
    if not is_wrapper(t):
        return [t]
    return [leaf for _, held in held_by(t)[0] for leaf in leaves_of(held)]


def wrappers_in(*trees: Any) -> list[Tensor]:
    """The wrappers among the arguments of an op."""
    found: list[Tensor] = []
    for tree in trees:
        for a in tree.values() if isinstance(tree, dict) else tree:
            if isinstance(a, (list, tuple)):
                found += wrappers_in(a)
            elif is_wrapper(a):
                found.append(a)
    return found


def unflattened(kind: Any, inner: dict[str, Tensor], context: Any, outer: Outer) -> Tensor:
    """A new wrapper of class ``kind`` that holds ``inner``.

    These may have got histories since they were put into a wrapper, which their class may refuse of a new one.
    """
    given = {name: t.detach() if t.requires_grad else t for name, t in inner.items()}
    made: Tensor = kind.__tensor_unflatten__(given, context, *outer[:2])
    for name, t in inner.items():
        if given[name] is not t and getattr(made, name) is given[name]:
            setattr(made, name, t)
    return made


# -- the geometry of a wrapper itself


def outer_of(t: Tensor) -> Outer:
    """Sizes, strides and offset that the wrapper claims to have."""
    return tuple(t.shape), tuple(t.stride()), t.storage_offset()


def is_jagged(t: Tensor) -> bool:
    """Whether a dimension of ``t`` is ragged: its size is the identity of a tensor that it holds, not a number."""
    return t.layout is torch.jagged


def _number(n: Any) -> Any:
    return n if type(n) is int else "ragged"


def ragged_size(t: Tensor) -> Any:
    """The size of ``t`` that is no number, None if all are."""
    return next((n for n in t.shape if type(n) is not int), None)


def tells_lengths(t: Any) -> bool:
    """Whether ``t`` is such as ragged tensors hold to say how long their rows are, and small enough to be compared."""
    return isinstance(t, Tensor) and t.dtype in _INDICES and t.dim() == 1 and t.numel() <= _MOST_TO_COMPARE


def holds_ragged_size(a: Any) -> bool:
    """Whether there is a ragged size in nested arguments."""
    if isinstance(a, (list, tuple)):
        return any(map(holds_ragged_size, a))
    return any(map(holds_ragged_size, a.values())) if isinstance(a, dict) else isinstance(a, torch.SymInt)


def with_ragged_size(a: Any, size: Any) -> Any:
    """Nested arguments with ``size`` in the place of every ragged one."""
    if isinstance(a, (list, tuple)):
        return type(a)([with_ragged_size(x, size) for x in a])
    if isinstance(a, dict):
        return {k: with_ragged_size(x, size) for k, x in a.items()}
    return size if isinstance(a, torch.SymInt) else a


def outer_key(t: Tensor) -> tuple[Any, ...]:
    """``outer_of`` for a key: a ragged size is told by the inner tensor that it belongs to."""
    sizes, strides, offset = outer_of(t)
    return (tuple(map(_number, sizes)), tuple(map(_number, strides)), _number(offset), t.dtype, t.device, t.layout)


@dataclasses.dataclass(frozen=True, eq=False)
class ContextKey:
    """What a wrapper is made from beside tensors, as part of a key: anything that can be compared."""

    context: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ContextKey) or type(self.context) is not type(other.context):
            return False
        return self.context is other.context or bool(self.context == other.context)

    def __hash__(self) -> int:
        return hash(type(self.context))


def caches_of(t: Tensor) -> dict[str, dict[Any, Any]]:
    """The dictionaries that the wrapper ``t`` has, by name: its class may let wrappers share what it has found out."""
    return {name: value for name, value in vars(t).items() if type(value) is dict}


def share_cache(t: Tensor, name: str, other: Tensor) -> None:
    """Give ``t`` the dictionary ``name`` of ``other``, to which comes what only that of ``t`` has."""
    shared = getattr(other, name)
    for key, value in getattr(t, name).items():
        shared.setdefault(key, value)
    setattr(t, name, shared)


# -- what a wrapper is like


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """How a wrapper is made from plain tensors: of each inner tensor its name and, if it is a wrapper, its own."""

    kind: type
    context: Any
    inner: tuple[tuple[str, Wrapping | None], ...]
    outer: Outer
    is_parameter: bool = False
    inference: bool | None = None

    def build(self, leaves: Sequence[Tensor]) -> Tensor:
        """A new wrapper of this kind, without history, on the plain tensors ``leaves``.

        It is an inference tensor or not as ``inference`` says, or as inference mode is on or not.
        """
        with torch.no_grad() if self.inference is None else torch.inference_mode(self.inference), torch.no_grad():
            return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Tensor]) -> Tensor:
        inner = {name: next(leaves) if held is None else held._build(leaves) for name, held in self.inner}
        made = unflattened(self.kind, inner, self.context, self.outer)
        if made.requires_grad and made.is_leaf:
            made.requires_grad_(False)
        if self.is_parameter:
            made._is_param = True
        return made

    @property
    def key(self) -> tuple[Any, ...]:
        """Hashable; equal for tangents that one backward is right for."""
        inner = tuple([(name, None if held is None else held.key) for name, held in self.inner])
        return self.kind, ContextKey(self.context), inner, tuple(map(_number, self.outer[0]))


def wrapping_of(t: Tensor) -> Wrapping | None:
    """How ``t`` is made from plain tensors; None if it is plain itself."""
    if not is_wrapper(t):
        return None
    held, context = held_by(t)
    inner = tuple([(name, wrapping_of(x)) for name, x in held])
    return Wrapping(type(t), context, inner, outer_of(t), isinstance(t, torch.nn.Parameter))


# -- arguments


@dataclasses.dataclass(frozen=True)
class WrapperArgument:
    """Argument ``index`` is a wrapper, a view of argument ``base`` if that is not None.

    ``inner`` are the arguments that it holds, by name.
    """

    index: int
    inner: tuple[tuple[str, int], ...]
    base: int | None


def expand(flat: Sequence[Any]) -> tuple[list[Any], tuple[WrapperArgument, ...]]:
    """The arguments followed by those that their wrappers stand for: see Note [Wrappers]."""
    whole = list(flat)
    for a in flat:
        if type(a) in PLAIN_TYPES:
            base = _torch.base_of(a)
            if base is not None and is_wrapper(base):
                break
        elif isinstance(a, Tensor) and (is_wrapper(a) or is_wrapper(_torch.base_of(a))):
            break
    else:
        return whole, ()
    places: dict[int, int] = {}
    for k, a in enumerate(flat):
        if isinstance(a, Tensor):
            places.setdefault(id(a), k)

    def place(t: Any) -> int:
        if not isinstance(t, Tensor):
            raise UnsupportedError("subclass input", f"it holds a {type(t).__name__}")
        if id(t) not in places:
            places[id(t)] = len(whole)
            whole.append(t)
        return places[id(t)]

    wrappers = []
    for k, a in enumerate(whole):  # grows on the way
        if _is_view_of_wrapper(a):
            place(_torch.base_of(a))
        if is_wrapper(a) and places[id(a)] == k:
            base = _torch.base_of(a)
            inner = tuple([(name, place(t)) for name, t in held_by(a)[0]])
            wrappers.append(WrapperArgument(k, inner, None if base is None else place(base)))
    return whole, tuple(wrappers)


def _is_view_of_wrapper(a: Any) -> bool:
    return isinstance(a, Tensor) and is_wrapper(_torch.base_of(a))


# -- tangents


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A tangent or a gradient that is a wrapper: how it is made, and from what.

    The leaves are values of the trace, or (an offset of a ragged tensor, say) arguments and inner tensors of tangents
    that are there already.
    """

    wrapping: Wrapping
    leaves: tuple[Any, ...]


def coerced(t: Tensor, wrapping: Wrapping | None) -> Tensor | None:
    """``t`` as its own class turns it into a tangent like ``wrapping``; None where it does not."""
    hook: Callable[..., Any] | None = getattr(t, "__coerce_same_metadata_as_tangent__", None)
    if hook is None:
        return None
    made = hook(None, Tensor) if wrapping is None else hook(wrapping.context, wrapping.kind)
    return made if isinstance(made, Tensor) else None
