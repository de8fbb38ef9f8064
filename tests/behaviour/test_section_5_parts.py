"""BEHAVIOUR 5: parts that one op gives (chunks, splits, rows), some of which are returned and others computed from."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.functions import Same, View
from tests.behaviour.harness import attempt_later, check_session, leaf

pytestmark = pytest.mark.usefixtures("device")


def by_a_function_that_returns_its_operand(x):
    return Same.apply(x)


def by_a_function_that_returns_a_view(x):
    return View.apply(x)


def by_a_write(x):
    y = x.view(-1)
    y.mul_(3)
    return y


def by_an_op(x):
    return x * 3


def by_a_view(x):
    return x.view(-1)


@pytest.mark.parametrize("roots", [(0, 1), (0,), (1,)], ids=str)
@pytest.mark.parametrize("options", [{}, {"create_graph": True}], ids=["graph freed", "graph created"])
@pytest.mark.parametrize(
    "parts",
    [lambda y: y.chunk(3, -1), lambda y: y.split([1, 2, 3], -1), lambda y: y.view(3, 2).unbind()],
    ids=["chunk", "split", "unbind"],
)
@pytest.mark.parametrize(
    "made",
    [
        by_a_function_that_returns_its_operand,
        by_a_function_that_returns_a_view,
        by_a_write,
        by_an_op,
        by_a_view,
    ],
    ids=lambda made: made.__name__,
)
@pytest.mark.parametrize("with_hook", [False, True], ids=["", "hook"])
def test_one_part_is_returned_and_another_computed_from(made, parts, options, roots, with_hook):
    def function(x):
        first, second, third = parts(made(x))
        if with_hook:
            first.register_hook(lambda g: None if g is None else g * 2)
        return first * first, second, third.clone()

    def session(compile):
        root = leaf(6)
        x = root.clone() if made is by_a_write else root
        results = compile(function)(x)
        yield results
        given = [torch.ones_like(results[k], requires_grad=True) for k in roots]
        yield attempt_later(lambda: torch.autograd.backward([results[k] for k in roots], given, **options))
        yield root.grad
        if options and root.grad is not None and root.grad.requires_grad:
            grad = root.grad
            root.grad = None
            yield attempt_later(lambda: grad.backward(torch.ones_like(grad)))
            yield root.grad, [g.grad for g in given]

    check_session(session)
