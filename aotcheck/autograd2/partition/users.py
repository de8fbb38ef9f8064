"""A partition function of the user's: it is given the joint graph as one module, and decides what is saved of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.fx import examples, graph_module, symbols_of, with_values
from aotcheck.autograd2.ir.graph import Graph, Node, getitem
from aotcheck.autograd2.partition.default import Partition
from aotcheck.autograd2.trace.gate import Event, refuse

PartitionFunction = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def joint_module(graph: Graph, whole: Partition) -> tuple[fx.GraphModule, list[Node], list[Node]]:
    """The joint graph that ``whole`` cut, as one module from primals and tangents to results and then gradients.

    Returns:
        The module, what it takes, and its other nodes, in order.
    """
    forward, backwards = whole.forward, [b.backward for b in whole.backwards]
    tangents, gradients = [t for b in backwards for t in b.tangents], [g for b in backwards for g in b.gradients]
    behind = {n for b in whole.backwards for n in b.nodes} - set(forward.nodes)
    nodes = [*forward.nodes, *(n for n in graph.nodes if n in behind)]
    named: list[tuple[str, Any]] = [(f"primals_{k + 1}", n) for k, n in enumerate(forward.inputs)]
    named += [(f"tangents_{k + 1}", n) for k, n in enumerate(tangents)]
    named += [(symbol, symbol) for symbol in symbols_of(nodes) if symbol not in forward.defined]
    module = graph_module(named, nodes, (*forward.results, *gradients), "aotcheck_joint", forward.defined)
    return module, [n for _, n in named], nodes


def saved_by(function: PartitionFunction, graph: Graph, whole: Partition) -> list[Node]:
    """What ``function`` saves of the graph that ``whole`` cut by default. Each backward computes the rest from that.

    Raises:
        UnsupportedError: it saves what it made itself.
    """
    if whole.forward.defined:
        refuse(Event.PARTITION, "data decide sizes")
    module, inputs, nodes = joint_module(graph, whole)
    fakes, primals, results = examples(inputs), len(whole.forward.inputs), len(whole.forward.results)
    known = dict(zip((n.name for n in module.graph.nodes), [*inputs, *nodes], strict=False))
    with_values(module, fakes)
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
