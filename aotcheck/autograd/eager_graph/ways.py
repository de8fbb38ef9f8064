"""Which nodes of autograd's graph lead to which of the places where gradients arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch.autograd.graph import GradientEdge


def arrivals(starts: Iterable[Any], targets: Sequence[Sequence[GradientEdge]]) -> Mapping[Any, int]:
    """For each node behind ``starts``, up to where gradients arrive, at which of ``targets`` they do: a set, by bits.

    A node at which gradients arrive is there only if it is among ``starts`` itself.
    """
    at: dict[tuple[Any, int], int] = {}
    for k, edges in enumerate(targets):
        for e in edges:
            at[e.node, e.output_nr] = at.get((e.node, e.output_nr), 0) | 1 << k
    ends = {node for node, _ in at}
    found: dict[Any, int] = {}
    todo = [(s, False) for s in starts if s is not None]
    begun: set[Any] = set()
    while todo:
        node, is_done = todo.pop()
        if is_done:
            there = 0
            for edge in node.next_functions:
                there |= at.get(edge, 0) | (found.get(edge[0], 0) if edge[0] not in ends else 0)
            found[node] = there
        elif node not in begun:
            begun.add(node)
            todo.append((node, True))
            todo += [(n, False) for n, _ in node.next_functions if n is not None and n not in begun and n not in ends]
    return found


def covering(masks: Iterable[int], count: int) -> tuple[int, ...]:
    """Few of ``count`` targets such that whatever leads to any, as ``masks`` tell, leads to one of these.

    () if all of it leads to all of them.
    """
    everything = (1 << count) - 1
    left = {mask for mask in masks if mask}
    if left <= {everything}:
        return ()
    chosen: list[int] = []
    while left:
        k = max(range(count), key=lambda k: sum(mask >> k & 1 for mask in left))
        chosen.append(k)
        left = {mask for mask in left if not mask >> k & 1}
    return tuple(chosen)
