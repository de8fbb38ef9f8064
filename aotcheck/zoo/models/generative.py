"""Models that make data; a size is the batch's."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck.backends import Promise
from aotcheck.zoo.model import Compiled, Kind, Place, Program, Schedule, model
from aotcheck.zoo.recipes import training


def _net(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def _points(place: Place, sizes: Sequence[int], width: int = 4) -> list[torch.Tensor]:
    return place([torch.randn(n, width) for n in sizes])


@model(Kind.GENERATIVE, at_most=2, needs={Promise.RANDOM})
def variational_autoencoder(place: Place, sizes: Sequence[int]) -> Program:
    """Noise is drawn inside, as large as the encoder's result; the loss holds a divergence."""

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = _net(4, 8, 4), _net(2, 8, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            mean, log_variance = self.encoder(x).chunk(2, -1)
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            return x, self.decoder(z), mean, log_variance

    def loss(output: tuple[torch.Tensor, ...]) -> torch.Tensor:
        x, made, mean, log_variance = output
        return F.mse_loss(made, x) - 0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean()

    return training(place(VAE()), [(x,) for x in _points(place, sizes)], loss)


@model(Kind.GENERATIVE, at_most=4)
def gan_with_two_losses(place: Place, sizes: Sequence[int]) -> Program:
    """A generator and a discriminator, a loss and an optimizer for each; the discriminator is compiled."""
    generator, discriminator = place(_net(3, 8, 4)), place(_net(4, 8, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.9))
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=0.01, betas=(0.5, 0.9))

    def step(call: Compiled, batch: Any) -> Any:
        real, noise = batch
        fake = generator(noise)
        of_discriminator.zero_grad()
        first = F.softplus(-call(real)).mean() + F.softplus(call(fake.detach())).mean()
        first.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        second = F.softplus(-call(fake)).mean()
        second.backward()
        of_generator.step()
        return first, second, fake

    batches = list(zip(_points(place, sizes), _points(place, sizes, 3), strict=True))
    state = {"generator": generator, "discriminator": discriminator, "optimizer": of_discriminator}
    return Program(discriminator, step, batches, state)


@model(Kind.GENERATIVE, at_most=4, needs={Promise.DOUBLE_BACKWARD})
def wgan_with_gradient_penalty(place: Place, sizes: Sequence[int]) -> Program:
    """A critic whose gradient's norm is part of the loss: its backward is differentiated."""
    generator, critic = place(_net(3, 8, 4)), place(nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1)))
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=0.01)

    def step(call: Compiled, batch: Any) -> Any:
        real, noise, share = batch
        fake = generator(noise).detach()
        between = (share * real + (1 - share) * fake).requires_grad_()
        optimizer.zero_grad()
        (gradient,) = torch.autograd.grad(call(between).sum(), between, create_graph=True)
        penalty = (gradient.norm(2, 1) - 1).square().mean()
        loss = call(fake).mean() - call(real).mean() + 10 * penalty
        loss.backward()
        optimizer.step()
        return loss, penalty, gradient

    batches = place([(torch.randn(n, 4), torch.randn(n, 3), torch.rand(n, 1)) for n in sizes])
    return Program(critic, step, batches, {"critic": critic, "optimizer": optimizer})


@model(Kind.GENERATIVE, at_most=2)
def diffusion(place: Place, sizes: Sequence[int]) -> Program:
    """Noise is added by a schedule that is looked up in a buffer, and predicted from sines of the time."""

    class Diffusion(nn.Module):
        kept: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.net = _net(8, 16, 4)
            self.register_buffer("kept", torch.linspace(0.99, 0.1, 10).cumprod(0))

        def forward(self, x: torch.Tensor, time: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
            kept = self.kept[time].unsqueeze(1)
            noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
            angles = time[:, None] * torch.exp(torch.arange(2, device=x.device) * -2.0).to(x.dtype)
            made: torch.Tensor = self.net(torch.cat([noisy, angles.sin(), angles.cos()], 1))
            return F.mse_loss(made, noise)

    batches = place([(torch.randn(n, 4), torch.randint(0, 10, (n,)), torch.randn(n, 4)) for n in sizes])
    net = place(Diffusion())
    return training(net, batches, lambda loss: loss, torch.optim.AdamW(net.parameters(), lr=0.01))


@model(Kind.GENERATIVE, at_most=2)
def normalizing_flow(place: Place, sizes: Sequence[int]) -> Program:
    """Invertible layers: coupling by masks, and a matrix whose determinant is part of the loss."""

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix, self.nets = nn.Parameter(torch.eye(4) + torch.randn(4, 4) / 10), nn.ModuleList()
            self.nets.extend(_net(2, 8, 4) for _ in range(2))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = x @ self.matrix
            total = torch.linalg.slogdet(self.matrix)[1].expand(len(x))
            for net in self.nets:
                left, right = x.chunk(2, 1)
                shift, scale = net(left).chunk(2, 1)
                x = torch.cat([right * scale.tanh().exp() + shift, left], 1)
                total = total + scale.tanh().sum(1)
            return x, total

    return training(
        place(Flow()), [(x,) for x in _points(place, sizes)], lambda out: (out[0].square().sum(1) - out[1]).mean()
    )


@model(Kind.GENERATIVE, Schedule.STATIC, at_most=2)
def neural_ode(place: Place, sizes: Sequence[int]) -> Program:
    """A differential equation solved by steps of Runge and Kutta, for a time that is a Python number."""

    class ODE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))

        def slope(self, time: float, x: torch.Tensor) -> torch.Tensor:
            return self.net(torch.cat([x, torch.full_like(x[:, :1], time)], 1))

        def forward(self, x: torch.Tensor, until: float) -> torch.Tensor:
            steps, time = 3, 0.0
            h = until / steps
            for _ in range(steps):
                a = self.slope(time, x)
                b = self.slope(time + h / 2, x + h / 2 * a)
                c = self.slope(time + h / 2, x + h / 2 * b)
                d = self.slope(time + h, x + h * c)
                x, time = x + h / 6 * (a + 2 * b + 2 * c + d), time + h
            return x

    batches = [(x, 0.5 + 0.25 * i) for i, x in enumerate(_points(place, sizes))]
    return training(place(ODE()), batches, lambda x: x.square().mean())
