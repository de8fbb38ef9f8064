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


def _quiet_view(x):
    with torch.no_grad():
        return x[0:1]


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


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "alone"])
@pytest.mark.parametrize("quietly", [True, False])
def test_a_view_of_a_reshaped_leaf_is_put_on_the_whole(quietly, beside):
    def f(x, y):
        with torch.no_grad():
            x.unsqueeze_(0)
            y.data = x[0:1] if beside else x.detach().clone()
        return y.detach().exp()

    def session(compile):
        x = leaf(2, 2)
        y = x[0:1]
        with torch.no_grad() if quietly else torch.enable_grad():
            out = compile(f)(x, y)
        yield out, x, y
        y.sum().backward()
        yield x.grad

    check_session(session)


def _inference_view(x):
    with torch.inference_mode():
        return x.t()


VIEWS = {
    "unbound": lambda x: x.unbind(0)[0],
    "split": lambda x: x.split(1)[1],
    "quietly": _quiet_view,
    "in inference mode": _inference_view,
}
COUNTED = {
    "reshaped": lambda x, y: y.unsqueeze_(0),
    "reshaped in vain": lambda x, y: y.squeeze_(0),
    "put back": lambda x, y: y.set_(x),
    "written": lambda x, y: y.detach().mul_(2),
    "alias reshaped": lambda x, y: x.detach().t_(),
    "alias put back": lambda x, y: x.detach().set_(x.detach()),
}


@pytest.mark.parametrize("move", ["x", "y", "both", "neither"])
@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("make", [leaf, plain], ids=["leaf", "plain"])
def test_a_view_made_after_what_counts_as_a_write(make, view, counted, move):
    def f(x, y):
        COUNTED[counted](x, y)
        v = VIEWS[view](x)
        if move in ("x", "both"):
            x.data = x.detach().clone()
        if move in ("y", "both"):
            y.data = y.clone()
        return v

    def session(compile):
        x = make(2, 2)
        y = x.detach()
        v = compile(f)(x, y)
        yield v, x, y
        yield attempt_later(lambda: v.requires_grad and v.sum().backward()), x.grad

    check_session(session)


@pytest.mark.parametrize(
    "made", [lambda v: v, lambda v: v.unbind(0)[0], lambda v: v[0]], ids=["itself", "several", "one"]
)
def test_an_alias_of_memory_that_its_argument_left(made):
    def f(x, y):
        alias = x.data
        v = made(alias)
        x.data = y
        alias.requires_grad_()
        return v

    def session(compile):
        x, y = leaf(2, 2), plain(2, 2, seed=3)
        v = compile(f)(x, y)
        with torch.no_grad():
            x.mul_(2)
        yield v, x, y

    check_session(session)


@pytest.mark.parametrize(
    "last", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x], ids=["t_", "unsqueeze_", "no"]
)
@pytest.mark.parametrize("write", [lambda y, v: y.copy_(v), lambda y, v: y.mul_(v)], ids=["copied", "multiplied"])
@pytest.mark.parametrize(
    "made", [lambda x: x * 2, lambda x: x[0:1], lambda x: x.unbind(0)[0]], ids=["result", "view", "part"]
)
@pytest.mark.parametrize("make", [lambda: leaf(2, 2), lambda: leaf(2, 2).clone()], ids=["leaf", "no leaf"])
def test_an_argument_that_was_written_from_a_result_is_reshaped(make, made, write, last):
    def f(x, y):
        v = made(x)
        write(y, v)
        last(y)
        return v

    def session(compile):
        x, root = make(), leaf(2, 2, seed=3)
        y = root.clone()
        v = compile(f)(x, y)
        yield v, x, y
        yield torch.autograd.grad(y.sum(), (x, root), retain_graph=True, allow_unused=True)
        yield torch.autograd.grad(v.sum(), (x, root), allow_unused=True)

    check_session(session)


@pytest.mark.parametrize("reshape", [False, True])
@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
def test_what_is_cut_twice_is_cut_when_it_first_was(make, reshape):
    def f(x):
        x.detach_()
        v = x.t()
        if reshape:
            x.t_()
        x.detach_()
        return v, v * 2

    def session(compile):
        x = make(2, 2)
        yield compile(f)(x), x

    check_session(session)


@pytest.mark.parametrize("elsewhere", [lambda x, y: setattr(y, "data", y.clone()), lambda x, y: setattr(y, "data", x)])
@pytest.mark.parametrize("first", [lambda y: y.t_(), lambda y: y.squeeze_(0), lambda y: y.mul_(2)], ids=range(3))
@pytest.mark.parametrize("view", [lambda y: y.mT, lambda y: y[..., 0]], ids=["turned", "part"])
@pytest.mark.parametrize("told", ["before", "after"])
@pytest.mark.parametrize("shares", [False, True])
def test_a_view_of_what_is_told_to_require_grad_and_goes_elsewhere(shares, told, view, first, elsewhere):
    def f(x, y):
        first(y)
        if told == "before":
            y.requires_grad_()
        v = view(y)
        if told == "after":
            y.requires_grad_()
        elsewhere(x, y)
        return v

    def session(compile):
        x = plain(2, 2)
        y = x.view(2, 2) if shares else plain(2, 2, seed=3)
        v = compile(f)(x, y)
        yield v.detach(), x, y

    check_session(session)
