"""Torch.utils.checkpoint, both kinds, policies."""

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Compile, agrees, attempt_later, backward, check_session, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.shared import ENTRIES, again, arguments, batches, linear, parameter_gradients, seeded, state


def counts(u, w, seen):
    seen.add_(1)
    return (u * w).sin()


def draws(u, w, seen):
    return torch.rand_like(u) * u * w


def normalizes(u, w, seen):
    return F.batch_norm(u * w, seen[0], seen[1], training=True) * u


@pytest.mark.filterwarnings("error:aotcheck runs a function as it is")
@pytest.mark.parametrize("block", [counts, draws, normalizes])
@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize(
    "after", [lambda a, x, w: a * w, lambda a, x, w: (a * x).exp(), lambda a, x, w: a @ w.t()], ids=["w", "x", "mm"]
)
def test_a_backward_past_a_checkpoint_does_not_recompute_it(block, preserve, after):
    """The checkpoint's result is returned too, so what comes after it is a backward of its own."""

    def f(x, w, seen):
        a = checkpoint(lambda u, v: block(u, v, seen), x, w, use_reentrant=False, preserve_rng_state=preserve)
        return a, after(a, x, w)

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x, w, seen = arguments().args
            a, b = compiled(x, w, seen)
            backward([b], retain_graph=True)
            yield x, w, seen, torch.rand(1, device=x.device)
            backward([a, b])
            yield x, w, seen, torch.rand(1, device=x.device)

    check_session(session, rtol=1e-5)


@pytest.fixture(params=[False, True], ids=["non-reentrant", "reentrant"])
def reentrant(request) -> bool:
    return request.param


@session
def test_checkpointed_dropout_draws_the_same_numbers_again(compile, reentrant: bool):
    def f(x, w):
        y = checkpoint(lambda x, w: F.dropout(x * w, 0.5) * x, x, w, use_reentrant=reentrant)
        return y * torch.rand(8, device=x.device)

    compiled = compile(f)
    for _ in range(3):
        x, w = leaf(8), leaf(8, seed=1)
        y = compiled(x, w)
        torch.rand(3, device=x.device)
        backward([y])
        yield y, x, w, torch.rand(2, device=x.device)


@session
def test_checkpointed_dropout_without_preserve_rng_state_draws_other_numbers(compile, reentrant: bool):
    """Then the recomputation draws other numbers, and from the caller's stream."""

    def f(x):
        return checkpoint(lambda x: F.dropout(x, 0.5) * x, x, use_reentrant=reentrant, preserve_rng_state=False)

    compiled = compile(f)
    for _ in range(3):
        x = leaf(8)
        y = compiled(x)
        backward([y])
        yield y, x, torch.rand(2, device=x.device)


@session
def test_three_checkpoints_in_a_row(compile, reentrant: bool):
    def block(x, w):
        return F.dropout((x * w).relu(), 0.3) + x

    def f(x, w):
        for _ in range(3):
            x = checkpoint(block, x, w, use_reentrant=reentrant)
        return x.sum()

    compiled = compile(f)
    for _ in range(2):
        x, w = leaf(8), leaf(8, seed=1)
        backward([compiled(x * 1, w)])
        yield x, w, torch.rand(1, device=x.device)


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


@session
def test_checkpointed_blocks_with_batch_norm_and_dropout(compile, reentrant: bool):
    """Batch statistics are counted twice, by the forward and by its recomputation, as eager counts them."""

    torch.manual_seed(0)
    net = to_device(Net(reentrant))
    compiled = compile(net)
    for k in range(3):
        x = leaf(6, 4, seed=k)
        y = compiled(x)
        yield y, dict(net.named_buffers())
        backward([y])
        yield x, dict(net.named_buffers()), dict(net.named_parameters()), torch.rand(1, device=x.device)


@agrees(lambda: given(leaf(2, 2)))
def test_a_checkpoint_of_a_view_made_under_no_grad(x):
    with torch.no_grad():
        v = x.t()
    return checkpoint(lambda a, b: (a * b).mul_(2).unsqueeze(0) * a, v, v, use_reentrant=False)


@again
@session
def test_a_checkpoint_that_assigns_a_tensor_to_its_module(compile):
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.last = to_device(torch.ones(2, 3))

        def block(self, x):
            out = self.inner(x) * self.last
            self.last = x.detach()
            return out

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False).sum()

    net = Keeps()
    f = compile(net)
    for seed in range(3):
        x = leaf(2, 3, seed=seed)
        f(x).backward()
        yield x.grad, parameter_gradients(net), net.last


def test_a_checkpoint_that_caches_a_table_in_its_module_compiles_once_more():
    class Caches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear()
            self.table = None

        def block(self, x):
            if self.table is None:
                self.table = torch.arange(3.0, device=x.device).cos()
            return self.inner(x) * self.table

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False).sum()

    def session(compile):
        net = Caches()
        f = compile(net)
        for seed in range(3):
            x = leaf(2, 3, seed=seed)
            f(x).backward()
            yield x.grad, parameter_gradients(net), net.table

    check_session(session)
    net = Caches()
    f = aotcheck.aot_module(net)
    f(leaf(2, 3)).backward()
    before = aotcheck.counters().compiled
    f(leaf(2, 3)).backward()
    assert aotcheck.counters().compiled == before + 1


