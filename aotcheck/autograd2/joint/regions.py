"""Which results are attached to autograd together, and at which edges of eager's graph gradients leave each group.

Note [Cuts]
A result may be computed from another tensor that the caller has afterwards: a loss from logits that are returned beside
it, or from an argument that was written. In eager the gradient of the one comes by the other: hooks see it, and it can
be asked for. So the graph is *cut* where such a tensor is met: what is computed from it is attached to it.

Each node has as its label the cuts from which a backward comes by it. An edge never leads to a smaller label, so groups
of one label do not hang on each other in a circle. Results whose graphs share a node of one label are one component.
Results that lead to different graphs of the caller's are in different components.
Where an edge leads from one component into another past all cuts, a tensor without memory stands for what lies between:
the cells of an LSTM's ``h`` and ``c`` share a node, and ``h`` leads to ``c``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.analyze.analysis import Analysis, has_new_history
from aotcheck.autograd2.analyze.results import is_lost, requires_grad
from aotcheck.autograd2.ir.graph import ancestors
from aotcheck.autograd2.ir.meta import Geometry, is_leaf, row_major
from aotcheck.autograd2.ir.signature import Alias, End, Fresh, Given, Inner, Made, MadeLeaf, Mutated, Mutation, Written
from aotcheck.autograd2.ir.size import term
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Replica, state_of
from aotcheck.autograd2.trace.run import Traced

Edge = tuple[Any, int]
"""A node of autograd, and which of its results a gradient is of."""

Order = tuple[int | End | Written, ...]
"""What comes in eager's order: regions, by position; views that get their history again; writes."""


@dataclass(frozen=True, eq=False)
class Component:
    """Results whose backwards belong together.

    Args:
        results: positions among the graph's results.
        inputs: where gradients may flow.
        tangents: where those of the results lie, and then those of tensors that stand for what others take from it.
    """

    results: tuple[int, ...]
    inputs: tuple[End, ...]
    tangents: tuple[tuple[Geometry, torch.device], ...]


@dataclass(frozen=True, eq=False)
class Held:
    """A node that a backward frees.

    Args:
        begins: from which starts of its region one comes by it, as bits.
        leads: to which ends.
        saved: what it saved.
        sequence: its number among all nodes of autograd.
    """

    begins: int
    leads: int
    saved: tuple[Tensor, ...]
    sequence: int


@dataclass(frozen=True, eq=False)
class Region:
    """A component in the replicas' graph.

    Args:
        starts: the edges at which its tangents arrive.
        ends: where the gradient of each of its inputs leaves: an edge, or a leaf.
        nodes: what lies between.
        dropped: leaves that the function made and dropped, for which gradients are computed and given to nobody.
        beyond: what lies between its ends, and is run when gradients are asked for at all of them.
    """

    component: Component
    starts: tuple[Edge, ...]
    ends: tuple[Edge | Tensor, ...]
    nodes: frozenset[Any]
    dropped: tuple[Tensor, ...]
    beyond: tuple[Any, ...]

    def held(self) -> list[Held]:
        """The nodes that a backward frees."""
        place = {end: 1 << k for k, end in enumerate(self.ends)}
        order = _sorted(self.starts, lambda e: e[0] in self.nodes)
        leads, begins = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        for k, (n, _) in enumerate(self.starts):
            begins[n] |= 1 << k
        for n in order:
            for e in _edges(n):
                if e not in place and e[0] in begins:
                    begins[e[0]] |= begins[n]
        for n in reversed(order):
            for e in _edges(n):
                found = place.get(e[0].variable if _torch.accumulates(e[0]) else e)
                leads[n] |= leads.get(e[0], 0) if found is None else found
        kept = ((n, _torch.kept_by(n)) for n in order)
        return [Held(begins[n], leads[n], tuple(ts), _torch.sequence_of(n)) for n, ts in kept if ts is not None]


