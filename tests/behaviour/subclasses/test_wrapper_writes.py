"""Written wrappers, metadata changed."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, cotangent, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import written_at_once
from tests.behaviour.subclasses.common import every_class
from tests.behaviour.wrappers import two


@every_class
@session
def test_a_foreach_write_to_a_view_argument_of_a_wrapper(compile, make):
    """What ``_foreach`` ops write of wrappers is not counted: a view keeps the history that it had before."""

    def f(x):
        x.neg_()
        torch._foreach_mul_([x], 2)
        return x

    x = make(3, grad=True)
    base = x.clone()
    view = base.view(-1)
    y = compile(f)(view)
    for t in (y, base, view):
        yield x, base, view, y
        t.backward(cotangent(t), retain_graph=True)
    yield x, base, view, y


@written_at_once
@session
def test_a_foreach_write_to_views_of_a_wrapper_whose_base_was_written(compile):
    def f(x, y, base):
        base.neg_()
        torch._foreach_mul_([x, y[1:]], [2, 3])
        return x * 2, y * 5, base * 7

    x = two(3, grad=True)
    base = x.clone()
    views = base.view(-1), base[:]
    results = compile(f)(*views, base)
    for t in (*results, base, *views):
        yield x, base, views, results
        t.backward(cotangent(t), retain_graph=True)
    yield x, base, views, results


@session
def test_a_foreach_write_to_a_view_made_inside(compile):
    def f(x):
        y = x.view(-1)
        y.neg_()
        torch._foreach_abs_([y])
        return y, y * 3, x * 2

    leaf_ = two(3, grad=True)
    x = leaf_.clone()
    results = compile(f)(x)
    for t in (*results, x):
        yield leaf_, x, results
        t.backward(cotangent(t), retain_graph=True)
    yield leaf_, x, results


@pytest.mark.parametrize("write", ["mul_", "add_", "copy_"])
@agrees(lambda: given(plain(3), two(3, seed=2)), probe=False)
def test_a_plain_argument_is_written_from_a_wrapper(x, w, *, write):
    getattr(x, write)(w)
    return x * 2


@pytest.mark.parametrize("write", ["one by one", "foreach"])
@session
def test_a_foreach_write_to_a_view_passed_with_its_base_keeps_its_history(compile, write):
    """A foreach op on a wrapper counts no write, so that views made before keep their history."""

    leaf_ = two(3, 2, grad=True)
    x = leaf_ * 2
    v = x.view(-1)

    def f(x, v):
        torch._foreach_mul_([v], 3) if write == "foreach" else v.mul_(3)
        return x + 1, v

    y, w = compile(f)(x, v)
    yield leaf_, x, v, y, v._version
    y.backward(cotangent(y), retain_graph=True)
    w.backward(cotangent(w))
    yield leaf_, x, v, y


@agrees(lambda: given(two(3), leaf(3)), probe=False)
def test_a_foreach_write_to_a_wrapper_and_a_plain_view(x, p):
    y = p * p
    v = y.view(-1)
    torch._foreach_zero_([x, v])
    return x, y, v


def test_an_integer_wrapper_is_written_from_one_that_requires_grad():
    def f(x, y):
        x.eq_(y)
        return x[0]

    def make():
        return given(torch.ops.aten.detach(two(3)).long(), two(3, seed=1, grad=True))

    check(f, make, backward=None, probe=False)


@every_class
@agrees(lambda make: given(make(3), make(3, seed=1, grad=True)))
def test_a_wrapper_argument_is_written(x, y):
    x.add_(y)
    return x * y


@every_class
@agrees(lambda make: given(make(4)))
def test_a_wrapper_argument_is_written_through_views(x):
    x[1:].mul_(2)
    x.view(-1)[0].zero_()
    return x + 1


@session
def test_a_wrapper_with_a_history_is_written(compile):
    leaf_ = two(3, grad=True)
    x = leaf_ * 2
    y = compile(lambda x: x.mul_(3))(x)
    yield leaf_, x, y
    x.backward(cotangent(x))
    yield leaf_, x, y


@session
def test_a_wrapper_with_a_history_is_written_through_a_view(compile):
    leaf_ = two(4, grad=True)
    x = leaf_ * 2

    def f(x):
        x[1:].mul_(3)
        return x * x

    y = compile(f)(x)
    yield leaf_, x, y
    y.backward(cotangent(y))
    yield leaf_, x, y


@agrees(lambda: given(two(3), two(3, seed=2, grad=True)))
def test_a_wrapper_argument_begins_to_require_grad_by_a_write(x, y):
    x.mul_(y)
    return x + 1


@agrees(lambda: given(two(3)))
def test_requires_grad_of_a_wrapper_argument(x):
    x.requires_grad_()
    return x * x


@agrees(lambda: given(two(3, grad=True)))
def test_a_wrapper_leaf_is_written_under_no_grad(x):
    with torch.no_grad():
        x.mul_(2)
    return x * x


def test_a_write_to_a_wrapper_leaf_raises_as_in_eager():
    check(lambda x: x.mul_(2), lambda: given(two(3, grad=True)))


@agrees(lambda: given(two(3, grad=True)))
def test_a_wrapper_argument_is_written_through_detach(x):
    y = x * 1
    x.detach().add_(1)
    return y * 2, x * 3


@agrees(lambda: given(plain(3), two(3)))
def test_a_saved_wrapper_is_written_under_no_grad(x, y):
    z = x.exp() * y
    with torch.no_grad():
        y.add_(1)
    return z


def test_the_caller_writes_a_saved_wrapper_argument():
    check(
        lambda x, y: x * y,
        lambda: given(two(3, grad=True), two(3, seed=1)),
        after=lambda args, outputs: args[1].add_(1),
    )


@every_class
@pytest.mark.parametrize("op", [torch.exp, torch.sin, lambda x: x[:].sigmoid_()], ids=["exp", "sin", "view"])
@pytest.mark.parametrize("written", ["x", "output", "nothing"])
@session
def test_the_caller_writes_what_was_saved_between_two_derivatives(compile, make, op, written):
    root = make(3, grad=True)
    x = root * 1
    out = compile(op)(x)
    write = {"x": x, "output": out, "nothing": plain(2)}[written]
    (gradient,) = torch.autograd.grad(out.sum(), root, create_graph=True)
    with torch.no_grad():
        write.add_(1)
    yield gradient
    yield attempt_later(lambda: torch.autograd.grad(gradient.sum(), root, retain_graph=True))
    yield attempt_later(lambda: torch.autograd.grad(out.sum(), root))


@agrees(lambda: given(two(3, grad=True), two(3, seed=1)))
def test_a_saved_wrapper_is_written_inside(x, y):
    z = x * y
    y.add_(1)
    return z


@agrees(lambda: given(plain(3), two(3, seed=1)))
def test_a_plain_argument_is_written_from_an_inner_tensor(x, y):
    with torch.no_grad():
        x.copy_(y.a)
    return x * 2


@pytest.mark.parametrize(
    "alias", [lambda x: x.detach(), lambda x: x.data, lambda x: x[:]], ids=["detach", "data", "view"]
)
@pytest.mark.parametrize("grad", [False, True])
@session
def test_an_alias_of_a_saved_wrapper_is_written_under_no_grad(compile, alias, grad):
    """What counts writes with it makes the backward raise; ``.data`` does not."""

    def f(x, v, w):
        y = x * w
        with torch.no_grad():
            v.zero_()
        return y

    x, w = two(3, grad=grad), leaf(3, seed=2)
    x = x * 1 if grad else x
    v = alias(x)
    y = compile(f)(x, v, w)
    yield y, x.detach(), v.detach(), attempt_later(lambda: torch.autograd.grad(y, w, cotangent(y)))
