"""Values and generators' states."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.behaviour.harness import agrees, backward, check, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.random.common import generator_states, other_devices, set_generator_states
from tests.behaviour.shared import AROUND, ENTRIES


@session
def test_a_captured_generator_used_by_uniform_and_bernoulli_advances(compile, device: str):
    generator = torch.Generator(device).manual_seed(3)

    def f(x):
        x.uniform_(generator=generator)
        return x + torch.bernoulli(torch.full_like(x, 0.5), generator=generator)

    compiled = compile(f)
    for _ in range(2):
        x = plain(3)
        yield compiled(x), x, generator.get_state()


@session
def test_dropout_under_inference_mode(compile):
    x = plain(8)
    for p in (0.0, 1.0, 0.5):
        f = compile(lambda x, p=p: torch.nn.functional.dropout(x, p=p))
        torch.manual_seed(0)
        with torch.inference_mode():
            y = f(x)
        yield y, y is x, torch.get_rng_state()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.rand_like(x),
        lambda x: nn.functional.dropout(x, 0.5),
        lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)),
        lambda x: x.clone().normal_(),
        lambda x: x + torch.randperm(3, device=x.device).to(x.dtype),
        lambda x: (torch.randn_like(x), x * 2)[1],
        lambda x: (torch.rand(3, device=x.device), x * 2)[1],
        lambda x: (F.dropout(x, 0.5), x * 2)[1],
        lambda x: (x.clone().normal_(), x * 2)[1],
    ],
    ids=["rand_like", "dropout", "bernoulli", "normal_", "randperm"]
    + [f"unused {op}" for op in ("randn_like", "rand", "dropout", "normal_")],
)
def test_random_values_and_the_generators_state_are_eagers(function):
    check(function, *[lambda: given(leaf(4, 3))] * 2)


@session
def test_the_default_generator_advances_under_no_grad_too(compile):
    f = compile(lambda x: nn.functional.dropout(x, 0.5) + torch.rand_like(x))
    with torch.no_grad():
        yield f(leaf(3))
    yield f(leaf(3))


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
def test_random_ops_and_their_gradients_are_eagers(function):
    check(function, *[lambda: given(leaf(4, 3))] * 2, rtol=1e-6)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "make", [lambda: nn.Dropout(0.5), lambda: nn.RReLU(), lambda: nn.Sequential(nn.Linear(3, 3), nn.Dropout2d(0.5))]
)
@session(rtol=1e-6)
def test_random_modules_in_training_and_evaluation(compile, make, training):
    torch.manual_seed(0)
    module = to_device(make()).train(training)
    compiled = compile(module)
    for seed in range(2):
        x = leaf(1, 4, 3, seed=seed)
        y = compiled(x)
        backward([y])
        yield x, y, [p.grad for p in module.parameters()]


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
        ctx.states = generator_states(x)
        return x * torch.rand_like(x)

    @staticmethod
    def backward(ctx, g):
        with torch.random.fork_rng(devices=other_devices(g)):
            set_generator_states(ctx.states, g)
            return g * torch.rand_like(g)


class _DrawsOthers(_DrawsAgain):
    @staticmethod
    def backward(ctx, g):
        with torch.random.fork_rng(devices=other_devices(g)):
            set_generator_states(ctx.states, g)
            return g * torch.randn_like(g)


@pytest.mark.parametrize("node", [_RandomBackward, _DrawsAgain, _DrawsOthers])
def test_random_numbers_drawn_in_the_backward_of_a_custom_function(node):
    check(lambda x: node.apply(x) * torch.rand(3, device=x.device), *[lambda: given(leaf(2, 3))] * 2)


@session
def test_random_numbers_drawn_in_two_backwards(compile):
    x = leaf(2, 3)
    y = compile(_RandomBackward.apply)(x)
    y.sum().backward(retain_graph=True)
    yield x
    y.sum().backward()
    yield x


@session
def test_random_numbers_drawn_in_a_backward_with_create_graph(compile):
    x = leaf(2, 3)
    y = compile(lambda x: _RandomBackward.apply(x * x))(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    yield g
    g.sum().backward()
    yield x


@agrees(lambda: given(plain(2, 3)))
def test_an_error_of_the_program_draws_as_many_random_numbers_as_eager(x):
    y = x * torch.rand(3, device=x.device)
    return y @ torch.rand(7, 7, device=x.device)


@pytest.mark.parametrize("first", [False, True])
@session(rtol=1e-4)
def test_a_transformer_layer_with_dropout_trains_as_in_eager(compile, first):
    torch.manual_seed(7)
    layer = to_device(torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True, norm_first=first))
    compiled = compile(layer)
    for _ in range(3):
        x = to_device(torch.randn(2, 3, 4))
        y = compiled(x)
        y.pow(3).sum().backward()
        yield y, [p.grad.clone() for p in layer.parameters()]


every_entry = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


def _in_parts(x):
    y = F.dropout(x, 0.5)
    y = checkpoint(lambda y: F.dropout(y.sin(), 0.3) * torch.rand_like(y), y, use_reentrant=False)
    torch.rand(2, device=x.device)
    return y * torch.randn(3, device=x.device)


@every_entry
@session(compile="entry", rtol=1e-6)
def test_every_entry_draws_eagers_random_numbers(compile):
    compiled = compile(_in_parts)
    for _ in range(2):
        x = leaf(4, 3)
        y = compiled(x)
        z = torch.rand(2, device=x.device)
        backward([y])
        yield x, y, z, torch.rand(2, device=x.device)


@session
def test_a_call_that_is_traced_again_draws_random_numbers_once(compile):
    """Traces that are thrown away, for other arguments or since a mode was not enough, draw nothing."""

    def f(x, w):
        x.add_(torch.rand(3, device=x.device))
        y = F.dropout(w * x, 0.5)
        return y, x.view(-1)

    compiled = compile(f)
    w = leaf(3)
    base = leaf(4, 3) * 1
    for x in (plain(2, 3), plain(4, 3), base, base[1:], plain(2, 3)):
        y = compiled(x, w)
        yield x, y
        backward([y[0]], retain_graph=True)
        yield w


@agrees(*[lambda: given(leaf(2, 3))] * 2)
def test_random_numbers_in_a_program_that_raises(x):
    y = F.dropout(x, 0.5) + torch.rand(3, device=x.device)
    x.data.add_(y.detach())
    raise ValueError("on purpose")


@pytest.mark.parametrize("mode", ["no_grad", "inference mode", "autocast", "all"])
@session
def test_random_numbers_under_no_grad_inference_mode_and_autocast(compile, mode):
    def f(x):
        return (
            F.dropout(x, 0.5),
            torch.rand_like(x),
            x.clone().uniform_(),
            torch.randn(3, requires_grad=True, device=x.device),
        )

    compiled = compile(f)
    for _ in range(2):
        with AROUND[mode]():
            yield compiled(plain(2, 3))
