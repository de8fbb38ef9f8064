"""Calls whose graph fails: the errors that say so, and random generators set back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class GraphFailed(Exception):
    """A compiled forward raised; nothing of the caller's has been touched, random state included."""


def check_swap(t: Tensor) -> None:
    """Do what swap_tensors does before it swaps: refuse a tensor that others hold, poison a leaf that was used."""
    try:
        torch.utils.swap_tensors(t, t)
    except RuntimeError as error:
        raise GraphFailed from error


class StrideCorrection(Exception):
    """The first run showed other strides than the trace foretold."""


def generator_states(*own: torch.Generator) -> Any:
    """The state of every generator a graph may draw from: the default ones, and the call's ``own``."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda, [(g, g.get_state()) for g in own]


def restore_generators(states: Any) -> None:
    """Undo all drawing since ``generator_states`` was called."""
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state_all(states[1])
    for generator, state in states[2]:
        generator.set_state(state)
