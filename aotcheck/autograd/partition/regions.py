"""Which results are attached to autograd together, and where one group of them hangs on another.

Note [Cuts]
A result may be computed from another tensor that survives the call: a loss from the logits that are returned beside it,
say, or from an argument that was written. In eager's graph the gradient of the one comes by the other: hooks see it,
``retain_grad`` keeps it, and it can be asked for. So such a tensor is a *cut*: what is computed from it is attached to
it, not to what lies behind it. A cut that would make groups hang on each other in a circle is given up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.partition.components import components, nodes_behind


@dataclasses.dataclass(frozen=True)
class Cut:
    """A tensor that survives the call, and where gradients arrive at it."""

    tensor: Tensor
    edge: GradientEdge


@dataclasses.dataclass(frozen=True)
class Group:
    """Places among the attached tensors, and among the cuts that they hang on.

    ``turn``: when autograd made the last node that hands gradients to what lies behind the group, as it counts nodes,
    and then the last of those that hand gradients to this, and so on.
    """

    attached: tuple[int, ...]
    cuts: tuple[int, ...] = ()
    turn: tuple[int, ...] = ()


def find_cuts(attached: Sequence[Tensor], survivors: Sequence[Tensor], ends: set[Any]) -> list[Cut]:
    """Those of ``survivors`` that some of ``attached`` are computed from; the search ends at the nodes ``ends``.

    A node with several results is cut if all of them survive that something is computed from.
    """
    met: dict[Any, set[int]] = {}
    todo = [e for t in attached if (start := _torch.grad_fn_of(t)) is not None for e in start.next_functions]
    while todo:
        node, place = todo.pop()
        if node is None:
            continue
        if node not in met and node not in ends:
            todo.extend(node.next_functions)
        met.setdefault(node, set()).add(place)
    alive: dict[Any, dict[int, Tensor]] = {}
    for t in survivors:
        node = _torch.grad_fn_of(t)
        if node is not None and node in met and node not in ends:
            alive.setdefault(node, {}).setdefault(t.output_nr, t)
    return [
        Cut(tensors[place], GradientEdge(node, place))
        for node, tensors in alive.items()
        if met[node] <= tensors.keys()
        for place in sorted(met[node])
    ]


def divide(attached: Sequence[Tensor], cuts: Sequence[Cut], ends: set[Any]) -> tuple[list[Group], list[Cut]]:
    """The groups in the order in which they are to be attached, and the cuts that were kept.

    A backward comes by what was attached last first, and where several gradients are summed up it shows which did.
    """
    kept = list(cuts)
    while True:
        stop = ends | {c.edge.node for c in kept}
        members = components(attached, stop)
        groups = [_group(attached, places, kept, stop) for places in members]
        circular = _circular(attached, groups, kept)
        if circular is None:
            return sorted(groups, key=lambda g: g.turn), kept
        kept = [c for c in kept if c.edge.node is not kept[circular].edge.node]


def _group(attached: Sequence[Tensor], places: Sequence[int], cuts: Sequence[Cut], stop: set[Any]) -> Group:
    met: set[Any] = set()
    for place in places:
        start = _torch.grad_fn_of(attached[place])
        seen: set[Any] = set()
        todo = [n for n, _ in start.next_functions] if start is not None else []
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node not in stop:
                todo.extend(n for n, _ in node.next_functions)
        met |= seen
    cut = tuple(k for k, c in enumerate(cuts) if c.edge.node in met)
    return Group(tuple(places), cut, _turn(attached, places, stop))


def _turn(attached: Sequence[Tensor], places: Sequence[int], stop: set[Any]) -> tuple[int, ...]:
    starts = {node for k in places if (node := _torch.grad_fn_of(attached[k])) is not None}
    # What others are cut at hands on gradients too.
    inside = (nodes_behind([n for start in starts for n, _ in start.next_functions], stop) - stop) | starts
    leading: dict[Any, list[Any]] = {}
    for node in inside:
        for n, _ in node.next_functions:
            if n in inside:
                leading.setdefault(n, []).append(node)
    turn = []
    last = [n for n in inside if any(m in stop or hasattr(m, "variable") for m, _ in n.next_functions)]
    while last:
        node = max(last, key=_torch.sequence_number)
        turn.append(_torch.sequence_number(node))
        last = [] if node in starts else leading[node]
    return tuple(turn)


def _circular(attached: Sequence[Tensor], groups: Sequence[Group], cuts: Sequence[Cut]) -> int | None:
    """A cut that makes groups hang on each other in a circle; None if none does."""
    owner = {_torch.grad_fn_of(attached[k]): g for g, group in enumerate(groups) for k in group.attached}
    needs: list[dict[int, int]] = []  # of each group: the groups it hangs on, and by which cut
    for group in groups:
        found: dict[int, int] = {}
        for k in group.cuts:
            for node in nodes_behind([cuts[k].edge.node], set()):
                if node in owner:
                    found.setdefault(owner[node], k)
        needs.append(found)
    done: set[int] = set()

    def visit(g: int, path: tuple[int, ...]) -> int | None:
        for other, cut in needs[g].items():
            if other in path:
                return cut
            if other not in done:
                found = visit(other, (*path, other))
                if found is not None:
                    return found
        done.add(g)
        return None

    for g in range(len(groups)):
        closing = visit(g, (g,)) if g not in done else None
        if closing is not None:
            return closing
    return None
