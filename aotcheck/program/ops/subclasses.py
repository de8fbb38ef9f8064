"""The tensor subclasses that programs may use, each registered under a key."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aotcheck._torch import NestedTensor
from aotcheck.program.called import wrapped as text
from aotcheck.program.ops.registry import DTypes, Group, entry

__all__ = ["NAMESPACE", "Subclass", "held", "leaves", "register_subclass", "subclasses"]

NAMESPACE = "wrapped"
"""How programs call the makers: ``wrapped.<key>(x, y)``."""


def held(t: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors that a wrapper subclass holds, by name; nothing for a plain tensor."""
    if not hasattr(type(t), "__tensor_flatten__"):
        return []
    return [(name, getattr(t, name)) for name in t.__tensor_flatten__()[0]]


@dataclass(frozen=True)
class Subclass:
    """A registered class. ``make`` makes one of ``tensors`` plain tensors; ``built_in``: it is the suite's own."""

    key: str
    cls: type
    make: Callable[..., Any]
    tensors: int
    built_in: bool = False

    @property
    def ragged(self) -> bool:
        """True if the maker splits the first dimension in two, the second of which is ragged."""
        return self.cls is NestedTensor

    @property
    def path(self) -> str:
        """The path by which programs call the maker."""
        return f"{NAMESPACE}.{self.key}"


_REGISTERED: dict[str, Subclass] = {}


def subclasses() -> tuple[Subclass, ...]:
    """Every registered class, in the order of registration."""
    return tuple(_REGISTERED.values())


def register_subclass(key: str, cls: type, make: Callable[..., Any]) -> None:
    """Let programs use tensors of the wrapper subclass ``cls``; strategies draw them as inputs and inside functions.

    Args:
        key: the name in programs, ``wrapped.<key>(...)``; a corpus file with an unregistered key is refused.
        cls: a traceable wrapper subclass, with ``__tensor_flatten__`` and ``__tensor_unflatten__``.
        make: makes a wrapper from as many plain tensors as it has parameters, all of one shape and dtype. It must be a
            function of a module, so that scripts can import it. It should detach the tensors.

    Raises:
        ValueError: the key is taken or no identifier.
        TypeError: ``cls`` is no wrapper subclass, or ``make`` has no plain positional parameters or cannot be imported
            by its name: a lambda, a function made inside another one, a partial.
    """
    _require_a_name(key, make)
    _register(key, cls, make, built_in=False)


def _require_a_name(key: str, make: Callable[..., Any]) -> None:
    """Scripts write the maker as ``module.qualified_name``."""
    module, name = getattr(make, "__module__", None), getattr(make, "__qualname__", "")
    if not (module and name and all(part.isidentifier() for part in name.split("."))):
        raise TypeError(
            f"the maker of {key!r} is {name or type(make).__name__}, which scripts cannot import; "
            "define a function with a name at the top of a module"
        )


def _register(key: str, cls: type, make: Callable[..., Any], built_in: bool) -> None:
    if not (key.isidentifier() and key.isascii()) or key == "inner":
        raise ValueError(f"{key!r} cannot be the key of a subclass; use a short ASCII identifier")
    if key in _REGISTERED:
        raise ValueError(f"a subclass is registered as {key!r} already; use another key")
    if not (isinstance(cls, type) and issubclass(cls, torch.Tensor) and hasattr(cls, "__tensor_flatten__")):
        raise TypeError(f"{cls!r} is no traceable wrapper subclass; give it __tensor_flatten__ and its counterpart")
    parameters = inspect.signature(make).parameters.values()
    if not parameters or any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
        raise TypeError(f"the maker of {key!r} must take plain tensors as positional parameters")
    made = _REGISTERED[key] = Subclass(key, cls, make, len(parameters), built_in)
    signature = " ".join(["self", *["same"] * (made.tensors - 1)])
    entry(made.path, signature, Group.SUBCLASS, function=make, dtypes=DTypes.NUMERIC)
    setattr(text.wrapped, key, staticmethod(make))


def leaves(t: torch.Tensor) -> list[torch.Tensor]:
    """The plain tensors that ``t`` is made of, depth first; itself if it is plain."""
    inner = held(t)
    return [leaf for _, one in inner for leaf in leaves(one)] if inner else [t]


_register("two", text.TwoTensor, text.wrapped.two, built_in=True)
_register("constant", text.ConstantExtraMetadataTensor, text.wrapped.constant, built_in=True)
_register("tagged", text.Tagged, text.wrapped.tagged, built_in=True)
_register("differentiable", text.TwoTensor, text.wrapped.differentiable, built_in=True)
_register("jagged", NestedTensor, text.wrapped.jagged, built_in=True)
entry("Tensor.values", "self", Group.SUBCLASS)
entry("torch.nested.to_padded_tensor", "self {0.0|1.0}", Group.SUBCLASS)
entry(f"{NAMESPACE}.inner", "self {0|1}", Group.SUBCLASS, function=text.wrapped.inner, weight=5)
