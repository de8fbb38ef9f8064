"""Leaves made inside that nobody has, and whose gradients results show.

Note [Hidden leaves]
A function may give a leaf of its own a gradient and return that: ``w = x.detach().requires_grad_()``, a backward with
``create_graph=True``, ``w.grad``. Autograd's graph behind the result has the leaf, and a later backward that comes
there accumulates into what the result lies in. So such a leaf is made by the call too, and given that gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import reached_leaves
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.state.gradients import own_gradient
from aotcheck.autograd.tensors.subclasses import leaves_of


def hidden_leaves(asked: Iterable[Tensor], visible: Sequence[Any]) -> list[tuple[Tensor, Tensor]]:
    """Those of the tensors that were ``asked`` for their gradients, with these; ``visible`` is what survives the call.

    See Note [Hidden leaves].
    """
    found: list[tuple[Tensor, Tensor]] = []
    for t in asked:
        if _torch.leafness(t) and t.requires_grad and not any(t is o for o in visible):
            g = own_gradient(t)
            if g is not None and not is_sparse(g):
                found.append((t, g))
    if not found:
        return []
    results = [o for o in visible if isinstance(o, Tensor)]
    shown = {place for o in results if not is_sparse(o) for place in _places(o)}
    reached = reached_leaves([o for o in results if o.requires_grad])
    # One with a history may be saved for the backward of a result, which then says that it was written.
    shows = [g.requires_grad or not shown.isdisjoint(_places(g)) for _, g in found]
    return [(t, g) for (t, g), seen in zip(found, shows, strict=True) if seen and id(t) in reached]


def _places(t: Tensor) -> list[int]:
    return [_torch.storage_address(_torch.storage_of(x)) for x in leaves_of(t)]
