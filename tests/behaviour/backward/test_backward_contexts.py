"""Modes in which backward is called; compiled autograd; threads."""

import itertools

import pytest
import torch
from torch._dynamo import compiled_autograd

from tests.behaviour.harness import attempt, attempt_later, backward, cotangent, session
from tests.behaviour.inputs import leaf, plain, to_device


class _Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return g * x + h * x * x


def _smooth(x, y):
    return ((x * y).sin() + x,)


def _several(x, y):
    return x.sin(), (x * y).cos(), y * 2


def _custom(x, y):
    return _Two.apply(x * y)


def _hooked(x, y):
    z = x * y
    z.register_hook(lambda g: g * 2)
    return z.sin(), z


def _written(x, y):
    x.mul_(y)
    return (x.sin(),)


def _aliases(x, y):
    z = x * y
    return z, z[1:], x.view(-1)


_FUNCTIONS = {f.__name__.strip("_"): f for f in (_smooth, _several, _custom, _hooked, _written, _aliases)}

_COMPILERS = {"interpreted": lambda: lambda graph: graph, "through Dynamo": lambda: torch.compile(backend="eager")}


@pytest.mark.parametrize("function", _FUNCTIONS.values(), ids=_FUNCTIONS)
@pytest.mark.parametrize("compiler", _COMPILERS.values(), ids=_COMPILERS)
@session
def test_a_backward_under_compiled_autograd(compile, function, compiler):
    """Twice: the second time compiled autograd has its graph, and ours a backward."""

    torch._dynamo.reset()
    compiled, how = compile(function), compiler()
    for which in (slice(None), slice(1)):
        for seed in (0, 1):
            x, y = leaf(3, seed=seed), leaf(3, seed=seed + 1)
            roots = list(compiled(x * 1, y))[which]

            def run():
                with compiled_autograd._enable(how):
                    torch.autograd.backward(roots, [cotangent(r) for r in roots])  # noqa: B023  # called now

            yield attempt_later(run)
            yield x, y
            yield attempt_later(run)


@session
def test_grad_inside_under_compiled_autograd(compile):
    def f(x):
        (g,) = torch.autograd.grad((x * x).sum(), x, create_graph=True)
        return g * x

    compiled = compile(f)
    with compiled_autograd._enable(lambda graph: graph):
        x = leaf(3)
        compiled(x).sum().backward()
    yield x


class Product(torch.autograd.Function):
    """A matrix product whose backward casts nothing by itself."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g


def softened(x, w):
    return torch.softmax(x @ w, 0) @ w


FUNCTIONS = {
    "a product": lambda x, w: x @ w,
    "several dtypes": softened,
    "a custom product": lambda x, w: Product.apply(x, w),
    "a convolution": lambda x, w: torch.nn.functional.conv1d(x[None], w[:, :, None]),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float16)])
@session
def test_autocast_in_forward_and_in_backward(compile, function, dtypes):
    """One compiled function, backward in each state; thirds are exact in no dtype, so that a cast shows."""

    compiled = compile(function)
    for forward_on, backward_on in itertools.product((False, True), (False, True, False)):
        x, w = ((t.detach() / 3).requires_grad_() for t in (leaf(3, 3), leaf(3, 3, seed=1)))
        with torch.autocast("cpu", dtypes[0], enabled=forward_on):
            y = compiled(x, w)
        with torch.autocast("cpu", dtypes[1], enabled=backward_on):
            yield y, attempt_later(lambda y=y: y.backward(torch.ones_like(y) / 3))
        yield y, x, w


@session
def test_a_second_derivative_under_autocast(compile):
    compiled = compile(lambda x, w: (x @ w).exp() @ w)
    for first_on, second_on in itertools.product((False, True), repeat=2):
        x, w = ((t.detach() / 3).requires_grad_() for t in (leaf(3, 3), leaf(3, 3, seed=1)))
        y = compiled(x, w)
        with torch.autocast("cpu", torch.bfloat16, enabled=first_on):
            (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=second_on):
            yield g, attempt_later(lambda g=g, w=w: torch.autograd.grad((g * g).sum(), w))


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("backward_mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("inside", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("outside", [torch.no_grad, torch.enable_grad])
@session
def test_grad_modes_inside_around_the_call_and_around_the_backward(
    compile, outside, inside, backward_mode, create_graph: bool
):
    def f(x, w):
        with inside():
            y = x * w
        return y * y * x

    compiled = compile(f)
    for _ in range(2):
        x, w = leaf(3), leaf(3, seed=1)
        with outside():
            y = compiled(x, w)
        yield y
        with backward_mode():
            yield attempt_later(lambda y=y, x=x: torch.autograd.grad(y.sum(), x, create_graph=create_graph))


@session
def test_deterministic_mode_around_the_backward(compile):
    y = compile(lambda x, i: x[i])(x := leaf(4), to_device(torch.tensor([0, 1, 0])))
    torch.use_deterministic_algorithms(True)
    try:
        yield attempt(lambda: backward([y]))
    finally:
        torch.use_deterministic_algorithms(False)
    yield x


@session
def test_a_tensor_made_in_a_custom_backward_has_the_default_dtype(compile):
    class Adding(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g + torch.ones(3, device=g.device)

    y = compile(lambda x: Adding.apply(x))(x := plain(3).requires_grad_())
    backward([y])
    yield x


@session
def test_a_backward_under_autocast_after_captured_tensors_were_freed(compile):
    held = [plain(2, 2, seed=k) for k in range(40)]
    f = compile(lambda x: [x @ w for w in held][-1].pow(3))
    x = leaf(3, 2).detach().div(4).requires_grad_()
    out = f(x)
    yield out
    held.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):  # a backward of its own
        backward([out])
    yield x
