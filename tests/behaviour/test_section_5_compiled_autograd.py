"""BEHAVIOUR 5: backwards under compiled autograd, which runs a graph made of the engine's nodes in its place."""

import pytest
import torch
from torch._dynamo import compiled_autograd

from tests.behaviour.harness import attempt_later, check_session, cotangent, leaf

pytestmark = pytest.mark.usefixtures("device")


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
def test_a_backward_under_compiled_autograd(function, compiler):
    """Twice: the second time compiled autograd has its graph, and ours a backward."""

    def session(compile):
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

    check_session(session)


def test_a_gradient_taken_inside_under_compiled_autograd():
    def session(compile):
        def f(x):
            (g,) = torch.autograd.grad((x * x).sum(), x, create_graph=True)
            return g * x

        compiled = compile(f)
        with compiled_autograd._enable(lambda graph: graph):
            x = leaf(3)
            compiled(x).sum().backward()
        yield x

    check_session(session)
