"""Reshaped in place."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, check_session, cotangent, session
from tests.behaviour.inputs import given, plain, to_device
from tests.behaviour.shared import _transposed_under_no_grad, quietly, written_at_once
from tests.behaviour.subclasses.common import every_class, with_its_view
from tests.behaviour.wrappers import Tagged, tagged, two

OF_WRAPPERS = {
    "reshaped": lambda b, v: v.transpose_(0, 1),
    "reshaped twice": lambda b, v: v.unsqueeze_(0).squeeze_(),
    "base reshaped": lambda b, v: b.unsqueeze_(2),
    "reshaped under no_grad": lambda b, v: quietly(lambda: v.unsqueeze_(0)),
}

USED = {
    "reshapes it": lambda b, v: v.unsqueeze_(-1),
    "reads it": lambda b, v: (v * 2, v, b),
    "writes it": lambda b, v: v.mul_(3),
}


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("change", OF_WRAPPERS.values(), ids=OF_WRAPPERS)
def test_a_view_of_a_wrapper_that_the_caller_reshaped(change, grad):
    def make():
        root = two(3, 2, grad=grad)
        base = root * 1
        v = base[0:2]
        change(base, v)
        return given(base, v, also=[root])

    for function in USED.values():
        check(function, make)


def test_equal_views_of_wrappers_by_other_ops_get_specializations_of_their_own():
    def made(view):
        def make():
            root = two(2, 2, grad=True)
            base = root * 1
            return given(base, view(base), two(2, 2, seed=1), also=[root])

        return make

    calls = [made(lambda b: b.view(2, 2).t()), made(lambda b: b.view(2, 2).t_())]
    calls.append(made(lambda b: _transposed_under_no_grad(b.view(2, 2))))
    check(lambda b, v, w: v.mul_(w) * 2, *calls, *calls[::-1])


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("reshape", [lambda x: x.squeeze_(), lambda x: x.t_(), lambda x: x.unsqueeze_(0).squeeze_()])
def test_a_view_argument_of_a_wrapper_is_written_and_then_reshaped(reshape, other):
    """Its new shape comes after the write, to which its base leads."""

    def f(x, y):
        x.mul_(3)
        reshape(y if other else x)
        return x * 2, y

    def make():
        x = two(1, 3, grad=True)
        base = x * 2
        return given(base[:], base[:], also=[x, base])

    check(f, make)


@pytest.mark.parametrize("is_view", [False, True])
@session
def test_a_view_of_a_wrapper_is_reshaped_after_a_part_of_it_was_written(compile, is_view):
    def f(x):
        y = x.expand(2, 3)
        part = y[1:].add_(1)
        y.swapaxes_(0, 1)
        return part, y, y * 3

    leaf_ = tagged(3, grad=True)
    x = leaf_.clone()
    results = compile(f)(x.view(-1) if is_view else x)
    for t in results:
        yield leaf_, results
        t.backward(cotangent(t), retain_graph=True)
    yield leaf_, results


def one_and_reshaped(x, y):
    torch._foreach_zero_([y])
    y.unsqueeze_(0)
    return (y,)


def twice_and_reshaped(x, y):
    torch._foreach_zero_([y, y])
    y.squeeze_()
    y.unsqueeze_(0)
    return (y * 2,)


def reshaped_and_one(x, y):
    y.unsqueeze_(0)
    torch._foreach_mul_([y, y], 2)
    y.squeeze_(0)
    return (y,)


def a_view_made_before(x, y):
    torch._foreach_zero_([y])
    z = x.unsqueeze(0)
    y.unsqueeze_(0)
    return (z,)


def a_base_and_a_view_that_is_reshaped(x, y):
    torch._foreach_mul_([x], 2)
    y.unsqueeze_(0)
    return (y * 2,)


UNCOUNTED = [one_and_reshaped, twice_and_reshaped, a_view_made_before]

UNCOUNTED += [a_base_and_a_view_that_is_reshaped, pytest.param(reshaped_and_one, marks=written_at_once)]


@every_class
@pytest.mark.parametrize("function", UNCOUNTED)
def test_a_foreach_write_to_a_view_argument_that_is_reshaped_before_or_after(function, make):
    check_session(with_its_view(function, make))


@every_class
@pytest.mark.parametrize("write", ["random_", "zero_", "mul_"])
def test_a_part_of_a_written_view_argument_is_reshaped(make, write):
    def function(x, y):
        getattr(y, write)(*([3] if write == "mul_" else []))
        part = y[1:2]
        part.squeeze_(0)
        return (part,)

    check_session(with_its_view(function, make))


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
@session
def test_views_of_a_view_argument_are_reshaped_before_and_after_writes(compile, function, hooked, with_base):
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


@pytest.mark.parametrize("is_leaf", [False, True])
@session
def test_a_split_part_of_a_no_grad_view_that_is_then_reshaped(compile, is_leaf):
    """Autograd refuses a part, one of several views, that is made after the change is counted."""

    def f(x):
        part = x.split(1)[-1]
        with torch.no_grad():
            x.squeeze_(0)
        return part

    base = two(2, 3, grad=True)
    base = base if is_leaf else base * 1
    with torch.no_grad():
        x = base[0]
    yield base, x, compile(f)(x)


@pytest.mark.parametrize("is_leaf", [False, True])
@session
def test_a_part_of_a_no_grad_view_of_which_a_detached_alias_is_reshaped(compile, is_leaf):
    def f(x):
        part, alias = x.unbind()[0], x.detach()
        alias.unsqueeze_(-1)
        return alias, part

    base = two(4, grad=True)
    base = base if is_leaf else base * 1
    with torch.no_grad():
        x = base.view(-1)
    yield base, x, compile(f)(x)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("between", ["nothing", "view", "both"])
@session
def test_a_view_is_reshaped_after_another_result_was_computed(compile, between, times):
    """What the class says of a sum is decided by the summand that comes first."""

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
        tangents = [Tagged(to_device(torch.ones(2, 2)), "name") for _ in of]
        yield torch.autograd.grad(of, [y], tangents, retain_graph=True)
    yield outs


@every_class
@agrees(lambda make: given(make(3, 2)))
def test_a_part_of_a_wrapper_argument_is_reshaped(x):
    v = x[1:]
    v.unsqueeze_(0)
    return v, v + 1


@agrees(lambda: given(two(3, 2)), backward=None)
def test_a_view_made_under_no_grad_is_reshaped(x):
    with torch.no_grad():
        v = x[None]
    v.unsqueeze_(3)
    return v


@agrees(lambda: given(two(3, 2)))
def test_views_of_a_view_made_before_and_after_it_is_reshaped(x):
    alias = x.detach()
    v = alias[1:]
    before = v.mT
    v.unsqueeze_(0)
    after = v[0]
    v.squeeze_(0).t_()
    return before, after, v, alias


@agrees(lambda: given(two(4)))
def test_a_view_is_changed_by_as_strided_and_then_written(x):
    v = x[0]
    v.as_strided_((2,), (1,), 1)
    v.mul_(-1)
    return v


@session
def test_a_view_argument_passed_without_its_base_is_reshaped(compile):
    leaf_ = tagged(3, grad=True)
    x = (leaf_ * 2)[1:]

    def f(x):
        x.unsqueeze_(1)
        return x.sin()

    y = compile(f)(x)
    yield leaf_, x, y
    y.backward(cotangent(y), retain_graph=True)
    z = x * 3
    z.backward(cotangent(z))
    yield leaf_, x, y, z
