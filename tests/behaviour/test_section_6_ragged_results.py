"""BEHAVIOUR 6: ragged results that their own ops keep for the backward."""

import pytest
import torch

from tests.behaviour.harness import check_session
from tests.behaviour.wrappers import jagged

OF_THEMSELVES = {
    "tanh": lambda x: x.tanh(),
    "tanh in place": lambda x: x.tanh_(),
    "exp of a result, in place": lambda x: (x * 2).exp_(),
    "softmax": lambda x: torch.softmax(x, -1),
    "beside another": lambda x: (x.exp(), x * 3),
}


@pytest.fixture(params=OF_THEMSELVES.values(), ids=OF_THEMSELVES)
def of_itself(request):
    return request.param


def first(y):
    return y[0] if isinstance(y, tuple) else y


def values(gradients):
    return [None if g is None else g.values().detach() for g in gradients]


def test_second_derivatives_come_by_a_result(of_itself):
    has_third = of_itself is not OF_THEMSELVES["softmax"]  # of which torch has none

    def session(compile):
        compiled = compile(of_itself)
        for lengths in ((2, 1), (1, 3)):
            x = jagged(*lengths, grad=True)
            y = first(compiled(x * 0.5))
            ones = torch.ones_like(y).detach()
            (g,) = torch.autograd.grad([y], [x], [ones], create_graph=True)
            seed = torch.ones_like(g).detach() * 3
            second = torch.autograd.grad([g], [x, y], [seed], allow_unused=True, create_graph=True)
            yield g.values().detach(), values(second)
            third = [s for s in second if has_third and s is not None and s.requires_grad]
            ones = [torch.ones_like(s).detach() for s in third]
            if third:
                yield values(torch.autograd.grad(third, [x, y], ones, allow_unused=True))

    check_session(session, rtol=1e-5)


def test_hooks_on_a_result_are_called_by_second_derivatives(of_itself):
    def session(compile):
        x = jagged(2, 1, grad=True)
        y = first(compile(of_itself)(x * 0.5))
        seen = []
        y.register_hook(lambda g: seen.append(g.values().detach().clone()))
        y.register_hook(lambda g: g * 2)
        y.retain_grad()
        (g,) = torch.autograd.grad([y], [x], [torch.ones_like(y).detach()], create_graph=True)
        yield list(seen)
        g.backward(torch.ones_like(g).detach())
        yield seen, y.grad.values(), x.grad.values()

    check_session(session, rtol=1e-5)
