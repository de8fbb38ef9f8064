"""Inner tensors read, returned, aliasing, changed."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.behaviour.harness import agrees, attempt_later, backward, check, cotangent, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.subclasses.common import every_class
from tests.behaviour.wrappers import Tagged, Wraps, extra, nested, tagged, two


def held(x, which=-1):
    """One of the tensors that a wrapper holds."""
    return getattr(x, x.__tensor_flatten__()[0][which])


@every_class
@pytest.mark.parametrize("grad", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("first", ["view", "held"])
@pytest.mark.parametrize("view", ["t", "detach", "data", "view_as"])
def test_the_inner_tensor_of_a_view_is_written_and_returned_with_the_view(make, grad, first, view):
    views = {"data": lambda x: x.data, "view_as": lambda x: x.view_as(x)}

    def function(x):
        y = views[view](x) if view in views else getattr(x, view)()
        inner = held(y)
        with torch.no_grad():
            inner.zero_()
        return (y, inner) if first == "view" else (inner, y)

    check(function, lambda: (make(2, 2, grad=grad),))


@session
def test_the_inner_tensor_of_a_view_of_a_view_argument_is_returned_before_the_view(compile):
    def function(x):
        y = x.view((1, 1))
        y.fill_diagonal_(0)
        return held(y), y

    x = tagged().as_strided((1,), (1,))
    with torch.no_grad():
        yield compile(function)(x), x


@agrees(lambda: (nested(2),))
def test_the_inner_wrapper_of_an_alias_of_a_nested_wrapper_is_written_and_returned(x):
    y = x.data
    inner = held(y)
    inner.zero_()
    other = TwoTensor(y * 1, y * 2)
    return y, other, inner


@session
def test_inner_tensors_of_a_wrapper_made_of_aliases_share_their_version_counter(compile):
    def function(x):
        return TwoTensor(x.detach(), x.detach()), x.sin()

    x = two(2, 2, grad=True)
    made, result = compile(function)(x)
    made.a.mul_(3)
    yield x, made, attempt_later(lambda: backward([result]))


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("op", [torch.sin, torch.exp], ids=["keeps-operand", "keeps-result"])
@session
def test_the_caller_writes_an_inner_tensor_of_a_saved_result(compile, op, part):
    """No version of the wrapper's own is counted, so eager goes on, and reads what was written."""

    def function(x):
        y = Wraps.apply(x)
        return op(y), y

    x = leaf(2, 2)
    results = compile(function)(x.clone() * 1)
    with torch.no_grad():
        held(results[0], part).mul_(3)
        held(results[1], part).mul_(5)
    yield attempt_later(lambda: backward([results[0]])), x.grad, results


@every_class
@pytest.mark.parametrize("by", ["itself", "view"])
@pytest.mark.parametrize("op", ["exp_", "sigmoid_", "tanh_"])
@session(rtol=1e-6)
def test_the_caller_writes_an_inner_tensor_of_an_argument_saved_by_an_in_place_op(compile, make, op, by):
    def function(x, y):
        getattr(x if by == "itself" else y, op)()
        return x * 1

    root = make(2, 2, grad=True)
    x = root * 1
    y = x.view(4)
    result = compile(function)(x, y)
    inner = held(x)
    with torch.no_grad():
        (held(inner) if make is nested else inner).mul_(3)
    yield result, x, y
    yield attempt_later(lambda: backward([result])), root


@session
def test_an_inner_tensor_begins_to_require_grad_inside(compile):
    """Its class refuses to be made of two tensors of which one requires grad; it was made before."""

    a, b = plain(3), plain(3, seed=1)
    x, y = TwoTensor(a, b), leaf(3, seed=2)
    f = compile(lambda a, x, y: (a.copy_(y), x * 2)[1])
    for _ in range(2):
        yield f(a, x, y).detach(), a.requires_grad, x.a is a, b.requires_grad
    a.backward(cotangent(a))
    yield y


