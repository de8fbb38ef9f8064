"""Where what several results share is to be cut off, for each of them to be backpropagated as in eager.

Note [Shared parts]
Results that share nodes which keep tensors are one group (see Note [Components]), and mostly that shows nowhere: any
backward frees what is shared, so another raises, whatever it needs besides. It shows

- where the results lead to different places: the engine comes from any result of a group by all that lies behind the
  group, with no gradient, and frees what the caller's nodes there keep, and calls hooks and custom Functions;
- where two results share nothing that keeps tensors, but each something with a third, or only a custom Function;
- where one is a result of an op with several, whose hooks are called with None in a backward by the others alone.

There each node by which several results come, and all that lies behind it if nobody else comes there, is a group of its
own, as if what it made were results too: tensors without memory stand for these (see Note [Cuts]). Such a group has one
node at its head, so groups cannot hang on each other in a circle.

A node may keep results of its own for its backward, as that of ``svd`` does. The second derivative comes by those (see
Note [Results of their own gradients]), so something stands for each of them beside the one that is wanted.

Note [Where sums are made]
Gradients that come to a node of autograd's graph by several ways are summed up before it runs. Results that are
backpropagated separately may share nodes that keep nothing: each group would go through these for itself, and what
comes of that would be summed up behind them. That is the same where a node only moves elements about, but not where it
rounds or adds, nor where it makes complex numbers of real ones: a sum of infinite complex numbers has parts that are
NaN where that of the real ones has none. So there too what several groups share is a group of its own.

A second derivative comes to the graph of the first wherever a node keeps what it was given. If the gradient of a
complex target comes of a real one on the way, then that which comes by the result itself meets the other before it is
made complex. So what makes it complex is a group of its own, of whatever the results are.

And a group that hangs on another may lead to where that leads by nodes of its own too. In eager they run when it is
their turn, which is after the other group if they were made before it. Of two complex summands the second decides which
parts of an infinity become NaN, so such nodes are a group of their own there.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import components, nodes_behind
from aotcheck.autograd.eager_graph.saved import holds_saved, kept_results


def shared_heads(attached: Sequence[Tensor], stop: set[Any]) -> list[GradientEdge]:
    """Where gradients arrive at what is to be cut off ``attached``; the search ends at ``stop``."""
    found: dict[Any, set[int]] = {}
    starts = {_torch.grad_fn_of(t) for t in attached}
    if len(starts) == 1 and all(node is None or _torch.outputs_of(node) == 1 for node in starts):
        return []
    whole = _Part(attached, stop)
    for members in components(attached, stop):
        part = whole if len(members) == len(attached) else _Part([attached[k] for k in members], stop)
        if len(part.starts) > 1 and part.shows():
            for node, places in part.heads().items():
                found.setdefault(node, set()).update(places)
    for node in whole.starts.keys() & whole.met.keys() - stop:
        if _torch.outputs_of(node) > 1:
            found.setdefault(node, set()).update(whole.met[node])
    for node in {*whole.starts, *found}:
        if _torch.outputs_of(node) > 1 and (kept := kept_results(node, attached[0])):
            found.setdefault(node, set()).update(kept)
    return [GradientEdge(node, place) for node, places in found.items() for place in sorted(places)]


def sum_heads(attached: Sequence[Tensor], stop: set[Any]) -> list[GradientEdge]:
    """Where gradients are summed up that come from several groups of ``attached``, cut off at the nodes ``stop``.

    See Note [Where sums are made].
    """
    if len(attached) < 2:
        return []
    groups = components(attached, stop)
    if len(groups) < 2:
        return []
    found = _Part(attached, stop).meetings({attached[k]: n for n, group in enumerate(groups) for k in group})
    return [GradientEdge(node, place) for node, places in found.items() for place in sorted(places)]


def complex_heads(attached: Sequence[Tensor], stop: set[Any]) -> list[GradientEdge]:
    """Where real gradients arrive at what makes them complex; the search ends at the nodes ``stop``.

    See Note [Where sums are made].
    """
    found = _Part(attached, stop).made_complex()
    return [GradientEdge(node, place) for node, places in found.items() for place in sorted(places)]


def overtaken_heads(attached: Sequence[Tensor], stop: set[Any], ends: set[Any]) -> list[GradientEdge]:
    """Where gradients arrive at what hands complex ones on later than what lies behind a cut does.

    Of the nodes ``stop`` those are cuts that are none of the ``ends`` of the graph. See Note [Where sums are made].
    """
    found: dict[Any, set[int]] = {}
    for members in components(attached, stop) if stop - ends else ():
        part = _Part([attached[k] for k in members], stop)
        cuts = part.met.keys() & stop - ends
        for node in part.overtaken(_last_leading(cuts, ends)) if cuts else ():
            found.setdefault(node, set()).update(part.met[node])
    return [GradientEdge(node, place) for node, places in found.items() for place in sorted(places)]


def _last_leading(starts: set[Any], ends: set[Any]) -> dict[Any, int]:
    """For each node behind ``starts``: when autograd made the last of those by which a backward from there comes."""
    last: dict[Any, int] = {}
    for node in nodes_behind(starts, ends) - ends:
        for n, _ in node.next_functions:
            if n is not None:
                last[n] = max(last.get(n, 0), _torch.sequence_number(node))
    return last


class _Part:
    """A part of autograd's graph: what lies behind ``attached``, up to ``stop``.

    ``order`` has each node before those that it leads to; ``met`` says by which of its results others lead to it.
    """

    def __init__(self, attached: Sequence[Tensor], stop: set[Any]) -> None:
        nodes = [(_torch.grad_fn_of(t), t) for t in attached]
        self.starts = {node: t for node, t in nodes if node is not None}
        self.stop = stop
        self.order = self._ordered()
        self.met: dict[Any, set[int]] = {}
        for node in self.order:
            for n, place in self._next(node):
                self.met.setdefault(n, set()).add(place)

    def _next(self, node: Any) -> list[tuple[Any, int]]:
        if node in self.stop and node not in self.starts:
            return []
        return [(n, place) for n, place in node.next_functions if n is not None]

    def _ordered(self) -> list[Any]:
        done: dict[Any, None] = {}
        met: set[Any] = set()
        todo = [(node, False) for node in self.starts]
        while todo:
            node, over = todo.pop()
            if over:
                done[node] = None
            elif node not in met:
                met.add(node)
                todo.append((node, True))
                todo += [(n, False) for n, _ in self._next(node)]
        return list(reversed(done))

    @functools.cached_property
    def _keeping(self) -> set[Any]:
        """The nodes that keep what their first backward frees."""
        near = next(iter(self.starts.values()))
        inside = [n for n in self.order if n not in self.stop or n in self.starts]
        return {n for n in inside if holds_saved(n, near)}

    def shows(self) -> bool:
        """Whether it shows that its results are one group: see Note [Shared parts]."""
        behind = [nodes_behind([n for n, _ in start.next_functions], self.stop) for start in self.starts]
        ends = [{n for n in nodes if n in self.stop or not n.next_functions} for nodes in behind]
        if any(e != ends[0] for e in ends):
            return True
        kept = [((nodes - self.stop) | {start}) & self._keeping
                for start, nodes in zip(self.starts, behind, strict=True)]  # fmt: skip
        return any(not (a & b) for a, b in combinations(kept, 2))

    def heads(self) -> dict[Any, set[int]]:
        """The nodes to which several results lead, and by which of what they made."""
        matter = self._mattering()
        owners: dict[Any, set[Any]] = {node: set() for node in self.order}
        found: dict[Any, set[int]] = {}
        for node in self.order:
            leading = owners[node]
            head = node in self.starts or (len(leading) > 1 and node in matter)
            if head and leading and node not in self.stop:
                found[node] = self.met[node]
            for n, _ in self._next(node):
                owners[n] |= {node} if head else leading
        return found

    def _mattering(self) -> set[Any]:
        """The nodes such that how often a backward comes there, and with what, makes a difference there or behind."""
        found: set[Any] = set()
        for node in reversed(self.order):
            if node in self.stop and node not in self.starts:
                continue
            custom = isinstance(node, torch.autograd.function.BackwardCFunction)
            if custom or node in self._keeping or any(n in found for n, _ in self._next(node)):
                found.add(node)
        return found

    def meetings(self, groups: Mapping[Tensor, int]) -> dict[Any, set[int]]:
        """The nodes to which results of several ``groups`` lead, and by which of what they made, where it shows.

        See Note [Where sums are made].
        """
        arriving = Counter([e for node in self.order for e in self._next(node)])
        shows: set[Any] = set()
        for node in reversed(self.order):
            behind = self._next(node)
            if behind and (type(node).__name__ not in _MOVING or any(arriving[e] > 1 or e[0] in shows for e in behind)):
                shows.add(node)
        owners: dict[Any, set[Any]] = {node: set() for node in self.order}
        for node, t in self.starts.items():
            owners[node].add(groups[t])
        found: dict[Any, set[int]] = {}
        for node in self.order:
            leading = owners[node]
            if len(leading) > 1 and node in shows and node not in self.starts:
                found[node] = self.met[node]
                leading = {node}
            for n, _ in self._next(node):
                if n not in self.stop:
                    owners[n] |= leading
        return found

    def overtaken(self, last: Mapping[Any, int]) -> list[Any]:
        """The nodes that hand complex gradients to where others do later by other ways, as ``last`` says."""
        found = []
        for node in self.order:
            if node in self.starts or node in self.stop or node in last:
                continue
            later = [e for e in self._next(node) if last.get(e[0], 0) > _torch.sequence_number(node)]
            if any(_torch.gradient_dtype(*e).is_complex for e in later):
                found.append(node)
        return found

    def made_complex(self) -> dict[Any, set[int]]:
        """The nodes that make complex gradients of real ones, where derivatives of these come from elsewhere too."""
        found: dict[Any, set[int]] = {}
        derived: set[Any] = set()  # by way of what is kept
        for node in self.order:
            behind = self._next(node)
            if not behind:
                continue
            real = not _torch.gradient_dtype(node, 0).is_complex
            if real and node in derived and any(_torch.gradient_dtype(*e).is_complex for e in behind):
                found[node] = self.met[node]
            if node in derived or node in self._keeping:
                derived.update(n for n, _ in behind)
        return {node: places for node, places in found.items() if node not in self.starts}


# What only moves elements about: of sums of gradients they give the same as of each.
_MOVING = {f"{op}Backward{n}" for op in (
    "Alias", "Clone", "Conj", "Detach", "Diagonal", "Narrow", "Neg", "Permute", "Reshape", "ReshapeAlias",
    "Select", "Slice", "Split", "SplitWithSizes", "Squeeze", "T", "Transpose", "Unbind", "Unsqueeze", "UnsafeView",
    "View",
) for n in range(6)}  # fmt: skip
