"""Detach_ of wrappers, of their views and bases, and requires_grad_ afterwards."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check_session, cotangent, session
from tests.behaviour.subclasses.common import every_class, with_its_view
from tests.behaviour.wrappers import two


@pytest.mark.parametrize("cut", ["before", "inside"])
@session
def test_views_of_a_view_whose_wrapper_base_is_written_and_detached_in_place(compile, cut: str):
    """Eager fails an assertion of its own where the history is asked for after the write, and is not asked here."""

    def f(x, v):
        parts = v.t(), v.view(-1).expand(2, 6)
        with torch.no_grad():
            x.zero_()
        if cut == "inside":
            x.detach_()
        return parts

    root = two(3, 2, grad=True)
    x = root * 2
    v = x.view(2, 3)
    if cut == "before":
        x.detach_()
    y = compile(f)(x, v)
    yield x, v.requires_grad, [(t.requires_grad, t.a) for t in y]


@session
def test_a_view_keeps_its_history_after_the_caller_detaches_its_base_in_place(compile):
    root = two(3, 2, grad=True)
    x = root * 2
    v = x.view(-1)
    x.detach_()

    def f(x, v):
        y = v * 2
        with torch.no_grad():
            x.transpose_(0, 1)
        return y, x * 2

    y, z = compile(f)(x, v)
    y.backward(cotangent(y))
    yield root, x, y, z


@every_class
@session
def test_a_wrapper_with_a_history_is_detached_in_place_and_requires_grad_again(compile, make):
    root = make(3, grad=True)
    x = root * 2

    def f(x):
        before = x * 3
        x.detach_()
        x.requires_grad_()
        return before, x * 5

    before, after = compile(f)(x)
    yield x.is_leaf, x.requires_grad
    before.backward(cotangent(before))
    yield root.grad, x.grad
    after.backward(cotangent(after))
    yield root.grad, x.grad


@pytest.mark.parametrize("is_leaf", [True, False])
@session
def test_detach_of_a_wrapper_in_inference_mode_keeps_its_history(compile, is_leaf):
    def f(x):
        with torch.inference_mode():
            x.detach_()
        return x * 2

    leaf_ = two(3, grad=True)
    x = leaf_ if is_leaf else leaf_ * 1
    y = compile(f)(x)
    yield leaf_, x, y
    y.backward(cotangent(y))
    yield leaf_, x, y


def written_and_cut(x, y):
    y.zero_()
    x.detach_()
    return (x,)


def written_used_and_cut(x, y):
    y.mul_(2)
    x.detach_()
    return x, y * 2


def written_reshaped_and_cut(x, y):
    y.mul_(y)
    y.unsqueeze_(0)
    x.detach_()
    return x, y * 2


def written_cut_and_required(x, y):
    y.mul_(2)
    x.detach_()
    x.requires_grad_()
    return x, y * 2, x * 3


def written_cut_and_written(x, y):
    y.mul_(2)
    x.detach_()
    x.mul_(3)
    return (x,)


def looked_at_and_cut(x, y):
    x.mul_(2)
    looked_at = y.is_leaf  # autograd looks for its history here
    x.detach_()
    return x, y * 2, looked_at


CUT = [
    written_and_cut,
    written_used_and_cut,
    written_reshaped_and_cut,
    written_cut_and_required,
    written_cut_and_written,
    looked_at_and_cut,
]


@every_class
@pytest.mark.parametrize("function", CUT)
def test_a_view_argument_keeps_its_history_if_its_base_is_detached_in_place(function, make):
    check_session(with_its_view(function, make))


def held_values(x):
    return [getattr(x, name).clone() for name in x.__tensor_flatten__()[0]]


@session
def test_a_view_of_a_view_of_a_wrapper_that_is_written_and_detached_in_place(compile):
    """Torch refuses to say its history; the call goes through all the same."""

    def function(x, y):
        row = x[0]
        more = row.expand(2, *row.shape)
        y.mul_(2)
        x.detach_()
        return (more,)

    x = two(2, 2, grad=True) * 1
    (more,) = compile(function)(x, x.view(4))
    yield held_values(more), held_values(x)


@agrees(lambda: (two(2, 2, grad=True),))
def test_a_wrapper_leaf_is_detached_in_place_and_requires_grad_again(x):
    before = x * 2
    x.detach_()
    x.requires_grad_()
    return before, x, x * 3


@session
def test_a_wrapper_passed_with_its_view_is_detached_in_place_and_written(compile):
    leaf_ = two(4, grad=True)
    x = leaf_ * 2
    v = x[::2]

    def f(x, v):
        x.detach_()
        x.mul_(2)
        return x.sin(), v

    y = compile(f)(x, v)
    yield leaf_, x, v, y


@session
def test_a_wrapper_argument_is_detached_in_place(compile):
    leaf_ = two(3, grad=True)
    x = leaf_ * 2

    def f(x):
        y = x * 3
        x.detach_()
        return y

    y = compile(f)(x)
    yield leaf_, x, y
    y.backward(cotangent(y))
    yield leaf_, x, y


def _used_before_and_after(x, w):
    before = x * 2
    x.detach_()
    cut = x * 5
    x.mul_(w)
    return x, before, cut, x * 3


@every_class
@pytest.mark.parametrize("kind", ["leaf", "no leaf"])
@pytest.mark.parametrize("f", [lambda x, w: x.detach_().mul_(w), _used_before_and_after])
@session
def test_a_wrapper_is_detached_in_place_and_then_written_under_grad(compile, make, kind, f):
    """What was before the cut gets no gradient by what was written, not even zeros."""

    root, w = make(3, grad=True), make(3, seed=2, grad=True)
    x = root * 1 if kind == "no leaf" else root
    results = compile(f)(x, w)
    for r in results if isinstance(results, tuple) else (results,):
        if r.requires_grad:
            yield attempt_later(lambda r=r: r.backward(cotangent(r), retain_graph=True))
        yield root.grad, w.grad, results