@session
def test_the_caller_writes_a_returned_inner_tensor_of_a_saved_argument(compile):
    root = extra(grad=True)
    x = root * 2

    def f(x):
        inner = x.elem
        inner.addcmul_(x, x)
        return inner

    y = compile(f)(x)
    with torch.no_grad():
        y.add_(1)
    (g,) = torch.autograd.grad(y, x, cotangent(y), create_graph=True)
    yield g
    yield torch.autograd.grad(g, root, torch.ones_like(g))


@every_class
@pytest.mark.parametrize("name", ["t_", "unsqueeze_", "squeeze_"])
@session
def test_a_wrapper_is_reshaped_in_place_whose_inner_tensor_the_caller_saved(compile, make, name):
    """Below its class no write is counted, and no error raised."""

    def function(x):
        getattr(x, name)(*([0] if name == "unsqueeze_" else []))
        return ()

    x = make(2, 1)
    inner = getattr(x, x.__tensor_flatten__()[0][0])
    w = leaf(2, 1)
    product = inner * (two(2, 1, grad=True) if make is nested else w)
    compile(function)(x)
    yield x, attempt_later(lambda: backward([product])), w.grad


@session
def test_a_plain_argument_requires_grad_after_a_wrapper_of_its_view_was_reshaped(compile):
    def function(x, y):
        x.transpose_(0, -1)
        y.requires_grad_()
        return (y * 2,)

    y = plain(2, 2)
    x = tagged(2, 2)
    x.elem = y.view(4).view(2, 2)
    yield compile(function)(x, y), x, y


@session
def test_the_caller_replaces_an_inner_tensor_between_calls(compile):
    compiled = compile(lambda x: x * x.a)
    x = two(3)
    for seed in (1, 2):
        yield x, compiled(x)
        x.a = plain(3, seed=seed)


_SHARED = {
    "one twice": lambda t: TwoTensor(t, t),
    "of a view": lambda t: TwoTensor(t[1:], t[1:]),
    "of two views": lambda t: TwoTensor(t.view(2, 2), t.view(4).view(2, 2)),
    "of overlapping wrappers": lambda t: Tagged(Tagged(t[:3], "u"), "v"),
    "of a wrapper": lambda t: TwoTensor(TwoTensor(t, t[:]), TwoTensor(t, t)),
    "another class": lambda t: Tagged(t[1:], "t"),
}

_ON_SHARED = {
    "out of place": lambda x, t: (x * 2, t + 1),
    "the wrapper is written": lambda x, t: (x.mul_(2), t + 1),
    "the plain one is written": lambda x, t: (t.mul_(2), x + 1),
    "both are written": lambda x, t: (x.add_(1), t.mul_(2), x * 3),
    "a view is written": lambda x, t: (x.view(-1)[:1].zero_(), t * 2),
    "an inner one is returned": lambda x, t: (getattr(x, x.__tensor_flatten__()[0][0]), t.view(-1)),
    "a detached one is written": lambda x, t: (x.detach().zero_(), t * 2),
}


@pytest.mark.parametrize("make", _SHARED.values(), ids=_SHARED)
@pytest.mark.parametrize("function", _ON_SHARED.values(), ids=_ON_SHARED)
def test_inner_tensors_alias_each_other_and_a_plain_argument(function, make):
    def arguments():
        t = plain(4)
        return given(make(t), t)

    check(function, arguments, arguments)


@pytest.mark.parametrize("make", _SHARED.values(), ids=_SHARED)
@pytest.mark.parametrize("grad", ["wrapper", "plain"])
@session
def test_inner_tensors_alias_a_plain_argument_and_one_of_them_requires_grad(compile, make, grad):
    def f(x, t):
        t.mul_(2) if grad == "wrapper" else None
        return (x * x).sum(), (t * t).sum()

    t = plain(4)
    x = make(t)
    if grad == "wrapper":
        x.requires_grad_()
    out = compile(f)(x, t)
    yield x, t, out
    for o in out:
        if o.requires_grad:
            yield attempt_later(lambda: o.backward(cotangent(o)))  # noqa: B023
    yield x, t


