"""BEHAVIOUR 5: a backward that is traced when it is called has at hand all that eager's would find."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.behaviour.harness import check_session, leaf


class Branching(torch.autograd.Function):
    """Gives two results, and gradients of either by what the other does not need."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        if g is None:
            return h * x.sin(), h * 3
        if h is None:
            return g * 2, g * y
        return g * 2, h * 3


def of_arguments(x, y):
    return Branching.apply(x, y)


def of_what_is_made(x, y):
    a, b = Branching.apply(x.sin(), y * 2)
    return a.exp(), b * 2


@pytest.mark.parametrize("function", [of_arguments, of_what_is_made])
@pytest.mark.parametrize("roots", [(0,), (1,), (0, 1)], ids=str)
def test_a_custom_backward_reads_what_it_saved_where_a_gradient_is_missing(function, roots):
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        results = compile(function)(x, y)
        chosen = [results[k] for k in roots]
        seeds = [torch.ones_like(r) for r in chosen]
        first = torch.autograd.grad(chosen, [x, y], seeds, create_graph=True, allow_unused=True)
        yield first
        trained = [g for g in first if g is not None and g.requires_grad]
        if trained:
            yield torch.autograd.grad(trained, [x, y], [torch.ones_like(g) for g in trained], allow_unused=True)

    check_session(session, rtol=1e-5)


@pytest.mark.parametrize("later", [None, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("create_graph", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("function", [lambda p, q: p @ q, lambda p, q: (p @ q).sin()], ids=["product", "sine"])
def test_a_checkpoint_in_a_region_of_autocast(function, create_graph, later):
    def f(x, w):
        return checkpoint(function, w, x, use_reentrant=False)

    def session(compile):
        x, w = leaf(2, 2), leaf(2, 2, seed=1)
        kind = x.device.type
        with torch.autocast(kind, torch.bfloat16):
            y = compile(f)(x, w)
        with torch.autocast(kind, later or torch.bfloat16, enabled=later is not None):
            first = torch.autograd.grad(y, [x, w], torch.ones_like(y), create_graph=create_graph)
            yield first
            if create_graph:
                yield torch.autograd.grad(first, [x, w], [torch.ones_like(g) for g in first])

    check_session(session, rtol=1e-5)
