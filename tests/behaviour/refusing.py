"""A compiler that refuses every call: with it each test shows what an ``UnsupportedError`` makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

import aotcheck as first

REASON = "everything"


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise first.UnsupportedError(REASON, "this compiler refuses each call")


class RefusedModule(torch.nn.Module):
    """The module as it is, but for its calls."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.orig = module

    forward = refuse


def aot_function(*_: Any, **__: Any) -> Callable[..., NoReturn]:
    return refuse


def aot_module(module: torch.nn.Module, *_: Any, **__: Any) -> torch.nn.Module:
    return RefusedModule(module)


compiled_function = aot_module_simplified = aot_function
compiled_module = aot_module


def __getattr__(name: str) -> Any:
    return getattr(first, name)
