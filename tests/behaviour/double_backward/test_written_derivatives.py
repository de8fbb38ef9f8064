"""Backwards that write and are differentiated."""

import functools

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, check_session, session
from tests.behaviour.inputs import plain


def _function(body):
    """What doubles, keeps a buffer and numbers of its own in attributes, and has ``body`` for a backward."""

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, buffer):
            ctx.buffer, ctx.own = buffer, torch.ones_like(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return body(ctx, g), None

    return Keeps.apply


def _counts(ctx, g):
    ctx.buffer.add_(1)
    return g * 3


def _reads_and_counts(ctx, g):
    g = g * ctx.buffer
    ctx.buffer.add_(1)
    return g


def _adds_up_gradients(ctx, g):
    ctx.buffer.add_(g.detach().sum())
    return g.clamp(-4, 4)


def _writes_its_own(ctx, g):
    ctx.own.mul_(2)
    return g * 3


def _writes_what_it_has_read(ctx, g):
    g = g * ctx.own
    ctx.own.mul_(2)
    return g


def _writes_what_it_copies(ctx, g):
    ctx.own[0].add_(g.detach()[1])
    return g * ctx.own.clone()


_BODIES = [
    *(_counts, _reads_and_counts, _adds_up_gradients),
    *(_writes_its_own, _writes_what_it_has_read, _writes_what_it_copies),
]  # fmt: skip


def _in_a_layer(f, x, w, buffer):
    return (f(x * w, buffer) ** 2 * w).sum()


def _by_itself(f, x, w, buffer):
    return f(x, buffer) * w


def _twice(f, x, w, buffer):
    h = f(f(x * w, buffer) * w, buffer)
    return (h * h).sum(), h


def _inputs():
    x, w = (plain(2, 3, seed=k, dtype=torch.float64).remainder(3).sub(1).requires_grad_() for k in (0, 1))
    return x, w, torch.zeros((), dtype=torch.float64, device=x.device)


def _sum(out):
    return sum(t.sum() for t in (out if isinstance(out, tuple) else (out,)))


def _penalty(f):
    x, w, buffer = _inputs()
    for _ in range(2):
        gradients = torch.autograd.grad(_sum(f(x, w, buffer)), (x, w), create_graph=True)
        yield gradients, buffer
        yield attempt_later(sum((g * g).sum() for g in gradients).backward)
        yield x.grad, w.grad, buffer


def _penalty_with_its_loss(f):
    x, w, buffer = _inputs()
    loss = _sum(f(x, w, buffer))
    (g,) = torch.autograd.grad(loss, w, create_graph=True)
    yield attempt_later(lambda: torch.autograd.grad(loss + (g * g).sum(), (x, w), allow_unused=True)), buffer


def _derivative_by_the_tangent(f):
    x, w, buffer = _inputs()
    out = f(x, w, buffer)
    out = out[0] if isinstance(out, tuple) else out
    t = torch.ones_like(out).requires_grad_()
    gradients = torch.autograd.grad(out, (x, w), t, create_graph=True)
    yield gradients, buffer
    buffer.add_(5)
    yield attempt_later(lambda: torch.autograd.grad(_sum(gradients), (x, w, t), allow_unused=True)), buffer


def _two_graphs(f):
    x, w, buffer = _inputs()
    loss = _sum(f(x, w, buffer))
    (a,) = torch.autograd.grad(loss, x, create_graph=True)
    (b,) = attempt_later(lambda: torch.autograd.grad(loss, w, create_graph=True)) or (None,)
    yield a, b, buffer
    yield attempt_later(lambda: torch.autograd.grad((a * b).sum(), (x, w), retain_graph=True)), buffer
    yield attempt_later(lambda: torch.autograd.grad(loss, x)), buffer


def _third(f):
    x, w, buffer = _inputs()
    (g,) = torch.autograd.grad(_sum(f(x, w, buffer)), x, create_graph=True)
    yield g, buffer

    def more():
        (h,) = torch.autograd.grad((g * g * w).sum(), w, create_graph=True)
        return h, torch.autograd.grad(h.sum() + x.sum(), (x, w), allow_unused=True)

    yield attempt_later(more), buffer


@pytest.mark.parametrize("body", _BODIES)
@pytest.mark.parametrize("place", [_in_a_layer, _by_itself, _twice])
@pytest.mark.parametrize("caller", [_penalty, _penalty_with_its_loss, _derivative_by_the_tangent, _two_graphs, _third])
def test_a_backward_that_writes_is_differentiated_and_checks_what_it_saved(caller, place, body):
    check_session(lambda compile: caller(compile(functools.partial(place, _function(body)))))


@session
def test_a_saved_tensor_that_a_backward_wrote_is_an_error_in_the_next_backward(compile):
    def f(x, w, buffer):
        return (_function(_counts)(x * w, buffer) ** 2 * buffer).sum()

    x, w, buffer = _inputs()
    loss = compile(f)(x, w, buffer)
    yield torch.autograd.grad(loss, x, create_graph=True), buffer
    yield attempt_later(lambda: torch.autograd.grad(loss, x)), buffer


def _counts_and_reads(ctx, g):
    ctx.buffer.add_(1)
    return g * ctx.buffer


def _writes_with_a_history(ctx, g):
    ctx.own.mul_(g)
    return g * 3


def _keeps_what_is_written(f, x, w, buffer):
    made = torch.ones_like(w) + buffer
    return (f(x * w, made) ** 2 * w * made).sum()


@pytest.mark.parametrize(
    ("place", "body"),
    [(_in_a_layer, _counts_and_reads), (_in_a_layer, _writes_with_a_history), (_keeps_what_is_written, _counts)],
)
def test_a_derivative_that_would_read_what_its_backward_wrote_is_refused(place, body):
    x, w, buffer = _inputs()
    loss = aotcheck.aot_function(functools.partial(place, _function(body)))(x, w, buffer)
    t = torch.ones_like(loss).requires_grad_()
    with pytest.raises(aotcheck.UnsupportedError, match="mutation in the backward"):
        torch.autograd.grad(loss, x, t, create_graph=True)


def test_saved_tensor_hooks_that_copy_what_backwards_write_are_refused():
    def f(x, w, buffer):
        own = torch.ones_like(w)
        count = _function(_reads_and_counts)
        return (count(x, own) * w).sum(), (count(w, own) * x).sum()

    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t),
        pytest.raises(aotcheck.UnsupportedError, match="mutation in the backward"),
    ):
        aotcheck.aot_function(f)(*_inputs())
