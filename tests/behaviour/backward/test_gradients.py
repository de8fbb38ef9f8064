"""Which gradients exist; None; backward and autograd.grad; inputs=; accumulation into .grad."""

import pytest
import torch

from tests.behaviour.harness import attempt_later, backward, check, session
from tests.behaviour.inputs import given, leaf, plain


def test_an_unused_input_gets_none():
    check(lambda x, y: x * 2, lambda: given(leaf(3), leaf(3)))


def test_an_input_multiplied_by_zero_gets_zeros():
    check(lambda x: x * 0, lambda: given(leaf(3)))


def test_a_gradient_cut_by_detach_is_none():
    check(lambda x, y: x.detach() * y, lambda: given(leaf(3), leaf(3)))


@session
def test_gradients_accumulate_over_calls(compile):
    f = compile(lambda x: x * x)
    x = leaf(3)
    for _ in range(3):
        backward([f(x)])
        yield x


@session
def test_several_calls_before_their_backwards(compile):
    f = compile(lambda x, n: x * x * n)
    x = leaf(3)
    outputs = [f(x, plain(3, seed=k)) for k in range(3)]
    for output in reversed(outputs):
        backward([output])
        yield x


@session
def test_a_compiled_function_inside_a_larger_graph(compile):
    x, y = leaf(3), leaf(3, seed=1)
    f = compile(lambda a, b: (a * b, a + b))
    p, q = f(x * 2, y + 1)
    backward([(p * q).sum() * 3])
    yield x, y


@session
def test_grad_of_chosen_inputs(compile):
    x, y = leaf(3), leaf(3, seed=1)
    out = compile(lambda x, y: (x * y).sum())(x, y)
    yield torch.autograd.grad(out, [x], retain_graph=True)
    yield torch.autograd.grad(out, [y]), x, y


@session
def test_grad_of_an_unused_input_raises_or_is_none_with_allow_unused(compile):
    x, y = leaf(3), leaf(3, seed=1)
    out = compile(lambda x, y: x.sum())(x, y)
    yield attempt_later(lambda: torch.autograd.grad(out, [y], retain_graph=True))
    yield torch.autograd.grad(out, [x, y], allow_unused=True)


def test_an_input_that_only_one_result_depends_on():
    def f(x, y):
        return x * 2, (x * y).sum(), y.detach() * x

    for subset in ([0], [1], [2], [0, 2]):
        check(f, lambda: given(leaf(3), leaf(3, seed=1)), backward=subset)


def test_a_gradient_of_zeros_is_zeros_and_not_none():
    def f(x, y):
        return x * y * 0, torch.where(x > 100, y, x), x.clamp(min=100) + y.relu()

    for subset in ([0], [1], [2]):
        check(f, lambda: given(leaf(3), leaf(3, seed=1)), backward=subset)


@pytest.mark.parametrize("k", [0, 1])
@session
def test_the_gradient_of_a_view_argument_through_a_foreach_op(compile, k):
    """Whether such an op keeps the view is found out as if it was written, which is no reason for another history."""

    def f(x):
        with torch.no_grad():
            x.zero_()
        a, b = torch._foreach_mul([x, x], 2)
        return a.clone(), b

    base = leaf(4)
    x = base[1:]
    results = compile(f)(x)
    yield torch.autograd.grad(results[k], (x, base), plain(3), allow_unused=True)


def test_the_gradient_of_eigvals_whose_backward_checks_its_operands():
    check(lambda x: torch.linalg.eigvals(x).abs(), lambda: given(leaf(3, 3)), rtol=1e-4)
