"""Classes with only __torch_function__, types asked for."""

import builtins

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, session
from tests.behaviour.inputs import leaf, plain


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


def test_type_of_arguments_and_results_in_a_function_is_that_of_eager():
    def session(compile):
        f = compile(kinds)
        for _ in range(2):
            yield f(plain(3), nn.Parameter(plain(3))), f(leaf(3), leaf(3)), f(nn.Parameter(plain(3)), plain(3))

    check_session(session)
    assert "type" not in globals()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(plain(3))

    def forward(self, x):
        return kinds(x, self.weight)


def test_type_of_arguments_and_parameters_in_a_module_is_that_of_eager():
    def session(compile):
        net = Net()
        yield compile(net)(leaf(3))

    check_session(session)
    assert "type" not in globals()


@session
def test_assigning_the_class_of_an_argument_is_as_in_eager(compile):
    """It runs as it is."""

    def f(x):
        x.__class__ = nn.Parameter
        return x * 2, isinstance(x, nn.Parameter), x.__class__.__name__

    x = plain(3)
    yield compile(f)(x), type(x).__name__


def test_an_error_or_a_refusal_restores_the_builtin_type():
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


def test_a_subclass_that_is_no_wrapper_is_refused():
    class Odd(torch.Tensor):
        pass

    x = plain(3).as_subclass(Odd)
    with pytest.raises(aotcheck.UnsupportedError, match="Odd"):
        aotcheck.aot_function(lambda x: x * 2)(x)