@session
def test_two_wrappers_share_memory_and_one_of_them_requires_grad(compile):
    t = plain(4)
    x, y = TwoTensor(t, t * 1).requires_grad_(), TwoTensor(t, t * 2)
    out = compile(lambda x, y: (x * 3, y.add_(1)))(x, y)
    yield x, y, out
    yield attempt_later(lambda: out[0].backward(cotangent(out[0])))
    yield x, y, out


def reshape(t):
    t.unsqueeze_(0)


def set_elsewhere(t):
    t.set_(t * 2)


def give_data(t):
    t.data = t * 2


@pytest.mark.parametrize("change", [reshape, set_elsewhere, give_data])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_a_view_made_before_the_inner_tensor_is_reshaped_set_or_given_data(compile, change, grad):
    def f(x):
        before = x[:1]
        change(x.elem)
        return before, x.elem

    leaf_ = tagged(1, 2, grad=grad)
    x = leaf_ * 1
    before, held = compile(f)(x)
    yield x.elem, before, held
    with torch.no_grad():
        before.add_(1)
    yield x.elem, before, held
    if grad:
        yield attempt_later(lambda: before.backward(cotangent(before))), leaf_


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "function", [lambda x: x * 2, lambda x: x[:1], lambda x: x.add_(1)], ids=["new", "view", "same"]
)
@session
def test_the_caller_swaps_an_inner_tensor_between_calls(compile, function, grad):
    """``swap_tensors`` refuses what somebody has a weak reference to."""

    x = two(2) if not grad else two(2, grad=True) * 1
    compiled = compile(function)
    with torch.no_grad():
        yield x, compiled(x)
    held = x.a
    yield attempt_later(lambda: torch.utils.swap_tensors(held, held.detach().clone() * 3))
    with torch.no_grad():
        yield x, compiled(x)


def test_inner_tensors_are_read_inside():
    check(lambda x: (x.a * x.b, x.get_elem_a() + 1), lambda: given(two(3)))


def test_an_inner_tensor_is_returned():
    check(lambda x: (x.a, x), lambda: given(two(3)))


@agrees(lambda: given(two(3)))
def test_an_inner_tensor_of_a_result_is_returned(x):
    y = x * 2
    return y, y.a, y.b.view(3, 1)


@agrees(lambda: given(two(3, 2)))
def test_an_inner_tensor_of_a_view_is_returned(x):
    y = x.view(-1)
    return y, y.a


@agrees(lambda: given(two(3)))
def test_an_inner_tensor_is_written(x):
    x.a.add_(1)
    return x * 2


@agrees(lambda: given(two(3)))
def test_inner_tensors_are_exchanged(x):
    x.a, x.b = x.b, x.a
    return x * 2


@agrees(lambda: given(two(3), plain(3)))
def test_an_inner_tensor_is_replaced_inside(x, y):
    x.a = x.a * 2
    return x * y


def test_a_wrapper_has_one_inner_tensor_twice():
    def make():
        t = plain(3)
        return given(TwoTensor(t, t))

    def f(x):
        y = x + 1
        x.a.mul_(2)
        return x, y

    check(f, make)


def test_an_inner_tensor_overlaps_a_plain_argument():
    def make():
        t = plain(5)
        return given(TwoTensor(t[:4], t[:4].clone()), t)

    def f(x, t):
        t.mul_(2)
        return x + 1

    check(f, make)


def test_a_plain_argument_is_an_inner_tensor():
    def make():
        t = plain(3)
        return given(t, TwoTensor(t, plain(3, seed=1)))

    def f(t, x):
        t.add_(1)
        return x * t, x

    check(f, make)


def test_two_wrappers_have_the_same_inner_tensor():
    def make():
        t = plain(3)
        return given(TwoTensor(t, plain(3, seed=1)), TwoTensor(plain(3, seed=2), t))

    def f(x, y):
        x.mul_(2)
        return y + 1

    check(f, make)


def test_an_inner_tensor_of_a_wrapper_from_a_closure():
    w = two(3, seed=4)
    check(lambda x: x * w.b, lambda: given(leaf(3)))
