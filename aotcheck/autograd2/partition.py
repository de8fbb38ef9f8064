"""partition: the forward computes what results need; backwards compute the rest from what is saved.

A partition function of the user's is given the joint graph as one module, and decides what is saved of it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir import graph as ir
from aotcheck.autograd2.joint.joint import Backward
from aotcheck.autograd2.trace.gate import Event, refuse

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class ForwardGraph:
    """What runs forward: gives results, then what is saved, then the values of symbols that it defines.

    Args:
        inputs: what it takes: values, then symbols by their names.
        saved_late: what is saved beside what it gives: inputs as the call leaves them.
    """

    inputs: tuple[ir.Node | str, ...]
    nodes: tuple[ir.Node, ...]
    results: tuple[ir.Node, ...]
    saved: tuple[ir.Node, ...]
    defined: Mapping[str, tuple[ir.Node, int | None]]
    saved_late: tuple[ir.Node, ...] = ()


@dataclass(frozen=True, eq=False)
class BackwardGraph:
    """What runs backward: gives a gradient for each input of its component.

    Args:
        inputs: what it takes: saved tensors, then symbols by their names, then tangents.
        saved: positions among what the forward graph saves.
    """

    backward: Backward
    inputs: tuple[ir.Node | str, ...]
    nodes: tuple[ir.Node, ...]
    saved: tuple[int, ...]

    @functools.cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of which it takes the values."""
        return tuple(x for x in self.inputs if isinstance(x, str))

    @functools.cached_property
    def identities(self) -> tuple[tuple[int, int], ...]:
        """Which gradients are tangents themselves, and which of the tangents that there are."""
        place = {n: k for k, n in enumerate(self.backward.tangents)}
        return tuple((k, place[n]) for k, n in enumerate(self.backward.gradients) if n is not None and n in place)

    @functools.cached_property
    def expanded(self) -> tuple[bool, ...]:
        """Of each tangent whether it may be one value expanded: what pointwise ops give is contiguous all the same."""
        pointwise = [n for n in self.nodes if torch.Tag.pointwise in getattr(n.op, "tags", ()) and n.memory is None]
        lie = {n: all(x.geometry is not None and x.geometry.is_contiguous for x in (n, *n.inputs)) for n in pointwise}
        read = {x for n in self.nodes if not lie.get(n) for x in n.inputs}
        return tuple(t not in read for t in self.backward.tangents)


@dataclass(frozen=True, eq=False)
class Partition:
    """A joint graph cut in two."""

    forward: ForwardGraph
    backwards: tuple[BackwardGraph, ...]


def partition(
    graph: ir.Graph,
    inputs: Sequence[ir.Node],
    results: Sequence[ir.Node],
    backwards: Sequence[Backward],
    written: set[ir.Node],
    *,
    keep: Sequence[ir.Node] | None = None,
    saved_late: Sequence[ir.Node] = (),
    recorded: Sequence[ir.Node] = (),
) -> Partition:
    """Cut.

    Args:
        inputs: of the graph, those for whole storages too.
        results: what the forward graph has to give.
        written: inputs whose memory the call writes; what is saved of them is copied.
        keep: what may be saved, from which the rest is computed again; by default all that is computed forward.
        saved_late: what stands for inputs as the call leaves them.
        recorded: what the function computed, of which backwards compute views only: the caller may write inputs.
    """
    results = _with_own_memory(graph, results)
    count = len(graph.nodes)
    forward = ir.ancestors([*results, *graph.effects, *(keep or ())])
    own = {n for n in recorded if n.memory is None}
    available = (forward | set(inputs) | own if keep is None else set(keep)) | set(saved_late)
    places = _places(graph)
    cuts = [_cut(places, available, b) for b in backwards]
    found = dict.fromkeys(n for saved, _ in cuts for n in saved)
    forward |= ir.ancestors(found.keys() & own)
    forward |= {n for n in graph.nodes if n.op is ir.getitem and n.args[0] in forward}
    left = dict.fromkeys(n for n in saved_late if n in found)
    needed = [n for n in found if n not in left]
    kept = tuple(_copy(graph, n) if n.memory in written else n for n in needed)
    order = [n for n in graph.nodes[:count] if n in forward] + graph.nodes[count:]
    position = {n: k for k, n in enumerate([*needed, *left])}
    graphs = tuple(_backward_graph(b, *cut, position) for b, cut in zip(backwards, cuts, strict=True))
    defined = dict(graph.defined)
    takes: tuple[ir.Node | str, ...] = (*inputs, *(name for name in ir.symbols_of(order) if name not in defined))
    return Partition(ForwardGraph(takes, tuple(order), tuple(results), kept, defined, tuple(left)), graphs)


def cut_backward(graph: ir.Graph, known: Mapping[ir.Node, int], backward: Backward) -> BackwardGraph:
    """A backward that is traced later: it has what others have saved, by position, and recomputes from it."""
    saved, nodes = _cut(_places(graph), set(known), backward)
    if any(n not in known for n in saved):
        refuse(Event.LATE, "it needs what was not saved")
    return _backward_graph(backward, saved, nodes, known)


def _backward_graph(
    backward: Backward, saved: Sequence[ir.Node], nodes: tuple[ir.Node, ...], position: Mapping[ir.Node, int]
) -> BackwardGraph:
    takes: tuple[ir.Node | str, ...] = (*saved, *ir.symbols_of(nodes), *backward.tangents)
    return BackwardGraph(backward, takes, nodes, tuple(position[n] for n in saved))


def _places(graph: ir.Graph) -> dict[ir.Node, int]:
    return {n: k for k, n in enumerate([*graph.placeholders, *graph.nodes])}


