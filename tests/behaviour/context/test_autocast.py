"""Autocast outside, inside, nested, off in parts, at backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from tests.behaviour.harness import agrees, attempt, backward, check, differentiable, session
from tests.behaviour.inputs import given, leaf, plain, to_device

HALVES = [torch.float16, torch.bfloat16]


def _matrix(dtype):
    return plain(4, 4, seed=2).div(8).to(dtype)


KERNELS = {
    "roll": lambda x: torch.roll(x, 1),
    "roll of a dimension": lambda x: torch.roll(x, (1, 2), (0, 1)),
    "fftshift": torch.fft.fftshift,
    "isin": lambda x: torch.isin(x, x.t().contiguous()),
    "_chunk_cat": lambda x: torch._chunk_cat([x], 0, 2),
    "matrix_exp": torch.matrix_exp,
    "pinv": torch.linalg.pinv,
    "bilinear": lambda x: torch.nn.functional.bilinear(x, x, x.unsqueeze(0)),
    "convolution": lambda x: torch.convolution(x.view(1, 4, 4), x.view(4, 4, 1), None, [1], [0], [1], False, [0], 1),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x * 2),
    "sparse.mm": lambda x: torch.sparse.mm(x.to_sparse(), x),
    "pinverse": torch.pinverse,
    "pinverse by method": lambda x: x.pinverse(1e-3),
}


@pytest.mark.parametrize("function", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
@pytest.mark.parametrize("cast_to", HALVES, ids=str)
@session
def test_autocast_inside_the_kernels_of_ops_without_an_autocast_rule(compile, function, dtype, cast_to):
    f = compile(function)
    for enabled in (True, False):
        x = _matrix(dtype).requires_grad_(dtype.is_floating_point)
        with torch.autocast("cpu", cast_to, enabled=enabled):
            out = attempt(lambda x=x: f(x))
        yield out
        outputs = differentiable([out])
        yield attempt(lambda outputs=outputs: backward(outputs)) if outputs else None, x


@session
def test_autocast_off_in_parts_for_an_op_without_an_autocast_rule(compile):
    def f(x):
        with torch.autocast("cpu", enabled=False):
            a = torch.linalg.pinv(x)
        return a, torch.linalg.pinv(x)

    with torch.autocast("cpu"):
        yield compile(f)(_matrix(torch.float32))


@session
def test_autocast_around_some_calls(compile, device: str):
    f = compile(lambda x, y: x @ y)
    for enabled in (True, False, True):
        x, y = leaf(2, 3), leaf(3, 2, seed=1)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
            out = f(x, y)
        backward([out])
        yield x, y, out


@agrees(lambda: given(leaf(2, 3), leaf(3, 2, seed=1)))
def test_autocast_inside(x, y, *, device: str):
    with torch.autocast(device, dtype=torch.bfloat16):
        z = x @ y
        with torch.autocast(device, enabled=False):
            w = x @ y
    return z, w


def _nested_autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        with torch.autocast("cpu", dtype=torch.float16):
            b = x @ y
            with torch.autocast("cpu", enabled=False):
                c = x @ y
            d = x @ y
        e = x @ y
    return a, b, c, d, e, x @ y


def _off_in_parts(x, y):
    a = x @ y
    with torch.autocast("cpu", enabled=False):
        b = a.float() @ a.float().t()
    return a, b, (b @ b).sum()


@torch.autocast("cpu", dtype=torch.bfloat16)
def _decorated(x, y):
    return (x @ y).relu()


def _wide_and_narrow(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        return a.exp(), a.pow(2).sum(), torch.cat([a, x[:, :2]]), nn.functional.mse_loss(a, a * 2), a.softmax(0)


class _CustomForward(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g @ y.t(), x.t() @ g


@pytest.mark.parametrize("outside", [False, True], ids=["inside alone", "outside too"])
@pytest.mark.parametrize(
    "function",
    [_nested_autocast, _off_in_parts, _decorated, _wide_and_narrow, lambda x, y: _CustomForward.apply(x, y) @ y.t()],
    ids=["nested", "off in parts", "decorated", "wide and narrow", "custom_fwd"],
)
@session
def test_autocast_nested_and_off_in_parts_and_by_decorator(compile, function, outside):
    f = compile(function)
    for _ in range(2):
        x, y = leaf(2, 3), leaf(3, 2, seed=1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=outside):
            out = f(x, y)
        yield out
        backward(pytree.tree_leaves(out))
        yield x, y


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
@session
def test_autocast_around_the_forward_or_the_backward(compile, forward, backwards):
    f = compile(lambda x, y: (x @ y).pow(3).exp())
    for _ in range(2):
        x, y = leaf(2, 3).div(4).detach().requires_grad_(), leaf(3, 2, seed=1).div(4).detach().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=forward):
            out = f(x, y)
        yield out
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=backwards):
            backward([out])
        yield x, y


@session
def test_a_backward_under_autocast_after_one_without(compile):
    f = compile(lambda x, y: (x @ y).pow(3))
    for enabled in (False, True, False):
        x, y = leaf(2, 3), leaf(3, 2, seed=1)
        out = f(x, y)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            backward([out])
        yield x, y


@session(rtol=1e-6)
def test_a_module_under_autocast(compile):
    torch.manual_seed(0)
    module = to_device(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2)))
    compiled = compile(module)
    for enabled in (True, False, True):
        x = leaf(2, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out = compiled(x)
        backward([out])
        yield x, out, [p.grad for p in module.parameters()]


def test_an_autocast_object_is_entered_twice_and_across_functions():
    outer = torch.autocast("cpu", dtype=torch.bfloat16)

    @outer
    def g(x, w):
        return x @ w

    def f(x, w):
        with torch.autocast("cpu", enabled=False):
            a = g(x, w)
        return a, g(x.detach(), w), x @ w

    check(f, *[lambda: given(leaf(2, 3), leaf(3, 2, seed=1))] * 2)


@pytest.mark.parametrize("op", ["mm", "bmm", "conv1d", "addmm", "linear", "sdpa", "einsum", "gru", "prelu", "loss"])
def test_ops_under_autocast(op):
    ops = {
        "mm": lambda x: x @ x,
        "bmm": lambda x: torch.bmm(x[None], x[None]),
        "conv1d": lambda x: F.conv1d(x[None], x[:, :, None]),
        "addmm": lambda x: torch.addmm(x, x, x),
        "linear": lambda x: F.linear(x, x, x[0]),
        "sdpa": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
        "gru": lambda x: torch.gru_cell(x, x, x.repeat(3, 1), x.repeat(3, 1)),
        "prelu": lambda x: F.prelu(x @ x, x[0, :1]),
        "loss": lambda x: F.mse_loss(x @ x, x),
    }

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ops[op](x)

    check(f, *[lambda: given(leaf(3, 3).div(4).detach().requires_grad_())] * 2, rtol=1e-6)
