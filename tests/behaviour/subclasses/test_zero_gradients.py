"""The zeros without memory (sgn) with wrappers."""

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.behaviour.harness import agrees, attempt_later, one_of, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.wrappers import extra, nested, tagged, two


class Bare(torch.Tensor):
    """A tensor that is another one, whose class corrects no aliases, so it bears being copied to where no data is."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls, elem):
        return torch.Tensor._make_wrapper_subclass(
            cls, elem.shape, strides=elem.stride(), dtype=elem.dtype, device=elem.device
        )

    def __init__(self, elem):
        self.elem = elem

    def __tensor_flatten__(self):
        return ["elem"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Bare(inner["elem"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        held = pytree.tree_map_only(Bare, lambda t: t.elem, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, Bare, func(*held[0], **held[1]))


def bare(*shape: int, seed: int = 0, grad: bool = False) -> Any:
    """A :class:`Bare` of small integers."""
    return Bare(plain(*shape, seed=seed)).requires_grad_(grad)


def unmixed(*shape: int, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """No wrapper at all."""
    return plain(*shape, seed=seed).requires_grad_(grad)


every_class = pytest.mark.parametrize(
    "make", [two, extra, tagged, nested, bare, unmixed], ids=lambda make: make.__name__
)

PROGRAMS = {
    "abs": lambda x: x.abs(),
    "abs of a negation": lambda x: x.neg().abs(),
    "abs of a negation in place": lambda x: x.neg().abs_(),
    "abs of a product": lambda x: (x * x).abs(),
    "abs of a multiple": lambda x: (x * 2).abs(),
    "abs of a negated multiple": lambda x: (x / 2).neg().abs(),
    "abs of what is added to": lambda x: (x + 1).neg().abs(),
    "product with abs": lambda x: x.abs() * x,
    "sum with abs": lambda x: x.neg().abs() + x.sin(),
    "sgn": lambda x: x.sgn(),
    "sgn of a product": lambda x: (x * x).sgn(),
    "l1_loss": lambda x: torch.nn.functional.l1_loss(x.neg(), x.exp()),
    "vector_norm": lambda x: torch.linalg.vector_norm(x.neg(), 1),
    "abs of a view": lambda x: x.neg().view(3, 1).abs(),
    "abs of what is expanded": lambda x: x.neg().expand(2, 3).abs(),
    "abs of a part": lambda x: x.neg()[1:].abs(),
    "abs of another dtype": lambda x: x.neg().double().abs(),
    "abs of abs": lambda x: x.neg().abs().neg().abs(),
    "exp of abs": lambda x: x.neg().abs().exp(),
    "two results": lambda x: (x.neg().abs(), x.neg().exp()),
    "two results of one tensor": lambda x: (lambda y: (y.abs(), y.exp()))(x.neg()),
    "what it is taken of, too": lambda x: (lambda y: (y.abs(), y))(x.neg()),
    "two parts": lambda x: (lambda a, b: (a.abs(), b))(*x.neg().split([1, 2])),
}
program = one_of(PROGRAMS)


def _ones(t):
    return torch.ones_like(t.detach())


def _penalty(gradient, results):
    return (gradient * gradient).sum() + sum(y.sum() for y in results)


ENDS = {
    "the gradient": lambda gradient, results: gradient,
    "the gradient and all results": _penalty,
    "the gradient and the first result": lambda gradient, results: _penalty(gradient, results[:1]),
    "the gradient and the last result": lambda gradient, results: _penalty(gradient, results[-1:]),
    "a function of the result": lambda gradient, results: results[0].abs() * results[0],
}


@every_class
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@session(rtol=1e-6)
def test_second_derivatives_through_sgn(compile, program, make, end):
    x = make(3, grad=True)
    y = compile(program)(x)
    results = y if isinstance(y, (tuple, list)) else (y,)

    def first():
        return torch.autograd.grad(results, x, [_ones(t) for t in results], create_graph=True)[0]

    def second(gradient):
        last = end(gradient, results)
        if last.requires_grad:
            last.backward(_ones(last))

    gradient = attempt_later(first)
    yield gradient
    if isinstance(gradient, torch.Tensor):
        yield attempt_later(lambda: second(gradient)), x.grad


@every_class
@session(rtol=1e-5)
def test_third_derivatives_through_sgn(compile, program, make):
    x = make(3, grad=True)
    y = compile(program)(x)
    results = y if isinstance(y, (tuple, list)) else (y,)

    def again(t):
        return torch.autograd.grad(t, x, _ones(t), create_graph=True)[0]

    def derivatives():
        first = torch.autograd.grad(results, x, [_ones(t) for t in results], create_graph=True)[0]
        second = again((first * first).sum())
        return first, second, again((second * second).sum() + first.sum())

    yield attempt_later(derivatives)


@every_class
@pytest.mark.parametrize("function", [lambda x: x.neg(), lambda x: x * 2, lambda x: x.exp()], ids=["neg", "mul", "exp"])
@session
def test_second_derivatives_if_the_caller_takes_abs_of_a_result(compile, function, make):
    x = make(3, grad=True)
    y = compile(function)(x)
    z = y.abs()

    def derivatives():
        (g,) = torch.autograd.grad(z, x, _ones(z), create_graph=True)
        last = (g * g).sum()
        if last.requires_grad:
            last.backward(_ones(last))
        return g

    yield attempt_later(derivatives), x.grad


@every_class
@session
def test_two_calls_share_a_second_backward_through_sgn(compile, make):
    f = compile(lambda x: x.neg().abs())
    x, w = make(3, grad=True), make(3, seed=4, grad=True)
    y, z = f(x), f(w)
    (g,) = torch.autograd.grad(y, x, _ones(y), create_graph=True)
    last = (g * g).sum() + z.sum()  # of the first call the gradient alone, of the second the result alone
    yield attempt_later(lambda: last.backward(_ones(last))), x.grad, w.grad


@session
def test_second_derivatives_by_some_arguments_through_sgn(compile):
    x, w = two(3, grad=True), two(3, seed=4, grad=True)
    y = compile(lambda x, w: x.neg().abs() * w)(x, w)
    (g,) = torch.autograd.grad(y, w, _ones(y), create_graph=True)
    last = (g * g).sum() + y.sum()
    for wanted in ([w], [x], [x, w]):
        yield attempt_later(lambda wanted=wanted: torch.autograd.grad(last, wanted, _ones(last), retain_graph=True))


OPS = {
    "mul": lambda z, w: z * w,
    "mul from the right": lambda z, w: w * z,
    "add": lambda z, w: z + w,
    "add a multiple": lambda z, w: torch.add(z, w, alpha=2),
    "add broadcast": lambda z, w: z.expand(2, 3) + w,
    "sub": lambda z, w: z - w,
    "sub from the right": lambda z, w: w - z,
    "div": lambda z, w: z / w,
    "div by them": lambda z, w: w / z,
    "maximum": lambda z, w: torch.maximum(z, w),
    "where": lambda z, w: torch.where(w > 0, w, z),
    "write": lambda z, w: w.clone().add_(z),
    "copy": lambda z, w: w.clone().copy_(z) + 1,
    "of a view": lambda z, w: z.view(3, 1) * w,
    "of a product": lambda z, w: (z * 2) * w,
    "of a sum": lambda z, w: (z + z) + w,
    "of what is ordinary": lambda z, w: z.clone() * w + z.neg(),
}


@every_class
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@session
def test_ops_inside_on_a_zero_gradient_of_sgn_and_a_wrapper(compile, op, make):
    def f(w, x):
        y = x.detach().requires_grad_()
        with torch.enable_grad():
            (z,) = torch.autograd.grad(y.sgn(), y, torch.ones(3, device=w.device))
        return op(z, w)

    w = make(3, grad=True)
    out = attempt_later(lambda: compile(f)(w, plain(3, seed=2)))
    yield out
    if isinstance(out, torch.Tensor) and out.requires_grad:
        yield attempt_later(lambda: out.backward(_ones(out))), w.grad


@pytest.mark.parametrize(
    "write",
    [
        lambda z, x: z.mul_(2),
        lambda z, x: z.add_(x.detach()),
        lambda z, x: z.copy_(x.detach()),
        lambda z, x: x.detach().clone().copy_(z),
        lambda z, x: (z * 2, z.clone(), z + x, z.t()),
    ],
    ids=["mul_", "add_", "copy_", "copied", "read"],
)
@agrees(lambda: given(leaf(3)))
def test_a_zero_gradient_of_sgn_is_written_and_read_inside(x, *, write):
    y = x.detach().requires_grad_()
    with torch.enable_grad():
        (z,) = torch.autograd.grad(y.sgn(), y, torch.ones(3, device=x.device))
    return write(z, x)


@agrees(lambda: given(leaf(3)))
def test_a_hook_writes_a_zero_gradient_of_sgn(x):
    y = x * 1
    y.register_hook(lambda g: g.mul_(2))
    return y.sgn()


@session
def test_second_derivatives_of_abs_of_the_sum_of_a_jagged_tensor(compile):
    values = plain(3)
    x = torch.nested.nested_tensor_from_jagged(values, to_device(torch.tensor([0, 1, 3]))).requires_grad_()
    y = compile(lambda x: x.sum().abs())(x)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    with_result = (g * g).sum() + y.sum()
    with_result.backward(retain_graph=True)
    yield x.grad
    yield attempt_later(lambda: torch.autograd.grad(g, x, _ones(g)))


@every_class
@pytest.mark.parametrize("wanted", [[0], [1], [0, 1]], ids=["the plain one", "the other", "both"])
@session
def test_second_derivatives_of_a_plain_result_with_a_wrapper_result(compile, make, wanted):
    def f(x, w):
        y = x.neg()
        return y.abs(), y * w

    x, w = leaf(3), make(3, seed=4, grad=True)
    results = compile(f)(x, w)
    (g,) = torch.autograd.grad(results[0], x, _ones(results[0]), create_graph=True)
    last = (g * g).sum() + results[1].sum()
    asked = [(x, w)[k] for k in wanted]
    yield attempt_later(lambda: torch.autograd.grad(last, asked, _ones(last), allow_unused=True))
