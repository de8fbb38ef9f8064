"""Combinations: moved (set_/.data=) and reshaped in place / written / of other shape or dtype."""

import itertools

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, check, check_session, refuses, session
from tests.behaviour.inputs import Given, given, leaf, plain
from tests.behaviour.storage.common import (
    MOVES_BY_SETATTR,
    NO_LEAVES,
    _non_leaf_and_plain,
    _two_non_leaves,
    _view,
    _views,
    found,
    other,
    session_of,
)

RESHAPED = {"t": ((2,), lambda x: x.t_()), "transpose": ((1, 1, 1, 2), lambda x: x.transpose_(0, 3))}


@pytest.mark.parametrize("reshaped", RESHAPED)
def test_a_view_reshaped_by_the_caller_after_set_is_refused(reshaped):
    """``set_`` to a storage leaves no trace in a history, in which the change is of what the view was made as."""
    size, change = RESHAPED[reshaped]

    def argument():
        x = torch.view_as_real(leaf(3, 3, dtype=torch.complex64) * 1)
        return change(x.set_(x.untyped_storage(), 2, size, torch.empty(size).stride()))

    x, untouched = argument(), argument()
    with refuses("view of a base that has changed"):
        aotcheck.aot_function(lambda x: x.pow_(2))(x)
    assert torch.equal(x, untouched)
    assert (x._version, x.shape, x.stride()) == (untouched._version, untouched.shape, untouched.stride())


@pytest.mark.parametrize("make", NO_LEAVES)
@pytest.mark.parametrize("change", [lambda v: v.t_(), lambda v: v.unsqueeze_(0)], ids=["t_", "unsqueeze_"])
@pytest.mark.parametrize("when", ["before", "after", "between", "both"])
@pytest.mark.parametrize("inside", [False, True], ids=["of the argument", "of what is made inside"])
def test_data_assigned_to_a_view_that_is_reshaped_before_or_after(make, change, when, inside):
    def f(x):
        base = x.clone() if inside else x
        v = base.t()
        if when in ("before", "both"):
            change(v)
        v.data = other(2, 2)
        if when != "before":
            change(v)
        if when == "between":
            v.data = other(1)
        return (v, base) if inside else (v,)

    check_session(session_of(f, make))


_RESHAPES = {
    "t_": lambda v: v.t_(),
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "as_strided_": lambda v: v.as_strided_((1,), (1,)),
    "twice": lambda v: v.unsqueeze_(0).squeeze_(),
}

_DATA = {
    "of the reshaped": lambda x, w: w,
    "of the base": lambda x, w: x[:1],
    "fresh": lambda x, w: torch.ones(2, device=x.device),
}


@pytest.mark.parametrize("data", _DATA.values(), ids=_DATA)
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:2], lambda x: x.unsqueeze(0)])
@pytest.mark.parametrize("reshape", _RESHAPES.values(), ids=_RESHAPES)
@pytest.mark.parametrize("of_argument", [True, False])
@pytest.mark.parametrize("begins", [0, 1, 2])
@session
def test_data_of_another_shape_assigned_to_a_view_after_another_view_was_reshaped(
    compile, begins: int, of_argument: bool, reshape, view, data
):
    """Being reshaped counts as a write, but it came before: the shape that gradients are to have is the former one."""

    def function(x):
        y = x if of_argument else x * 2
        w = y[:1]
        reshape(w)
        v = view(y)
        v.data = data(y, w)
        return w, v, v.sum()

    root = leaf(3)
    results = compile(function)(root.clone())
    yield results
    t = results[begins]
    yield found(lambda: torch.autograd.grad([t], [root], torch.ones_like(t)))


CHANGES = {"t_": lambda x: x.t_(), "unsqueeze_": lambda x: x.unsqueeze_(0)}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("move", MOVES_BY_SETATTR.values(), ids=MOVES_BY_SETATTR)
@pytest.mark.parametrize("shape", [(2, 3), (3, 2)], ids=str)
@pytest.mark.parametrize("make", [_non_leaf_and_plain, _view])
def test_an_argument_is_reshaped_in_place_before_or_after_it_moves(make, shape, move, change):
    def before(x, y):
        change(x)
        move(x, y)
        return x * 2

    def after(x, y):
        move(x, y)
        change(x)
        return x * 2

    def itself(x, y):
        change(x)
        move(x, y)
        return x

    for body in (before, after, itself):
        check(body, lambda: make(*shape))


@pytest.mark.parametrize("make", [_non_leaf_and_plain, _view])
def test_an_argument_is_reshaped_and_assigned_data_of_its_own_storage(make):
    def itself(x, y):
        x.squeeze_()
        x.data = x.unsqueeze(-1)
        return x

    def made_inside(x, y):
        view = x.select(0, 0)
        view.squeeze_()
        view.data = x
        return view

    def back(x, y):
        x.squeeze_()
        x.data = x.unsqueeze(0)
        return x.t()

    for body in (itself, made_inside, back):
        check(body, lambda: make(1, 2), backward=None)


@agrees(lambda: _non_leaf_and_plain(2, 2), lambda: _non_leaf_and_plain(3, 2), anew=True)
def test_a_view_is_reshaped_in_place_after_its_base_moved(x, y):
    view = x.t()
    x.data = y
    view.t_()
    return view


KINDS = {"conjugate": lambda x: x.conj(), "alias": lambda x: x.view(x.shape), "row": lambda x: x[:1]}

OTHER_DATA = {"its source": lambda x, v: x, "a copy": lambda x, v: v.detach().resolve_conj().clone()}

