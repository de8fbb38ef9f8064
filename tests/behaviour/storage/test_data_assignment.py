"""X.data = y of arguments."""

import contextlib

import pytest
import torch

from tests.behaviour.harness import agrees, attempt_later, check, session, through_dynamo
from tests.behaviour.inputs import given, leaf, non_leaf, plain
from tests.behaviour.storage.common import _two_non_leaves, _views


@pytest.mark.parametrize("context", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@session(compile=through_dynamo)
def test_through_torch_compile_data_assignment_counts_no_version(compile, context):
    torch._dynamo.reset()

    def f(x, y):
        x.data = y
        return y

    def g(x, y):
        x.data = y
        x.data = y[:1]
        return x * y

    for body in (f, g):
        run = compile(body)
        root = leaf(3)
        x, y = root.clone(), plain(3, seed=2)
        with context():
            view = x[:]
        yield run(x, y), x, view, y, x._version, y._version
        kept = x * y
        yield run(x, plain(3, seed=4)), x, x._version
        yield attempt_later(lambda kept=kept, root=root: torch.autograd.grad(kept.sum(), root)), x


@pytest.mark.parametrize(
    "data",
    [lambda y: y, lambda y: y * 2, lambda y: y[1:], lambda y: y.clone()],
    ids=["input", "fresh", "view", "clone"],
)
@agrees(lambda: given(plain(3), plain(4, seed=1)))
def test_data_assigned_to_an_input_without_grad(x, y, *, data):
    x.data = data(y)
    return x * 3


@pytest.mark.parametrize("data", [lambda y: y, lambda y: y * 2, lambda y: y.clone()], ids=["input", "fresh", "clone"])
@agrees(lambda: given(leaf(3), plain(3, seed=1)), lambda: given(leaf(3), leaf(3, seed=1)), anew=True)
def test_data_assigned_to_a_leaf_of_the_same_shape(x, y, *, data):
    x.data = data(y)
    return x * 3


@agrees(lambda: given(leaf(3), plain(3, seed=1)))
def test_data_assigned_then_written(x, y):
    x.data = y
    with torch.no_grad():
        x.mul_(2)
    return x * 3


@agrees(lambda: given(leaf(3), plain(3, seed=1)))
def test_data_assigned_while_a_detached_alias_of_the_old_data_is_written(x, y):
    old = x.detach()
    x.data = y
    old.add_(1)
    return x * 3, old


@agrees(lambda: given(leaf(3), plain(3, seed=1)))
def test_data_assigned_after_a_use(x, y):
    z = x * x
    x.data = y
    return z, x * 2


def test_data_assigned_to_a_non_leaf_and_to_an_intermediate():
    check(
        lambda x, y: (setattr(x, "data", y), x * 2)[1],
        lambda: given(*(r := non_leaf(3)).args, plain(3, seed=1), also=r.also),
    )

    def f(x, y):
        z = x * 2
        z.data = y
        return z * 3, z

    check(f, lambda: given(leaf(3), plain(3, seed=1)))


@agrees(lambda: given(plain(3), plain(3, dtype=torch.float64)))
def test_data_of_another_dtype_assigned(x, y):
    x.data = y
    return x * 2


@session
def test_two_inputs_exchange_their_data_while_a_no_grad_view_is_an_argument(compile):
    def f(x, y, z):
        w = y.detach()
        y.data = x
        x.data = w

    compiled = compile(f)
    x, y = plain(3), plain(3, seed=1)
    with torch.no_grad():
        z = y.view(-1)
    for _ in range(3):
        compiled(x, y, z)
        yield x, y, z


def test_data_assigned_to_an_argument_whose_view_is_saved():
    def whole(x):
        v = torch.sin(x.squeeze())
        x.data = v
        return v

    def part(x):
        v = torch.sin(x[0])
        x.data = x[1:]
        return v

    check(whole, lambda: given(leaf(3, 2)))
    check(part, lambda: given(leaf(3, 2)))


@pytest.mark.parametrize("make", [_two_non_leaves, _views])
def test_an_argument_is_assigned_a_view_of_itself_after_a_reshape_or_set(make):
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


@pytest.mark.parametrize(
    "made", [lambda v: v, lambda v: v.unbind(0)[0], lambda v: v[0]], ids=["itself", "several", "one"]
)
@session
def test_an_alias_made_before_data_assignment_requires_grad(compile, made):
    def f(x, y):
        alias = x.data
        v = made(alias)
        x.data = y
        alias.requires_grad_()
        return v

    x, y = leaf(2, 2), plain(2, 2, seed=3)
    v = compile(f)(x, y)
    with torch.no_grad():
        x.mul_(2)
    yield v, x, y
