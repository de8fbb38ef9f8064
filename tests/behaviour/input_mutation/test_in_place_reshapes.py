"""T_, squeeze_, unsqueeze_, as_strided_, transpose_ … of an argument (metadata)."""

import pytest
import torch

from tests.behaviour.harness import agrees, check, one_of
from tests.behaviour.inputs import Given, given, given_of, leaf, non_leaf, plain
from tests.behaviour.shared import CHANGES

change = one_of(CHANGES)


def test_an_argument_reshaped_in_place_is_returned(change):
    check(lambda x: change(x), lambda: given(plain(1, 3)))


RESHAPES = CHANGES | {"squeeze_ of one": lambda x: x.squeeze_(0), "resize_ to two": lambda x: x.resize_(1, 2)}


@pytest.mark.parametrize("change", RESHAPES.values(), ids=RESHAPES)
@pytest.mark.parametrize("writes", ["none", "before", "after", "before and after"])
@agrees(lambda: given(plain(1, 3)))
def test_an_argument_is_reshaped_in_place_alone_or_between_writes(x, *, change, writes: str):
    if "before" in writes:
        x.mul_(2)
    change(x)
    if "after" in writes:
        x.add_(1)
    return x * 3


@agrees(lambda: given(plain(1, 3)))
def test_a_view_made_before_its_base_is_reshaped_in_place(x, *, change):
    view = x[0]
    change(x)
    view.mul_(2)
    return view, x * 3


@agrees(lambda: given(plain(1, 3)))
def test_a_view_made_after_its_base_is_reshaped_in_place(x, *, change):
    change(x)
    view = x.view(-1) if x.is_contiguous() else x[0]
    view.mul_(2)
    return view, x * 3


def test_one_of_two_arguments_that_overlap_is_reshaped_in_place(change):
    def make() -> Given:
        base = plain(6)
        return given(base[:3].view(1, 3), base[2:], also=[base])

    check(lambda x, y: (change(x), y.mul_(2), x * 3)[2], make)
    check(lambda x, y: (y.mul_(2), change(x), x.add_(1), y * 3)[3], make)


def test_a_view_and_its_base_are_arguments_and_one_is_reshaped_in_place(change):
    def make() -> Given:
        base = plain(1, 3)
        return given(base, base.view(1, 3))

    check(lambda x, y: (change(y), y.add_(1), x * 3)[2], make)
    check(lambda x, y: (change(x), y.add_(1), x * 3)[2], make)


def test_an_argument_passed_twice_is_reshaped_in_place(change):
    check(lambda x, y: (change(x), y.add_(1), x * 3)[2], lambda: given_of(plain(1, 3), lambda x: (x, x)))


@agrees(lambda: given(plain(1, 3)))
def test_an_argument_is_reshaped_in_place_under_no_grad(x, *, change):
    with torch.no_grad():
        change(x)
    return x * 3


def test_the_data_of_a_leaf_is_reshaped_in_place(change):
    check(lambda x: (change(x.data), x * 3)[1], lambda: given(leaf(1, 3)))


@pytest.mark.parametrize("name", ["t_", "transpose_", "swapaxes_", "unsqueeze_", "squeeze_", "as_strided_", "detach_"])
@pytest.mark.parametrize("write", [None, "before", "after"])
@agrees(lambda: non_leaf(1, 3))
def test_a_non_leaf_is_reshaped_in_place_before_or_after_a_write(x, *, name: str, write: str | None):
    if write == "before":
        x.mul_(2)
    CHANGES[name](x)
    if write == "after":
        x.mul_(2)
    return x * 3


@pytest.mark.parametrize("name", ["t_", "transpose_", "unsqueeze_", "squeeze_", "as_strided_"])
def test_a_leaf_that_requires_grad_is_reshaped_in_place(name: str):
    check(lambda x: (CHANGES[name](x), x * 3)[1], lambda: given(leaf(1, 3)))


@pytest.mark.parametrize("name", ["t_", "unsqueeze_", "squeeze_"])
@agrees(lambda: given(leaf(1, 3)))
def test_a_leaf_is_reshaped_in_place_under_no_grad(x, *, name: str):
    with torch.no_grad():
        CHANGES[name](x)
    return x * 3


def test_an_intermediate_is_reshaped_in_place(change):
    def f(x):
        y = x * 2
        view = y[0]
        change(y)
        y.add_(1)
        return y, view

    check(f, lambda: given(plain(1, 3)))
    check(lambda x: change(x * 2), lambda: given(leaf(1, 3)))


@agrees(lambda: given(plain(2, 3)), lambda: non_leaf(2, 3), anew=True)
def test_in_place_reshapes_that_cancel_and_views_of_the_argument(x):
    y = x.t_()[0]
    x.t_()
    return y, x.view(-1)


@agrees(lambda: given(leaf(2, 3)))
def test_in_place_reshapes_of_a_leaf_under_no_grad_that_cancel(x):
    with torch.no_grad():
        x.t_()
        x.t_()
    return x * 2


def test_two_aliases_are_reshaped_in_place_in_either_order():
    def f(x, y):
        x.t_()
        y.unsqueeze_(0)
        x.add_(1)
        return x * 2, y * 3

    def make() -> Given:
        base = plain(2, 3)
        return given(base.view(2, 3), base.view(6), also=[base])

    check(f, make)
    check(lambda x, y: f(y, x), lambda: given(*reversed(make().args)))


@agrees(lambda: given(plain(3, 2), leaf(3, 2, seed=1)))
def test_in_place_reshapes_that_cancel(x, y):
    x.t_()
    z = x @ y
    x.t_()
    return z
