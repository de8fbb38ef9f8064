"""What several tests of custom_functions use."""

import torch

from tests.behaviour.inputs import plain


class Saving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, n):
        ctx.save_for_backward(x, w)
        ctx.n = n
        return x * w * n

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * ctx.n * 7, g * x * ctx.n * 5, None


class _Clips(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-4, 4)


class _TakesSigns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.sign() * x


class _Adds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g + 1


class _MindsWhichAreThere(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        if g is None:
            return None if h is None else h * 5
        return g * 2 if h is None else g + h


def _in_a_layer(function, x, w):
    return (function(x * w) ** 2 * w).sum()


def _sum(out):
    return sum(o.sum() for o in (out if isinstance(out, tuple) else (out,)))


def _few(seed=0):
    """Numbers small enough that polynomials of them are exact."""
    return (plain(2, 3, seed=seed, dtype=torch.float64).remainder(3) - 1).requires_grad_()


def _loss_and_penalty(f):
    x, w = _few(), _few(1)
    for _ in range(2):
        loss = _sum(f(x, w))
        gradients = torch.autograd.grad(loss, (x, w), create_graph=True)
        (loss + sum((g * g).sum() for g in gradients)).backward()
        yield x.grad, w.grad
