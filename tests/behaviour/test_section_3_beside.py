"""BEHAVIOUR 3: an argument goes elsewhere beside a view of it that is an argument too or was made of it before."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, leaf, plain


def _quietly(act):
    def done(x, y):
        with torch.no_grad():
            act(x, y)

    return done


COUNTED = {
    "written": _quietly(lambda x, y: x.mul_(2)),
    "view written": _quietly(lambda x, y: y.mul_(2)),
    "reshaped in vain": _quietly(lambda x, y: x.squeeze_(0)),
    "nothing": lambda x, y: None,
}
DATA = {
    "its view": lambda x, y, z: y,
    "a part of its view": lambda x, y, z: y[..., :1],
    "turned": lambda x, y, z: x.mT,
    "another": lambda x, y, z: z[:1],
    "a result": lambda x, y, z: (y * 3).detach(),
}


@pytest.mark.parametrize("view", [lambda x: x[0:1], lambda x: x.t()], ids=["part", "transposed"])
@pytest.mark.parametrize("used", [False, True], ids=["not used", "used"])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("make", [leaf, lambda *n: leaf(*n).clone()], ids=["leaf", "no leaf"])
def test_a_view_looks_for_its_history_before_its_base_goes(make, counted, data, used, view):
    def f(x, y, z):
        COUNTED[counted](x, y)
        x.data = DATA[data](x, y, z)
        return y * 2 if used else z * 2

    def session(compile):
        x, z = make(2, 2), plain(2, 2, seed=3)
        y = view(x)
        out = compile(f)(x, y, z)
        yield out, x, y
        yield attempt_later(lambda: y.sum().backward()), x.is_leaf and x.grad

    check_session(session)


@pytest.mark.parametrize("counted", [lambda x: x.squeeze_(0), lambda x: x.detach().mul_(2)], ids=["in vain", "written"])
@pytest.mark.parametrize("make", [leaf, plain, lambda *n: leaf(*n).clone()], ids=["leaf", "plain", "no leaf"])
def test_a_view_goes_elsewhere_once_its_base_counted_a_write(make, counted):
    def f(x, y):
        v = x[0:1]
        with torch.no_grad():
            counted(x)
        v.data = y
        return v

    def session(compile):
        x, y = make(2, 2), plain(2, 2, seed=3)
        v = compile(f)(x, y)
        yield v, x, y
        yield attempt_later(lambda: v.mul_(2)), v, x, y

    check_session(session)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("turned", [False, True])
def test_a_view_lies_where_its_fresh_base_lay(mode, turned):
    def f(x):
        base = x * 2
        with mode():
            v = base[..., 0]
        other = v * base
        v.data = base.t() if turned else base
        base.data = other.clone()
        return v

    def session(compile):
        x = plain(2, 2)
        yield compile(f)(x), x

    check_session(session)


@pytest.mark.parametrize(
    "after", [lambda x, y: setattr(y, "data", x.clone()), lambda x, y: y.data], ids=["too", "alone"]
)
@pytest.mark.parametrize("counted", [lambda y: y.t_(), lambda y: y.squeeze_(0), lambda y: y.mul_(2)], ids=range(3))
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("make", [leaf, lambda *n: leaf(*n).clone()], ids=["leaf", "no leaf"])
def test_a_view_that_moves_as_well_looks_for_its_history_before_its_base_goes(make, mode, counted, after):
    def f(x, y):
        with mode():
            counted(y)
        v = y * 2
        x.data = v[0:1].detach()
        after(x, y)
        return v

    def session(compile):
        x = make(2, 2)
        y = x[0:1]
        v = compile(f)(x, y)
        yield v, x, y
        yield attempt_later(lambda: y.sum().backward(retain_graph=True)), x.is_leaf and x.grad

    check_session(session)
