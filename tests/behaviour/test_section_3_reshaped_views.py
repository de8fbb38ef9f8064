"""BEHAVIOUR 3: arguments that are views of another kind than their base, and that the caller has reshaped since.

Autograd makes such a view's history by the ops that made it, which give it the geometry that it had at first.
"""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import check, check_session, given, leaf, plain
from tests.behaviour.wrappers import two


def _under_no_grad(action):
    with torch.no_grad():
        action()


def _give_data(t, data):
    t.data = data


VIEWS = {
    "real": lambda b: b.real,
    "conjugate": lambda b: b.conj(),
    "real and transposed": lambda b: b.real.t(),
}
CHANGED = {
    "reshaped": lambda b, v: v.unsqueeze_(0),
    "transposed": lambda b, v: v.transpose_(0, 1),
    "reshaped twice": lambda b, v: v.unsqueeze_(0).squeeze_(0).t_().unsqueeze_(1).squeeze_((1,)).unsqueeze_(2),
    "made another window": lambda b, v: v.as_strided_((2,), (1,), 0),
    "reshaped and written": lambda b, v: v.unsqueeze_(0).mul_(2),
    "reshaped, base written": lambda b, v: (v.unsqueeze_(0), b.mul_(2)),
    "reshaped under no_grad": lambda b, v: _under_no_grad(lambda: v.unsqueeze_(0)),
    "given data": lambda b, v: _give_data(v, v.detach()[1:]),
    "set": lambda b, v: v.set_(v[0:1]),
    "set under no_grad": lambda b, v: _under_no_grad(lambda: v.set_(v[0:1])),
    "base reshaped": lambda b, v: b.unsqueeze_(0),
    "base set under no_grad": lambda b, v: _under_no_grad(lambda: b.set_(b[0:1])),
}
FUNCTIONS = {
    "writes it": lambda b, v: v.mul_(3) * 2,
    "writes its base": lambda b, v: (b.mul_(3), v * 2),
    "reshapes it": lambda b, v: v.unsqueeze_(-1),
    "writes it, a view made": lambda b, v: (v[0], v.mul_(3), v),
    "writes it under no_grad": lambda b, v: (_under_no_grad(lambda: v.mul_(3)), v)[1],
}


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_of_another_kind_that_was_changed_since(view, change, grad):
    def make():
        root = plain(2, 2, dtype=torch.complex64).requires_grad_(grad)
        base = root * 1
        v = view(base)
        change(base, v)
        return given(base, v, also=[root])

    for function in FUNCTIONS.values():
        check(function, make)


def test_the_base_is_no_argument():
    def make():
        root = leaf(2, 2, dtype=torch.complex64)
        base = root * 1
        v = base.imag
        v.squeeze_().t_()
        return given(v, also=[root, base])

    check(lambda v: (v.unsqueeze_(0), v[0], v), make)


def test_views_that_lie_alike_but_were_made_in_other_ways_are_told_apart():
    """A write to one that was transposed in place goes back to the base as if it had not been."""

    def made(view):
        def make():
            root = leaf(2, 2, dtype=torch.complex64)
            base = root * 1
            return given(base, view(base), plain(2, 2, seed=1), also=[root])

        return make

    calls = [made(lambda b: b.real.t()), made(lambda b: b.real.t_()), made(lambda b: b.real.t())]
    calls.append(made(lambda b: _transposed_under_no_grad(b.real)))
    check(lambda b, v, w: v.mul_(w) * 2, *calls, *calls[::-1])


def _transposed_under_no_grad(v):
    with torch.no_grad():
        return v.t_()


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_function_that_reshapes_is_called_again(view):
    def session(compile):
        root = leaf(2, 2, dtype=torch.complex64)
        base = root * 1
        v = view(base)
        f = compile(lambda v: v.unsqueeze_(0) * 2)
        for _ in range(3):
            out = f(v)
            yield out, v, base
            yield torch.autograd.grad(out.abs().sum(), [root], retain_graph=True)

    check_session(session)


# -- views of wrappers -----------------------------------------------------------------------------

OF_WRAPPERS = {
    "reshaped": lambda b, v: v.transpose_(0, 1),
    "reshaped twice": lambda b, v: v.unsqueeze_(0).squeeze_(),
    "base reshaped": lambda b, v: b.unsqueeze_(2),
    "reshaped under no_grad": lambda b, v: _under_no_grad(lambda: v.unsqueeze_(0)),
}
USED = {
    "reshapes it": lambda b, v: v.unsqueeze_(-1),
    "reads it": lambda b, v: (v * 2, v, b),
    "writes it": lambda b, v: v.mul_(3),
}


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("change", OF_WRAPPERS.values(), ids=OF_WRAPPERS)
def test_a_view_of_a_wrapper_that_was_changed_since(change, grad):
    def make():
        root = two(3, 2, grad=grad)
        base = root * 1
        v = base[0:2]
        change(base, v)
        return given(base, v, also=[root])

    for function in USED.values():
        check(function, make)


def test_views_of_wrappers_that_lie_alike_but_were_made_in_other_ways_are_told_apart():
    def made(view):
        def make():
            root = two(2, 2, grad=True)
            base = root * 1
            return given(base, view(base), two(2, 2, seed=1), also=[root])

        return make

    calls = [made(lambda b: b.view(2, 2).t()), made(lambda b: b.view(2, 2).t_())]
    calls.append(made(lambda b: _transposed_under_no_grad(b.view(2, 2))))
    check(lambda b, v, w: v.mul_(w) * 2, *calls, *calls[::-1])
