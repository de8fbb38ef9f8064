"""BEHAVIOUR 3: an argument that is a view goes from place to place and is reshaped and written on its way."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, check_session, leaf, plain


def _quietly(act):
    def done(x, y):
        with torch.no_grad():
            act(x, y)

    return done


EVENTS = {
    "turned": lambda x, y: setattr(x, "data", x.mT),
    "turned elsewhere": lambda x, y: setattr(x, "data", x.mT.clone()),
    "put on another": lambda x, y: setattr(x, "data", y),
    "transposed": lambda x, y: x.transpose_(-1, -2),
    "transposed quietly": _quietly(lambda x, y: x.transpose_(-1, -2)),
    "unsqueezed": lambda x, y: x.unsqueeze_(0),
    "written": lambda x, y: x.mul_(2),
    "written quietly": _quietly(lambda x, y: x.mul_(2)),
}
MOVES = set(list(EVENTS)[:3])
WAYS = [way for n in (2, 3) for way in itertools.permutations(EVENTS, n) if MOVES & set(way)]


@pytest.mark.parametrize("way", WAYS, ids=", ".join)
def test_a_view_looks_for_its_history_where_it_lies(way):
    def f(x, y):
        for event in way:
            EVENTS[event](x, y)
        return x[..., 0]

    def session(compile):
        root = leaf(2, 2)
        x, y = root.clone().view(2, 2), plain(2, 2, seed=3)
        out = compile(f)(x, y)
        yield out, x, y
        yield attempt_later(lambda: backward([out])), root.grad
        yield attempt_later(lambda: torch.autograd.grad(x.sum(), root))

    check_session(session)


@pytest.mark.parametrize("between", [False, True], ids=["once", "by another place"])
@pytest.mark.parametrize("make", [plain, leaf, lambda *n: leaf(*n).clone()], ids=["plain", "leaf", "no leaf"])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.split])
def test_a_part_of_what_had_moved_before(split, make, between):
    def f(x, y):
        x.data = y.clone() if between else y
        part = split(x, 1)[0]
        if between:
            x.data = y
        return part

    def session(compile):
        x, y = make(2, 2), plain(2, 2, seed=3)
        part = compile(f)(x, y)
        yield part, x, y

    check_session(session)
