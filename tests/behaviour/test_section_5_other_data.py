"""BEHAVIOUR 5: an argument is given other data (``.data =``) between the call and its backward, as sharding does."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, check_session, leaf, plain

READS = {
    "itself": lambda w: w.sin(),
    "a transpose": lambda w: w.t().sin(),
    "a part": lambda w: w[:1].exp() * w[1:].sin(),
    "a view of a view": lambda w: w.t()[1:].sin(),
    "a product with its transpose": lambda w: w.t() @ w.t(),
    "a layer": lambda w: torch.nn.functional.linear(w.detach() * 2, w).relu(),
    "what was made of it": lambda w: (w * 2).sin(),
    "a view of what was made of it": lambda w: (w * 2).t().sin(),
    "an expanded one": lambda w: w.unsqueeze(0).expand(2, 2, 2) ** 2,
    "its shape": lambda w: w.t().gather(0, torch.zeros(2, 2, dtype=torch.int64, device=w.device)),
}
GIVEN = {
    "other data": lambda w: setattr(w, "data", plain(2, 2, seed=1)),
    "nothing": lambda w: setattr(w, "data", plain(0)),
    "itself": lambda w: setattr(w, "data", w.detach()),
    "other data, and back": lambda w: [setattr(w, "data", x) for x in (plain(5), w.detach())],
    "numbers": lambda w: w.data.mul_(2),
}


@pytest.mark.parametrize("is_leaf", [True, False], ids=["leaf", "no leaf"])
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("read", READS)
def test_an_argument_gets_other_data_before_its_backward(read, given, is_leaf):
    def session(compile):
        compiled = compile(READS[read])
        for later in (False, True):
            root = leaf(2, 2)
            w = root if is_leaf else root * 2
            y = compiled(w)
            if not later:
                GIVEN[given](w)
            found = attempt_later(lambda y=y, w=w: torch.autograd.grad(y.sum(), w, create_graph=True))
            if isinstance(found, Raised):  # it has another shape by now
                yield "raised"
                continue
            (g,) = found
            yield g.detach()
            if later:
                GIVEN[given](w)
            found = attempt_later(lambda g=g, w=w: torch.autograd.grad((g * g).sum(), w, allow_unused=True))
            yield "raised" if isinstance(found, Raised) else found

    check_session(session)
