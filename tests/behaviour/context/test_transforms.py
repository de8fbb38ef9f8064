"""Torch.func and forward mode, inside and around."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import grad, jacrev, vjp, vmap

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, backward, check, session, through_dynamo
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import integers


class _Sine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()


_TRANSFORMS = {
    "grad": lambda x, w: grad(lambda z: _Sine.apply(z).sum())(x),
    "of a product": lambda x, w: grad(lambda z: _Sine.apply(z * w).sum())(x),
    "beside": lambda x, w: _Sine.apply(w) * grad(lambda z: (_Sine.apply(w) * z).sum())(x),
    "twice": lambda x, w: grad(lambda z: grad(lambda q: _Sine.apply(q).sum())(z).sum())(x),
    "in vmap": lambda x, w: vmap(grad(lambda z: _Sine.apply(z).sum()))(x),
    "jacrev": lambda x, w: jacrev(_Sine.apply)(x),
    "vjp": lambda x, w: vjp(_Sine.apply, x)[1](x)[0],
}


@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@pytest.mark.parametrize("function", _TRANSFORMS.values(), ids=_TRANSFORMS.keys())
def test_transforms_of_custom_functions_inside_are_traced(function: Any, make: Any):
    check(function, lambda: given(make(2), leaf(2, seed=1)), rtol=1e-6)


def test_a_custom_function_in_vmap_of_grad_is_traced():
    class Cubes(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    check(lambda x: torch.vmap(torch.func.grad(lambda x: Cubes.apply(x)))(x), lambda: given(leaf(3)))


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("called", [False, True], ids=["first", "called before"])
def test_torch_jit_trace_of_a_compiled_module_records_the_original_ops(called: bool):
    module = integers(nn.Linear(3, 2))
    compiled = aotcheck.aot_module(module)
    x = plain(2, 3)
    if called:
        compiled(x)
    traced = torch.jit.trace(compiled, (x,))
    other = plain(2, 3, seed=4)
    assert torch.equal(traced(other), module(other))
    assert "aten::linear" in str(traced.inlined_graph)
    assert torch.equal(compiled(other), module(other))


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
def test_torch_jit_trace_of_a_compiled_function_records_the_original_ops():
    f = aotcheck.aot_function(lambda x: x.sin() * 2)
    x = plain(3)
    f(x)
    traced = torch.jit.trace(f, (x,))
    assert "aten::sin" in str(traced.graph)
    assert torch.equal(traced(plain(3, seed=1)), f(plain(3, seed=1)))


def f(x, w):
    return x * x * w


INSIDE = {
    "grad": lambda x, w: torch.func.grad(lambda x: f(x, w).sum())(x),
    "grad_and_value": lambda x, w: torch.func.grad_and_value(lambda x: f(x, w).sum())(x),
    "vjp": lambda x, w: torch.func.vjp(lambda x: f(x, w), x)[1](w),
    "vmap": lambda x, w: torch.func.vmap(lambda a, b: (a * b).sum())(x, w),
    "vmap of grad": lambda x, w: torch.func.vmap(torch.func.grad(lambda x, w: f(x, w).sum()))(x, w),
    "jacrev": lambda x, w: torch.func.jacrev(lambda x: f(x, w))(x),
    "jvp": lambda x, w: torch.func.jvp(lambda x: f(x, w), (x,), (w,)),
    "jacfwd": lambda x, w: torch.func.jacfwd(lambda x: f(x, w))(x),
    "hessian": lambda x, w: torch.func.hessian(lambda x: f(x, w).sum())(x),
    "functionalize": lambda x, w: torch.func.functionalize(lambda x: x.clone().add_(w))(x),
    "vmap over writes": lambda x, w: torch.func.vmap(lambda a, b: a.clone().mul_(b).sin())(x, w),
    "functional_call": lambda x, w: torch.func.functional_call(
        torch.nn.Linear(2, 2), {"weight": w[:2], "bias": w[0]}, x
    ),
}


@pytest.mark.parametrize("transform", INSIDE.values(), ids=INSIDE)
@pytest.mark.parametrize("make", [plain, leaf], ids=["no grad", "grad"])
@pytest.mark.parametrize("compile", [None, through_dynamo], ids=["aot_function", "torch.compile"])
def test_func_transforms_inside(transform, make, compile):
    """Dynamo's graphs enter and leave transforms by nodes of their own, which a trace that begins again skips."""
    check(
        transform,
        lambda: given(make(3, 2), make(3, 2, seed=1)),
        lambda: given(make(3, 2, seed=2), make(3, 2, seed=3)),
        compile=compile,
    )


@pytest.mark.parametrize("make", [plain, leaf], ids=["no grad", "grad"])
@agrees(lambda make: given(make(3), make(3, seed=1)))
def test_dual_numbers_inside(x, w):
    with forward_ad.dual_level():
        out = f(forward_ad.make_dual(x, w), w).sin()
        primal, tangent = forward_ad.unpack_dual(out)
    return primal * 1, tangent * 1


