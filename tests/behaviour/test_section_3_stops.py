"""BEHAVIOUR 3: arguments that go from place to place, and views that were made of them on the way."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.behaviour.harness import Given, check, check_session, given, leaf, non_leaf, plain


def _non_leaf() -> Given:
    roots = leaf(2, 2), leaf(2, 2, seed=1)
    return given(roots[0].clone(), roots[1].clone(), also=roots)


def _views() -> Given:
    roots = leaf(2, 2), leaf(2, 2, seed=1)
    bases = roots[0].clone(), roots[1].clone()
    return given(bases[0][:], bases[1][:], also=[*roots, *bases])


MAKERS = {
    "non-leaf": _non_leaf,
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
def test_a_view_made_between_two_moves(make, first, second):
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


@pytest.mark.parametrize("make", [_non_leaf, _views])
def test_an_argument_given_data_of_a_view_of_itself_twice(make):
    def reshaped_first(x, y):
        x.squeeze_()
        view = x.unsqueeze(-1)
        x.data = view
        return view

    def set_first(x, y):
        x.set_(y)
        view = x.unsqueeze(-1)
        x.data = view
        return view

    def set_to_what_it_gave(x, y):
        x.data = y
        with torch.no_grad():
            view = x.t()
        x.set_(view)
        return view

    check(reshaped_first, make)
    for body in (set_first, set_to_what_it_gave):
        check(body, make, backward=None)


def test_a_view_whose_base_has_left_goes_back():
    def made():
        root = leaf(2, 2)
        base = root.clone()
        return given(base, base.view_as(base), plain(2, 2, seed=1), also=[root])

    def by_set(x, view, y):
        v = view.view_as(view)
        x.data = y
        v.set_(v)
        return v

    def of_moved(x, view, y):
        x.data = y
        v = x.unsqueeze(0)
        v.set_(view)
        return v

    def cut_before(x, view, y):
        view.zero_()
        return view.t()

    for body in (by_set, of_moved, cut_before):
        check(body, made, backward=None)


def test_a_write_that_only_the_counter_shows_before_other_data():
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


def test_a_view_made_without_grad_requires_grad_before_it_is_written():
    def made():
        root = leaf(2)
        base = root.clone()
        with torch.no_grad():
            view = base.view_as(base)
        return given(view, plain(2, seed=1), also=[root])

    def f(x, y):
        x.requires_grad_()
        y.copy_(x)
        with torch.no_grad():
            x.zero_()
        return y

    def viewed_before(x, y):
        view = x.unsqueeze(0)
        x.requires_grad_()
        return view

    for body in (f, viewed_before):
        check(body, made, backward=None, probe=False)


def test_a_conjugated_view_of_what_is_then_reshaped_or_given_it_as_data():
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


# -- what else befalls arguments beside ----------------------------------------------------------------


def _with_view() -> Given:
    root = leaf(2, 2)
    base = root.clone()
    return given(base, base.view_as(base), plain(2, 2, seed=1), also=[root])


def test_what_befalls_a_view_and_its_base_in_turn():
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


def test_a_conjugated_view_without_grad_of_what_is_given_other_data():
    def f(x):
        y = x.clone()
        with torch.no_grad():
            view = y.conj()
        y.data = x
        return view

    check(f, lambda: given(leaf(2, 2, dtype=torch.complex64)), backward=None, probe=False)


@pytest.mark.parametrize("change", [lambda v: v.add_(1), lambda v: v.unsqueeze_(0), lambda v: v.set_(v)])
def test_a_view_that_counts_a_write_before_its_base_requires_grad(change):
    def itself(x):
        view = x.view_as(x)
        change(view)
        x.requires_grad_()
        return view

    check(itself, lambda: given(plain(2, 2)))


def test_a_view_of_a_written_view_made_before_its_base_requires_grad():
    def f(x):
        view = x.conj()
        view.zero_()
        result = view.unsqueeze(-1)
        x.requires_grad_()
        return result

    check(f, lambda: given(plain(2, 2, dtype=torch.complex64)))


def test_a_view_without_grad_stops_requiring_grad_and_is_reshaped_twice():
    def make():
        base = leaf(2, 2).clone()
        with torch.no_grad():
            return given(base.view_as(base), also=[base])

    def session(compile):
        def f(x):
            x.requires_grad_(False)
            with torch.no_grad():
                x.transpose_(0, -1)
            return x

        compiled, made = compile(f), make()
        for _ in range(2):
            yield compiled(*made.args).shape, made.args[0].stride()

    check_session(session)


# -- written more often than the call writes -------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_view_of_what_was_written_several_times_goes_elsewhere_and_is_written(times):
    """The call writes it once: when its views were made is not told by counting."""

    def f(x):
        for _ in range(times):
            x.neg_()
        y = x.clone()
        v = x.t()
        x.data = y
        x.zero_()
        return v

    check(f, lambda: non_leaf(2, 2))


@pytest.mark.parametrize("part", [lambda x: torch.split(x, [1, 1])[0], lambda x: x.t(), lambda x: x.unbind()[1]])
def test_a_part_of_what_was_written_and_went_to_memory_that_another_then_writes(part):
    """The part was made after the history of what it is of, whenever the memory was written last."""

    def f(x, y):
        x.zero_()
        v = part(x)
        x.data = y
        y.zero_()
        return v

    def make() -> Given:
        root = leaf(2, 2)
        return given(root.clone(), plain(2, 2, seed=4), also=[root])

    check(f, make)


def test_an_alias_of_an_argument_that_is_reshaped_and_swapped_with_a_view_of_another_alias():
    def f(x):
        before = x.detach()
        x.t_()
        view = before.t()
        between = x.detach()
        x.t_()
        torch.utils.swap_tensors(x, view)
        return between

    def session(compile):
        root, compiled = leaf(2, 3), compile(f)
        with torch.no_grad():
            x = root.t()
            y = compiled(x)
        yield y, x, root

    check_session(session)


PARTS = {"chunk": lambda x: x.chunk(3)[0], "unbind": lambda x: x.unbind()[0], "slice": lambda x: x[:2]}
LATER = {
    "written": lambda x, y: x.zero_(),
    "written under another name": lambda x, y: y.mul_(2),
    "written unseen": lambda x, y: x.data.mul_(2),
}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("make", [leaf, non_leaf], ids=["leaf", "non-leaf"])
def test_a_part_of_a_view_made_without_grad_whose_base_was_cut_before(make, part, later):
    def f(x, y):
        y.detach_()
        made = PARTS[part](x)
        LATER[later](x, y)
        return made, made.view(-1), x.t()

    def session(compile):
        y = make(3)
        y = y.args[0] if isinstance(y, Given) else y
        with torch.no_grad():
            x = y.t()
        yield compile(f)(x, y), x, y

    check_session(session)
