"""BEHAVIOUR 5: custom Functions whose backwards differentiate what they were given."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.behaviour.harness import check_session, plain, through_dynamo
from tests.behaviour.test_training_loops import seeded


class _Integrated(torch.autograd.Function):
    """Euler's steps and their adjoint: what they integrate is an argument, and the backward differentiates it."""

    @staticmethod
    def forward(ctx, f, x, times, *parameters):
        ctx.f = f
        with torch.no_grad():
            for begin, end in itertools.pairwise(times):
                x = x + (end - begin) * f(begin, x)
        ctx.save_for_backward(x, times, *parameters)
        return x

    @staticmethod
    def backward(ctx, g):
        x, times, *parameters = ctx.saved_tensors
        total = [torch.zeros_like(p) for p in parameters]
        for k in range(len(times) - 1, 0, -1):
            step = times[k] - times[k - 1]
            with torch.enable_grad():
                at = x.detach().requires_grad_()
                slope = ctx.f(times[k], at)
                gradient, *others = torch.autograd.grad(slope, (at, *parameters), g)
            x, g = x - step * slope.detach(), g + step * gradient
            total = [t + step * o for t, o in zip(total, others, strict=True)]
        return None, g, None, *total


@pytest.mark.parametrize("compile", [None, through_dynamo])
def test_a_function_whose_backward_differentiates_modules_of_its_closure(compile):
    def session(compile):
        net = seeded(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)))
        net.to(plain(1).device)
        compiled = compile(lambda x, t: _Integrated.apply(lambda t, x: net(x) * t, x, t, *net.parameters()))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for k in range(3):
            loss = compiled(plain(3, 2, seed=k), plain(4) / 8).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss, list(net.parameters())

    check_session(session, compile=compile, rtol=1e-4)
