"""Custom backwards that write buffers, saved tensors, attributes of ctx or incoming gradients."""

import pytest
import torch

from tests.behaviour.backward.common import custom
from tests.behaviour.harness import attempt, attempt_later, backward, check_session, session
from tests.behaviour.inputs import leaf, plain, to_device


def _keep(ctx, x, b):
    ctx.b = b
    return x * 2


def _add_to_kept(ctx, g):
    ctx.b.add_(g)
    return g * ctx.b, None


@session
def test_a_buffer_written_in_the_backward(compile):
    count = custom(_keep, _add_to_kept)

    compiled = compile(lambda x, b: count(x, b) + b)
    b = plain(3, seed=4)
    for _ in range(2):
        x = leaf(3)
        y = compiled(x, b)
        yield y, b
        backward([y], retain_graph=True)
        yield x, b
        with torch.no_grad():
            b.mul_(2)  # the backward sees what the buffer holds by then
        backward([y])
        yield x, b


@session
def test_a_captured_buffer_written_in_the_backward(compile):
    b = plain(3, seed=4)

    def add(ctx, g):
        b.add_(g)
        return g * b

    count = custom(lambda ctx, x: x * 2, add)
    compiled = compile(lambda x: count(x))
    for _ in range(2):
        x = leaf(3)
        y = compiled(x)
        yield b
        backward([y])
        yield x, b


@session
def test_a_buffer_written_in_forward_and_backward(compile):
    def forward(ctx, x, n):
        ctx.n = n
        n.add_(1)
        return x * n

    def back(ctx, g):
        ctx.n.add_(10)
        return g * ctx.n, None

    bump = custom(forward, back)

    compiled = compile(lambda x, n: bump(bump(x, n), n))
    n = to_device(torch.zeros(()))
    for _ in range(2):
        x = leaf(3)
        y = compiled(x, n)
        yield y, n
        backward([y])
        yield x, n


@session
def test_a_returned_buffer_written_in_the_backward(compile):
    def f(x):
        b = torch.zeros(3, device=x.device)
        return custom(_keep, _add_to_kept)(x, b), b

    x = leaf(3)
    y, b = compile(f)(x)
    yield y, b
    backward([y], retain_graph=True)
    yield x, b
    backward([y])
    yield x, b


@session
def test_a_buffer_written_by_the_backwards_of_two_disjoint_graphs(compile):
    count = custom(_keep, _add_to_kept)

    x, w, b = leaf(3), leaf(3, seed=1), plain(3, seed=2)
    y, z = compile(lambda x, w, b: (count(x, b), count(w, b)))(x, w, b)
    backward([z])
    yield w, b
    backward([y])
    yield x, b


@session
def test_an_input_that_requires_grad_written_in_the_backward(compile):
    def keep(ctx, x, w):
        ctx.w = w
        return x * 2

    def back(ctx, g):
        ctx.w.add_(1)
        return g * ctx.w, g

    f = custom(keep, back)

    compiled = compile(lambda x, w: f(x, w) * 3)
    x, w = leaf(3), leaf(3, seed=1)
    for _ in range(2):
        y = compiled(x, w)
        backward([y])
        yield x, w


@session
def test_a_buffer_written_through_views_in_the_backward(compile):
    def back(ctx, g):
        ctx.b[1:].mul_(2)
        ctx.b.view(-1)[0] = 7
        return g * ctx.b, None

    f = custom(_keep, back)

    b = plain(3, seed=4)
    y = compile(lambda x, b: f(x, b))(x := leaf(3), b)
    backward([y])
    yield x, b


@session
def test_a_buffer_written_through_data_in_the_backward(compile):
    def back(ctx, g):
        ctx.b.data.add_(g)
        return g * ctx.b, None

    f = custom(_keep, back)

    x, b = leaf(3), plain(3, seed=4)
    y = compile(lambda x, b: (f(x, b), b * x))(x, b)
    backward([y[0]])
    yield x, b
    backward([y[1]])
    yield x, b


@session
def test_a_saved_tensor_written_in_the_backward(compile):
    def save(ctx, x):
        s = x * 3
        ctx.save_for_backward(s)
        return x * 2

    def back(ctx, g):
        (s,) = ctx.saved_tensors
        s.add_(1)
        return g * s

    f = custom(save, back)

    x = leaf(3)
    y = compile(f)(x)
    backward([y], retain_graph=True)
    yield x
    yield attempt_later(lambda: backward([y]))
    yield x


@session
def test_an_attribute_of_ctx_written_in_each_backward(compile):
    def keep(ctx, x):
        ctx.s = x * 3
        return x * 2

    def back(ctx, g):
        ctx.s.add_(1)
        return g * ctx.s

    f = custom(keep, back)

    x = leaf(3)
    y = compile(f)(x)
    for last in (False, False, True):
        backward([y], retain_graph=not last)
        yield x


@session
def test_a_saved_input_written_in_the_backward(compile):
    def save(ctx, x, w):
        ctx.save_for_backward(w)
        return x * 2

    def back(ctx, g):
        (w,) = ctx.saved_tensors
        w.add_(1)
        return g * w, None

    f = custom(save, back)

    x, w = leaf(3), plain(3, seed=1)
    y = compile(f)(x, w)
    backward([y], retain_graph=True)
    yield x, w
    yield attempt_later(lambda: backward([y]))
    yield x, w


@session
def test_a_saved_input_transposed_in_place_in_the_backward(compile):
    def save(ctx, x, w):
        ctx.save_for_backward(w)
        return x * 2

    def back(ctx, g):
        (w,) = ctx.saved_tensors
        w.t_()
        return g * w, None

    f = custom(save, back)

    compiled = compile(f)
    x, w = leaf(3, 3), plain(3, 3, seed=1)
    for _ in range(2):
        y = compiled(x, w)
        backward([y])
        yield x, w


@pytest.mark.parametrize("after", [lambda y: y, lambda y: y + 0, lambda y: y * 2], ids=["none", "added to", "scaled"])
@pytest.mark.parametrize("transposed", [False, True])
def test_an_incoming_gradient_written_in_the_backward_shows_in_the_tangent(after, transposed: bool):
    """Eager hands the caller's own tensor through; what is written to it the caller sees."""

    f = custom(lambda ctx, x: x * 2, lambda ctx, g: g.mul_(3))

    def session(compile):
        x = leaf(3, 3)
        y = compile(lambda x: after(f(x)))(x)
        g = plain(3, 3, seed=2)
        g = g.t() if transposed else g
        y.backward(g)
        yield g, x

    check_session(session)


def test_writing_an_expanded_incoming_gradient_in_the_backward_is_an_error():
    f = custom(lambda ctx, x: x * 2, lambda ctx, g: g.mul_(3))

    def session(compile):
        x = leaf(3)
        y = compile(f)(x)
        g = to_device(torch.ones(())).expand(3)
        yield type(attempt_later(lambda: y.backward(g)))
        yield g

    check_session(session)


@session
def test_a_backward_that_writes_a_buffer_and_then_raises(compile):
    def back(ctx, g):
        ctx.b.add_(1)
        raise ValueError("not today")

    f = custom(_keep, back)

    x, b = leaf(3), plain(3, seed=1)
    y = attempt(lambda: compile(f)(x, b))
    found = attempt_later(lambda: backward([y]))
    yield found, x
