"""Which outputs can be backpropagated separately.

Note [Components]
Eager frees what a backward has used, node by node: two outputs can be backpropagated one after the other exactly if no
node that holds saved tensors is reached from both. One autograd Function around the whole graph would free everything
at the first backward, so the outputs are divided into components, each attached to autograd by a Function of its own,
with its own saved tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.saved import holds_saved


def nodes_behind(starts: Iterable[Any], ends: set[Any]) -> set[Any]:
    """All nodes of autograd's graph that a backward from the nodes ``starts`` comes by, up to ``ends``."""
    found: set[Any] = set()
    todo = list(starts)
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            if node not in ends:
                for n, _ in node.next_functions:
                    if n is not None and n not in found:
                        todo.append(n)
    return found


def edges_behind(starts: Iterable[Any], ends: set[Any]) -> set[tuple[Any, int]]:
    """All edges of autograd's graph by which a backward from the nodes ``starts`` goes on, but for those of ``ends``.

    What leads from a node among ``starts`` counts even if it is among ``ends``.
    """
    found: set[tuple[Any, int]] = set()
    met: set[Any] = set()
    todo = list(starts)
    while todo:
        for n, place in todo.pop().next_functions:
            if n is not None:
                found.add((n, place))
                if n not in met and n not in ends:
                    todo.append(n)
                met.add(n)
    return found


def reached_leaves(outputs: Sequence[Tensor]) -> dict[int, list[GradientEdge]]:
    """By id of the leaf, the accumulators through which gradients of ``outputs`` arrive at it.

    One leaf has several if its storage was exchanged in between.
    """
    found: dict[int, list[GradientEdge]] = {}
    seen: set[Any] = set()
    for output in outputs:
        if _torch.leafness(output) is True:
            continue
        for node in nodes_behind([_torch.grad_fn_of(output)], seen) - seen:
            seen.add(node)
            if _torch.accumulates(node):
                found.setdefault(id(_torch.variable_of(node)), []).append(GradientEdge(node, 0))
    return found


def components(outputs: Sequence[Tensor], stop: Iterable[Any]) -> list[list[int]]:
    """The indices of ``outputs`` in groups that share nodes with saved tensors; the search ends at ``stop``."""
    ends = set(stop)
    owner: dict[Any, int] = {}
    parent = list(range(len(outputs)))

    def find(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    for k, output in enumerate(outputs):
        seen: set[Any] = set()
        start = _torch.grad_fn_of(output)
        todo = [start]
        while todo:
            node = todo.pop()
            if node is None or node in seen or (node in ends and node is not start):
                continue
            seen.add(node)
            first = owner.setdefault(node, k)
            # What the backward of a custom Function gives may depend on which gradients are there together.
            custom = isinstance(node, torch.autograd.function.BackwardCFunction)
            apart = find(first) != find(k)
            # So does whether the hooks on one of several results of an op are called with None.
            at_once = node is start and node is _torch.grad_fn_of(outputs[first])
            if apart and (custom or at_once or holds_saved(node, output)):
                parent[find(k)] = find(first)
            for n, _ in node.next_functions:
                if n is not None and n not in seen:
                    todo.append(n)
    groups: dict[int, list[int]] = {}
    for k in range(len(outputs)):
        groups.setdefault(find(k), []).append(k)
    return list(groups.values())
