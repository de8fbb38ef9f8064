"""Custom autograd Functions that several tests use. What they say is the gradient is not the derivative."""

import torch


class Same(torch.autograd.Function):
    """Its input itself."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class View(torch.autograd.Function):
    """A view of its input, of the same shape."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Flat(torch.autograd.Function):
    """A view of its input in one dimension."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(ctx.shape) * 2


class Doubled(torch.autograd.Function):
    """Its input, which it doubles in place and marks as written."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Square(torch.autograd.Function):
    """A square, of what it keeps."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x


class Once(torch.autograd.Function):
    """A square whose backward may not be differentiated."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 3


class Halves(torch.autograd.Function):
    """Two results, the second of which is not differentiable."""

    @staticmethod
    def forward(ctx, x):
        y, z = x * 2, x * 3
        ctx.mark_non_differentiable(z)
        return y, z

    @staticmethod
    def backward(ctx, g, _):
        return g * 2
