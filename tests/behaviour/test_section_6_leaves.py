"""BEHAVIOUR 6: views of wrappers, and what is detached of them, that a function tells to require grad."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, check_session, differentiable
from tests.behaviour.wrappers import nested, tagged, two

VIEWS = {
    "t": lambda x: x.t(),
    "row": lambda x: x[0],
    "unsqueezed": lambda x: x.unsqueeze(0),
    "detached": lambda x: x.detach(),
}
USES = {
    "alone": lambda v: [],
    "summed up": lambda v: [v.sum()],
    "viewed": lambda v: [v.view_as(v)],
    "viewed and used": lambda v: [v[0:], v[0] * 2],
}


def _quietly(view):
    def made(x):
        with torch.no_grad():
            return view(x)

    return made


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("quietly", [False, True], ids=["", "under no_grad"])
@pytest.mark.parametrize("kind", ["plain", "leaf", "result"])
@pytest.mark.parametrize("make", [two, tagged, nested], ids=lambda make: make.__name__)
def test_a_view_that_is_told_to_require_grad(make, kind, quietly, view, use):
    if view is not VIEWS["detached"] and kind != "plain" and not quietly:
        pytest.skip("it requires grad by its base")

    def function(x):
        made = _quietly(view)(x) if quietly else view(x)
        before = made[0:]
        made.requires_grad_()
        return made, before, *use(made)

    def session(compile):
        root = make(2, 2, grad=kind != "plain")
        x = root * 1 if kind == "result" else root
        results = compile(function)(x)
        yield root, x, results
        tensors = [x, *results]
        yield [attempt_later(lambda t=t: t._base is None) for t in tensors]
        yield [[attempt_later(lambda t=t, u=u: t._base is u) for t in tensors] for u in tensors]
        with_history = [t for t in differentiable(results) if t.grad_fn is not None]
        if with_history:
            backward(with_history)
        yield root, x, results
        with torch.no_grad():
            results[0].add_(1)
        yield root, x, results[0]

    check_session(session)
