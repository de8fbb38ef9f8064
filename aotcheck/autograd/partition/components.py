"""Which outputs can be backpropagated separately.

Note [Components]
Eager frees what a backward has used, node by node: two outputs can be backpropagated one after the other exactly if no node that holds saved
tensors is reached from both. One autograd Function around the whole graph would free everything at the first backward, so the outputs are
divided into components, each attached to autograd by a Function of its own, with its own saved tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

_fields: dict[type, tuple[str, ...]] = {}


def _holds_saved(node: Any) -> bool:
    """Whether an autograd node keeps tensors for its backward."""
    kind = type(node)
    names = _fields.get(kind)
    if names is None:
        names = _fields[kind] = tuple(
            n.replace("_raw_saved_", "_saved_") for n in dir(kind) if n.startswith("_raw_saved_")
        )
    for name in names:
        try:
            saved = node.saved_tensors if name == "_saved_tensors" else getattr(node, name)
        except RuntimeError:  # written since: eager will say so in the backward
            return True
        if isinstance(saved, Tensor) or (
            isinstance(saved, (tuple, list)) and any(isinstance(s, Tensor) for s in saved)
        ):
            return True
    return False


def components(outputs: Sequence[Tensor], stop: Iterable[Any]) -> list[list[int]]:
    """The indices of ``outputs`` in groups that share nodes with saved tensors; the search ends at the nodes ``stop``."""
    ends = set(stop)
    owner: dict[Any, int] = {}
    parent = list(range(len(outputs)))

    def find(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    for k, output in enumerate(outputs):
        seen: set[Any] = set()
        todo = [output.grad_fn]
        while todo:
            node = todo.pop()
            if node is None or node in seen or node in ends:
                continue
            seen.add(node)
            first = owner.setdefault(node, k)
            if find(first) != find(k) and _holds_saved(node):
                parent[find(k)] = find(first)
            todo.extend(n for n, _ in node.next_functions)
    groups: dict[int, list[int]] = {}
    for k in range(len(outputs)):
        groups.setdefault(find(k), []).append(k)
    return list(groups.values())
