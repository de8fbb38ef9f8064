"""The parts that the steps of most models share: a loss, a backward, an optimizer."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck.zoo.model import Compiled, Program

__all__ = ["Loss", "cross_entropy", "module_calls", "supervised", "training"]

Loss = Callable[[Any, torch.Tensor], torch.Tensor]
"""Takes what the target returned and what was wanted."""


def cross_entropy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Over the last dimension."""
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def training(
    net: nn.Module,
    batches: Sequence[tuple[Any, ...]],
    loss_of: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer | None = None,
    target: Callable[..., Any] | None = None,
) -> Program:
    """A program whose step calls the target with the batch, differentiates a loss and lets an optimizer step.

    Args:
        net: what is trained, and compiled where ``target`` does not say otherwise.
        batches: the arguments of each call.
        loss_of: takes what the target returned.
        optimizer: SGD with momentum, where nothing else is given.
        target: what is compiled.
    """
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(call: Compiled, batch: tuple[Any, ...]) -> Any:
        optimizer.zero_grad()
        output = call(*batch)
        loss = loss_of(output)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "output": output}

    return Program(target or net, step, batches, {"net": net, "optimizer": optimizer})


def supervised(
    net: nn.Module,
    batches: Sequence[tuple[Any, torch.Tensor]],
    loss: Loss = cross_entropy,
    optimizer: torch.optim.Optimizer | None = None,
) -> Program:
    """A program that trains ``net``, which is compiled, on batches of (input, what is wanted); a tuple of inputs is
    several arguments."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(call: Compiled, batch: tuple[Any, torch.Tensor]) -> Any:
        inputs, wanted = batch
        optimizer.zero_grad()
        output = call(*inputs) if isinstance(inputs, tuple) else call(inputs)
        found = loss(output, wanted)
        found.backward()
        optimizer.step()
        return {"loss": found, "output": output}

    return Program(net, step, batches, {"net": net, "optimizer": optimizer})


def module_calls(net: nn.Module, batches: Iterable[Any]) -> Program:
    """A program that calls ``net``, which is compiled, and returns what it returns; nothing is trained."""

    def step(call: Compiled, batch: Any) -> Any:
        with torch.no_grad():
            return call(*batch)

    return Program(net, step, tuple(batches), {"net": net})
