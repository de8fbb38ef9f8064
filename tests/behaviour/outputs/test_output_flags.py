"""Requires_grad, leafness, grad_fn, of views made under no_grad / detached."""

from typing import Any

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, attempt_later, check, one_of, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.outputs.common import check_views
from tests.behaviour.shared import INPUTS, KINDS_OF_VIEWS


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[0], lambda x: x.view(torch.float64)])
@agrees(lambda: given(to_device(torch.arange(4)).view(2, 2), leaf(2, 2)), backward=None)
def test_a_no_grad_view_of_integers_written_from_a_leaf(x, y, *, view, quiet):
    """As those do that were written by comparing with what requires grad."""
    x.gt_(y)
    with quiet():
        return view(x)


class _ReturnsIt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 3


@pytest.mark.parametrize("make", [_ReturnsIt.apply, lambda x: x * 1, lambda x: x[:]], ids=["custom", "mul", "slice"])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_a_view_made_under_no_grad_between_two_writes(compile, make, grad):
    def f(x):
        x.zero_()
        v = x.t()
        x.zero_()
        return v

    x = make(leaf(2, 2))
    with torch.set_grad_enabled(grad):
        v = attempt(lambda: compile(f)(x))
    yield v
    yield attempt_later(lambda: v.is_leaf), attempt_later(lambda: v.sum().backward())


@pytest.mark.parametrize("dtype", [torch.bool, torch.long])
@pytest.mark.parametrize("through", [False, True])
@agrees(lambda dtype: given(to_device(torch.zeros(3, dtype=dtype)), leaf(3)))
def test_views_made_before_integers_are_written_from_a_leaf(x, y, *, through):
    """No view can be made of them afterwards."""
    view, inner = x.view(3), x.view(3)[1:]
    (view if through else x).gt_(y)
    return view, inner


make = one_of(INPUTS)
view = one_of(KINDS_OF_VIEWS)


def test_an_alias_of_an_input_made_under_no_grad(view, make):
    def f(x):
        with torch.no_grad():
            return view(x)

    check_views(f, make)


def test_an_alias_of_an_intermediate_made_under_no_grad(view):
    def f(x):
        y = x * 2
        with torch.no_grad():
            z = view(y)
        return y, z

    check_views(f, lambda: given(leaf(2, 4)))


@agrees(lambda: given(leaf(2, 4), plain(8)), lambda: given(leaf(2, 4), leaf(8)), anew=True)
def test_an_alias_made_under_no_grad_is_written_inside_under_grad(x, w):
    y = x * 2
    with torch.no_grad():
        z = y.view(-1)
    z.mul_(w)
    return y, z


def test_outputs_with_and_without_grad():
    check(lambda x, y: (x * 2, y * 2, x > y), lambda: given(leaf(3), plain(3, seed=1)))


@agrees(lambda: given(leaf(2, 3)))
def test_detached_aliases_of_inputs_and_intermediates(x):
    y = x * 2
    return y, y.detach(), x.detach(), y.data, x.data


@agrees(lambda: given(leaf(3)))
def test_a_detached_output_that_gets_requires_grad(x):
    return (x * 2).detach().requires_grad_()


def test_a_view_of_a_view_of_a_no_grad_view_that_is_written_under_no_grad():
    def f(x):
        v = x.t()
        with torch.no_grad():
            x.zero_()
            return v.t()

    def make():
        root = leaf(3)
        with torch.no_grad():
            view = root.t()
        return given(view, also=[root])

    check(f, make)
