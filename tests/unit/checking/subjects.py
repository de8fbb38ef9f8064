"""Functions and modules for ``aotcheck check``."""

import os
import signal
import time
from typing import Any

import torch


def scale(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 + y


def rows(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[1:], x * y


def accumulate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return x * y


def dropped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5) * y


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 2, requires_grad=True), torch.randn(3, 2)


def plain_pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 2), torch.randn(3, 2)


def no_tuple() -> Any:
    return torch.randn(2, 2)


def nested() -> tuple[Any, ...]:
    return {"a": torch.randn(2), "b": [torch.randn(2, requires_grad=True)]}, 3


def of_nested(tree: dict[str, Any], n: int) -> dict[str, torch.Tensor]:
    return {"sum": tree["a"] * n + tree["b"][0], "a": tree["a"]}


class CountsCalls(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.tied = self.linear
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.tied(x) * (1 + 1 / self.calls)


torch.manual_seed(0)
mlp = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
norm = torch.nn.BatchNorm1d(2)
not_callable = 3


def forgets(fn: Any) -> Any:
    """A backend that loses writes to its arguments."""
    return lambda *args: fn(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))


# -- ops whose schemas lie, and functions that end the process


@torch.library.custom_op("aotcheck_tests::writes", mutates_args=())
def writes(x: torch.Tensor) -> torch.Tensor:
    x.fill_(1.0)
    return x * 2


@writes.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("aotcheck_tests::returns_itself", mutates_args=())
def returns_itself(x: torch.Tensor) -> torch.Tensor:
    return x.view_as(x)


_library = torch.library.Library("aotcheck_tests_too", "DEF")
_library.define("alias(Tensor x) -> Tensor")
_library.impl("alias", lambda x: x.view_as(x), "CompositeExplicitAutograd")


def calls_an_op_that_lies(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aotcheck_tests_too.alias(x) + 1


@torch.library.custom_op("aotcheck_tests::honest", mutates_args=("x",))
def honest(x: torch.Tensor) -> None:
    x.fill_(1.0)


def crashes(x: torch.Tensor) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(x: torch.Tensor) -> None:
    time.sleep(1000)


def crashes_when_compiled(fn: Any) -> Any:
    """A backend that ends the process, but where an argument requires grad."""

    def call(*args: Any) -> Any:
        if not any(a.requires_grad for a in args):
            os.kill(os.getpid(), signal.SIGSEGV)
        return fn(*args)

    return call


def one() -> tuple[torch.Tensor]:
    return (torch.full((2, 3), 3.0),)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _fails(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("this compiler fails")


def fails_behind_dynamo(fn: Any) -> Any:
    """A backend whose failure makes torch log a page."""
    return torch.compile(fn, backend=_fails)