@agrees(lambda: given(leaf(3), leaf(3, seed=1)))
def test_a_checkpoint_inside_the_function(x, w):
    y = checkpoint(lambda x, w: (x * w).relu() * x, x, w, use_reentrant=False)
    return y * 2


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
@session
def test_a_checkpoint_around_the_compiled_function(compile, reentrant: bool):
    f = compile(lambda x, w: (x * w).relu() * x)
    for _ in range(2):
        x, w = leaf(3), leaf(3, seed=1)
        y = checkpoint(f, x, w, use_reentrant=reentrant)
        yield y
        backward([y])
        yield x, w


@pytest.mark.parametrize("later", [None, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("create_graph", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("function", [lambda p, q: p @ q, lambda p, q: (p @ q).sin()], ids=["product", "sine"])
@session(rtol=1e-5)
def test_a_checkpoint_under_autocast(compile, function, create_graph, later):
    def f(x, w):
        return checkpoint(function, w, x, use_reentrant=False)

    x, w = leaf(2, 2), leaf(2, 2, seed=1)
    kind = x.device.type
    with torch.autocast(kind, torch.bfloat16):
        y = compile(f)(x, w)
    with torch.autocast(kind, later or torch.bfloat16, enabled=later is not None):
        first = torch.autograd.grad(y, [x, w], torch.ones_like(y), create_graph=create_graph)
        yield first
        if create_graph:
            yield torch.autograd.grad(first, [x, w], [torch.ones_like(g) for g in first])


@pytest.mark.parametrize("written", ["x", "y", "mask", "nothing"])
@session
def test_an_argument_of_a_checkpoint_must_not_be_written_before_the_backward(compile, written):
    def f(x, y, mask):
        return torch.utils.checkpoint.checkpoint(
            lambda x, y, mask: torch.sin(x * y).masked_fill(mask, 0), x, y, mask, use_reentrant=False
        )

    x, y, mask = leaf(3) * 1, plain(3), plain(3) > 0
    out = compile(f)(x, y, mask)
    with torch.no_grad():
        {"x": x, "y": y, "mask": mask, "nothing": plain(2)}[written].zero_()
    yield attempt_later(lambda: out.sum().backward())


@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize(
    "inner",
    [
        lambda x: F.dropout(x.sin(), 0.5).cos(),
        lambda x: (x * torch.rand_like(x)).sin() * F.rrelu(x, training=True),
        lambda x: F.dropout(x * torch.randn(3, device=x.device), 0.5) ** 2,
    ],
)
@agrees(*[lambda: given(leaf(2, 3))] * 2, rtol=1e-6)
def test_a_checkpoint_recomputes_with_the_same_random_numbers(x, *, inner, preserve):
    y = checkpoint(inner, x * torch.rand(3, device=x.device), use_reentrant=False, preserve_rng_state=preserve)
    return y * torch.rand(3, device=x.device)


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("reentrant", [False, True])
@session(rtol=1e-5)
def test_checkpoints_with_batch_norm_recompute_with_the_same_dropout_masks(compile, reentrant, blocks):
    """Their second runs have other running statistics, and the caller has drawn meanwhile."""

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


@session(rtol=1e-6)
def test_a_checkpoint_that_draws_other_random_numbers_when_recomputed(compile):
    """What comes after what it draws otherwise is no repetition either."""

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


@pytest.mark.parametrize("preserve", [True, False])
def test_a_checkpoint_with_dropout_behind_torch_compile(preserve):
    def session(compile):
        def f(x):
            y = checkpoint(lambda x: F.dropout(x.sin(), 0.5), x, use_reentrant=False, preserve_rng_state=preserve)
            return y * torch.rand(3, device=x.device)

        compiled = compile(f)
        for _ in range(2):
            x = leaf(4, 3)
            y = compiled(x)
            backward([y])
            yield x, y, torch.rand(1, device=x.device)

    check_session(session, compile=ENTRIES["torch.compile"], rtol=1e-6)


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
@pytest.mark.parametrize("where", ["inside", "around"])
def test_checkpointed_blocks_with_dropout_are_trained(where: str, reentrant: bool):
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.body(x)

    class Net(nn.Module):
        def __init__(self, compile: Compile) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.run = [compile(b) if where == "around" else b for b in self.blocks]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.run:
                x = checkpoint(block, x, use_reentrant=reentrant)
            return x

    def session(compile: Compile):
        net = seeded(Net(compile))
        optimizer = torch.optim.SGD(net.blocks.parameters(), lr=0.1)
        compiled = compile(net) if where == "inside" else net
        for x in batches(6, 4):
            x.requires_grad_()
            optimizer.zero_grad()
            loss = (compiled(x) - 1).square().mean()
            loss.backward()
            optimizer.step()
            yield loss, x, state(net.blocks), torch.rand(1, device=x.device)

    check_session(session)
