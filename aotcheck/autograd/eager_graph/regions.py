"""Which results are attached to autograd together, and where one group of them hangs on another.

Note [Cuts]
A result may be computed from another tensor that survives the call: a loss from the logits that are returned beside it,
say, or from an argument that was written. In eager's graph the gradient of the one comes by the other: hooks see it,
``retain_grad`` keeps it, and it can be asked for. So such a tensor is a *cut*: what is computed from it is attached to
it, not to what lies behind it. A cut that would make groups hang on each other in a circle is given up.

Note [Joined groups]
What only stands for a shared part (see Note [Shared parts]) is a group of its own where a backward may come there
without coming by this or that result. Often none can: what the cells of an LSTM's ``h`` and ``c`` share is reached from
``h`` and from ``c``, and ``h`` leads to ``c``. Then the shared part joins the group of ``c``: in eager too both run
whenever one does, and one Function costs less than two. For ``c`` what is shared lies inside its group, no cut; for
``h`` it is one. A custom Function stays apart: a backward of gradients comes there by ``h`` and from within the group
of ``c``, and what it gives may depend on which gradients are there together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import components, edges_behind, nodes_behind


@dataclasses.dataclass(frozen=True)
class Cut:
    """A tensor that survives the call, and where gradients arrive at it."""

    tensor: Tensor
    edge: GradientEdge


@dataclasses.dataclass(frozen=True)
class Group:
    """Places among the attached tensors, and among the cuts that they hang on.

    ``inside``: the cuts at which others hang on the group, but which are none for the group itself.
    ``turn``: when autograd made the last node that hands gradients to what lies behind the group, as it counts nodes,
    and then the last of those that hand gradients to this, and so on.
    """

    attached: tuple[int, ...]
    cuts: tuple[int, ...] = ()
    turn: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()


def find_cuts(attached: Sequence[Tensor], survivors: Sequence[Tensor], ends: set[Any]) -> list[Cut]:
    """Those of ``survivors`` that some of ``attached`` are computed from; the search ends at the nodes ``ends``.

    A node with several results is cut if all of them survive that something is computed from.
    """
    met = places_met(attached, ends)
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


def places_met(attached: Sequence[Tensor], ends: set[Any]) -> dict[Any, set[int]]:
    """The nodes that ``attached`` are computed by way of, up to the nodes ``ends``, and by which of their results."""
    met: dict[Any, set[int]] = {}
    todo = [e for t in attached if (start := _torch.grad_fn_of(t)) is not None for e in start.next_functions]
    while todo:
        node, place = todo.pop()
        if node is None:
            continue
        if node not in met and node not in ends:
            todo.extend(node.next_functions)
        met.setdefault(node, set()).add(place)
    return met


def divide(
    attached: Sequence[Tensor], cuts: Sequence[Cut], ends: set[Any], standing: Collection[int]
) -> tuple[list[Group], list[Cut]]:
    """The groups in the order in which they are to be attached, and the cuts that were kept.

    ``standing``: the places of tensors that only stand for a shared part. Such a one may be in no group.

    A backward comes by what was attached last first, and where several gradients are summed up it shows which did.
    """
    kept = list(cuts)
    while True:
        stop = ends | {c.edge.node for c in kept}
        members = components(attached, stop)
        groups = [_group(attached, places, kept, stop) for places in members]
        circular = _circular(attached, groups, kept)
        if circular is None:
            break
        kept = [c for c in kept if c.edge.node is not kept[circular].edge.node]
    while (pair := _joinable(attached, groups, kept, standing, stop)) is not None:
        groups = _joined(attached, groups, *pair, kept, stop)
    return sorted(groups, key=lambda g: g.turn), kept


def _group(
    attached: Sequence[Tensor], places: Sequence[int], cuts: Sequence[Cut], stop: set[Any], inside: tuple[int, ...] = ()
) -> Group:
    stop = stop - {cuts[k].edge.node for k in inside}
    starts = [node for k in places if (node := _torch.grad_fn_of(attached[k])) is not None]
    met = edges_behind(starts, stop)
    cut = tuple(k for k, c in enumerate(cuts) if k not in inside and (c.edge.node, c.edge.output_nr) in met)
    return Group(tuple(places), cut, _turn(attached, places, stop), inside)


def _joinable(
    attached: Sequence[Tensor], groups: Sequence[Group], cuts: Sequence[Cut], standing: Collection[int], stop: set[Any]
) -> tuple[int, int] | None:
    """A group and one that stands for what only backwards by the former come to; see Note [Joined groups]."""
    hanging = _hanging(attached, groups, cuts)

    def comes_by(g: int, other: int) -> bool:
        return g == other or any(comes_by(n, other) for n in hanging[g])

    for k, group in enumerate(groups):
        if standing and all(place in standing for place in group.attached) and not _custom(attached, group, stop):
            users = [g for g in range(len(groups)) if k in hanging[g]]
            for user in users:
                if all(comes_by(g, user) for g in users):
                    return user, k
    return None


def _custom(attached: Sequence[Tensor], group: Group, stop: set[Any]) -> bool:
    """Whether there are custom Functions between a group and what it hangs on."""
    starts = {_torch.grad_fn_of(attached[k]) for k in group.attached}
    inside = (nodes_behind(starts, stop) - stop) | starts
    return any(isinstance(n, torch.autograd.function.BackwardCFunction) for n in inside)


def _hanging(attached: Sequence[Tensor], groups: Sequence[Group], cuts: Sequence[Cut]) -> list[set[int]]:
    """Of each group: those that it hangs on by a cut of its own."""
    owner = {_torch.grad_fn_of(attached[k]): g for g, group in enumerate(groups) for k in group.attached}
    return [{owner[n] for k in group.cuts if (n := cuts[k].edge.node) in owner} for group in groups]


def _joined(
    attached: Sequence[Tensor], groups: Sequence[Group], user: int, shared: int, cuts: Sequence[Cut], stop: set[Any]
) -> list[Group]:
    """The groups when that of a ``shared`` part has joined one that hangs on it."""
    heads = {_torch.grad_fn_of(attached[k]) for k in groups[shared].attached}
    inside = (*groups[user].inside, *groups[shared].inside)
    inside += tuple(k for k, c in enumerate(cuts) if c.edge.node in heads)
    others = [g for k, g in enumerate(groups) if k not in (user, shared)]
    needed = {(cuts[k].edge.node, cuts[k].edge.output_nr) for g in others for k in g.cuts}
    places = [k for k in groups[shared].attached if (_torch.grad_fn_of(t := attached[k]), t.output_nr) in needed]
    places = sorted([*groups[user].attached, *places])
    return [*others, _group(attached, places, cuts, stop, inside)]


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
