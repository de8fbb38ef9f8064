"""BEHAVIOUR 3: views whose base was given data of another shape, and lies elsewhere by now."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, check_session, leaf, plain


def writes_the_view(view, base):
    view.mul_(3)
    return view * view, base * 2


def writes_both(view, base):
    view.fill_(3)
    base.mul_(-1)
    return -view, base * base


def writes_what_was_used(view, base):
    before = view * view
    view.mul_(2)
    return before, view * 1


def reshapes_the_view(view, base):
    view.unsqueeze_(0).mul_(2)
    return view * 2, base + 1


def writes_the_base_alone(view, base):
    base.mul_(view.sum())
    return view * 2, base * 2


@pytest.mark.parametrize(
    "function", [writes_the_view, writes_both, writes_what_was_used, reshapes_the_view, writes_the_base_alone]
)
@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (4,), (2, 2), ()], ids=str)
@pytest.mark.parametrize(
    "part", [lambda b: b[:1], lambda b: b.view(-1, 1)[:1], lambda b: b[0]], ids=["slice", "view", "select"]
)
@pytest.mark.parametrize("written", [False, True], ids=["as made", "written before"])
def test_a_view_whose_base_was_given_data_of_another_shape(function, shape, part, written):
    def session(compile):
        x = leaf(2)
        base = x.clone()
        if written:
            base.mul_(2)
        view = part(base)
        base.data = plain(*shape, seed=1)
        outputs = compile(function)(view, base)
        yield view, base, outputs
        for t in [*([outputs] if isinstance(outputs, torch.Tensor) else outputs), view, base]:
            if t.requires_grad:
                found = attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [x], retain_graph=True))
                yield "raised" if isinstance(found, Raised) else found  # messages name nodes

    check_session(session)
