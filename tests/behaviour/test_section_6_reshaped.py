"""BEHAVIOUR 6: wrapper subclasses and views of them that are reshaped in place, before, between and after writes."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt_later, check_session, cotangent, plain
from tests.behaviour.wrappers import Tagged, extra, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


def alone(x):
    y = x.narrow(0, 0, 1)
    y.squeeze_()
    return (y,)


def after_a_write_under_no_grad(x):
    y = x.narrow(0, 0, 1)
    with torch.no_grad():
        x.mul_(2)
    y.squeeze_()
    return (y,)


def after_a_write(x):
    y = x.narrow(0, 0, 1)
    x.mul_(2)
    y.squeeze_()
    return (y,)


def before_a_write_under_no_grad(x):
    y = x.narrow(0, 0, 1)
    y.squeeze_()
    with torch.no_grad():
        x.mul_(2)
    return (y,)


def two_views(x):
    y, z = x.narrow(0, 0, 1), x[1:]
    y.squeeze_()
    z.unsqueeze_(0)
    return y, z


def a_view_of_one_that_is_written_then(x):
    y = x.narrow(0, 0, 1)
    y.squeeze_()
    z = y.unsqueeze(0)
    z.unsqueeze_(0)
    y.mul_(y)
    return y, z


def a_view_and_then_what_it_is_made_of(x):
    y = x.narrow(0, 0, 1)
    y.mul_(y)
    z = y.unsqueeze(0)
    y.squeeze_()
    z.unsqueeze_(0)
    return y, z


@pytest.mark.parametrize(
    "function",
    [
        alone,
        after_a_write_under_no_grad,
        after_a_write,
        before_a_write_under_no_grad,
        two_views,
        a_view_of_one_that_is_written_then,
        a_view_and_then_what_it_is_made_of,
    ],
)
@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("with_base", [False, True])
def test_views_of_a_view_argument(function, hooked, with_base):
    def session(compile):
        leaf_ = two(4, grad=True)
        base = leaf_ * 1
        view, seen = base.view(-1), []
        if hooked:
            view.register_hook(seen.append)
        results = compile(lambda x, *_: function(x))(view, *([base] if with_base else []))
        for t in (*results, view, base):
            yield leaf_, base, view, results, seen
            yield attempt_later(lambda t=t: t.backward(cotangent(t), retain_graph=True))
        with torch.no_grad():
            view.add_(1)
        yield leaf_, base, view, results, seen

    check_session(session)


@every_class
def test_a_leaf_that_is_used_only_when_it_has_another_shape(make):
    def f(x, y):
        with torch.no_grad():
            x.unsqueeze_(-1)
        return x * y

    def session(compile):
        x, y = make(3, grad=True), make(3, seed=1, grad=True)
        z = compile(f)(x, y)
        yield x, y, z
        z.backward(cotangent(z))
        yield x, y, z

    check_session(session)


@pytest.mark.parametrize("is_leaf", [False, True])
def test_a_part_of_a_view_made_under_no_grad_that_is_then_reshaped(is_leaf):
    """Autograd refuses a part, one of several views, that is made after the change is counted."""

    def f(x):
        part = x.split(1)[-1]
        with torch.no_grad():
            x.squeeze_(0)
        return part

    def session(compile):
        base = two(2, 3, grad=True)
        base = base if is_leaf else base * 1
        with torch.no_grad():
            x = base[0]
        yield base, x, compile(f)(x)

    check_session(session)


@pytest.mark.parametrize("is_leaf", [False, True])
def test_a_part_of_a_view_made_under_no_grad_beside_an_alias_that_is_reshaped(is_leaf):
    def f(x):
        part, alias = x.unbind()[0], x.detach()
        alias.unsqueeze_(-1)
        return alias, part

    def session(compile):
        base = two(4, grad=True)
        base = base if is_leaf else base * 1
        with torch.no_grad():
            x = base.view(-1)
        yield base, x, compile(f)(x)

    check_session(session)


@pytest.mark.parametrize("grad", [False, True])
def test_views_of_an_alias_that_counts_writes_apart(grad):
    def f(x):
        part = x[1:]
        x.exp_()
        alias = part.data
        return alias.expand(2, 2), alias[:1], part.detach()[1:], alias * 2

    def session(compile):
        base = two(3, grad=grad) * 1
        x = base.view(-1)
        results = compile(f)(x)
        yield base, x, results
        for t in (x, results[1]):
            with torch.no_grad():
                t.add_(1)
            yield base, x, results

    check_session(session)


@pytest.mark.parametrize("before", [False, True])
def test_a_wrapper_of_an_argument_that_is_then_reshaped(before):
    def f(x):
        if before:
            x.transpose_(0, 1)
        made = Tagged(x, "t")
        x.unsqueeze_(0)
        return made

    def session(compile):
        x = plain(2, 3)
        made = compile(f)(x)
        yield x, made.shape, made.stride(), made.elem.shape

    check_session(session)


# -- what wrappers hold --------------------------------------------------------------------------------


def reshape(t):
    t.unsqueeze_(0)


def set_elsewhere(t):
    t.set_(t * 2)


def give_data(t):
    t.data = t * 2


@pytest.mark.parametrize("change", [reshape, set_elsewhere, give_data])
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_of_a_wrapper_whose_inner_tensor_then_lies_elsewhere(change, grad):
    def f(x):
        before = x[:1]
        change(x.elem)
        return before, x.elem

    def session(compile):
        leaf_ = tagged(1, 2, grad=grad)
        x = leaf_ * 1
        before, held = compile(f)(x)
        yield x.elem, before, held
        with torch.no_grad():
            before.add_(1)
        yield x.elem, before, held
        if grad:
            yield attempt_later(lambda: before.backward(cotangent(before))), leaf_

    check_session(session)


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_view_of_a_wrapper_that_is_put_on_other_memory(part, grad):
    def f(x):
        elsewhere, view = x * 2, x.view(-1)[1:] if part else x.view(-1)
        view.set_(elsewhere.detach())
        return view, x.view(-1)

    def session(compile):
        x = two(2, 3, grad=grad) * 1
        views = compile(f)(x)
        yield x, views
        with torch.no_grad():
            x.add_(1)
        yield x, views

    check_session(session)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "function", [lambda x: x * 2, lambda x: x[:1], lambda x: x.add_(1)], ids=["new", "view", "same"]
)
def test_what_a_wrapper_holds_is_swapped_between_calls(function, grad):
    """``swap_tensors`` refuses what somebody has a weak reference to."""

    def session(compile):
        x = two(2) if not grad else two(2, grad=True) * 1
        compiled = compile(function)
        with torch.no_grad():
            yield x, compiled(x)
        held = x.a
        yield attempt_later(lambda: torch.utils.swap_tensors(held, held.detach().clone() * 3))
        with torch.no_grad():
            yield x, compiled(x)

    check_session(session)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("between", ["nothing", "view", "both"])
def test_a_view_reshaped_in_place_after_another_tensor_was_computed(between, times):
    """What the class says of a sum is decided by the summand that comes first."""

    def session(compile):
        x = Tagged(plain(2, 2), "name").requires_grad_()
        y = x.clone()

        def f(y):
            v = y.t()
            w = y * 2
            for _ in range(times):
                v.t_()
                if between != "nothing":
                    w = w * 2
            return (v, w, v.t()) if between == "both" else (v, w)

        outs = compile(f)(y)
        for of in (outs, outs[::-1], outs[:1]):
            tangents = [Tagged(torch.ones(2, 2), "name") for _ in of]
            yield torch.autograd.grad(of, [y], tangents, retain_graph=True)
        yield outs

    check_session(session)
