"""BEHAVIOUR 4: tensors that become inference tensors, or cease to be such, by the data that they are given."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain, write

MADE = {
    "alias": lambda x: x.data,
    "detached": lambda x: x.detach(),
    "shaped": lambda x: x.view(-1),
    "part": lambda x: x[..., 0],
    "expanded": lambda x: x.expand(2, 2),
    "result": lambda x: x * 2,
}
DATA = {
    "a copy": lambda v, x, y: v.clone(),
    "a copy of the argument": lambda v, x, y: x.clone(),
    "another argument": lambda v, x, y: y,
}
BESIDE = {
    "nothing": lambda v, x, y: None,
    "the argument reshaped": lambda v, x, y: x.unsqueeze_(0),
    "the argument elsewhere": lambda v, x, y: setattr(x, "data", x.clone()),
    "the argument on the other": lambda v, x, y: setattr(x, "data", y),
    "itself reshaped": lambda v, x, y: v.unsqueeze_(0),
}


@pytest.mark.parametrize("first", [False, True], ids=["data first", "data last"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("make", [plain, leaf, lambda *n: leaf(*n).clone()], ids=["plain", "leaf", "no leaf"])
def test_data_of_another_mode_in_inference_mode(make, made, data, beside, first):
    def f(x, y):
        v = MADE[made](x)
        if first:
            BESIDE[beside](v, x, y)
        v.data = DATA[data](v, x, y)
        if not first:
            BESIDE[beside](v, x, y)
        return v

    def session(compile):
        x, y = make(2, 2), plain(2, 2, seed=3)
        with torch.inference_mode():
            v = compile(f)(x, y)
        yield v, x, y
        yield attempt_later(lambda: write(v)), v, x, y

    check_session(session)


@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("made", ["part", "shaped", "alias"])
def test_what_was_made_of_data_in_between(made, inference, make):
    def f(x, y):
        x.data = x.clone()
        v = MADE[made](x)
        v.data.mul_(2)
        x.data = y
        return v

    def session(compile):
        x, y = make(2, 2), plain(2, 2, seed=3)
        with torch.inference_mode(inference):
            v = compile(f)(x, y)
        yield v, x, y

    check_session(session)
