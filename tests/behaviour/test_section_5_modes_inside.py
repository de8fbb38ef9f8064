"""BEHAVIOUR 5: a backward inside that goes on in the caller's graph does so in the mode in which it was called."""

from __future__ import annotations

import contextlib

import pytest
import torch

from tests.behaviour.functions import Square
from tests.behaviour.harness import attempt_later, check_session, leaf, plain

_MODES = {
    "none": contextlib.nullcontext,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to another": lambda: torch.autocast("cpu", torch.float16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "inference": torch.inference_mode,
    "outside inference": lambda: torch.inference_mode(False),
    "no_grad": torch.no_grad,
}


class Product(torch.autograd.Function):
    """A product whose backward is seen: it is computed in the mode that is in force around it."""

    @staticmethod
    def forward(ctx, x, weight, seen):
        ctx.save_for_backward(weight)
        ctx.seen = seen
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        ctx.seen.append((torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), g.is_inference()))
        return g @ ctx.saved_tensors[0], None, None


_HISTORIES = {
    "a view": lambda a, _: (a * 1).view(2, 2),
    "what is handed on": lambda a, _: a + plain(2, 2),
    "a product": lambda a, seen: Product.apply(a, plain(2, 2, seed=1) / 3, seen),
}
_GRADIENTS = {
    "an argument": lambda x, h: h,
    "made there": lambda x, h: torch.full_like(x, 1.01),
    "computed there": lambda x, h: h * 1.01,
}


@pytest.mark.parametrize("around", ["none", "autocast", "inference", "no_grad"])
@pytest.mark.parametrize("inside", _MODES)
@pytest.mark.parametrize("gradient", _GRADIENTS)
@pytest.mark.parametrize("history", _HISTORIES)
def test_a_backward_that_goes_on(history, gradient, inside, around):
    def f(x, h):
        with _MODES[inside]():
            x.backward(_GRADIENTS[gradient](x, h))
        return h * 2

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            seen = []
            a = leaf(2, 2)
            x = _HISTORIES[history](a, seen)
            with _MODES[around]():
                y = compiled(x, plain(2, 2, seed=2) / 7)
            yield y, a.grad, a.grad.is_inference(), seen
            yield attempt_later(lambda a=a: (a * 2).sum().backward()), a.grad

    check_session(session)


@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("result", [lambda y: y, lambda y: y.t(), lambda y: y * 2, lambda y: y.sum()])
@pytest.mark.parametrize(
    "op", [lambda x: Square.apply(x), lambda x: Square.apply(x).exp(), lambda x: Square.apply(x.exp())]
)
def test_what_a_backward_inside_came_from_is_returned(op, result, create, retained):
    def f(x):
        y = op(x)
        y.sum().backward(retain_graph=retained)
        return result(y)

    def session(compile):
        x = leaf(2, 2)
        y = compile(f)(x)
        yield y, x.grad
        yield attempt_later(lambda: torch.autograd.grad(y.sum(), x, create_graph=create))

    check_session(session)
