"""BEHAVIOUR 5: hooks and custom backwards on ways that a backward does not come by."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, non_leaf, plain


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("kind", [lambda *shape: [leaf(*shape)], lambda *shape: non_leaf(*shape).args])
@pytest.mark.parametrize("op", [torch.conv2d, torch.conv_transpose2d, lambda x, w: torch.conv2d(x * 2, w) * 3])
def test_a_second_derivative_leads_without_a_gradient_to_an_argument_with_a_hook(op, kind, trained):
    def session(compile):
        calls = []

        def function(x, weight):
            x.register_hook(lambda gradient: calls.append(gradient is None))
            return op(x, weight)

        compiled = compile(function)
        for _ in range(2):
            (x,) = kind(1, 2, 4, 4)
            weight = plain(2, 2, 2, 2).requires_grad_(trained)
            y = compiled(x, weight)
            tangent = plain(*y.shape).requires_grad_()
            (gradient,) = torch.autograd.grad(y, x, tangent, create_graph=True)
            yield x, y, gradient, list(calls)
            yield attempt_later(gradient.sum().backward), tangent, weight, x, list(calls)

    check_session(session)


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.count.add_(1)
        return gradient * 2, None


def counting_hook(x, w, count):
    made = x * 2
    made.register_hook(lambda gradient: (count.add_(1), None)[1])
    return made + w * 3


def counting_backward(x, w, count):
    return Counting.apply(x, count) * w


def counting_backwards(x, w, count):
    return Counting.apply(Counting.apply(x, count) * w, count) + w


def counting_one_result(x, w, count):
    return Counting.apply(x, count) + w, x * w


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("asked", [(0,), (1,), (1, 1), (1, 0), (0, 1)])
@pytest.mark.parametrize("function", [counting_hook, counting_backward, counting_backwards, counting_one_result])
def test_what_a_backward_does_on_the_way_to_a_leaf_that_is_not_asked_for(function, asked, create_graph):
    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            leaves = leaf(2, 3), leaf(2, 3, seed=1)
            count = plain(1)
            y = compiled(*leaves, count)
            total = y if isinstance(y, torch.Tensor) else sum(y)
            for k in asked:
                ask = partial(torch.autograd.grad, total.sum(), leaves[k], retain_graph=True, create_graph=create_graph)
                yield attempt_later(ask), count, leaves

    check_session(session)


def test_a_hook_on_a_leaf_that_is_not_asked_for_is_not_called():
    def session(compile):
        calls = []

        def function(x, w):
            x.register_hook(lambda gradient: calls.append("x"))
            w.register_hook(lambda gradient: calls.append("w"))
            return x * w

        compiled = compile(function)
        for asked in ("x", "w", "w"):
            leaves = {"x": leaf(3), "w": leaf(3, seed=1)}
            yield torch.autograd.grad(compiled(**leaves).sum(), leaves[asked]), list(calls)

    check_session(session)
