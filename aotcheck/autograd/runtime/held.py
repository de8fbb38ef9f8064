"""The arguments that contexts of Functions hold, as long as eager's nodes do: see Note [Arguments held]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.tensors.memory import holder_of


def hold_again(ctx: Any, place: int) -> Tensor:
    """What holds an argument as what was saved at ``place`` does; or nothing, if that is freed or was written since."""
    held = getattr(ctx, "held", None)
    if held is not None:
        return holder_of(held[place][1]) if place in held else torch.empty(0)
    try:
        (saved,) = _torch.unpack_some(ctx, (place,))
    except RuntimeError:
        return torch.empty(0)
    return holder_of(saved)


def free_held(ctx: Any, nodes: frozenset[Any]) -> None:
    """Eager frees these nodes; what others hold ``ctx`` holds by itself from now on.

    For autograd will free all that was saved, or did so.
    """
    if not hasattr(ctx, "held"):
        ctx.held = {place: (by, hold_again(ctx, place)) for place, by in ctx.kept[0].arguments.places.values()}
    for place, (by, holder) in [*ctx.held.items()]:
        if by <= nodes:
            del ctx.held[place]
        else:
            ctx.held[place] = by - nodes, holder


def free_behind(ctx: Any, begins: Sequence[Any]) -> None:
    """A backward comes from those of the results of ``ctx`` that are not None here, and asks for all gradients."""
    if not _torch.backward_keeps_graph():
        behind = ctx.kept[0].arguments.behind
        if len(behind) > 1 or hasattr(ctx, "held"):
            free_held(ctx, frozenset[Any]().union(*[behind[j] for j, t in enumerate(begins) if t is not None]))
