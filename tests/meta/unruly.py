"""Backends that do to their process what a compiler had better not do, and give what nobody can look at."""

import ctypes
import itertools
import os
import signal
import sys
import time
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


_calls = itertools.count(1)


def _every_20th(action: Callable[[], object]) -> Callable[[Function], Function]:
    """What a process does at its 20th call, 40th call and so on, whichever program makes it."""

    def compile(fn: Function) -> Function:
        def compiled(*args: Any) -> Any:
            if next(_calls) % 20 == 0:
                action()
            return fn(*args)

        return compiled

    return compile


crashes_now_and_then = _every_20th(lambda: ctypes.string_at(0))
leaves_now_and_then = _every_20th(lambda: os._exit(0))
is_killed_now_and_then = _every_20th(lambda: os.kill(os.getpid(), signal.SIGKILL))


def leaves(fn: Function) -> Function:
    """A process that ends as if all was well."""
    return lambda *args: os._exit(0)


def forks(fn: Function) -> Function:
    """A child that goes on as if it was the worker."""

    def compiled(*args: Any) -> Any:
        os.fork()
        return fn(*args)

    return compiled


def forks_sleepers(fn: Function) -> Function:
    """A child that outlives the call."""

    def compiled(*args: Any) -> Any:
        if os.fork() == 0:
            print("sleeper", os.getpid(), flush=True)
            time.sleep(600)
        return fn(*args)

    return compiled
