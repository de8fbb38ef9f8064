"""Custom autograd Functions that programs may call, one of each kind; modules; hooks and checkpoints inside."""

import functools

import torch
import torch.utils.checkpoint


class SavesTensors(torch.autograd.Function):
    """A product whose backward reads both operands and `needs_input_grad`."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y if ctx.needs_input_grad[0] else None), (g * x if ctx.needs_input_grad[1] else None)


class SavesOutput(torch.autograd.Function):
    """Saves its result; the gradient is not that of the forward."""

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
    """Returns a view of its input, to which autograd then refuses writes."""

    @staticmethod
    def forward(ctx, x):
        return x.unsqueeze(0)

    @staticmethod
    def backward(ctx, g):
        return g.squeeze(0)


class ReturnsInput(torch.autograd.Function):
    """Returns its input, of which autograd then makes a view."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class MarksDirty(torch.autograd.Function):
    """Doubles its input in place, with `mark_dirty`."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class MarksDirtyAndMore(torch.autograd.Function):
    """Negates its first input in place, and returns it and a product with its former value."""

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
    """Adds one to its input in place without `mark_dirty`."""

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
    """A custom Function with a free choice of features.

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
    """Hooks, checkpoints, autocast and gradients inside a function."""

    @staticmethod
    def doubles(x):
        """Register a hook on `x` that doubles its gradient."""
        if x.grad_fn is not None or x.requires_grad:  # asked first: torch crashes where it refuses to say
            x.register_hook(lambda g: g * 2)

    @staticmethod
    def negates_after(x):
        """Register a post-accumulate hook on `x` that negates `x.grad`."""

        def negate(p):
            p.grad = -p.grad

        x.register_post_accumulate_grad_hook(negate)

    @staticmethod
    def logs(items, x):
        """Register a hook on `x` that appends twice the gradient to a list of the caller's."""
        if x.grad_fn is not None or x.requires_grad:  # as in `doubles`
            x.register_hook(lambda g: items.append(g * 2))

    @staticmethod
    def checkpointed(x, y):
        """A product whose operands a checkpoint recomputes in the backward."""
        return torch.utils.checkpoint.checkpoint(_checkpointed, x, y, use_reentrant=False)

    @staticmethod
    def checkpointed_reentrant(x, y):
        return torch.utils.checkpoint.checkpoint(_checkpointed, x, y, use_reentrant=True)

    @staticmethod
    def checkpointed_dropout(x, y, preserve):
        """A product with a random mask that a checkpoint draws again in the backward: the same mask, or another."""

        def dropped(a, b):
            return torch.nn.functional.dropout(a * b, 0.5) * a

        return torch.utils.checkpoint.checkpoint(dropped, x, y, use_reentrant=False, preserve_rng_state=preserve)

    @staticmethod
    def checkpointed_norm(x, mean, variance):
        """Batch norm in a checkpoint, which updates the running statistics again in the backward."""
        return torch.utils.checkpoint.checkpoint(
            lambda a: torch.nn.functional.batch_norm(a, mean, variance, training=True), x, use_reentrant=False
        )

    @staticmethod
    def checkpointed_selectively(x, y):
        """The same as `checkpointed`, but products are saved, not recomputed."""
        products = [torch.ops.aten.mul.Tensor]
        contexts = torch.utils.checkpoint.create_selective_checkpoint_contexts
        return torch.utils.checkpoint.checkpoint(
            lambda a, b: (a * b).relu() * a, x, y, use_reentrant=False, context_fn=lambda: contexts(products)
        )

    @staticmethod
    def checkpointed_count(x, runs):
        """A square in a checkpoint, with a count of the runs that the backward increments again."""

        def body(a):
            runs.add_(1)
            return a.square()

        contexts = torch.utils.checkpoint.create_selective_checkpoint_contexts
        contexts = functools.partial(contexts, [torch.ops.aten.mm.default])
        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False, context_fn=contexts)

    @staticmethod
    def autocast_off(x, y):
        """Half precision by autocast, which is off in a part."""
        with torch.autocast(x.device.type, torch.bfloat16):
            z = torch.nn.functional.linear(x, y)
            with torch.autocast(x.device.type, enabled=False):
                z = z.to(x.dtype) + torch.nn.functional.linear(x, y)
            return z + torch.nn.functional.linear(x, y)

    @staticmethod
    def autocast_half(x, y):
        """Half precision by autocast, which caches the cast of a weight that is used twice."""
        with torch.autocast(x.device.type, torch.float16):
            return torch.nn.functional.linear(x, y) + torch.nn.functional.linear(x * 2, y)


def _checkpointed(x, y):
    z = (x * y).mul_(2)
    return z.unsqueeze(0) * x


