"""Modules that have hooks for their backwards, and whether one backward of ours runs all of such a hook.

Note [Hooks of modules]
A module with hooks for its backward (``register_full_backward_hook``) has two nodes of autograd's graph, one that its
arguments went through and one that its results did. The hooks run where gradients come to the latter and, with those
that came there, where they come to the former; what lies at hand between is Python's. So one backward of ours is to
run both. Where a tensor in between survives the call, or something stands for a shared part, there is a cut (see Note
[Cuts]), and either node would be run by a Function of its own, the first knowing nothing of what came to the second:
the hook would not be called. Without the cut nobody could ask for the gradient of what survives, nor would its hooks be
called. There the function runs as it is.

Where the trace of a backward comes to such nodes beyond the ends of its stage, without gradients, the hooks are not
called: they belong to the backward of another stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import nodes_behind
from aotcheck.autograd.eager_graph.regions import Cut, Group


def divided_module(
    hooks: Mapping[Any, Any], attached: Sequence[Tensor], groups: Sequence[Group], cuts: Sequence[Cut], ends: set[Any]
) -> str | None:
    """The name of the class of a module whose nodes are not all run by the same of the ``groups``; None if none is.

    ``hooks`` has what is common to the nodes of a module, for each. The groups are of the tensors ``attached``, and end
    at their ``cuts`` and at the nodes ``ends``.
    """
    if len(hooks) < 2 or len(groups) < 2:
        return None
    run = [_run_by([attached[k] for k in g.attached], _stop(g, cuts, ends)) for g in groups]
    for hook in {id(hook): hook for hook in hooks.values()}.values():
        nodes = {n for n, its in hooks.items() if its is hook}
        met = [found for of_group in run if (found := of_group & nodes)]
        if any(found != met[0] for found in met):
            return type(hook.module).__name__
    return None


def _stop(group: Group, cuts: Sequence[Cut], ends: set[Any]) -> set[Any]:
    inside = {cuts[k].edge.node for k in group.inside}
    return ends | {c.edge.node for c in cuts if c.edge.node not in inside}


def _run_by(attached: Iterable[Tensor], stop: set[Any]) -> set[Any]:
    """The nodes of autograd's graph that a backward from ``attached`` runs, which ends at ``stop``."""
    starts = {node for t in attached if (node := _torch.grad_fn_of(t)) is not None}
    return (nodes_behind([n for start in starts for n, _ in start.next_functions], stop) - stop) | starts
