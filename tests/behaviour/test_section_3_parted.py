"""BEHAVIOUR 3 and 4: views whose source went elsewhere or was reshaped, what is made again being made where it lay."""

from __future__ import annotations

import contextlib

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check_session, leaf, plain, write


def odd_view():
    root = leaf(2, 2)
    with torch.no_grad():
        return root.view(2, 2)


ARGUMENTS = {
    "plain": lambda: plain(2, 2),
    "plain view": lambda: plain(2, 2).view(2, 2),
    "leaf": lambda: leaf(2, 2),
    "no leaf": lambda: leaf(2, 2).clone(),
    "view": lambda: leaf(2, 2).clone().view(2, 2),
    "odd view": odd_view,
}
MODES = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}
SPLITS = {
    "unsafe_split": lambda x: torch.unsafe_split(x, 1)[1],
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2)[1],
    "slice": lambda x: x[1:],
}
CHANGES = {
    "transposed": lambda x, y: x.t_(),
    "unsqueezed": lambda x, y: x.unsqueeze_(0),
    "by .data =": lambda x, y: setattr(x, "data", y),
    "by set_": lambda x, y: x.set_(y),
    "squeezed, written": lambda x, y: x.squeeze_(0).add_(1),
}


@pytest.mark.parametrize("whole", [False, True], ids=["part", "both"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", [torch.detach, torch.t], ids=["detached", "transposed"])
def test_what_a_part_was_split_of_is_changed_afterwards(source, mode, split, change, whole):
    def f(x, y):
        v = source(x)
        with MODES[mode]():
            part = SPLITS[split](v)
        CHANGES[change](v, y)
        return (part, v) if whole else (part,)

    def session(compile):
        x, y = plain(2, 3), plain(3, 2, seed=1)
        out = compile(f)(x, y)
        yield out, x, y
        yield attempt_later(lambda: write(out[0])), out, x, y

    check_session(session)


@pytest.mark.parametrize("returned", ["v", "w", "vw"])
@pytest.mark.parametrize("fresh", [False, True], ids=["an argument's data", "fresh data"])
@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", ["plain", "plain view", "no leaf", "view"])
def test_a_view_of_a_view_that_goes_elsewhere(make, mode, first, fresh, returned):
    def f(x, y):
        with MODES[mode]():
            v = x[0:1]
        w = v.t()
        if first:
            v.data = y.clone() if fresh else y[0:1]
        x.t_()
        if not first:
            v.data = y.clone() if fresh else y[0:1]
        return tuple([{"v": v, "w": w}[name] for name in returned])

    def session(compile):
        x, y = ARGUMENTS[make](), plain(2, 2, seed=3)
        out = attempt(lambda: compile(f)(x, y))
        # Which words refuse a history depends on whether there was one.
        yield [attempt_later(lambda t=t: t.is_leaf) is True for t in out], [t.detach() for t in out], x, y

    check_session(session)


@pytest.mark.parametrize("returned", ["v", "w", "vw"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", ARGUMENTS)
def test_a_view_of_a_view_that_goes_where_nothing_is_seen(make, mode, returned):
    def f(x):
        with MODES[mode]():
            v = x.t()
        w = v[:1]
        v.data = x.clone()
        return tuple([{"v": v, "w": w}[name] for name in returned])

    def session(compile):
        x = ARGUMENTS[make]()
        yield x, compile(f)(x)

    check_session(session)


@pytest.mark.parametrize("then", [lambda v: (v,), lambda v: (v, v.t()), lambda v: (v.detach(),)], ids=range(3))
@pytest.mark.parametrize("data", ["argument", "result", "returned", "itself"])
@pytest.mark.parametrize("around", [False, True], ids=["inside", "around"])
@pytest.mark.parametrize("make", ["plain", "leaf"])
def test_what_is_made_in_inference_mode_counts_no_versions_elsewhere(make, around, data, then):
    def f(x, y):
        with torch.inference_mode():
            v = y * 2
        other = x * 3
        v.data = {"argument": x, "result": other, "returned": other, "itself": v.data}[data]
        return (*then(v), other) if data == "returned" else then(v)

    def session(compile):
        x, y = ARGUMENTS[make](), plain(2, 2, seed=3)
        with torch.inference_mode(around):
            out = attempt(lambda: compile(f)(x, y))
        yield x, out
        yield attempt_later(lambda: write(out[0])), x, out

    check_session(session)
