"""Backends that do to their process what a compiler had better not do, and give what nobody can look at."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

Function = Callable[..., Any]


class EndOfAll(BaseException):
    """What ``except Exception`` lets pass."""


class Unspeakable:
    """A leaf of which nothing can be said."""

    def __repr__(self) -> str:
        raise RuntimeError("planted")


def _raising(error: BaseException) -> Callable[[Function], Function]:
    def compile(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            raise error

        return compiled

    return compile


exits = _raising(SystemExit(0))
interrupts = _raising(KeyboardInterrupt())
ends = _raising(EndOfAll("planted"))
is_garbled = _raising(ValueError("half a \udcff, \x00 and \x1b[31mred\nand more"))


def exits_at_once(fn: Function) -> Function:
    """A compiler that calls ``sys.exit``."""
    sys.exit("nothing to do")


def _giving(make: Callable[[], Any]) -> Callable[[Function], Function]:
    def compile(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            fn(*args)
            return make()

        return compiled

    return compile


def _fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(4)


def _of_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


gives_fake = _giving(_fake)
gives_sparse = _giving(lambda: torch.eye(2).to_sparse())
gives_unspeakable = _giving(Unspeakable)
gives_itself = _giving(_of_itself)


def wanders(fn: Function) -> Function:
    """Wrong, and elsewhere afterwards."""

    def compiled(*args: Any) -> Any:
        os.chdir("/")
        return (fn(*args),)

    return compiled
