"""BEHAVIOUR 5: custom Functions whose backwards differentiate what they were given."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import check_session, plain, through_dynamo
from tests.behaviour.test_training_loops import seeded


class _Integrated(torch.autograd.Function):
    """A fixed point's adjoint: the function that it applies is an argument, and its backward differentiates it."""

    @staticmethod
    def forward(ctx, f, start, *parameters):
        ctx.f = f
        with torch.no_grad():
            end = start + f(start)
        ctx.save_for_backward(end, *parameters)
        return end

    @staticmethod
    def backward(ctx, g):
        end, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            x = end.detach().requires_grad_()
            gradients = torch.autograd.grad(ctx.f(x), (x, *parameters), g)
        return None, g + gradients[0], *gradients[1:]


@pytest.mark.parametrize("compile", [None, through_dynamo])
def test_a_function_whose_backward_differentiates_modules_of_its_closure(compile):
    def session(compile):
        net = seeded(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)))
        net.to(plain(1).device)
        compiled = compile(lambda x, t: _Integrated.apply(lambda x: net(x) * t, x, *net.parameters()))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for k in range(3):
            loss = compiled(plain(3, 2, seed=k), plain(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss, list(net.parameters())

    check_session(session, compile=compile, rtol=1e-4)
