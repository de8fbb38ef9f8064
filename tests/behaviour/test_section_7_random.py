"""BEHAVIOUR 7: random numbers: their values and the generators' states are eager's, forward and backward.

Every check compares the state of the default generator besides: see the harness.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, backward, check, check_session, given, leaf, plain


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x, 0.5),
        lambda x: x.sin() + torch.native_dropout(x.detach(), 0.0, True)[0].mul_(2),
        lambda x: (x.sin(), torch.native_dropout(x, 0.0, True))[0],
        lambda x: F.dropout(x * 1, 0.5, inplace=True),
        lambda x: F.alpha_dropout(x, 0.5),
        lambda x: F.dropout1d(x, 0.5),
        lambda x: F.rrelu(x, training=True),
        lambda x: F.rrelu(x * 1, training=True, inplace=True),
        lambda x: F.gumbel_softmax(x),
        lambda x: x * torch.empty_like(x).bernoulli_(0.3),
        lambda x: x * torch.empty_like(x).bernoulli_(torch.full((3,), 0.5, device=x.device)),
        lambda x: x * torch.bernoulli(x.detach().sigmoid()),
        lambda x: (x * 1).uniform_(-1, 1) + x,
        lambda x: x * torch.normal(x.detach(), 2.0),
        lambda x: x * torch.normal(0.0, 1.0, (3,), device=x.device),
        lambda x: x[torch.multinomial(torch.ones(4, device=x.device), 2)],
        lambda x: x * torch.randint_like(x, 5) + torch.randint(3, (3,), device=x.device),
        lambda x: x[torch.randperm(4, device=x.device)],
        lambda x: x * torch.rand(4, 3, device=x.device).t().clone().exponential_().t(),
        lambda x: x * torch.empty(3, 4, device=x.device).t().geometric_(0.5),
        lambda x: x * torch.empty(4, 6, device=x.device)[:, ::2].log_normal_(),
        lambda x: x * torch.empty_like(x).cauchy_() + torch.empty_like(x).random_(7),
        lambda x: x * torch.poisson(x.detach().abs()),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
        lambda x: F.fractional_max_pool2d(x.view(1, 1, 4, 3), 2, output_size=(2, 1)),
    ],
)
def test_numbers_are_eagers(function):
    check(function, *[lambda: given(leaf(4, 3))] * 2, rtol=1e-6)


def test_an_error_after_a_mask_is_raised_though_nobody_needs_what_would_be_computed():
    def f(x):
        y = F.dropout(x, 0.5)
        torch.arange(0, dtype=torch.bool, device=x.device)
        return y

    def session(compile):
        x = leaf(3)
        yield attempt(lambda: compile(f)(x)), x

    check_session(session)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "make", [lambda: nn.Dropout(0.5), lambda: nn.RReLU(), lambda: nn.Sequential(nn.Linear(3, 3), nn.Dropout2d(0.5))]
)
def test_random_modules(make, training):
    def session(compile):
        torch.manual_seed(0)
        module = make().train(training)
        compiled = compile(module)
        for seed in range(2):
            x = leaf(1, 4, 3, seed=seed)
            y = compiled(x)
            backward([y])
            yield x, y, [p.grad for p in module.parameters()]

    check_session(session, rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.rand(3), x * 2)[1],
        lambda x: (F.dropout(x, 0.5), x * 2)[1],
        lambda x: (x.clone().normal_(), x * 2)[1],
    ],
)
def test_numbers_that_nobody_uses_are_drawn(function):
    check(function, *[lambda: given(leaf(4, 3))] * 2)


# -- a generator's state saved and set -----------------------------------------------------------------


def _forked(x):
    with torch.random.fork_rng(devices=[]):
        a = torch.rand(3)
    return x * a


def _forked_and_on(x):
    with torch.random.fork_rng(devices=[]):
        a = torch.rand(3)
    return x * a, x * torch.rand(3), x + torch.randn(2, 3)


def _forked_and_on_by_another_op(x):
    with torch.random.fork_rng(devices=[]):
        a = torch.rand(3)
    return x * a, torch.randn(5)


def _nested(x):
    with torch.random.fork_rng(devices=[]):
        a = torch.rand(3)
        with torch.random.fork_rng(devices=[]):
            b = torch.randn(3)
        c = torch.randint(5, (3,))
    return x * a, b, c, torch.rand(1)


def _back_and_forth(x):
    start = torch.get_rng_state()
    a = torch.rand(3)
    middle = torch.get_rng_state()
    b = torch.randn(4)
    torch.set_rng_state(middle)
    c = torch.rand(2)
    torch.set_rng_state(start)
    return x * a, b, c, torch.rand(3)


def _left_where_it_was(x):
    start = torch.get_rng_state()
    a = torch.rand(3)
    torch.set_rng_state(start)
    return x * a


@pytest.mark.parametrize(
    "function", [_forked, _forked_and_on, _forked_and_on_by_another_op, _nested, _back_and_forth, _left_where_it_was]
)
def test_going_back_to_an_earlier_state(function):
    check(function, *[lambda: given(leaf(2, 3) if function is not _nested else leaf(3))] * 2)


# -- generators ------------------------------------------------------------------------------------------


def _with_generator(function):
    def session(compile):
        compiled = compile(function)
        g = torch.Generator().manual_seed(7)
        for _ in range(2):
            x = leaf(2, 3)
            y = compiled(x, g)
            backward([y])
            yield x, y, g.get_state()

    check_session(session)


def _generator_set_back(x, g):
    state = g.get_state()
    a = torch.rand(3, generator=g)
    g.set_state(state)
    return x * a + torch.randn(3) * torch.randn(3, generator=g)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, g: x * torch.rand(3, generator=g) + torch.rand(3),
        lambda x, g: x * torch.empty(3).normal_(generator=g),
        lambda x, g: (torch.rand(3, generator=g), x * 2)[1],
        lambda x, g: F.dropout(x, 0.5) * torch.bernoulli(torch.full((3,), 0.5), generator=g),
        _generator_set_back,
    ],
)
def test_a_generator_as_an_argument(function):
    _with_generator(function)


def test_a_generator_from_a_closure():
    def session(compile):
        g = torch.Generator().manual_seed(3)
        f = compile(lambda x: x * torch.rand(3, generator=g))
        for _ in range(2):
            y = f(leaf(2, 3))
            yield y, g.get_state()

    check_session(session)


@pytest.mark.parametrize("seed", [3, 5])
def test_seeding_a_captured_generator_runs_as_it_is(seed):
    """Also where it has that very seed already."""

    def session(compile):
        generator = torch.Generator().manual_seed(seed)

        def function(x):
            generator.manual_seed(3)
            return x * torch.rand(3, generator=generator)

        f = compile(function)
        yield f(plain(3)), f(plain(3)), generator.get_state(), generator.initial_seed()

    check_session(session)


def test_a_refusal_beside_a_captured_generator_is_a_refusal_and_leaves_it():
    generator = torch.Generator().manual_seed(5)
    torch.rand(3, generator=generator)
    state = generator.get_state()
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x: (generator.device, x * x.sum().item())[1])(plain(3))
    assert torch.equal(state, generator.get_state())
    assert generator.initial_seed() == 5


# -- the backward ----------------------------------------------------------------------------------------


class _RandomBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * torch.rand_like(g) + torch.randint_like(g, 5)


class _DrawsAgain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.state = torch.get_rng_state()
        return x * torch.rand_like(x)

    @staticmethod
    def backward(ctx, g):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            return g * torch.rand_like(g)


class _DrawsOthers(_DrawsAgain):
    @staticmethod
    def backward(ctx, g):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            return g * torch.randn_like(g)


@pytest.mark.parametrize("node", [_RandomBackward, _DrawsAgain, _DrawsOthers])
def test_numbers_drawn_in_the_backward(node):
    check(lambda x: node.apply(x) * torch.rand(3), *[lambda: given(leaf(2, 3))] * 2)


def test_numbers_drawn_in_two_backwards():
    def session(compile):
        x = leaf(2, 3)
        y = compile(_RandomBackward.apply)(x)
        y.sum().backward(retain_graph=True)
        yield x
        y.sum().backward()
        yield x

    check_session(session)


def test_numbers_drawn_in_a_backward_with_a_graph():
    def session(compile):
        x = leaf(2, 3)
        y = compile(lambda x: _RandomBackward.apply(x * x))(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        yield g
        g.sum().backward()
        yield x

    check_session(session)


def test_a_backward_that_checks_its_operands():
    check(lambda x: torch.linalg.eigvals(x).abs(), lambda: given(leaf(3, 3)), rtol=1e-4)


# -- recomputation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize(
    "inner",
    [
        lambda x: F.dropout(x.sin(), 0.5).cos(),
        lambda x: (x * torch.rand_like(x)).sin() * F.rrelu(x, training=True),
        lambda x: F.dropout(x * torch.randn(3), 0.5) ** 2,
    ],
)
def test_a_checkpoint_draws_the_numbers_again(inner, preserve):
    def f(x):
        y = checkpoint(inner, x * torch.rand(3), use_reentrant=False, preserve_rng_state=preserve)
        return y * torch.rand(3)

    check(f, *[lambda: given(leaf(2, 3))] * 2, rtol=1e-6)


# -- seeding inside is refused -----------------------------------------------------------------------------


def _seeded_in_a_fork(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return x * torch.rand(3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.manual_seed(1), x * torch.rand(3))[1],
        lambda x: (torch.manual_seed(1), x * 2)[1],
        lambda x: (torch.seed(), x * 2)[1],
        lambda x: (torch.set_rng_state(_OTHER), x * torch.rand(3))[1],
        _seeded_in_a_fork,
    ],
)
def test_seeding_inside_is_refused(function):
    state = torch.get_rng_state()
    with pytest.raises(aotcheck.UnsupportedError, match="seeding inside"):
        aotcheck.aot_function(function)(leaf(2, 3))
    assert torch.equal(state, torch.get_rng_state())


_OTHER = torch.Generator().manual_seed(11).get_state()


def test_seeding_a_generator_inside_is_refused():
    g = torch.Generator().manual_seed(5)
    state = g.get_state()
    with pytest.raises(aotcheck.UnsupportedError, match="seeding inside"):
        aotcheck.aot_function(lambda x, g: (g.manual_seed(3), x * torch.rand(3, generator=g))[1])(plain(3), g)
    assert torch.equal(state, g.get_state())


# -- what tracing and compilers leave alone -----------------------------------------------------------------


def test_tracing_advances_no_generator():
    x = leaf(2, 3)
    state = torch.get_rng_state()
    torch.manual_seed(4)
    expected = [F.dropout(x, 0.5), torch.get_rng_state()]
    torch.set_rng_state(state)
    compiled = aotcheck.aot_function(lambda x: F.dropout(x, 0.5))
    torch.manual_seed(4)
    assert torch.equal(compiled(x), expected[0])
    assert torch.equal(torch.get_rng_state(), expected[1])


def test_an_error_of_the_program_draws_as_much_as_eager_had():
    def f(x):
        y = x * torch.rand(3)
        return y @ torch.rand(7, 7)

    check(f, lambda: given(plain(2, 3)))


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.98])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (3, 5, 16)], ids=str)
def test_dropout_of_a_transposed_tensor_with_few_zeros(p, shape):
    def session(compile):
        f = compile(lambda x: F.dropout((x * 1).transpose(0, 1), p))
        x = leaf(*shape)
        for _ in range(30):
            y = f(x)
            x.grad = None
            y.sum().backward()
            yield y, x

    check_session(session)


@pytest.mark.parametrize("first", [False, True])
def test_a_transformer_layer_that_drops_out(first):
    def session(compile):
        torch.manual_seed(7)
        layer = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True, norm_first=first)
        compiled = compile(layer)
        for _ in range(3):
            x = torch.randn(2, 3, 4)
            y = compiled(x)
            y.pow(3).sum().backward()
            yield y, [p.grad.clone() for p in layer.parameters()]

    check_session(session, rtol=1e-4)


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("reentrant", [False, True])
def test_what_checkpoints_draw_again_for_other_values(reentrant, blocks):
    """Their second runs have other running statistics, and the caller has drawn meanwhile."""

    def session(compile):
        torch.manual_seed(3)
        x = leaf(6, 4)
        net = nn.BatchNorm1d(4).to(x.device)

        def block(x):
            return torch.native_dropout(net(x), 0.5, True)[0]

        def f(x):
            for _ in range(blocks):
                x = x * 2 + checkpoint(block, x, use_reentrant=reentrant)
            return x

        y = compile(f)(x)
        drawn = torch.rand(2, device=x.device)
        backward(y)
        yield y, drawn, torch.rand(2, device=x.device), x.grad, net.running_mean

    check_session(session, rtol=1e-5)


def test_a_checkpoint_that_draws_otherwise_the_second_time():
    """What comes after what it draws otherwise is no repetition either."""

    def session(compile):
        torch.manual_seed(3)
        x = leaf(4)
        runs = []

        def block(x):
            runs.append(1)
            y = x * torch.rand(4 if len(runs) % 2 else 2, device=x.device).sum()
            return y * torch.rand(4, device=x.device)

        y = compile(lambda x: checkpoint(block, x.sin(), use_reentrant=False))(x)
        backward([y])
        yield y, torch.rand(2, device=x.device), x.grad

    check_session(session, rtol=1e-6)
