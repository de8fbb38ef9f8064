"""BEHAVIOUR 4: views of what went, after they were made of it, to memory where nobody sees it."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.functions import View
from tests.behaviour.harness import check, given, leaf, non_leaf, plain


def _under_no_grad(action):
    with torch.no_grad():
        action()


def _give_data(v):
    v.data = torch.ones(3)


GOES = {
    "set to nothing": lambda v: v.set_(),
    "set to nothing and written": lambda v: (v.set_(), v.add_(1)),
    "set to what was made inside": lambda v: v.set_(torch.ones(3)),
    "set and written": lambda v: (v.set_(torch.ones(3)), v.mul_(2)),
    "set under no_grad": lambda v: _under_no_grad(v.set_),
    "given data and written": lambda v: (_give_data(v), v.mul_(2)),
    "reshaped and given data": lambda v: (v.unsqueeze_(0), _give_data(v)),
}
WRITTEN = {
    "": (lambda x, v: None, lambda w: None),
    "written before and after": (lambda x, v: v.mul_(2), lambda w: w.mul_(5)),
    "base written before": (lambda x, v: x.mul_(2), lambda w: None),
    "written after under no_grad": (lambda x, v: None, lambda w: _under_no_grad(lambda: w.mul_(5))),
}
INPUTS = {"": lambda: given(plain(2, 2)), "with a history": lambda: non_leaf(2, 2)}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("go", GOES.values(), ids=GOES)
def test_a_view_of_a_view_that_goes_where_nobody_sees_it(go, write, make):
    before, after = write

    def f(x):
        v = x.t()
        before(x, v)
        w = v[0:1]
        go(v)
        after(w)
        return w, w * 2

    check(f, make)


@pytest.mark.parametrize("go", GOES.values(), ids=GOES)
def test_a_view_of_a_view_of_what_was_made_inside(go):
    def f(x):
        y = x * 2
        v = y.t()
        w = v.unsqueeze(0)
        go(v)
        w.mul_(3)
        return w, y

    check(f, lambda: given(leaf(2, 2)))


@pytest.mark.parametrize("go", GOES.values(), ids=GOES)
def test_both_of_two_views_on_the_way_go(go):
    def f(x):
        u = x.t()
        v = u.unsqueeze(0)
        w = v[..., 0]
        go(v)
        go(u)
        return w

    check(f, INPUTS["with a history"])


@pytest.mark.parametrize("go", GOES.values(), ids=GOES)
def test_a_view_of_a_view_of_what_goes_elsewhere_itself(go):
    def f(x):
        v = x[1:]
        x.data = v
        w = v[1:]
        go(v)
        w.fill_(3)
        return w

    check(f, lambda: given(plain(3, 3)))


def test_a_view_of_a_view_of_what_a_custom_function_made():
    def f(x):
        v = x[1:]
        again = v.detach()
        w = v.expand(2, 2, 2)[0]
        with torch.no_grad():
            v.set_()
            again.mul_(-1)
        return w, again

    def viewed(make):
        root = make()
        return given(View.apply(root), also=[root])

    check(f, lambda: viewed(lambda: plain(3, 2)))
    check(f, lambda: viewed(lambda: plain(3, 2).requires_grad_()))


def test_a_view_of_an_argument_that_goes_elsewhere_as_a_view_of_it_goes_and_is_reshaped():
    def f(x):
        v = x.view(3, 1)
        x.set_()
        x.add_(1)
        with torch.inference_mode():
            w = v.squeeze(-1)
            z = x * 2
        v.unsqueeze_(0)
        v.data = z
        return w, x * 2

    def make():
        root = leaf(1, 3)
        base = root.clone()
        return given(base.t(), also=[base])

    check(f, make)
