"""Gradients that do not exist, and what comes of that from one Function to the next.

Note [Undefined gradients]
A node of autograd's graph that is given no gradient runs all the same: it calls the hooks on what it made, looks
whether what it keeps is still there and as it was, and lets go of it. So it does behind an op of lists, which gives
gradients to some of what it was computed from, or behind a custom Function that gives None. A Function of ours that
gives None to one of another group (see Note [Cuts]) tells it that eager comes by, and from which result: without a
gradient it cannot tell that from a backward that comes by only because the group does (see Note [Shared parts]).
Behind a result that *minds* is a custom Function, which may be given zeros then, and give gradients: backwards that are
told of such a result begin there too, without a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aotcheck import _torch

_Presence = Sequence[Any]  # for each result of a Function whether a backward comes from it; None where none does


def pass_on(ctx: Any, gradients: Sequence[Any], leads: Sequence[Sequence[int]], present: _Presence) -> None:
    """Tell those Functions that a backward comes by to which it brings none of the ``gradients`` of ``ctx``.

    ``leads`` are for each result the targets, by their places among the gradients, of other groups.
    """
    if isinstance(ctx, torch.autograd.function.BackwardCFunction):
        for place in {k for j, places in enumerate(leads) if present[j] is not None for k in places}:
            if gradients[place] is None:
                _tell(*ctx.next_functions[place])


def _tell(node: Any, place: int) -> None:
    while node is not None and not hasattr(getattr(node, "_forward_cls", None), "frees"):
        behind = [x for x in node.next_functions if x[0] is not None]
        if hasattr(node, "origin"):  # what took over a history; beside that it leads to the one of before, in vain
            behind = [(node.origin, node.place)]
        if len(behind) != 1:
            return
        ((node, place),) = behind
    if node is not None:
        running = _torch.backward_number()
        before, places = getattr(node, "told", (running, ()))
        node.told = running, (*(places if before == running else ()), place)


def at_all(ctx: Any, g: _Presence) -> _Presence:
    """The gradients ``g`` of the results of ``ctx``, and True where it is told that a backward comes by without one."""
    found = told(ctx, len(g)) if hasattr(ctx, "told") else None
    return g if found is None else [t if x is None else x for x, t in zip(g, found, strict=True)]


def only_told(g: _Presence, present: _Presence, minds: Sequence[int]) -> tuple[int, ...]:
    """Those of the results which mind that a backward comes by without giving them a gradient."""
    return () if g is present else tuple([k for k in minds if g[k] is None and present[k] is not None])


def told(ctx: Any, results: int) -> _Presence | None:
    """Of which of so many results of ``ctx`` the backward that is running now brings no gradient; None if of none."""
    number, places = getattr(ctx, "told", (None, ()))
    if number is None or number != _torch.backward_number():
        return None
    return [True if k in places else None for k in range(results)]
