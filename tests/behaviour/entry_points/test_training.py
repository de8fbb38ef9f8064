"""Training loops, optimizers inside and outside, whole training steps."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.behaviour.harness import Compile, backward, check_session, session, through_dynamo
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import batches, mlp, seeded, state


@session
def test_a_whole_training_step_inside(compile):
    torch.manual_seed(0)
    net = to_device(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    compiled = compile(step)
    for k in range(4):
        yield compiled(plain(5, 3, seed=k)), list(net.parameters())


@session
def test_an_embedding_with_a_padding_index_trained_in_steps(compile):
    w = leaf(4, 3)
    compiled = compile(lambda i, w: torch.nn.functional.embedding(i, w, padding_idx=0) * 2)
    for _ in range(3):
        backward([compiled(torch.tensor([[1, 0], [1, 3]], device=w.device), w)])
        yield w


TRAINING_STEPS = 20


class ConvNet(nn.Module):
    """Convolutions and batch normalization, which mutates its running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classify = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(x).flatten(1))


def train(net: nn.Module, compiled: nn.Module, optimizer: torch.optim.Optimizer, *shape: int) -> Iterator[object]:
    device = next(net.parameters()).device
    generator = torch.Generator().manual_seed(1)
    for _ in range(TRAINING_STEPS):
        x = torch.randn(6, *shape, generator=generator).to(device)
        y = torch.randint(4, (6,), generator=generator).to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        yield loss, dict(net.named_parameters()), dict(net.named_buffers()), optimizer.state_dict()["state"]


@pytest.fixture(params=["aot_module", "torch.compile"])
def way(request):
    """None for the recording `aot_module` of the harness."""
    torch._dynamo.reset()
    yield None if request.param == "aot_module" else through_dynamo
    torch._dynamo.reset()


def test_a_convolutional_net_with_batch_norm_is_trained_by_sgd_with_momentum(way, device: str):
    def session(compile: Compile) -> Iterator[object]:
        net = ConvNet().to(device)
        return train(net, compile(net), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), 3, 8, 8)

    check_session(session, compile=way)


class CountingMLP(nn.Module):
    """Counts its calls in a buffer, and scales by the count."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 4))
        self.register_buffer("calls", to_device(torch.zeros(())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layers(x) * (1 + 1 / self.calls)


def test_an_mlp_with_a_buffer_counter_is_trained_by_adam(way, device: str):
    def session(compile: Compile) -> Iterator[object]:
        net = CountingMLP().to(device)
        return train(net, compile(net), torch.optim.Adam(net.parameters(), lr=0.01), 10)

    check_session(session, compile=way)


def adapted(w1, w2, x, y, inner_steps: int, outer: bool):
    """The loss after ``inner_steps`` of gradient descent on another batch."""
    for _ in range(inner_steps):
        loss = (torch.tanh(x @ w1) @ w2 - y).square().mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2), create_graph=outer)
        w1, w2 = w1 - 0.1 * g1, w2 - 0.1 * g2
    return (torch.tanh(x.flip(0) @ w1) @ w2 - y.flip(0)).square().mean()


@pytest.mark.parametrize("outer", [True, False], ids=["second order", "first order"])
@session
def test_maml_is_trained_with_the_inner_loop_inside(compile: Compile, outer: bool):
    w1, w2 = (p.detach().clone().requires_grad_() for p in seeded(mlp(3, 4, 1)).parameters() if p.dim() == 2)
    w1, w2 = (w.detach().t().contiguous().requires_grad_() for w in (w1, w2))
    optimizer = torch.optim.Adam([w1, w2], lr=0.02)
    compiled = compile(lambda w1, w2, x, y: adapted(w1, w2, x, y, 2, outer))
    for x in batches(5, 3):
        optimizer.zero_grad()
        loss = compiled(w1, w2, x, x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        yield loss, w1, w2


@session(rtol=1e-6)
def test_maml_is_trained_with_the_inner_loop_outside(compile: Compile):
    """The compiled function is the model; its gradients are differentiated by the caller.

    Gradients of a weight that is used three times arrive in another order than eager's, so a few ulps may differ.
    """

    net = seeded(mlp(3, 4, 1))
    weights = [p.detach().clone().requires_grad_() for p in net.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.05)
    model = compile(lambda x, a, b, c, d: F.linear(torch.tanh(F.linear(x, a, b)), c, d))
    for x in batches(5, 3):
        optimizer.zero_grad()
        fast = weights
        for _ in range(2):
            inner = model(x, *fast).square().mean()
            gradients = torch.autograd.grad(inner, fast, create_graph=True)
            fast = [w - 0.1 * g for w, g in zip(fast, gradients, strict=True)]
        loss = (model(x, *fast) - 1).square().mean()
        loss.backward()
        optimizer.step()
        yield loss, weights


class Energy(nn.Module):
    """An energy of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(6, 8, 1)

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        pairs = positions[:, :, None] - positions[:, None]
        distances = (pairs.square().sum(-1) + 1).sqrt()
        upper = torch.triu_indices(4, 4, 1, device=positions.device)
        return self.net(distances[:, upper[0], upper[1]]).sum()