def _cut(
    places: dict[ir.Node, int], available: set[ir.Node], backward: Backward
) -> tuple[list[ir.Node], tuple[ir.Node, ...]]:
    """What a backward takes of what is available, and the nodes that it runs, in order."""
    reached = ir.ancestors([*backward.gradients, *backward.effects], available)
    saved = sorted((n for n in reached if n in available and n.op != ir.CONSTANT), key=lambda n: places.get(n, -1))
    runs = [n for n in reached if n not in available or n.op == ir.CONSTANT]
    saved += [n for n in runs if n.op == ir.PLACEHOLDER and n not in backward.tangents]
    nodes = sorted([n for n in runs if n.op != ir.PLACEHOLDER], key=places.__getitem__)
    return saved, tuple(nodes)


def _with_own_memory(graph: ir.Graph, results: Sequence[ir.Node]) -> list[ir.Node]:
    """Results that neither are inputs, nor share memory with one, nor stand there twice."""
    made: dict[ir.Node, None] = {}
    for node in results:
        shares = node.memory is not None or node.op in (ir.PLACEHOLDER, ir.CONSTANT)
        made[_copy(graph, node) if shares or node in made else node] = None
    return list(made)


def _copy(graph: ir.Graph, node: ir.Node) -> ir.Node:
    copy = graph.like(node, aten.clone.default, node)
    copy.geometry = node.geometry
    return copy


PartitionFunction = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def joint_module(graph: ir.Graph, whole: Partition) -> tuple[fx.GraphModule, list[ir.Node], list[ir.Node]]:
    """The joint graph that ``whole`` cut, as one module from primals and tangents to results and then gradients.

    Returns:
        The module, what it takes, and its other nodes, in order.
    """
    forward, backwards = whole.forward, [b.backward for b in whole.backwards]
    tangents, gradients = [t for b in backwards for t in b.tangents], [g for b in backwards for g in b.gradients]
    behind = {n for b in whole.backwards for n in b.nodes} - set(forward.nodes)
    nodes = [*forward.nodes, *(n for n in graph.nodes if n in behind)]
    primals = [n for n in forward.inputs if isinstance(n, ir.Node)]
    named: list[tuple[str, Any]] = [(f"primals_{k + 1}", n) for k, n in enumerate(primals)]
    named += [(f"tangents_{k + 1}", n) for k, n in enumerate(tangents)]
    named += [(symbol, symbol) for symbol in ir.symbols_of(nodes) if symbol not in forward.defined]
    module = ir.graph_module(named, nodes, (*forward.results, *gradients), "aotcheck_joint", forward.defined)
    return module, [n for _, n in named], nodes


def saved_by(function: PartitionFunction, graph: ir.Graph, whole: Partition) -> list[ir.Node]:
    """What ``function`` saves of the graph that ``whole`` cut by default. Each backward computes the rest from that.

    Raises:
        UnsupportedError: it saves what it made itself.
    """
    if whole.forward.defined or any(isinstance(x, str) for x in whole.forward.inputs):
        refuse(Event.PARTITION, "data decide sizes")
    module, inputs, nodes = joint_module(graph, whole)
    fakes, primals, results = ir.examples(inputs), len(whole.forward.inputs), len(whole.forward.results)
    known = dict(zip((n.name for n in module.graph.nodes), [*inputs, *nodes], strict=False))
    ir.with_values(module, fakes)
    joint = _torch.as_joint(module, {"primals": primals, "tangents": len(inputs) - primals})
    first, _ = function(joint, (fakes[:primals], fakes[primals:]), num_fwd_outputs=results)
    saved = [known.get(n.name) for n in _outputs(first)[results:]]
    if None in saved:
        refuse(Event.PARTITION, "it saves what is not in the joint graph that it was given")
    return [n for n in saved if n is not None]


def default_partition(
    joint_module: fx.GraphModule, _joint_inputs: Any, *, num_fwd_outputs: int, **_more: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward computes what the outputs need; the backward takes of that what it needs, and the tangents.

    Args:
        joint_module: from ``primals_*`` and ``tangents_*`` to outputs and then gradients.
        num_fwd_outputs: how many of its outputs are the forward's.

    Returns:
        The forward, which gives its outputs and what it saves, and the backward.
    """
    nodes, outputs = list(joint_module.graph.nodes)[:-1], _outputs(joint_module)
    wanted, gradients = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
    tangents = [n for n in nodes if n.op == "placeholder" and n.name.startswith("tangents")]
    primals = [n for n in nodes if n.op == "placeholder" and n not in tangents]
    drawn = [n for n in nodes if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())]
    asked = [*drawn, *wanted, *primals], gradients
    forward, backward = (ir.ancestors(x, inputs=operator.attrgetter("all_input_nodes")) for x in asked)
    forward |= {n for n in nodes if n.target is ir.getitem and n.args[0] in forward}
    read = {a for n in backward - forward for a in n.all_input_nodes} | set(gradients)
    saved = [n for n in nodes if n in forward and n in read and n.op != "get_attr"]
    rest = [n for n in nodes if n in backward and (n not in forward or n.op == "get_attr")]
    first = _extract(joint_module, primals, [n for n in nodes if n in forward], [*wanted, *saved])
    return first, _extract(joint_module, [*saved, *tangents], rest, gradients)


def _outputs(module: fx.GraphModule) -> list[Any]:
    (output,) = module.graph.find_nodes(op="output")
    return list(output.args[0])


def _extract(
    module: fx.GraphModule, inputs: Sequence[fx.Node], body: Sequence[fx.Node], outputs: Sequence[Any]
) -> fx.GraphModule:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in body:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(None if o is None else copies[o] for o in outputs))
    return fx.GraphModule(module, graph)
