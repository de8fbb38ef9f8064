"""Activations that are computed again in the backward; a size is the batch's."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from aotcheck.backends import Promise
from aotcheck.zoo.model import Kind, Place, Program, Schedule, model
from aotcheck.zoo.models.training import examples
from aotcheck.zoo.recipes import cross_entropy, supervised, training


class _Stack(nn.Module):
    """Blocks with batch norm and dropout, each of them checkpointed."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for block in self.blocks:
            y = y + checkpoint(block, y, use_reentrant=self.reentrant)
        return self.head(y)


@model(Kind.CHECKPOINTS, at_most=2)
def checkpointed_stack(place: Place, sizes: Sequence[int]) -> Program:
    """Checkpointed blocks with dropout, whose batch norms count each batch twice."""
    return supervised(place(_Stack(reentrant=False)), examples(place, sizes))


@model(Kind.CHECKPOINTS, at_most=2)
def reentrant_checkpointed_stack(place: Place, sizes: Sequence[int]) -> Program:
    """The same with the older kind of checkpoint, whose backward runs a backward."""
    return supervised(place(_Stack(reentrant=True)), examples(place, sizes))


@model(Kind.CHECKPOINTS, Schedule.STATIC, at_most=1, needs={Promise.HALF})
def reentrant_checkpoint_under_autocast(place: Place, sizes: Sequence[int]) -> Program:
    """Autocast and a reentrant checkpoint, both inside; what is computed again is in bfloat16 too."""

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def body(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.layer(x)) + self.layer(x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(x.device.type, torch.bfloat16):
                return checkpoint(self.body, x, use_reentrant=True).float().sum()

    net = place(Cast())
    return training(net, [(x.requires_grad_(),) for x, _ in examples(place, sizes)], lambda loss: loss)


@model(Kind.CHECKPOINTS, Schedule.STATIC, at_most=1)
def selective_checkpoint_whose_body_writes(place: Place, sizes: Sequence[int]) -> Program:
    """A policy saves products and recomputes the rest, in a body that counts in a buffer."""

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    class Selective(nn.Module):
        count: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 3))
            self.register_buffer("count", torch.zeros(()))

        def body(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return self.layers(x).sin()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.body, x, use_reentrant=False, context_fn=contexts)

    return supervised(place(Selective()), examples(place, sizes), cross_entropy)


@model(Kind.CHECKPOINTS, at_most=2)
def checkpointed_sequence_of_layers(place: Place, sizes: Sequence[int]) -> Program:
    """``checkpoint_sequential`` with dropout."""

    class Segments(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 6), nn.Tanh())
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = checkpoint_sequential(self.layers, 2, x, use_reentrant=False)
            return self.head(F.layer_norm(y, (6,)))

    return supervised(place(Segments()), examples(place, sizes))
