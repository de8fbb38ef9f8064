"""Wrappers (no views) reshaped in place; views of theirs made before, between and afterwards."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, check_session, cotangent, session
from tests.behaviour.inputs import given
from tests.behaviour.subclasses.common import every_class, every_class_and_jagged
from tests.behaviour.wrappers import tagged, two

_CHANGES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(0),
    "as_strided_": lambda x: x.as_strided_((2,), (1,), 1),
    "twice": lambda x: x.t_().unsqueeze_(0).t_() if x.dim() < 2 else x.t_().unsqueeze_(0),
    "cancelling": lambda x: x.t_().t_(),
}


@every_class_and_jagged
@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
@pytest.mark.parametrize("also", ["nothing", "a write", "a write before", "a view", "an alias"])
@session
def test_a_wrapper_argument_is_reshaped_and_written_and_viewed(compile, make, change, also):
    def f(x, w):
        v = x[1:] if also == "a view" else x.detach() if also == "an alias" else None
        if also == "a write before":
            x.mul_(2)
        change(x)
        if also == "a write":
            x.mul_(w.flatten()[0])
        return x * 2, v

    compiled = compile(f)
    for base in (False, True):  # an argument without history, and one with
        x, w = make(2, 3, grad=base), make(1)
        root = x
        x = x * 1 if base else x
        out = compiled(x, w)
        yield root, x, out
        x.detach().add_(1)
        yield root, x, out
        if out[0].requires_grad:
            yield attempt_later(lambda: out[0].sum().backward())  # noqa: B023
            yield root, x, out


@every_class_and_jagged
@session
def test_a_wrapper_passed_twice_and_with_its_view_is_reshaped(compile, make):
    compiled = compile(lambda x, y, v: (x.t_(), y.mul_(2), v * 3))
    x = make(2, 3)
    v = x[0]
    out = compiled(x, x, v)
    yield x, v, out
    v.zero_()
    yield x, v, out


@every_class
@session
def test_a_wrapper_leaf_is_reshaped_under_no_grad_and_then_used(compile, make):
    def f(x, y):
        with torch.no_grad():
            x.unsqueeze_(-1)
        return x * y

    x, y = make(3, grad=True), make(3, seed=1, grad=True)
    z = compile(f)(x, y)
    yield x, y, z
    z.backward(cotangent(z))
    yield x, y, z


@every_class
@agrees(lambda make: given(make(3, 2)))
def test_a_view_of_a_wrapper_argument_that_is_then_reshaped(x):
    v = x[1:]
    x.unsqueeze_(0)
    return v, x[0]


@every_class
@pytest.mark.parametrize("kind", ["no grad", "no leaf"])
@pytest.mark.parametrize("back", [False, True])
def test_views_of_a_wrapper_argument_made_between_its_reshapes(make, kind, back):
    def f(x):
        first = x[1:]
        x.unsqueeze_(0)
        second = x.diagonal()
        x.transpose_(1, 2)
        third = x[:, 1:]
        x.squeeze_(0).t_() if back else x.transpose_(0, 2)
        return first, second, third, x[0]

    def make_():
        root = make(3, 2, grad=kind == "no leaf")
        return given(root * 1 if kind == "no leaf" else root, also=[root])

    check(f, make_)


@every_class
def test_a_detached_alias_of_an_intermediate_that_is_then_reshaped(make):
    def f(x):
        fresh = x.clone()
        alias = fresh.detach()
        fresh.unsqueeze_(0)
        return alias

    def both(x):
        fresh = x.clone()
        alias = fresh.detach()
        fresh.unsqueeze_(0)
        return alias, fresh

    check(f, lambda: given(make(3)))
    check(both, lambda: given(make(3)))


@pytest.mark.parametrize("both", [False, True])
def test_a_view_of_a_wrapper_intermediate_that_is_then_squeezed(both: bool):
    def f(x):
        y = x * 2
        view = y.permute(2, 0, 1)
        y.squeeze_()
        return (view, y) if both else view

    # Once it was written eager would make the view again of what has another geometry by then, and fail.
    check(f, lambda: given(tagged(1, 3, 1)), probe=False)


def test_a_wrapper_passed_with_its_view_is_reshaped_so_that_the_view_op_no_longer_fits():
    def f(x, view):
        x.squeeze_(1)
        x.fill_(1)
        return x.sum()

    def make():
        root = two(2, 1, grad=True)
        x = root * 2
        return given(x, x.transpose(0, 1), also=[root])

    def session(compile):
        given = make()
        with torch.no_grad():
            out = compile(f)(*given.args)
        yield out.a, given.args[0].shape, given.args[0].a

    check_session(session)


@agrees(lambda: given(two(2, 3), two(2, seed=1)))
def test_a_wrapper_argument_is_reshaped_and_written(x, y):
    x.t_()
    x.mul_(2)
    x[0].add_(y)
    return x + 1