@agrees(lambda: given(leaf(3, 2)))
def test_random_numbers_under_vmap(x):
    return torch.func.vmap(lambda a: a * torch.rand(2, device=a.device), randomness="different")(x)


@session
def test_the_original_runs_inline_under_a_transform(compile):
    compiled = compile(f)
    x, w = plain(3), plain(3, seed=1)
    for _ in range(2):
        yield compiled(x, w)
        yield torch.func.grad(lambda x: compiled(x, w).sum())(x)
        yield torch.func.vmap(compiled)(plain(2, 3), plain(2, 3, seed=1))
        yield torch.func.vmap(compiled, in_dims=(0, None))(plain(2, 3), w)
        yield torch.func.jvp(compiled, (x, w), (w, x))
        yield torch.func.jacfwd(compiled)(x, w)
        yield torch.func.jacrev(compiled)(x, w)
        yield torch.func.hessian(lambda x: compiled(x, w).sum())(x)
        yield torch.func.linearize(lambda x: compiled(x, w), x)[1](w)


@session
def test_the_original_runs_inline_at_a_dual_level(compile):
    compiled = compile(f)
    x, w = plain(3), plain(3, seed=1)
    for _ in range(2):
        yield compiled(x, w)
        with forward_ad.dual_level():
            yield tuple(forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, w), w)))
            yield compiled(x, w)


@session
def test_a_jacobian_vector_product_by_two_backwards(compile):
    """A Jacobian-vector product by two backwards, which needs the second derivative of ours."""

    x, w = leaf(3), leaf(3, seed=1)
    y = compile(f)(x, w)
    v = torch.ones_like(y, requires_grad=True)
    (g,) = torch.autograd.grad(y, x, v, create_graph=True)
    yield torch.autograd.grad(g, v, plain(3, seed=2))


@session
def test_functional_jacobians_of_a_compiled_function(compile):
    compiled = compile(f)
    x, w = plain(3), plain(3, seed=1)
    yield torch.autograd.functional.jacobian(compiled, (x, w))
    yield torch.autograd.functional.hessian(lambda x: compiled(x, w).sum(), x)
    yield torch.autograd.functional.vjp(compiled, (x, w), plain(3, seed=2))
    yield torch.autograd.functional.hvp(lambda x: compiled(x, w).sum(), x, w)


@pytest.mark.parametrize("of", [lambda x: (x**3).sum() * x[0], lambda x: torch.atan2(x, x * 2).sum()])
@session
def test_zeros_of_forward_mode_stay_zero_beside_infinities(compile, of):
    x = leaf(3)
    y = compile(lambda x: torch.func.jacfwd(torch.func.jacfwd(of))(x))(x)
    infinite = torch.zeros_like(y, memory_format=torch.contiguous_format).fill_diagonal_(float("inf"))
    yield y, torch.autograd.grad(y, x, infinite)


@session
def test_is_grads_batched_runs_the_backward_under_vmap(compile):
    """``is_grads_batched`` runs the backward under vmap."""

    x = leaf(3)
    y = compile(lambda x: x * x)(x)
    yield torch.autograd.grad(y, x, torch.eye(3, device=x.device), is_grads_batched=True)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("function", [lambda x, w: x * x * w, lambda x, w: ((x @ w).sin(), w * 2)], ids=["one", "two"])
@session(rtol=1e-9)
def test_derivatives_of_a_batched_backward(compile, function, trained):
    double = torch.float64  # third derivatives of sums of large terms: their order shows in float32
    x, w = leaf(3, 3, dtype=double), leaf(3, 3, seed=1, dtype=double)
    out = compile(function)(x, w)
    roots = [out] if isinstance(out, torch.Tensor) else list(out)
    given = [plain(4, 3, 3, seed=k, dtype=double).requires_grad_(trained) for k, _ in enumerate(roots)]
    how = {"is_grads_batched": True, "create_graph": True}
    found = torch.autograd.grad(roots, [x, w], given, **how)
    yield found, [g.requires_grad for g in found]
    ones = torch.ones(2, 4, 3, 3, dtype=double, device=x.device)
    again = torch.autograd.grad([g.sin() for g in found], [x, w], [ones] * 2, **how)
    yield again, [g.requires_grad for g in again]
    backward([sum(g.sum() for g in again)])
    yield x, w, given


@session(rtol=1e-5)
def test_a_vectorized_jacobian_of_a_vectorized_jacobian(compile):
    f = compile(lambda x: x.sin() * x.prod())
    x = leaf(3)
    jacobian = torch.autograd.functional.jacobian
    found = jacobian(f, x, vectorize=True, create_graph=True)
    yield found
    backward([found])
    yield x, jacobian(lambda x: jacobian(f, x, vectorize=True, create_graph=True), x, vectorize=True)
