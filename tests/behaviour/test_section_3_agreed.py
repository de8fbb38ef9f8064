"""BEHAVIOUR 3: other data and other storages for what views, histories and saved tensors hold on to."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check, check_session, given, leaf, non_leaf, plain, write


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * 2


DATA = {
    "alike": torch.ones_like,
    "a result": lambda x: x * 3,
    "its own part": lambda x: x[:1],
    "another shape": lambda x: torch.ones(5),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())
def test_a_leaf_is_given_inference_data_after_a_custom_function_saved_it(data):
    def function(x):
        squared = Square.apply(x)
        with torch.inference_mode():
            made = data(x)
        x.data = made
        return squared

    check(function, lambda: (leaf(2, 3),), lambda: (leaf(2, 3),), probe=False)


@pytest.mark.parametrize("result", [False, True])
@pytest.mark.parametrize("view", [lambda z: z.imag, lambda z: z.imag[0], torch.view_as_real])
def test_a_view_of_what_is_given_its_own_conjugate(view, result):
    def function(z):
        z = z * 1 if result else z
        seen = view(z)
        z.data = z.conj()
        return seen * 2, seen, z

    for make in (leaf, plain):
        check(function, *[lambda make=make: (make(2, 3, dtype=torch.complex64),)] * 2)


def doubles(tensor):
    tensor.mul_(2)


@pytest.mark.parametrize("change", [doubles, write])
@pytest.mark.parametrize(
    "view", [lambda x: x[0], lambda x: x.view(-1), lambda x: x.t(), lambda x: x.unbind()[0], lambda x: x.detach()]
)
@pytest.mark.parametrize("source", [lambda y: (y,), lambda y: (y.untyped_storage(), 0, (2,), (1,)), lambda y: ()])
def test_the_caller_writes_a_view_of_a_leaf_that_set_took_elsewhere(view, source, change):
    def function(x, y):
        seen = view(x)
        with torch.no_grad():
            seen.set_(*source(y))
        return seen

    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            x, y = leaf(2, 3), plain(2, 3)
            seen = compiled(x, y)
            yield x, y, seen
            yield attempt_later(lambda seen=seen: change(seen)), x, y, seen

    check_session(session)


def takes(x, y):
    x.set_(y)
    return x * 2


def takes_and_writes(x, y):
    x.set_(y)
    x.mul_(2)
    return x


def takes_a_result(x, y):
    made = x * 1
    made.set_(y * 2)
    return made


def takes_into_a_new_one(x, y):
    made = torch.empty(0)
    made.set_(y)
    return made * 2, x * 2


@pytest.mark.parametrize("source", [lambda: given(plain(3), leaf(3)), lambda: given(plain(3), *non_leaf(3).args)])
@pytest.mark.parametrize("function", [takes, takes_and_writes, takes_a_result, takes_into_a_new_one])
def test_the_source_of_set_has_no_gradient_nor_a_derivative(function, source):
    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            x, y = source().args
            results = compiled(x, y)
            yield x, y, results
            last = results if isinstance(results, torch.Tensor) else results[0]
            yield attempt_later(partial(torch.autograd.grad, last.sum(), y, allow_unused=True)), x, y

    check_session(session)


def writes_the_view(base, view):
    view.mul_(2)
    return view


def writes_what_was_used(base, view):
    before = view * view
    view.add_(1)
    return before, view


def writes_by_the_base(base, view):
    view.copy_(view * 2)
    return view * 1, base * 1


@pytest.mark.parametrize("function", [writes_the_view, writes_what_was_used, writes_by_the_base])
@pytest.mark.parametrize("data", [lambda: torch.empty(0), lambda: torch.empty(0, 3), lambda: torch.empty(2, 0)])
@pytest.mark.parametrize("view", [lambda b: b[:1], lambda b: b.view(-1), lambda b: b.t()])
def test_a_view_whose_base_was_given_data_without_elements(function, data, view):
    def whole(x):
        base = x * 1
        seen = view(base)
        base.data = data()
        return function(base, seen)

    check(whole, lambda: (leaf(2, 3),), lambda: (leaf(2, 3),))


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("data", [lambda y: y, lambda y: y[0], lambda y: y.unsqueeze(0), lambda y: y.double()])
@pytest.mark.parametrize("make", [non_leaf, lambda *shape: given(plain(*shape))])
def test_a_view_of_an_argument_that_is_then_given_other_data_is_written(make, data, used):
    def function(x, y):
        view = x[1:]
        before = view * view if used else None
        x.data = data(y)
        view.mul_(2)
        return view, before

    def arguments():
        made = make(2, 3)
        return given(*made.args, leaf(2, 3), also=made.also)

    check(function, arguments, arguments)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (4,)])
def test_a_view_of_another_dtype_of_an_argument_that_set_takes_elsewhere(shape, written):
    def function(x, y):
        view = x.view(torch.int32)
        with torch.no_grad():
            x.set_(y)
        if written:
            view.add_(1)
        return view, x * 2

    for make in (lambda: given(plain(2, 4)), lambda: non_leaf(2, 4), lambda: given(leaf(2, 4))):
        check(function, *[lambda make=make: given(*make().args, plain(*shape))] * 2)


def test_another_tensor_is_told_to_keep_its_gradient_after_a_swap():
    def function(x):
        made = x * 2
        torch.utils.swap_tensors(x, made)
        x.retain_grad()
        return made * 2, x * 3

    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            root = leaf(3)
            x = root * 1
            results = attempt(lambda x=x: compiled(x))
            yield root, x, results
            yield attempt_later(lambda results=results: sum(results).sum().backward()), root, x.grad

    check_session(session)