OF_THAT = {"transposed": lambda v: v.transpose(0, 1), "row": lambda v: v[:, :1], "unsqueezed": lambda v: v.unsqueeze(0)}


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("through", [False, True], ids=["written", "written through the view"])
@pytest.mark.parametrize("of_that", OF_THAT.values(), ids=OF_THAT)
@pytest.mark.parametrize("data", OTHER_DATA.values(), ids=OTHER_DATA)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@session
def test_a_view_of_a_moved_view_is_reshaped_after_a_write(compile, kind, data, of_that, through, both):
    """It gets the history of the write when it is reshaped, not when it was made."""

    def function(x):
        v = kind(x)
        w = of_that(v)
        v.data = data(x, v)
        (w if through else x).mul_(2)
        w.squeeze_()
        return (w, v) if both else w

    f = compile(function)
    for _ in range(2):
        root = leaf(1, 2, dtype=torch.complex64)
        x = root * 1
        results = f(x)
        yield results
        w = results[0] if both else results
        yield torch.autograd.grad(w, [x, root], torch.ones_like(w), allow_unused=True)


@agrees(
    lambda: given(plain(1, 3), plain(3, 2)),
    lambda: given(plain(1, dtype=torch.complex64), plain(1, dtype=torch.complex64).conj()),
    anew=True,
)
def test_a_view_of_an_input_that_is_reshaped_and_then_assigned_data(x, y):
    x.squeeze_()
    view = x.t()
    x.data = y
    return view


@agrees(lambda: given(plain(2)))
def test_a_view_of_a_view_that_moves_after_the_base_was_transposed(x):
    v = x[0]
    x.t_()
    w = x.clone()
    u = v.t()
    v.data = w
    return u


MAKERS = {
    "non-leaf": _two_non_leaves,
    "views": _views,
    "plain": lambda: given(plain(2, 2), plain(2, 2, seed=4)),
    "leaf": lambda: given(leaf(2, 2), plain(2, 2, seed=4)),
}


def _reshaped_without_grad(x, y):
    with torch.no_grad():
        x.t_()


def _fresh_data(x, y):
    x.data = y * 2


def _inference_data(x, y):
    with torch.inference_mode():
        data = y.clone()
    x.data = data


MOVES = {
    "data": lambda x, y: setattr(x, "data", y),
    "fresh data": _fresh_data,
    "inference data": _inference_data,
    "set_": lambda x, y: x.set_(y),
    "t_": lambda x, y: x.t_(),
    "unsqueeze_": lambda x, y: x.unsqueeze_(0),
    "t_ under no_grad": _reshaped_without_grad,
}

PAIRS = list(itertools.product(MOVES, MOVES))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a}, {b}" for a, b in PAIRS])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_view_made_between_two_moves_or_reshapes_of_the_argument(make, first, second):
    def f(x, y):
        MOVES[first](x, y)
        view = x.select(0, 0)
        MOVES[second](x, y)
        return view

    def of_view(x, y):
        MOVES[first](x, y)
        view = x.unsqueeze(-1)
        MOVES[second](x, y)
        return view.view_as(view), x

    for body in (f, of_view):
        check(body, make, backward=None)


def test_a_no_grad_view_is_reshaped_before_or_after_data_assignment():
    def made():
        root = leaf(2, 2)
        base = root.clone()
        with torch.no_grad():
            view = base.view_as(base)
        return given(view, plain(2, 2, seed=1), also=[root])

    def of_alias(x, y):
        alias = x.detach()
        alias.unsqueeze_(0)
        x.data = alias
        return x

    def of_itself(x, y):
        x.data = y
        with torch.no_grad():
            x.unsqueeze_(0)
        return y * 2

    for body in (of_alias, of_itself):
        check(body, made, probe=False)


def test_a_conjugated_view_is_reshaped_before_its_base_is_reshaped_or_moved():
    def reshaped(x):
        view = x.conj()
        view.unsqueeze_(0)
        x.unsqueeze_(0)
        return view

    def given_it(x):
        view = x.conj()
        view.squeeze_()
        x.data = view
        return view

    for body in (reshaped, given_it):
        check(body, lambda: given(plain(2, 2, dtype=torch.complex64)), probe=False)


def _with_view() -> Given:
    root = leaf(2, 2)
    base = root.clone()
    return given(base, base.view_as(base), plain(2, 2, seed=1), also=[root])


def test_a_view_and_its_base_are_reshaped_detached_and_moved_in_turn():
    def cut_in_between(x, view, y):
        view.unsqueeze_(0)
        x.detach_()
        view.data = view
        return y * 2

    def cut_at_last(x, view, y):
        v = x.select(0, 0)
        with torch.no_grad():
            w = v.unsqueeze(0)
        v.unsqueeze_(0)
        x.detach_()
        return w

    def several_after(x, view, y):
        view.unsqueeze_(0)
        return torch.chunk(x, 2, -1)[1]

    def both_given_data(x, view, y):
        v = view.select(0, 0)
        view.data = y
        v.data = y
        return v

    for body in (cut_in_between, cut_at_last, several_after, both_given_data):
        check(body, _with_view, probe=False)


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "alone"])
@pytest.mark.parametrize("quietly", [True, False])
@session
def test_a_view_of_a_reshaped_leaf_is_assigned_data_of_that_leaf(compile, quietly, beside):
    def f(x, y):
        with torch.no_grad():
            x.unsqueeze_(0)
            y.data = x[0:1] if beside else x.detach().clone()
        return y.detach().exp()

    x = leaf(2, 2)
    y = x[0:1]
    with torch.no_grad() if quietly else torch.enable_grad():
        out = compile(f)(x, y)
    yield out, x, y
    y.sum().backward()
    yield x.grad
