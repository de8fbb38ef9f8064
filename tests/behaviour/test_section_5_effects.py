"""BEHAVIOUR 5: what a backward does besides giving gradients: it draws random numbers, writes and recomputes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, attempt_later, backward, check, check_session, given, leaf, plain


def custom(forward, backward):
    """A custom Function's ``apply``."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Custom", (torch.autograd.Function,), body).apply


# -- random numbers ----------------------------------------------------------------------------------


def test_random_numbers_drawn_in_a_backward():
    noisy = custom(lambda ctx, x: x * 2, lambda ctx, g: g * torch.rand(3))

    def session(compile):
        compiled = compile(lambda x: noisy(x) * torch.rand(3))
        x = leaf(3)
        y, z = compiled(x), compiled(x * 1)
        yield torch.rand(1)
        backward([y], retain_graph=True)
        yield x, torch.rand(1)
        backward([z, y])
        yield x, torch.rand(1)

    check_session(session)


def test_random_numbers_that_no_gradient_needs():
    def draw_and_forget(ctx, g):
        torch.rand(5)
        return g

    forgetful = custom(lambda ctx, x: x * 2, draw_and_forget)

    def session(compile):
        y = compile(forgetful)(leaf(3))
        backward([y])
        yield torch.rand(2)

    check_session(session)


def test_numbers_drawn_again_from_a_state_that_was_kept():
    def f(x):
        state = torch.get_rng_state()
        a = torch.rand(3)
        between = torch.rand(2)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        b = torch.rand(3)
        torch.set_rng_state(after)
        return x * a, x * b, between, torch.rand(2)

    check(f, lambda: given(leaf(3)), lambda: given(leaf(3, seed=1)))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (torch.manual_seed(0), x * 2)[1],
        lambda x: (torch.manual_seed(0), torch.rand(3))[1],
        lambda x: (torch.rand(3), torch.default_generator.manual_seed(5), torch.rand(3))[0],
    ],
)
def test_a_state_that_comes_from_elsewhere_is_refused(f):
    torch.manual_seed(0)  # the very state that one of them asks for
    state = torch.get_rng_state()
    with pytest.raises(aotcheck.UnsupportedError, match="seeding"):
        aotcheck.aot_function(f)(plain(3))
    assert torch.equal(torch.get_rng_state(), state)


# -- checkpointing -----------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["non-reentrant", "reentrant"])
def reentrant(request) -> bool:
    return request.param


def test_checkpointed_dropout_draws_the_same_numbers_again(reentrant: bool):
    def f(x, w):
        y = checkpoint(lambda x, w: F.dropout(x * w, 0.5) * x, x, w, use_reentrant=reentrant)
        return y * torch.rand(8)

    def session(compile):
        compiled = compile(f)
        for _ in range(3):
            x, w = leaf(8), leaf(8, seed=1)
            y = compiled(x, w)
            torch.rand(3)
            backward([y])
            yield y, x, w, torch.rand(2)

    check_session(session)


def test_checkpointed_dropout_without_its_random_state(reentrant: bool):
    """Then the recomputation draws other numbers, and from the caller's stream."""

    def f(x):
        return checkpoint(lambda x: F.dropout(x, 0.5) * x, x, use_reentrant=reentrant, preserve_rng_state=False)

    def session(compile):
        compiled = compile(f)
        for _ in range(3):
            x = leaf(8)
            y = compiled(x)
            backward([y])
            yield y, x, torch.rand(2)

    check_session(session)


def test_two_checkpoints_in_a_row(reentrant: bool):
    def block(x, w):
        return F.dropout((x * w).relu(), 0.3) + x

    def f(x, w):
        for _ in range(3):
            x = checkpoint(block, x, w, use_reentrant=reentrant)
        return x.sum()

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x, w = leaf(8), leaf(8, seed=1)
            backward([compiled(x * 1, w)])
            yield x, w, torch.rand(1)

    check_session(session)