class Module:
    """Modules that run on the caller's parameters and buffers; each module is made once, on `meta`."""

    made: dict[tuple[object, ...], torch.nn.Module] = {}  # noqa: RUF012

    @classmethod
    def of(cls, kind, *sizes, **options):
        return cls.once(getattr(torch.nn, kind), *sizes, device="meta", **options)

    @classmethod
    def once(cls, make, *sizes, **options):
        fixed = tuple(int(n) if isinstance(n, torch.SymInt) else n for n in sizes)  # the module outlives a trace
        key = make, fixed, tuple(options.items())
        if key not in cls.made:
            cls.made[key] = make(*fixed, **options)
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

    @classmethod
    def recurrent(cls, kind, x, weight, bias):
        """A recurrent module of hidden size `len(bias)`; all gates have the same weights."""
        if weight.shape[0] != bias.shape[0]:
            raise RuntimeError("weights and bias of other sizes: kernels of torch's read beyond them, and crash")
        module = cls.of(kind, weight.shape[1], weight.shape[0])
        gates = {"L": 4, "G": 3}.get(kind[0], 1)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        given = (weight, torch.outer(bias, bias), bias, bias)
        end = "" if kind.endswith("Cell") else "_l0"
        state = {
            name + end: one.repeat(gates, 1) if one.dim() > 1 else one.repeat(gates)
            for name, one in zip(names, given, strict=True)
        }
        return cls.run(module, state, x)

    @classmethod
    def lstm(cls, x, weight, bias):
        result, (hidden, cell) = cls.recurrent("LSTM", x, weight, bias)
        return result, hidden, cell

    @classmethod
    def gru(cls, x, weight, bias):
        return cls.recurrent("GRU", x, weight, bias)

    @classmethod
    def rnn_cell(cls, x, weight, bias):
        return cls.recurrent("RNNCell", x, weight, bias)

    @classmethod
    def gru_cell(cls, x, weight, bias):
        return cls.recurrent("GRUCell", x, weight, bias)

    @classmethod
    def lstm_cell(cls, x, weight, bias):
        return cls.recurrent("LSTMCell", x, weight, bias)

    @classmethod
    def attention(cls, x, vector, training):
        """Causal attention of one head."""
        module = cls.of("MultiheadAttention", x.shape[-1], 1, bias=False)
        weight = torch.outer(vector, vector)
        state = {"in_proj_weight": weight.repeat(3, 1), "out_proj.weight": weight}
        module.train(training)
        mask = torch.ones(x.shape[0], x.shape[0], dtype=torch.bool, device=x.device).triu(1)
        return torch.func.functional_call(module, state, (x, x, x), {"attn_mask": mask, "need_weights": False})[0]

    @classmethod
    def hooked(cls, x, weight, bias):
        module = cls.once(_hooked, weight.shape[1], weight.shape[0])
        return cls.run(module, {"weight": weight, "bias": bias}, x)

    @classmethod
    def tied(cls, x, vector):
        return cls.run(cls.once(_tied, len(vector)), {"0.weight": torch.outer(vector, vector)}, x)

    @classmethod
    def weight_norm(cls, x, weight, bias):
        module = cls.once(_weight_normed, weight.shape[1], weight.shape[0])
        parts = {"original0": bias.unsqueeze(1), "original1": weight}
        state = {f"parametrizations.weight.{name}": part for name, part in parts.items()}
        return cls.run(module, {"bias": bias, **state}, x)

    @classmethod
    def gradients(cls, x, weight, bias):
        """A module's gradients, by its parameters' names."""
        module = cls.of("Linear", weight.shape[1], weight.shape[0])
        loss = torch.func.grad(lambda state: cls.run(module, state, x).square().sum())
        grads = loss({"weight": weight, "bias": bias})
        return grads["weight"], grads["bias"]

    @classmethod
    def ensemble(cls, x, weight, bias):
        """Two modules of one kind, their parameters stacked."""
        module = cls.of("Linear", weight.shape[1], weight.shape[0])
        state = {"weight": torch.stack([weight, weight * 2]), "bias": torch.stack([bias, -bias])}
        return torch.func.vmap(lambda one: cls.run(module, one, x))(state)

    @staticmethod
    def counting(x):
        """A module that counts its calls and sums its arguments."""
        module = Counting(x)
        return module(x), module(x * 2), module.total


def _hooked(wide, tall):
    """A linear module with hooks that change its argument, result and gradient."""
    module = torch.nn.Linear(wide, tall, device="meta")
    module.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    module.register_forward_hook(lambda module, args, result: result + 1)
    module.register_full_backward_hook(lambda module, grads, of_results: (grads[0] * 3,))
    return module


def _tied(size):
    """Two linear modules with one weight."""
    first, second = (torch.nn.Linear(size, size, bias=False, device="meta") for _ in range(2))
    second.weight = first.weight
    return torch.nn.Sequential(first, torch.nn.ReLU(), second)


def _weight_normed(wide, tall):
    return torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(wide, tall, device="meta"))


class Counting(torch.nn.Module):
    """Has a counter and a buffer, both of which it changes."""

    def __init__(self, like):
        super().__init__()
        self.calls = 0
        self.register_buffer("total", like.new_zeros(like.shape[-1:]))

    def forward(self, x):
        self.calls += 1
        self.total += x.detach().reshape(-1, x.shape[-1]).sum(0)
        return x * self.calls
