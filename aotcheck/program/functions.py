"""Custom autograd Functions that programs may call, one of each kind; modules; hooks and checkpoints inside."""

from __future__ import annotations

import torch
import torch.utils.checkpoint


class SavesTensors(torch.autograd.Function):
    """A product, whose backward needs both operands and asks which gradients are wanted."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y if ctx.needs_input_grad[0] else None), (g * x if ctx.needs_input_grad[1] else None)


class SavesOutput(torch.autograd.Function):
    """Saves what it returns; the gradient is made up."""

    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class ReturnsView(torch.autograd.Function):
    """Its output is a view of its input, which autograd then guards against writes."""

    @staticmethod
    def forward(ctx, x):
        return x.unsqueeze(0)

    @staticmethod
    def backward(ctx, g):
        return g.squeeze(0)


class ReturnsInput(torch.autograd.Function):
    """Its output is its input, of which autograd then makes a view."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class MarksDirty(torch.autograd.Function):
    """Doubles its input in place, and says so."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class MarksDirtyAndMore(torch.autograd.Function):
    """Negates its first input in place and returns it beside a product with what it was."""

    @staticmethod
    def forward(ctx, x, y):
        product = x * y
        ctx.save_for_backward(y)
        x.neg_()
        ctx.mark_dirty(x)
        return x, product

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return h * y - g, None


class WritesUnmarked(torch.autograd.Function):
    """Counts its input up in place without a word to autograd."""

    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class NonDifferentiable(torch.autograd.Function):
    """Two outputs, one with a gradient and one without; the other way to write a Function."""

    @staticmethod
    def forward(x):
        return x * 2, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h


class OnceDifferentiable(torch.autograd.Function):
    """Its backward has no backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 2


class Unmaterialized(torch.autograd.Function):
    """Sees None, not zeros, for the output that no gradient reaches."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        if g is None:
            return None if h is None else h * 5
        return g * 2 if h is None else g + h


class Composed(torch.autograd.Function):
    """What custom Functions are made of, put together at will.

    `computes` is "product", "sum" or "twice"; `saves` is "operands", "second", "result", "attribute" or "nothing";
    `returns` is "result", "view" (of the first operand, beside the result), "input" (likewise), "flags" (beside it, not
    differentiable) or "copy" (a second result); `writes` is "nothing" or "late" (in the backward, to an attribute).
    """

    @staticmethod
    def forward(ctx, x, y, computes, saves, returns, writes, materializes):
        ctx.recipe = computes, saves, returns, writes
        ctx.set_materialize_grads(materializes)
        result = x * y if computes == "product" else x + y if computes == "sum" else x * 2
        kept = {"operands": (x, y), "second": (y,), "result": (result,)}
        if saves == "attribute":
            ctx.attribute = y.clone()
        if writes == "dirty":
            x.mul_(2)
            ctx.mark_dirty(x)
        elif writes == "quietly":
            y.add_(1)
        ctx.save_for_backward(*kept.get(saves, ()))
        if returns == "flags":
            flags = result > 1
            ctx.mark_non_differentiable(flags)
            beside = (flags,)
        else:
            beside = {"view": (x.unsqueeze(0),), "copy": (result.clone(),)}.get(returns, ())
        if writes == "dirty" or returns == "input":
            beside = (x, *beside)
        return (result, *beside)

    @staticmethod
    def backward(ctx, *grads):
        computes, saves, returns, writes = ctx.recipe
        saved = ctx.saved_tensors
        factor = ctx.attribute if saves == "attribute" else saved[-1] if saved else 3
        total = None
        for k, g in enumerate(grads):
            if g is not None and not (returns == "flags" and k == len(grads) - 1):
                g = g.squeeze(0) if returns == "view" and k == len(grads) - 1 else g
                total = g * (k + 1) if total is None else total + g * (k + 1)
        if total is None:
            return (None,) * 7
        first = total * factor if ctx.needs_input_grad[0] else None
        second = total * 5 if ctx.needs_input_grad[1] and computes != "twice" else None
        if writes == "late" and saves == "attribute":
            ctx.attribute.mul_(2)
        return first, second, None, None, None, None, None


class ComposedInPlace(Composed):
    """The same; `writes` is "dirty" (the first operand, which is returned) or "quietly" (the second, unmarked)."""


class Inside:
    """What autograd can be told to do while a function runs."""

    @staticmethod
    def doubles(x):
        """Hang a hook on `x` that doubles its gradient."""
        if x.grad_fn is not None or x.requires_grad:  # asked first: torch crashes where it refuses to say
            x.register_hook(lambda g: g * 2)

    @staticmethod
    def negates_after(x):
        """Hang a hook on `x` that negates what it has accumulated."""

        def negate(p):
            p.grad = -p.grad

        x.register_post_accumulate_grad_hook(negate)

    @staticmethod
    def checkpointed(x, y):
        """A product whose operands are computed once more in the backward."""
        return torch.utils.checkpoint.checkpoint(_checkpointed, x, y, use_reentrant=False)


def _checkpointed(x, y):
    z = (x * y).mul_(2)
    return z.unsqueeze(0) * x


class Module:
    """Modules whose parameters and buffers are the caller's: each is made once, without memory."""

    made: dict[tuple[object, ...], torch.nn.Module] = {}  # noqa: RUF012

    @classmethod
    def of(cls, kind, *sizes, **options):
        key = kind, sizes, tuple(options.items())
        if key not in cls.made:
            cls.made[key] = getattr(torch.nn, kind)(*sizes, device="meta", **options)
        return cls.made[key]

    @staticmethod
    def run(module, state, x, training=True):
        module.train(training)
        return torch.func.functional_call(module, state, (x,))

    @classmethod
    def linear(cls, x, weight, bias):
        module = cls.of("Linear", weight.shape[1], weight.shape[0])
        return cls.run(module, {"weight": weight, "bias": bias}, x)

    @classmethod
    def conv(cls, x, weight, bias):
        module = cls.of("Conv2d", weight.shape[1], weight.shape[0], 1)
        return cls.run(module, {"weight": weight, "bias": bias}, x)

    @classmethod
    def batch_norm(cls, x, weight, bias, mean, variance, training):
        module = cls.of("BatchNorm1d", x.shape[1])
        state = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": variance}
        state["num_batches_tracked"] = torch.zeros((), dtype=torch.int64, device=x.device)
        return cls.run(module, state, x, training)

    @classmethod
    def layer_norm(cls, x, weight, bias):
        return cls.run(cls.of("LayerNorm", x.shape[-1]), {"weight": weight, "bias": bias}, x)

    @classmethod
    def embedding(cls, index, weight):
        return cls.run(cls.of("Embedding", *weight.shape), {"weight": weight}, index)

    @classmethod
    def dropout(cls, x, training):
        module = cls.made.setdefault("Dropout", torch.nn.Dropout(0.5))
        module.train(training)
        return module(x)
