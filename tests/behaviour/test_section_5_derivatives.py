"""BEHAVIOUR 5: derivatives of derivatives."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint

from tests.behaviour.functions import Once
from tests.behaviour.harness import attempt, check_session, leaf, plain


def _smooth(x, w):
    return (x * w + x * x * w * w).sum(-1)


def _in_place_through_a_view(x, w):
    y = x * w
    y[0].mul_(w[1] * w[0])
    return y * y


def _of_aliases(x, w):
    y = x * w
    return y, y[0] * x[0], y.t()


def _of_an_intermediate_only(x, w):
    return (x * w).detach() * w


@pytest.mark.parametrize("function", [_smooth, _in_place_through_a_view, _of_aliases, _of_an_intermediate_only])
@pytest.mark.parametrize("through_a_non_leaf", [False, True], ids=["leaves", "non-leaf"])
def test_second_and_third_derivatives(function, through_a_non_leaf):
    def session(compile):
        x, w = leaf(2, 3), leaf(2, 3, seed=1)
        f = compile(function)
        out = f(x * 1 if through_a_non_leaf else x, w)
        total = sum(o.sum() for o in (out if isinstance(out, tuple) else (out,)))
        first = torch.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
        yield first
        once = sum(g.sum() for g in first if g is not None)
        if not once.requires_grad:
            return
        second = torch.autograd.grad(once, (x, w), create_graph=True, allow_unused=True)
        yield second
        twice = sum(g.sum() for g in second if g is not None)
        if twice.requires_grad:
            yield torch.autograd.grad(twice, (x, w), allow_unused=True)

    check_session(session)


def test_a_gradient_that_is_the_tangent_itself():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: x + 1)(x)
        tangent = leaf(3, seed=2)
        (g,) = torch.autograd.grad(y, x, tangent, create_graph=True)
        yield g
        yield torch.autograd.grad((g * g).sum(), tangent)

    check_session(session)


def test_a_second_derivative_accumulates_into_leaves():
    def session(compile):
        x, w = leaf(3), leaf(3, seed=1)
        y = compile(lambda x, w: (x * w * w).sum())(x, w)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (g * g).sum().backward()
        yield x.grad, w.grad
        y.backward()
        yield x.grad, w.grad

    check_session(session)


def test_a_gradient_penalty_over_ten_steps():
    def session(compile):
        critic = compile(lambda x, w, v: torch.relu(x @ w) @ v)
        w, v = leaf(3, 4), leaf(4, 1, seed=1)
        for step in range(10):
            x = plain(2, 3, seed=step).requires_grad_()
            score = critic(x, w, v)
            (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
            loss = score.sum() + ((g * g).sum() - 1) ** 2
            loss.backward()
            with torch.no_grad():
                w -= torch.sign(w.grad)
                v -= torch.sign(v.grad)
            yield loss, w.grad, v.grad
            w.grad = v.grad = None

    check_session(session)


def test_a_second_derivative_by_a_written_argument_that_others_are_computed_from():
    def session(compile):
        def f(x):
            x.exp_()
            return x * x

        x = leaf(3)
        argument = x * 1
        y = compile(f)(argument)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        yield y, g
        yield torch.autograd.grad(g.sum(), x)

    check_session(session)


def test_a_second_derivative_that_is_refused():
    def session(compile):
        x = leaf(3)
        y = compile(lambda x: Once.apply(x) * 2)(x)
        (g,) = torch.autograd.grad(y, x, leaf(3, seed=2), create_graph=True)
        yield g
        yield attempt(lambda: g.sum().backward())
        yield attempt(lambda: torch.autograd.grad(g.sum(), x, allow_unused=True))
        yield x.grad

    check_session(session)
