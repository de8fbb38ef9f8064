"""Views of wrappers."""

import pytest
import torch

from tests.behaviour.functions import Flat
from tests.behaviour.harness import Raised, agrees, attempt_later, check, cotangent, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.subclasses.common import every_class
from tests.behaviour.wrappers import two


@pytest.mark.parametrize("grad", [False, True])
@session
def test_views_made_before_and_after_set_of_a_wrapper(compile, grad):
    def f(x):
        before, elsewhere = x.view(-1), x * 2
        with torch.no_grad():
            x.set_(elsewhere)
        return before, x[:1]

    leaf_ = two(3, grad=grad)
    x = leaf_.clone()
    views = compile(f)(x)
    yield leaf_, x, views
    for t in (x, *views):
        with torch.no_grad():
            t.add_(1)
        yield leaf_, x, views
    if grad:
        yield attempt_later(lambda: views[0].backward(cotangent(views[0])))
        yield leaf_


@agrees(lambda: given(plain(4)), lambda: given(leaf(4) * 2))
def test_a_plain_view_is_written_in_a_function_that_returns_a_wrapper_view(x):
    """To find out how it was made costs no memory, and leaves nothing in the graph."""
    view = x[1:]
    batch = two(3).view(3, 1)
    view.fill_(3)
    return view[:1], batch


@pytest.mark.parametrize("grad", [False, True])
@session
def test_views_of_the_data_of_a_part_of_a_written_view(compile, grad):
    def f(x):
        part = x[1:]
        x.exp_()
        alias = part.data
        return alias.expand(2, 2), alias[:1], part.detach()[1:], alias * 2

    base = two(3, grad=grad) * 1
    x = base.view(-1)
    results = compile(f)(x)
    yield base, x, results
    for t in (x, results[1]):
        with torch.no_grad():
            t.add_(1)
        yield base, x, results


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_set_of_a_view_of_a_wrapper(compile, part, grad):
    def f(x):
        elsewhere, view = x * 2, x.view(-1)[1:] if part else x.view(-1)
        view.set_(elsewhere.detach())
        return view, x.view(-1)

    x = two(2, 3, grad=grad) * 1
    views = compile(f)(x)
    yield x, views
    with torch.no_grad():
        x.add_(1)
    yield x, views


@every_class
@agrees(lambda make: given(make(3)))
def test_a_detached_alias_of_a_wrapper_that_is_then_written(x):
    alias = x.detach()
    x.zero_()
    return alias


@agrees(lambda: given(two(3, grad=True)))
def test_a_detached_alias_made_under_no_grad_of_a_leaf_that_is_then_written(x):
    with torch.no_grad():
        alias = x.detach()
        x.zero_()
    return alias


@agrees(lambda: given(two(3, 2, grad=True)), backward=None, probe=False)
def test_views_made_under_no_grad_before_and_after_a_write_under_no_grad(x):
    with torch.no_grad():
        first = x.view(-1)
        x.mul_(2)
        second = x.view(-1)
    return first, second


@agrees(lambda: given(two(2, 2, grad=True)), backward=None, probe=False)
def test_a_view_of_a_split_part_that_is_then_written_under_no_grad(x):
    first, second = x.split(1)
    part = first.select(0, 0)
    with torch.no_grad():
        first.mul_(2)
    return first, part, second


@agrees(lambda: given(two(3, 2, grad=True)), backward=None)
def test_a_view_made_under_no_grad_of_an_intermediate(x):
    y = x * 2
    with torch.no_grad():
        return y.t()


@session
def test_the_data_of_a_wrapper_has_its_own_version_counter(compile):
    x = two(3, grad=True) * 2
    y = compile(lambda x: (x.data, x.detach()))(x)
    versions = [x._version, y[0]._version, y[1]._version]
    y[0].add_(1)
    yield x, y, versions, x._version
    y[1].add_(1)
    yield x, y, x._version


@session
def test_a_view_argument_gets_its_gradient_once_if_another_view_is_written(compile):
    """The trace with bases must not count the gradient of the view and that of its base."""

    leaf_, other = two(3, 2, grad=True), leaf(3, 2)
    x, p = leaf_.t(), (other * 1).t()

    def f(x, p):
        p.zero_()
        return x * 2

    y = compile(f)(x, p)
    y.backward(cotangent(y))
    yield leaf_, other, x, p, y


@pytest.mark.parametrize("written", ["base", "view"])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_a_saved_view_is_written_under_no_grad_through_itself_or_its_base(compile, written, grad):
    def f(x, v, y):
        z = v * y
        with torch.no_grad():
            (x if written == "base" else v).add_(1)
        return z * 2, v * y

    x, y = two(3, 2, grad=grad), leaf(2, 3)
    v = x.t()
    first, second = compile(f)(x, v, y)
    yield x, v, first, second
    yield attempt_later(lambda: second.sum().backward())
    yield attempt_later(lambda: first.sum().backward())
    yield x, y