@dataclass(eq=False)
class _Graph:
    """Eager's graph of a trace, from all results on."""

    traced: Traced
    analysis: Analysis
    entries: dict[Edge, Given] = field(default_factory=dict, init=False)
    leaves: dict[Tensor, End] = field(default_factory=dict, init=False)
    visible: dict[Edge, End] = field(default_factory=dict, init=False)
    roots: dict[Edge, int] = field(init=False)

    def __post_init__(self) -> None:
        results, made = self.analysis.results, self.analysis.signature.made
        for k, i in enumerate(self.traced.inputs):
            if i.grad_fn is not None:
                self.entries[i.grad_fn, i.output_nr] = Given(k)
            self.leaves[i.replica] = Given(k)
            if has_new_history(i):
                self.visible[i.replica.grad_fn, i.replica.output_nr] = Mutated(k)
        self.roots = {(r.tensor.grad_fn, r.tensor.output_nr): k for k, r in enumerate(results) if r.tensor is not None}
        for k, (how, t) in enumerate(zip(made, self.analysis.tensors, strict=True)):
            if isinstance(how, MadeLeaf):
                self.leaves[t] = Made(k)
            elif isinstance(how, Fresh) and results[how.index].tensor is not None:
                self.visible.setdefault((t.grad_fn, t.output_nr), how)
            elif isinstance(how, Alias) and how.steps and not is_lost(t) and requires_grad(t) and t.grad_fn is not None:
                self.visible.setdefault((t.grad_fn, t.output_nr), Made(k))
        self.order = _sorted(self.roots, lambda e: e not in self.entries and not _torch.accumulates(e[0]))
        self._cut()
        self._label()

    def _cut(self) -> None:
        found = [e for e in {e for n in self.order for e in _edges(n)} if e in self.visible]
        for e in found:  # of views that autograd makes again, the base is cut too
            if e not in self.roots:
                todo = [e[0]]
                while todo:
                    for m in _edges(todo.pop()):
                        if m in self.roots or m in self.visible:
                            found += [m] if m not in found else []
                        elif m not in self.entries:
                            todo.append(m[0])
        self.cuts = {e: 1 << k for k, e in enumerate(found)}

    def _label(self) -> None:
        self.labels = dict.fromkeys(self.order, 0)
        for e, bit in self.cuts.items():
            self.labels[e[0]] = self.labels.get(e[0], 0) | bit
        for k, nodes in enumerate(self._by_callers_graph()):
            for n in nodes:
                self.labels[n] |= 1 << (len(self.cuts) + k)
        for n in self.order:
            for m, _ in _edges(n):
                if m in self.labels:
                    self.labels[m] |= self.labels[n]

    def _by_callers_graph(self) -> list[list[Any]]:
        """The results' nodes by the caller's graphs to which they lead; empty if these are the same.

        The engine goes on into the caller's graph from a component as a whole.
        """
        bits = {e: 1 << k for k, e in enumerate(self.entries)}
        leads = dict.fromkeys(self.order, 0)
        for n in reversed(self.order):
            for e in _edges(n):
                leads[n] |= bits.get(e, 0) or leads.get(e[0], 0)
        found: dict[int, list[Any]] = {}
        for n, _ in self.roots:
            found.setdefault(leads[n], []).append(n)
        return list(found.values()) if len(found) > 1 else []

    def end(self, e: Edge) -> tuple[End | None, Edge | Tensor | None]:
        """The end of gradients at an edge, and what to ask for; None if they go on. Nobody sees dropped leaves."""
        if e in self.entries:
            return self.entries[e], e
        if e in self.cuts:
            return self.visible.get(e) or Fresh(self.roots[e]), e
        if _torch.accumulates(e[0]):
            leaf, end = e[0].variable, self.leaves.get(e[0].variable)
            told = not (isinstance(end, Given) and self.traced.inputs[end.input].input.meta.requires_grad)
            if (told and state_of(leaf).set is False) or (leaf.requires_grad and not is_leaf(leaf)):
                refuse(Event.LEAF, "a result needs a leaf made inside that stops to require grad, or gets a history")
            moved = state_of(leaf).is_reset or state_of(leaf).data_assigned
            if moved and _torch.accumulator_of(leaf) is not e[0]:
                refuse(Event.HISTORY, "a leaf is used, and moved by set_ then, or given data of another dtype")
            return (end if leaf.requires_grad else None), leaf
        return None, None


def regions(traced: Traced, analysis: Analysis) -> tuple[tuple[Region, ...], Order]:
    """The results with a history, in components; and what comes in eager's order."""
    graph = _Graph(traced, analysis)
    owner: dict[Any, Any] = {n: n for n, _ in graph.roots}

    def find(n: Any) -> Any:
        while owner[n] is not n:
            owner[n] = n = owner[owner[n]]
        return n

    inner: dict[Edge, None] = {}
    todo = list(owner)
    while todo:
        n = todo.pop()
        for e in _edges(n):
            if graph.end(e)[1] is not None:
                continue
            if (m := e[0]) not in owner:
                owner[m] = m
                todo.append(m)
            if graph.labels[m] != graph.labels[n]:
                inner[e] = None
            elif (a := find(n)) is not (b := find(m)):
                owner[a] = b
    groups: dict[Any, list[Any]] = {}
    for n in graph.order:
        if n in owner:
            groups.setdefault(find(n), []).append(n)
    ordered = list(_joined(graph, groups.values()))
    place = {n: k for k, nodes in enumerate(ordered) for n in nodes}
    starts: list[list[Edge]] = [[] for _ in ordered]
    for e in sorted(graph.roots, key=graph.roots.__getitem__):
        starts[place[e[0]]].append(e)
    stands: dict[Edge, Inner] = {}
    for e in inner:
        if e not in graph.roots:
            stands[e] = Inner(place[e[0]], len(starts[place[e[0]]]))
            starts[place[e[0]]].append(e)
    found = tuple(_region(graph, starts[k], nodes, stands) for k, nodes in enumerate(ordered))
    seen = graph.visible.items()
    order: dict[int | End, int] = {e: _torch.sequence_of(n) for (n, _), e in seen if not isinstance(e, Fresh)}
    for k, nodes in enumerate(ordered):  # eager's backward leaves a group by the last of the nodes that lead out of it
        leaving = [n for n in nodes if any(graph.end(e)[1] is not None for e in _edges(n))]
        order[k] = max(map(_torch.sequence_of, leaving or nodes))
    memory = {_torch.address_of(i.replica) for i in traced.inputs}
    plain = [w for w in analysis.signature.effects.written if w.kind is Mutation.UNRECORDED and not w.flat]
    kept = [_torch.sequence_of(n) for n in owner if _saves(n, memory)] if plain else []
    # an input written before all nodes that saved its memory is written before these get their history
    early = [w for w in plain if all(traced.inputs[w.input].state.sequence <= k for k in kept)]
    return found, (*early, *(x for x in sorted(order, key=order.__getitem__) if order[x] < traced.number))


