"""BEHAVIOUR 5: leaves made inside that nobody has, in the graph of results that show their gradients."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, check_session, leaf, plain


def accumulated(w, y):
    (w**3 * y).sum().backward(create_graph=True)
    return w.grad


def assigned(w, y):
    (w.grad,) = torch.autograd.grad((w**3 * y).sum(), w, create_graph=True)
    return w.grad


def a_part(w, y):
    return accumulated(w, y)[1:]


def beside_others(w, y):
    g = accumulated(w, y)
    return g, g * w, y * 2


def of_two(w, y):
    v = y.detach().clone().requires_grad_()
    (w**2 * v**2).sum().backward(create_graph=True)
    return w.grad, v.grad * y


def put_into_an_argument(w, y):
    w.grad = y.detach()
    return w * y


LEAVES = {
    "detached": lambda x: x.detach().requires_grad_(),
    "copied": lambda x: x.detach().clone().requires_grad_(),
    "made": lambda x: torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("program", [accumulated, assigned, a_part, beside_others, of_two, put_into_an_argument])
@pytest.mark.parametrize("made", LEAVES)
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_later_backward_accumulates_into_the_result(program, made, create_graph):
    def session(compile):
        compiled = compile(lambda x, y: program(LEAVES[made](x), y))
        for _ in range(2):
            x, y = plain(3), leaf(3, seed=1)
            out = compiled(x, y)
            out = out if isinstance(out, (tuple, list)) else (out,)
            backward(out[:1], retain_graph=True, create_graph=create_graph)
            yield out, x, y
            yield attempt_later(lambda out=out: backward(out)), out, x, y
            x.mul_(2)
            yield out, x, y

    check_session(session)


def test_gradients_that_are_only_asked_for_are_not_accumulated():
    def session(compile):
        x, y = plain(3), leaf(3, seed=1)
        out = compile(lambda x, y: accumulated(x.detach().requires_grad_(), y))(x, y)
        yield torch.autograd.grad(out, y, torch.ones(3), create_graph=True), out, y.grad

    check_session(session)


def test_a_gradient_without_a_history_is_a_result_like_others():
    def session(compile):
        def f(x, y):
            w = x.detach().requires_grad_()
            (w**3 * y).sum().backward()
            return w.grad, x * y

        x, y = plain(3), leaf(3, seed=1)
        out = compile(f)(x, y)
        backward(out[1:])
        yield out, x, y

    check_session(session)
