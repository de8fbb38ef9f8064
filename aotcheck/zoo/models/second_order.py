"""Models whose loss holds a derivative, and linear algebra; a size is the batch's."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck.backends import Promise
from aotcheck.zoo.model import Compiled, Kind, Place, Program, Schedule, model
from aotcheck.zoo.recipes import training


def _smooth(inputs: int, outputs: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


@model(Kind.SECOND_ORDER, Schedule.STATIC, at_most=2, needs={Promise.DOUBLE_BACKWARD})
def maml(place: Place, sizes: Sequence[int]) -> Program:
    """Meta-learning: the loss after a step of gradient descent is differentiated through that step."""
    net = place(_smooth(2))
    parameters = dict(net.named_parameters())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def adapted_loss(values: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        named = dict(zip(parameters, values, strict=True))
        inner = F.mse_loss(torch.func.functional_call(net, named, (x,)), y)
        gradients = torch.autograd.grad(inner, values, create_graph=True)
        named = {name: w - 0.1 * g for (name, w), g in zip(named.items(), gradients, strict=True)}
        return F.mse_loss(torch.func.functional_call(net, named, (x + 1,)), y)

    def step(call: Compiled, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = call(list(net.parameters()), *batch)
        loss.backward()
        optimizer.step()
        return loss

    batches = place([(torch.randn(n, 2), torch.randn(n, 1)) for n in sizes])
    return Program(adapted_loss, step, batches, {"net": net})


@model(Kind.SECOND_ORDER, at_most=2, needs={Promise.DOUBLE_BACKWARD})
def forces_by_a_derivative(place: Place, sizes: Sequence[int]) -> Program:
    """A potential of pairwise distances; forces, its derivative by the positions, are what is trained."""
    net = place(_smooth(1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def energy(positions: torch.Tensor) -> torch.Tensor:
        first, second = torch.triu_indices(4, 4, 1, device=positions.device)
        distances = (positions[:, first] - positions[:, second]).norm(dim=-1, keepdim=True)
        return net(distances).sum((1, 2))

    def step(call: Compiled, batch: Any) -> Any:
        positions, wanted = batch[0].clone().requires_grad_(), batch[1]
        optimizer.zero_grad()
        total = call(positions)
        (gradient,) = torch.autograd.grad(total.sum(), positions, create_graph=True)
        loss = F.mse_loss(-gradient, wanted)
        loss.backward()
        optimizer.step()
        return loss, total, gradient

    batches = place([(torch.randn(n, 4, 3), torch.randn(n, 4, 3)) for n in sizes])
    return Program(energy, step, batches, {"net": net})


@model(Kind.SECOND_ORDER, Schedule.STATIC, at_most=1, needs={Promise.DOUBLE_BACKWARD})
def forces_inside(place: Place, sizes: Sequence[int]) -> Program:
    """The same with the derivative taken inside of what is compiled."""

    class Potential(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _smooth(3)

        def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with torch.enable_grad():
                energy = self.net(positions).sum()
                (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
            return energy, -gradient

    batches = [(x.requires_grad_(),) for x in place([torch.randn(n, 3) for n in sizes])]
    return training(place(Potential()), batches, lambda out: out[0] + out[1].square().sum())


@model(Kind.SECOND_ORDER, Schedule.STATIC, at_most=2, needs={Promise.DOUBLE_BACKWARD})
def physics_informed(place: Place, sizes: Sequence[int]) -> Program:
    """A network that is to solve a differential equation: the loss holds its second derivative."""
    net = place(_smooth(1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def step(call: Compiled, batch: Any) -> Any:
        x = batch.clone().requires_grad_()
        optimizer.zero_grad()
        u = call(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        loss = (second + u).square().mean()
        loss.backward()
        optimizer.step()
        return loss, second

    return Program(net, step, place([torch.rand(n, 1) for n in sizes]), {"net": net, "optimizer": optimizer})


@model(Kind.SECOND_ORDER, at_most=2)
def gaussian_process(place: Place, sizes: Sequence[int]) -> Program:
    """The marginal likelihood of a Gaussian process, by a Cholesky factor."""

    class Process(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.noise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(-1.0))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            squares = (x[:, None] - x[None]).square().sum(-1)
            kernel = torch.exp(-0.5 * squares / F.softplus(self.scale) ** 2)
            eye = torch.eye(len(x), dtype=x.dtype, device=x.device)
            factor = torch.linalg.cholesky(kernel + F.softplus(self.noise) * eye)
            solved = torch.cholesky_solve(y[:, None], factor).squeeze(1)
            return 0.5 * y @ solved + factor.diagonal().log().sum()

    net = place(Process())
    batches = place([(torch.randn(2 * n, 2), torch.randn(2 * n)) for n in sizes])
    return training(net, batches, lambda loss: loss, torch.optim.Adam(net.parameters(), lr=0.1))


@model(Kind.SECOND_ORDER, Schedule.STATIC, at_most=1)
def kalman_filter(place: Place, sizes: Sequence[int]) -> Program:
    """Linear algebra in a loop: solving, products and a determinant in each step of time."""

    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transition, self.noise = nn.Parameter(torch.eye(2) * 0.9), nn.Parameter(torch.zeros(2))

        def forward(self, seen: torch.Tensor) -> torch.Tensor:
            mean, covariance = torch.zeros_like(seen[0]), torch.eye(2, dtype=seen.dtype, device=seen.device)
            total = seen.new_zeros(())
            for y in seen.unbind(0):
                mean, covariance = self.transition @ mean, self.transition @ covariance @ self.transition.T
                whole = covariance + torch.diag_embed(self.noise.exp())
                gain = torch.linalg.solve(whole, covariance).T
                off = y - mean
                total = total + off @ torch.linalg.solve(whole, off) + torch.logdet(whole)
                mean, covariance = mean + gain @ off, covariance - gain @ covariance
            return total

    return training(place(Filter()), place([(torch.randn(n, 2),) for n in sizes]), lambda loss: loss)
