"""BEHAVIOUR 4: what no longer lies as its history says, called in inference mode."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain

LEFT = {
    "other data": lambda x: setattr(x, "data", plain(1, 3)),
    "a part of itself": lambda x: x.set_(x[0:1]),
    "a part of itself, as data": lambda x: setattr(x, "data", x.data[0:1]),
}
KINDS = {
    "plain": lambda z: z.clone().real * 1,
    "a view": lambda z: z.clone().real,
    "negated": lambda z: z.clone().conj().imag,
    "negated, no view": lambda z: torch.neg(z.real),
}


FUNCTIONS = {"read": lambda x: x * 2, "viewed": lambda x: x[0], "written": lambda x: x.mul_(2)}
CASES = [(f, left) for f in FUNCTIONS for left in LEFT if f != "written" or left == "other data"]


@pytest.mark.parametrize(("f", "left"), CASES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["in inference mode", "under grad"])
def test_it_lies_elsewhere(first, kind, f, left):
    def session(compile):
        compiled = compile(FUNCTIONS[f])
        x = KINDS[kind](leaf(3, 3, dtype=torch.complex64))
        LEFT[left](x)
        if first == "under grad":
            yield attempt_later(lambda: compiled(x))
        with torch.inference_mode():
            y = attempt_later(lambda: compiled(x))
        yield y, x, x.is_inference(), x.requires_grad

    check_session(session)