@pytest.mark.parametrize("forces_inside", [True, False], ids=["forces inside", "forces outside"])
def test_an_energy_model_is_trained_on_forces(forces_inside: bool):
    """Outside, a weight's gradients by energy and forces arrive in another order than eager's: a few ulps."""

    class Forces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = Energy()

        def forward(self, positions: torch.Tensor):
            energy = self.energy(positions)
            return energy, -torch.autograd.grad(energy, positions, create_graph=True)[0]

    def session(compile: Compile):
        net = seeded(Forces() if forces_inside else Energy())
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        compiled = compile(net)
        for positions in batches(2, 4, 3):
            positions.requires_grad_()
            optimizer.zero_grad()
            if forces_inside:
                energy, forces = compiled(positions)
            else:
                energy = compiled(positions)
                (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
                forces = -gradient
            loss = (forces + positions.detach()).square().mean() + 0.1 * energy.square()
            loss.backward()
            optimizer.step()
            yield energy, forces, loss, state(net)

    check_session(session, rtol=0 if forces_inside else 1e-6)


@session
def test_a_gan_is_trained_with_two_losses_and_separate_backwards(compile: Compile):
    generator, discriminator = seeded(mlp(3, 8, 2)), seeded(mlp(2, 8, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    generate, judge = compile(generator), compile(discriminator)
    for noise in batches(6, 3):
        real = noise[:, :2].tanh()
        fake = generate(noise)
        of_discriminator.zero_grad()
        loss = F.softplus(-judge(real)).mean()
        loss.backward()
        F.softplus(judge(fake.detach())).mean().backward()
        of_discriminator.step()
        of_generator.zero_grad()
        cheat = F.softplus(-judge(fake)).mean()
        cheat.backward()
        of_generator.step()
        yield loss, cheat, state(generator, discriminator)


@session
def test_a_gan_is_trained_with_both_losses_from_one_function(compile: Compile):
    """Both losses come by the generated sample; each optimizer takes the gradients of its own."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator, self.discriminator = mlp(3, 8, 2), mlp(2, 8, 1)

        def forward(self, noise: torch.Tensor, real: torch.Tensor):
            fake = self.generator(noise)
            judged = self.discriminator(torch.cat([real, fake.detach()]))
            n = len(real)
            loss = F.softplus(-judged[:n]).mean() + F.softplus(judged[n:]).mean()
            return loss, F.softplus(-self.discriminator(fake)).mean()

    net = seeded(Both())
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (net.discriminator, net.generator)]
    compiled = compile(net)
    for noise in batches(6, 3):
        losses = compiled(noise, noise[:, :2].tanh())
        for loss, part in zip(losses, (net.discriminator, net.generator), strict=True):
            gradients = torch.autograd.grad(loss, list(part.parameters()))
            for p, g in zip(part.parameters(), gradients, strict=True):
                p.grad = g
        for optimizer in optimizers:
            optimizer.step()
        yield losses, state(net)


@pytest.mark.parametrize("window", [1, 3])
def test_truncated_backpropagation_with_a_written_state_buffer_is_as_in_eager(window: int):
    class Cell(nn.Module):
        hidden: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(3, 4)
            self.register_buffer("hidden", to_device(torch.zeros(5, 4)))

        def forward(self, xs: torch.Tensor) -> torch.Tensor:
            h, out = self.hidden.clone(), []
            for x in xs.unbind():
                h = self.cell(x, h)
                out.append(h)
            with torch.no_grad():
                self.hidden.copy_(h)  # cut here: the next window starts from it as from a constant
            return torch.stack(out)

    def session(compile: Compile):
        net = seeded(Cell())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        compiled = compile(net)
        for xs in batches(window, 5, 3):
            optimizer.zero_grad()
            out = compiled(xs)
            loss = (out - xs.sum(-1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            yield out, loss, state(net)

    # The gates of a GRU cell are `sigmoid_` of columns of a matrix: rows of four for eager's kernel, twenty elements
    # in a row for the graph's. With AVX2 the kernel rounds eights of them otherwise than what remains of a row.
    check_session(session, rtol=1e-5)


@session
def test_truncated_backpropagation_with_detach_in_place_is_as_in_eager(compile: Compile):
    cell = seeded(nn.RNNCell(3, 4))
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
    compiled = compile(cell)
    h = to_device(torch.zeros(5, 4))
    total = torch.zeros_like(h[0, 0])
    for k, x in enumerate(batches(5, 3)):
        h = compiled(x, h)
        total = total + h.square().mean()
        if k % 3 == 2:
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            h.detach_()
            total = torch.zeros_like(total)
        yield h, total, state(cell)


@session
def test_moving_averages_written_by_the_forward_are_trained_with(compile: Compile):
    """Of weights and of activations, both written by the forward that reads them."""

    class Averaged(nn.Module):
        mean: torch.Tensor
        shadow: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("mean", to_device(torch.zeros(4)))
            self.register_buffer("shadow", to_device(torch.zeros(4, 4)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            if self.training:
                with torch.no_grad():
                    self.mean.lerp_(y.mean(0), 0.1)
                    self.shadow.mul_(0.9).add_(self.linear.weight, alpha=0.1)
            return (y - self.mean) @ self.shadow

    net = seeded(Averaged())
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    compiled = compile(net)
    for k, x in enumerate(batches(6, 4)):
        compiled.train(k % 4 != 3)
        optimizer.zero_grad()
        loss = (compiled(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        yield loss, state(net)


@session
def test_a_net_is_trained_with_gradients_clipped_by_a_hook_inside(compile: Compile):
    class Clipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.a(x).tanh()
            if h.requires_grad:
                h.register_hook(lambda g: g.clamp(-0.01, 0.01))
            return self.b(h)

    net = seeded(Clipped())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = compile(net)
    for x in batches(6, 4):
        optimizer.zero_grad()
        loss = (compiled(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        yield loss, state(net)


@session
def test_mixed_precision_with_a_grad_scaler_and_accumulation_is_as_in_eager(compile: Compile):
    net = seeded(mlp(4, 8, 1))
    device = net[0].weight.device.type
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=16.0)
    compiled = compile(net)
    for k, x in enumerate(batches(6, 4)):
        with torch.autocast(device, torch.bfloat16):
            loss = (compiled(x).float() - 1).square().mean() / 2
        scaler.scale(loss).backward()
        if k % 2:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        yield loss, state(net)
