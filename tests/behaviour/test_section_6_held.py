"""BEHAVIOUR 6: what views of wrappers hold, which the function reads, returns and changes; views detached in place."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.behaviour.harness import attempt, check, check_session, leaf, plain
from tests.behaviour.wrappers import extra, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


def held(x, which=-1):
    """One of the tensors that a wrapper holds."""
    return getattr(x, x.__tensor_flatten__()[0][which])


# -- views detached in place


def ragged_view(grad):
    values = plain(3, 2)
    ragged = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3], device=values.device))
    return ragged.requires_grad_(grad)


VIEWS = {
    "ragged": lambda: ragged_view(False),
    "ragged-leaf": lambda: ragged_view(True),
    "wrapper": lambda: two(2, 2).t(),
    "wrapper-with-history": lambda: two(2, 2, grad=True).clone().t(),
    "plain": lambda: plain(2, 2).t(),
    "plain-with-history": lambda: leaf(2, 2).clone().t(),
    "no view": lambda: two(2, 2, grad=True).clone(),
    "plain, no view": lambda: leaf(2, 2).clone(),
}


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad], ids=["grad", "no_grad"])
@pytest.mark.parametrize("detach", [torch.Tensor.detach_, torch.detach_], ids=["method", "function"])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_an_argument_is_detached_in_place(make, detach, around):
    """Eager refuses it of views, whether they require grad or not."""

    def session(compile):
        def function(x):
            with around():
                detach(x)
            return x

        x = make()
        yield attempt(lambda: compile(function)(x)), x

    check_session(session)


def test_what_is_computed_is_detached_in_place_by_a_function():
    def function(x):
        y, z = x * 2, x * 3
        torch.detach_(input=y)
        return y, z, y * x

    check(function, lambda: (leaf(3),))


# -- what views hold is one object with what is returned


@every_class
@pytest.mark.parametrize("grad", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("first", ["view", "held"])
@pytest.mark.parametrize("view", ["t", "detach", "data", "view_as"])
def test_what_a_view_holds_is_returned_beside_it(make, grad, first, view):
    views = {"data": lambda x: x.data, "view_as": lambda x: x.view_as(x)}

    def function(x):
        y = views[view](x) if view in views else getattr(x, view)()
        inner = held(y)
        with torch.no_grad():
            inner.zero_()
        return (y, inner) if first == "view" else (inner, y)

    check(function, lambda: (make(2, 2, grad=grad),))


def test_what_a_view_of_a_view_of_a_scalar_holds_is_returned_before_it():
    def function(x):
        y = x.view((1, 1))
        y.fill_diagonal_(0)
        return held(y), y

    def session(compile):
        x = tagged().as_strided((1,), (1,))
        with torch.no_grad():
            yield compile(function)(x), x

    check_session(session)


def test_a_wrapper_that_an_alias_of_a_nested_one_holds_is_returned_after_it():
    def function(x):
        y = x.data
        inner = held(y)
        inner.zero_()
        other = TwoTensor(y * 1, y * 2)
        return y, other, inner

    check(function, lambda: (nested(2),))
