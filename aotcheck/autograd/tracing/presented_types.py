"""What ``type`` says of replicas to the code that is traced.

Note [Types of replicas]
No class can answer ``type(x)``: it is what an object is. So while a function is traced, the modules whose code asks for
it find a ``type`` of ours among their globals, which says of a replica what the tensor is that it stands for. Libraries
keep the one that there is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck.autograd.replicas.replicas import Replica


class _Answers(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            return type(*args, **kwargs)
        if isinstance(args[0], Replica):
            return torch.nn.Parameter if args[0].is_parameter else Tensor
        return type(args[0])

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, type)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is type

    def __hash__(cls) -> int:
        return hash(type)


class PresentedType(type, metaclass=_Answers):
    """What stands for ``type``."""


_lock = threading.Lock()
_users: dict[int, int] = {}  # by dictionary of globals, how many traces have put it there


class PresentingTypes:
    """For a trace, the modules with these ``variables`` are told the types of tensors, not of replicas."""

    __slots__ = ("_variables",)

    def __init__(self, variables: Sequence[dict[str, Any]]) -> None:
        self._variables = variables

    def __enter__(self) -> None:
        with _lock:
            for d in self._variables:
                _users[id(d)] = _users.get(id(d), 0) + 1
                d["type"] = PresentedType

    def __exit__(self, *exception: object) -> None:
        with _lock:
            for d in self._variables:
                _users[id(d)] -= 1
                if not _users[id(d)]:
                    del _users[id(d)]
                    if d.get("type") is PresentedType:
                        del d["type"]
