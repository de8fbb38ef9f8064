"""A partition function of the user's: it is given the joint graph as one module, and decides what is saved of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.fx import examples, graph_module
from aotcheck.autograd2.ir.graph import Graph, Node, getitem
from aotcheck.autograd2.partition.default import Partition
from aotcheck.autograd2.trace.gate import Event, refuse

__all__ = ["PartitionFunction", "default_partition", "saved_by"]

PartitionFunction = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def saved_by(function: PartitionFunction, graph: Graph, whole: Partition) -> list[Node]:
    """What ``function`` saves of the graph that ``whole`` cut by default. Each backward computes the rest from that.

    Raises:
        UnsupportedError: it saves what it made itself.
    """
    forward, backwards = whole.forward, [b.backward for b in whole.backwards]
    tangents, gradients = [t for b in backwards for t in b.tangents], [g for b in backwards for g in b.gradients]
    inputs, primals = [*forward.inputs, *tangents], len(forward.inputs)
    behind = {n for b in whole.backwards for n in b.nodes} - set(forward.nodes)
    nodes = [*forward.nodes, *(n for n in graph.nodes if n in behind)]
    lists = {"primals": primals, "tangents": len(tangents)}
    names = [f"{name}_{k + 1}" for name, count in lists.items() for k in range(count)]
    outputs, fakes = (*forward.results, *gradients), examples(inputs)
    module = graph_module(list(zip(names, inputs, strict=True)), nodes, outputs, "aotcheck_joint")
    known = dict(zip((n.name for n in module.graph.nodes), [*inputs, *nodes], strict=False))
    joint, given = _torch.as_joint(module, fakes, lists), (fakes[:primals], fakes[primals:])
    first, _ = function(joint, given, num_fwd_outputs=len(forward.results))
    saved = [known.get(n.name) for n in _outputs(first)[len(forward.results) :]]
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
    forward, backward = _ancestors([*drawn, *wanted, *primals]), _ancestors(gradients)
    forward |= {n for n in nodes if n.target is getitem and n.args[0] in forward}
    read = {a for n in backward - forward for a in n.all_input_nodes} | set(gradients)
    saved = [n for n in nodes if n in forward and n in read and n.op != "get_attr"]
    rest = [n for n in nodes if n in backward and (n not in forward or n.op == "get_attr")]
    first = _extract(joint_module, primals, [n for n in nodes if n in forward], [*wanted, *saved])
    return first, _extract(joint_module, [*saved, *tangents], rest, gradients)


def _outputs(module: fx.GraphModule) -> list[Any]:
    (output,) = module.graph.find_nodes(op="output")
    return list(output.args[0])


def _ancestors(roots: Sequence[Any]) -> set[fx.Node]:
    seen: set[fx.Node] = set()
    todo = [n for n in roots if n is not None]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(node.all_input_nodes)
    return seen


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