@session
def test_a_view_of_a_wrapper_by_a_custom_function_may_not_be_written(compile):
    x = two(3, 2, grad=True)
    y = compile(Flat.apply)(x)
    yield x, y, y._base is x
    y.backward(cotangent(y), retain_graph=True)
    yield x, y
    yield isinstance(attempt_later(lambda: y.mul_(2)), Raised)  # the message names a node


@session
def test_views_of_a_wrapper_written_in_a_call_under_inference_mode(compile):
    x = two(3, 2, grad=True)
    v = x.view(-1)

    def f(x, v):
        x.mul_(2)
        return v.data, v + 1

    with torch.inference_mode():
        y = compile(f)(x, v)
    yield x, v, y, [t.is_inference() for t in y]


def _ragged_of_numbers():
    offsets = to_device(torch.tensor([0, 2, 4]))
    return torch.nested.nested_tensor_from_jagged(to_device(torch.arange(8)).reshape(4, 2), offsets)


_GIVES_IT_BACK = {
    "resolve_neg": torch.resolve_neg,
    "resolve_conj": torch.resolve_conj,
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(x.dtype),
}


@pytest.mark.parametrize("op", _GIVES_IT_BACK.values(), ids=_GIVES_IT_BACK)
@pytest.mark.parametrize("make", [_ragged_of_numbers, lambda: two(3, 2)], ids=["ragged", "two"])
@agrees(lambda make: given(make()))
def test_an_op_in_inference_mode_that_returns_its_wrapper_argument_and_a_view_of_its_alias(x, *, op):
    alias = x.detach()
    with torch.inference_mode():
        view = alias.unflatten(2, (-1, 1)) if x.is_nested else alias.unsqueeze(-1)
        back = op(x)
    return back, view


@every_class
def test_views_of_a_wrapper_argument_are_returned(make):
    check(lambda x: (x.view(-1), x[1:]), lambda: given(make(3, 2, grad=True)))


@session
def test_the_caller_writes_a_view_of_a_wrapper_argument(compile):
    leaf_ = two(3, 2, grad=True)
    x = leaf_ * 2
    y = compile(lambda x: x.view(-1))(x)
    y.mul_(3)
    z = x * x
    yield leaf_, x, y, z, y._base is x
    z.backward(cotangent(z))
    yield leaf_, x, y, z


def test_a_view_of_a_view_of_a_wrapper_argument():
    check(lambda x: x.t()[1:].unsqueeze(0), lambda: given(two(3, 2, grad=True)))


def test_multi_output_views_of_a_wrapper_argument():
    check(lambda x: x.split(2), lambda: given(two(4, grad=True)))


@agrees(lambda: given(two(3, 2, grad=True)))
def test_a_wrapper_intermediate_and_its_views_are_returned(x):
    y = x * 2
    return y, y.view(-1), y[0]


@agrees(lambda: given(two(3, 2, grad=True)))
def test_views_of_a_wrapper_intermediate_that_is_not_returned(x):
    y = x * 2
    return y.view(-1), y[0]


def test_a_detached_alias_of_a_wrapper_argument():
    check(lambda x: x.detach(), lambda: given(two(3, grad=True)))


@agrees(lambda: given(two(3, 2, grad=True)), backward=None)
def test_a_view_of_a_wrapper_leaf_made_under_no_grad(x):
    with torch.no_grad():
        return x.view(-1)


@agrees(lambda: given(two(3, 2), two(3, 2, seed=1, grad=True)))
def test_views_made_before_and_after_a_wrapper_argument_is_written(x, w):
    y = x.view(-1)
    x.mul_(w)
    return y, x[0]


@session
def test_a_wrapper_is_passed_with_its_view(compile):
    leaf_ = two(3, 2, grad=True)
    x = leaf_ * 2
    v = x.view(-1)
    y = compile(lambda x, v: x * v.view(3, 2))(x, v)
    yield leaf_, x, v, y
    y.backward(cotangent(y))
    yield leaf_, x, v, y


@pytest.mark.parametrize("written", ["base", "view"])
@session
def test_a_wrapper_is_passed_with_its_view_and_one_of_them_is_written(compile, written):
    leaf_ = two(3, 2, grad=True)
    x = leaf_ * 2
    v = x.view(-1)

    def f(x, v):
        (x if written == "base" else v).mul_(3)
        return x * v.view(3, 2)

    y = compile(f)(x, v)
    yield leaf_, x, v, y
    y.backward(cotangent(y))
    yield leaf_, x, v, y


@session
def test_a_view_argument_passed_without_its_wrapper_base_is_written(compile):
    leaf_ = two(3, 2, grad=True)
    x = leaf_ * 2
    v = x[1:]

    def f(v):
        v.mul_(3)
        return v + 1

    y = compile(f)(v)
    z = x * 2
    yield leaf_, x, v, y, z
    torch.autograd.backward([y, z], [cotangent(y), cotangent(z)])
    yield leaf_, x, v, y, z
