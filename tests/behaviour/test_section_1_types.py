"""BEHAVIOUR 1: code that asks for the types of tensors."""

from __future__ import annotations

import builtins
import threading

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, leaf, plain


def kinds(x, w):
    return (
        x * (2 if type(x) is torch.Tensor else 3),
        w * (5 if type(w) is nn.Parameter else 7),
        (x + w) * (11 if type(x + w) == torch.Tensor else 13),  # noqa: E721
        [int.__name__, type(x).__name__, type(w).__name__, type(None) is None, type(x) in (torch.Tensor, int)],
        isinstance(int, type) and issubclass(type(int), type) and not isinstance(3, type),
        type in (builtins.type,),
        x * (2 if x.__class__.__module__.split(".")[0] == "torch" else 3),
        [x.__class__.__name__, w.__class__.__name__, x.__class__ is torch.Tensor, w.__class__ is type(w)],
        type("Made", (), {"n": 3}).n,
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(plain(3))

    def forward(self, x):
        return kinds(x, self.weight)


def test_a_function_is_told_the_types_of_tensors():
    def session(compile):
        f = compile(kinds)
        for _ in range(2):
            yield f(plain(3), nn.Parameter(plain(3))), f(leaf(3), leaf(3)), f(nn.Parameter(plain(3)), plain(3))

    check_session(session)
    assert "type" not in globals()


def test_a_module_is_told_the_types_of_tensors():
    def session(compile):
        net = Net()
        yield compile(net)(leaf(3))

    check_session(session)
    assert "type" not in globals()


def test_a_function_that_gives_an_argument_another_class():
    """It runs as it is."""

    def f(x):
        x.__class__ = nn.Parameter
        return x * 2, isinstance(x, nn.Parameter), x.__class__.__name__

    def session(compile):
        x = plain(3)
        yield compile(f)(x), type(x).__name__

    check_session(session)


def test_an_error_leaves_type_alone():
    def f(x):
        if type(x) is torch.Tensor:
            raise ValueError("a tensor")
        return x

    def session(compile):
        yield attempt(lambda: compile(f)(plain(3)))

    check_session(session)
    assert "type" not in globals()
    with pytest.raises(aotcheck.UnsupportedError):
        aotcheck.aot_function(lambda x: type(x.sum().item()))(plain(3))
    assert "type" not in globals()


def test_threads_that_trace_at_once():
    """Each its own functions; none is refused, types are told, and the generator ends where it began."""
    wrong = []
    before = torch.get_rng_state()

    def trace(n):
        for k in range(10):
            x = plain(n + 1, k + 1)
            try:
                out = aotcheck.aot_function(lambda x: x * (2 if type(x) is torch.Tensor else 3))(x)
                if not torch.equal(out, x * 2):
                    wrong.append((n, k))
            except aotcheck.UnsupportedError as error:
                wrong.append((n, k, error))

    threads = [threading.Thread(target=trace, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert torch.equal(torch.get_rng_state(), before)
    assert "type" not in globals()
