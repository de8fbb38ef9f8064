"""BEHAVIOUR 4: what shows of how a returned view was made once the caller gives its base a history."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, check_session, leaf, plain

MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def leafness(t):
    found = attempt_later(lambda: (t.is_leaf, t.requires_grad, t.grad_fn is not None))
    return "refused" if isinstance(found, Raised) else found  # the message names nodes


@pytest.mark.parametrize("ambient", ["grad", "no_grad", "inference"])
@pytest.mark.parametrize("inside", ["grad", "no_grad"])
@pytest.mark.parametrize("written", ["nothing", "base", "view"])
@pytest.mark.parametrize("base", ["argument", "made inside", "view"])
@pytest.mark.parametrize("later", ["written", "told to require grad", "set"])
def test_a_view_of_what_gets_a_history_later(ambient, inside, written, base, later):
    def function(x):
        b = x * 2 if base == "made inside" else x
        with MODES[inside]():
            views = [b[1:], b.unbind()[1], b.view(-1, 1)]
            if written == "base":
                b.add_(1)
            elif written == "view":
                views[0].add_(1)
        return b, views

    def give(b, w):
        if later == "written":
            b.mul_(w)
        elif later == "set":
            b.set_(w * 2)
        else:
            b.requires_grad_()

    def session(compile):
        x, w = plain(4)[1:] if base == "view" else plain(3), leaf(3)
        with MODES[ambient]():
            b, views = compile(function)(x)
        yield [leafness(t) for t in (b, *views)]
        yield isinstance(attempt_later(lambda: give(b, w)), Raised)
        yield [leafness(t) for t in (b, *views)]
        for v in views:
            found = attempt_later(lambda v=v: torch.autograd.grad(v.sum() * 3, w, allow_unused=True))
            yield "raised" if isinstance(found, Raised) else found
            yield isinstance(attempt_later(lambda v=v: v.mul_(2)), Raised)
            yield leafness(v)

    check_session(session)