def _joined(graph: _Graph, groups: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Groups; those that alone lead to the same edges are one if their nodes keep no tensor of the call."""
    alike: dict[Any, list[list[Any]]] = {}
    aliases = (n for (n, _), end in graph.visible.items() if not isinstance(end, Fresh))
    users = Counter(e for n in aliases for e in _edges(n))
    for nodes in groups:
        own = set(nodes)
        leads = frozenset(e for n in nodes for e in _edges(n) if e[0] not in own)
        users.update(leads)
        alike.setdefault((graph.labels[nodes[0]], leads), []).append(nodes)
    for (_, leads), same in alike.items():
        merged = [n for nodes in same for n in nodes]
        apart = len(same) == 1 or any(users[e] > len(same) for e in leads) or any(map(_keeps, merged))
        yield from same if apart else [merged]


def _keeps(node: Any) -> bool:
    """Whether a node keeps a tensor of the call, or may."""
    kept = _torch.kept_by(node)
    return _torch.is_custom(node) or (kept is not None and (not kept or any(type(t) is Replica for t in kept)))


def _saves(node: Any, memory: set[int]) -> bool:
    """Whether a node keeps a tensor that lies there, or may."""
    kept = _torch.kept_by(node)
    return kept == [] or any(_torch.address_of(t) in memory for t in kept or ())


def _region(graph: _Graph, starts: list[Edge], nodes: list[Any], stands: Mapping[Edge, Inner]) -> Region:
    own = frozenset(nodes)
    ends: dict[End, Edge | Tensor] = {}
    dropped: dict[Tensor, None] = {}
    for n in nodes:
        for e in _edges(n):
            end, at = graph.end(e)
            if end is not None and at is not None:
                ends[end] = at
            elif isinstance(at, Tensor) and at.requires_grad:
                dropped[at] = None
            elif at is None and e[0] not in own:
                ends[stands[e] if e in stands else Fresh(graph.roots[e])] = e
    inputs = tuple(sorted(ends, key=str))
    results = tuple(graph.roots[e] for e in starts if e in graph.roots)
    lies = []
    for k in results:
        r = graph.analysis.results[k]
        g, device = r.geometry, r.node.device
        assert device is not None
        g = g if g.dense_order is not None and not (g.conj or g.neg) else row_major(g.shape, g.dtype)
        lies.append((g._replace(offset=0), device))
    between = [_torch.recorded_gradient(n, nr) for n, nr in starts[len(results) :]]
    lies += [(row_major(tuple(map(term, shape)), dtype), device) for shape, dtype, device in between]
    component = Component(results, inputs, tuple(lies))
    known = set(ends.values())
    found = ancestors([e[0] for e in known if isinstance(e, tuple) and len(ends) > 1], inputs=_torch.nodes_after)
    leads = any(n.variable in known if _torch.accumulates(n) else not known.isdisjoint(_edges(n)) for n in found)
    beyond = tuple(n for n in found - own if not _torch.accumulates(n)) if leads else ()
    return Region(component, tuple(starts), tuple(ends[i] for i in inputs), own, tuple(dropped), beyond)


def edge_of(end: Edge | Tensor) -> Any:
    """What ``torch.autograd.grad`` is asked for."""
    return GradientEdge(*end) if isinstance(end, tuple) else end


def _edges(node: Any) -> Iterator[Edge]:
    """Where gradients go from a node."""
    return ((n, nr) for n, nr in node.next_functions if n is not None)


def _sorted(starts: Iterable[Edge], within: Callable[[Edge], bool]) -> list[Any]:
    """Nodes behind ``starts`` by edges ``within``, those that lead to others first."""
    done: set[Any] = set()
    order: list[Any] = []
    todo: list[tuple[Any, bool]] = [(n, False) for n, _ in starts]
    while todo:
        node, is_over = todo.pop()
        if is_over:
            order.append(node)
        elif node not in done:
            done.add(node)
            todo.append((node, True))
            todo += [(e[0], False) for e in _edges(node) if e[0] not in done and within(e)]
    return order[::-1]
