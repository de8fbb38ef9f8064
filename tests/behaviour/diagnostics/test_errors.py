"""Errors that name the user's line or argument."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt, backward, check, session
from tests.behaviour.inputs import given, leaf, plain


def _contexts(function: Any) -> list[str]:
    try:
        try:
            raise ValueError("around")
        except ValueError:
            function(plain(2))
    except KeyError as error:
        found, at = [], error.__context__
        while at is not None:
            found.append(repr(at))
            at = at.__context__
    return found


def _raises(x):
    raise KeyError("x")


def _raises_while_handling(x):
    try:
        raise TypeError("inside")
    except TypeError:
        raise KeyError("x")  # noqa: B904


@pytest.mark.parametrize("function", [_raises, _raises_while_handling])
def test_an_error_of_the_function_has_the_exception_context_of_eager(function: Any):
    expected = _contexts(function)
    compiled = aotcheck.aot_function(function)
    assert _contexts(compiled) == expected
    assert _contexts(compiled) == expected


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_a_missing_attribute_of_a_tensor_raises_as_in_eager(compile):
    f = compile(lambda x: x.nothing)
    yield attempt(lambda: f(plain(3))), attempt(lambda: f(nn.Parameter(plain(3))))
    g = compile(lambda x: getattr(x, "nothing", 2) * x)
    yield g(plain(3))


@pytest.mark.parametrize(
    "lay", [lambda x: x.expand(3, 2), lambda x: x[::2], lambda x: x.conj(), lambda x: x[1:1], lambda x: x.conj().imag]
)
@session
def test_writes_before_an_error_of_the_program_happen_as_in_eager(compile, lay):
    """However its arguments lie, of which the trace tries what its ops give."""

    def f(x, y):
        x.mul_(2)
        return (x.t() + 1).sum(0), y.sum(7)

    x, y = plain(2, 2), plain(2, dtype=torch.complex64)
    yield attempt(lambda: compile(f)(x, lay(y))), x, y


@session
def test_a_function_can_be_called_again_after_an_error_of_its_forward(compile):
    f = compile(lambda x, y: x @ y)
    yield attempt(lambda: f(leaf(2, 3), leaf(2, 3)))
    x, y = leaf(2, 3), leaf(3, 2)
    backward([f(x, y)])
    yield x, y


def test_an_error_raised_by_the_function_itself():
    class Mine(Exception):
        pass

    def f(x):
        x.add_(1)
        raise Mine("on purpose")

    check(f, lambda: given(plain(3)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ x,
        lambda x: x.view(7),
        lambda x: x + torch.ones(5, device=x.device),
        lambda x: x[9],
        lambda x: x.nothing,
        lambda x: torch.cat([x, x.sum()]),
        lambda x: x.int().requires_grad_(),
    ],
    ids=["matmul", "view", "broadcast", "index", "attribute", "cat", "requires_grad_"],
)
def test_an_error_of_the_program_is_eagers(function):
    check(function, lambda: given(leaf(2, 3)))


@agrees(lambda: given(plain(2, 3), plain(2, 3, seed=1)))
def test_inputs_after_an_error_of_the_program_are_as_in_eager(x, y):
    x.mul_(2)
    y.t_()
    return x @ y @ x


@session
def test_what_follows_an_error_of_a_later_call_is_undone(compile):
    def f(x, i):
        y = torch.gather(torch.ones(3, device=x.device), 0, i)
        x.requires_grad_()
        return x * y

    compiled = compile(f)
    for last in (1, 2, 7):
        x = plain(2)
        i = torch.tensor([0, last], device=x.device)
        yield attempt(lambda x=x, i=i: compiled(x, i)), x.requires_grad


@session
def test_an_error_of_an_unused_op_after_dropout_is_raised(compile):
    def f(x):
        y = F.dropout(x, 0.5)
        torch.arange(0, dtype=torch.bool, device=x.device)
        return y

    x = leaf(3)
    yield attempt(lambda: compile(f)(x)), x
