"""Sizes that data decide: what was asked of a value once has the same size when it is asked again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.unit.autograd2.agrees import agrees


def counted_up(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    y[mask] += x.sum()
    return y


def written(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    y[mask] = x[0, 0].sin()
    return y


def multiplied(x: Tensor, mask: Tensor) -> Tensor:
    return x[mask] * x.cos()[mask]


def selected(x: Tensor, mask: Tensor) -> Tensor:
    return torch.masked_select(x, mask) * torch.masked_select(x.exp(), mask)


def of_a_mask_that_changes(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    before = x.detach()[mask]
    mask.logical_not_()
    return before, x[mask]


@pytest.mark.parametrize("f", [counted_up, written, multiplied, selected, of_a_mask_that_changes])
@pytest.mark.parametrize("seed", range(3))
def test_masks_forward_and_in_the_backward(f: Callable[..., object], seed: int) -> None:
    def inputs() -> tuple[Tensor, Tensor]:
        torch.manual_seed(seed)
        return torch.randn(3, 4, requires_grad=True), torch.rand(3, 4) > 0.5

    agrees(f, inputs)
