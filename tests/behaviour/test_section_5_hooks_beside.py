"""BEHAVIOUR 5: hooks of the caller's on one of several results of an op, in a backward from another."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf


class Beside(torch.autograd.Function):
    """A sum, and beside it what was given, a view of that or another tensor."""

    @staticmethod
    def forward(ctx, x, beside):
        return x + x, beside(x)

    @staticmethod
    def backward(ctx, *gradients):
        given = [g.view(2) for g in gradients if g is not None]
        return sum(given), None


OPS = {
    "an input": lambda x: Beside.apply(x, lambda x: x),
    "a view": lambda x: Beside.apply(x, lambda x: x.view(2, 1)),
    "another": lambda x: Beside.apply(x, lambda x: x * 2),
    "an input, and what is computed of both": lambda x: (y := Beside.apply(x, lambda x: x)) + tuple(t * 3 for t in y),
    "unbind": lambda x: x.unbind(),
    "unbind of what is made inside": lambda x: (x * 2).unbind(),
    "aminmax": lambda x: torch.aminmax(x),
}


@pytest.mark.parametrize("changes", [False, True], ids=["looks", "changes"])
@pytest.mark.parametrize("root", [0, 1, -1])
@pytest.mark.parametrize("hooked", [0, 1])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("make", [leaf, lambda n: leaf(n) * 1], ids=["leaf", "non-leaf"])
def test_a_hook_on_a_result_is_called_without_a_gradient(make, op, hooked, root, changes):
    def session(compile):
        x = make(2)
        out = compile(OPS[op])(x)
        seen = []

        def hook(g):
            seen.append(g if g is None else g.clone())
            return torch.full_like(out[hooked], 5) if changes else None

        out[hooked].register_hook(hook)
        gradient = attempt_later(lambda: torch.autograd.grad(out[root].sum(), x, allow_unused=True))
        yield gradient, len(seen), [g for g in seen if g is not None]

    check_session(session)