class Net(nn.Module):
    """Checkpointed blocks with parameters, batch statistics and dropout."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.2)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def test_a_checkpointed_net(reentrant: bool):
    """Batch statistics are counted twice, by the forward and by its recomputation, as eager counts them."""

    def session(compile):
        torch.manual_seed(0)
        net = Net(reentrant)
        compiled = compile(net)
        for k in range(3):
            x = leaf(6, 4, seed=k)
            y = compiled(x)
            yield y, dict(net.named_buffers())
            backward([y])
            yield x, dict(net.named_buffers()), dict(net.named_parameters()), torch.rand(1)

    check_session(session)


# -- buffers -----------------------------------------------------------------------------------------


def _keep(ctx, x, b):
    ctx.b = b
    return x * 2


def _add_to_kept(ctx, g):
    ctx.b.add_(g)
    return g * ctx.b, None


def test_a_buffer_written_in_the_backward():
    count = custom(_keep, _add_to_kept)

    def session(compile):
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

    check_session(session)


def test_a_buffer_of_the_closure():
    def session(compile):
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

    check_session(session)


def test_state_bumped_in_forward_and_backward():
    def forward(ctx, x, n):
        ctx.n = n
        n.add_(1)
        return x * n

    def back(ctx, g):
        ctx.n.add_(10)
        return g * ctx.n, None

    bump = custom(forward, back)

    def session(compile):
        compiled = compile(lambda x, n: bump(bump(x, n), n))
        n = torch.zeros(())
        for _ in range(2):
            x = leaf(3)
            y = compiled(x, n)
            yield y, n
            backward([y])
            yield x, n

    check_session(session)


def test_a_buffer_that_is_returned_and_written_in_the_backward():
    def f(x):
        b = torch.zeros(3)
        return custom(_keep, _add_to_kept)(x, b), b

    def session(compile):
        x = leaf(3)
        y, b = compile(f)(x)
        yield y, b
        backward([y], retain_graph=True)
        yield x, b
        backward([y])
        yield x, b

    check_session(session)


def test_a_buffer_written_by_two_backwards_that_share_nothing_else():
    count = custom(_keep, _add_to_kept)

    def session(compile):
        x, w, b = leaf(3), leaf(3, seed=1), plain(3, seed=2)
        y, z = compile(lambda x, w, b: (count(x, b), count(w, b)))(x, w, b)
        backward([z])
        yield w, b
        backward([y])
        yield x, b

    check_session(session)


def test_an_input_that_requires_grad_written_in_the_backward():
    def keep(ctx, x, w):
        ctx.w = w
        return x * 2

    def back(ctx, g):
        ctx.w.add_(1)
        return g * ctx.w, g

    f = custom(keep, back)

    def session(compile):
        compiled = compile(lambda x, w: f(x, w) * 3)
        x, w = leaf(3), leaf(3, seed=1)
        for _ in range(2):
            y = compiled(x, w)
            backward([y])
            yield x, w

    check_session(session)


def test_a_window_of_a_buffer():
    def back(ctx, g):
        ctx.b[1:].mul_(2)
        ctx.b.view(-1)[0] = 7
        return g * ctx.b, None

    f = custom(_keep, back)

    def session(compile):
        b = plain(3, seed=4)
        y = compile(lambda x, b: f(x, b))(x := leaf(3), b)
        backward([y])
        yield x, b

    check_session(session)


def test_a_write_that_autograd_does_not_see():
    def back(ctx, g):
        ctx.b.data.add_(g)
        return g * ctx.b, None

    f = custom(_keep, back)

    def session(compile):
        x, b = leaf(3), plain(3, seed=4)
        y = compile(lambda x, b: (f(x, b), b * x))(x, b)
        backward([y[0]])
        yield x, b
        backward([y[1]])
        yield x, b

    check_session(session)


# -- saved tensors -----------------------------------------------------------------------------------


def test_a_saved_tensor_written_in_the_backward():
    def save(ctx, x):
        s = x * 3
        ctx.save_for_backward(s)
        return x * 2

    def back(ctx, g):
        (s,) = ctx.saved_tensors
        s.add_(1)
        return g * s

    f = custom(save, back)

    def session(compile):
        x = leaf(3)
        y = compile(f)(x)
        backward([y], retain_graph=True)
        yield x
        yield attempt_later(lambda: backward([y]))
        yield x

    check_session(session)


def test_a_tensor_kept_otherwise_and_written_in_each_backward():
    def keep(ctx, x):
        ctx.s = x * 3
        return x * 2

    def back(ctx, g):
        ctx.s.add_(1)
        return g * ctx.s

    f = custom(keep, back)

    def session(compile):
        x = leaf(3)
        y = compile(f)(x)
        for last in (False, False, True):
            backward([y], retain_graph=not last)
            yield x

    check_session(session)


def test_a_saved_input_written_in_the_backward():
    def save(ctx, x, w):
        ctx.save_for_backward(w)
        return x * 2

    def back(ctx, g):
        (w,) = ctx.saved_tensors
        w.add_(1)
        return g * w, None

    f = custom(save, back)

    def session(compile):
        x, w = leaf(3), plain(3, seed=1)
        y = compile(f)(x, w)
        backward([y], retain_graph=True)
        yield x, w
        yield attempt_later(lambda: backward([y]))
        yield x, w

    check_session(session)


def test_the_metadata_of_a_saved_input_changed_in_the_backward():
    def save(ctx, x, w):
        ctx.save_for_backward(w)
        return x * 2

    def back(ctx, g):
        (w,) = ctx.saved_tensors
        w.t_()
        return g * w, None

    f = custom(save, back)

    def session(compile):
        compiled = compile(f)
        x, w = leaf(3, 3), plain(3, 3, seed=1)
        for _ in range(2):
            y = compiled(x, w)
            backward([y])
            yield x, w

    check_session(session)


# -- incoming gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [lambda y: y, lambda y: y + 0, lambda y: y * 2], ids=["none", "added to", "scaled"])
@pytest.mark.parametrize("transposed", [False, True])
def test_an_incoming_gradient_written_in_the_backward(after, transposed: bool):
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


def test_an_incoming_gradient_that_cannot_be_written():
    f = custom(lambda ctx, x: x * 2, lambda ctx, g: g.mul_(3))

    def session(compile):
        x = leaf(3)
        y = compile(f)(x)
        g = torch.ones(()).expand(3)
        yield type(attempt_later(lambda: y.backward(g)))
        yield g

    check_session(session)


# -- errors ------------------------------------------------------------------------------------------


def test_an_error_in_a_backward_that_wrote_before():
    def back(ctx, g):
        ctx.b.add_(1)
        raise ValueError("not today")

    f = custom(_keep, back)

    def session(compile):
        x, b = leaf(3), plain(3, seed=1)
        y = attempt(lambda: compile(f)(x, b))
        found = attempt_later(lambda: backward([y]))
        yield found, x

    check_session(session)


def test_a_checkpoint_of_a_view_made_under_no_grad():
    def f(x):
        with torch.no_grad():
            v = x.t()
        return checkpoint(lambda a, b: (a * b).mul_(2).unsqueeze(0) * a, v, v, use_reentrant=False)

    check(f, lambda: given(leaf(2, 2)))
