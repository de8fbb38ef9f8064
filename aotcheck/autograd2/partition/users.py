"""A partition function of the user's: it is given the joint graph as one module, and cuts it in two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from aotcheck.autograd2.errors import UnsupportedError
from aotcheck.autograd2.ir.fx import examples, graph_module
from aotcheck.autograd2.ir.graph import Graph, Node, getitem
from aotcheck.autograd2.partition.default import BackwardGraph, Partition

__all__ = ["PartitionFunction", "default_partition", "divide"]

PartitionFunction = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


@dataclass(frozen=True)
class Division:
    """What a partition function made of a joint graph: ``saved`` are nodes of the graph, or None for those it made."""

    saved: tuple[Node | None, ...]
    names: Mapping[str, Node]
    forward: fx.GraphModule
    backward: fx.GraphModule

    def nodes(self) -> list[Node]:
        """What is saved, for several backwards that compute the rest again."""
        if None in self.saved:
            raise UnsupportedError("partition_fn", "it saves what it made itself, of results that are not connected")
        return [n for n in self.saved if n is not None]

    def of_one(self, whole: Partition, written: set[Node]) -> Partition:
        """The modules in place of the only backward and of the forward; what is saved of ``written`` is copied."""
        (cut,), count = whole.backwards, len(whole.forward.results)
        lies_there = {name for name, n in self.names.items() if n.memory in written}
        _copy_saved(self.forward, count, lies_there)
        kept = tuple(n or Node("made by a partition function") for n in self.saved)
        places = tuple(range(len(kept)))
        backward = BackwardGraph(cut.backward, (*kept, *cut.backward.tangents), cut.nodes, places, self.backward)
        return Partition(replace(whole.forward, saved=kept, module=self.forward), (backward,))


def divide(
    function: PartitionFunction,
    graph: Graph,
    whole: Partition,
    prepare: Callable[[fx.GraphModule, list[Any]], fx.GraphModule],
) -> Division:
    """Have ``function`` cut what ``whole`` cut by default.

    Args:
        prepare: makes the joint module what partition functions expect.

    Raises:
        UnsupportedError: the modules do not fit the joint graph.
    """
    forward, backwards = whole.forward, [b.backward for b in whole.backwards]
    tangents, gradients = [t for b in backwards for t in b.tangents], [g for b in backwards for g in b.gradients]
    inputs, count, primals = [*forward.inputs, *tangents], len(forward.results), len(forward.inputs)
    behind = {n for b in whole.backwards for n in b.nodes} - set(forward.nodes)
    nodes = [*forward.nodes, *(n for n in graph.nodes if n in behind)]
    names = [f"primals_{k + 1}" for k in range(primals)] + [f"tangents_{k + 1}" for k in range(len(tangents))]
    module = graph_module(
        list(zip(names, inputs, strict=True)), nodes, (*forward.results, *gradients), "aotcheck_joint"
    )
    known = dict(zip((n.name for n in module.graph.nodes), [*inputs, *nodes], strict=False))
    fakes = examples(inputs)
    joint = prepare(module, fakes)
    first, second = function(joint, (fakes[:primals], fakes[primals:]), num_fwd_outputs=count)
    saved = _outputs(first)[count:]
    if len(_given(first)) != primals:
        raise UnsupportedError("partition_fn", f"its forward does not take the {primals} primals")
    if len(_given(second)) != len(saved) + len(tangents) or len(_outputs(second)) != len(gradients):
        raise UnsupportedError("partition_fn", "its backward does not take what its forward saves, and the tangents")
    return Division(tuple(known.get(n.name) for n in saved), known, first, second)


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
    graph, outputs = joint_module.graph, _outputs(joint_module)
    given = _given(joint_module)
    tangents = [n for n in given if n.name.startswith("tangents")]
    drawn = [n for n in graph.nodes if _draws(n)]
    forward = _ancestors([*drawn, *outputs[:num_fwd_outputs]]) | (set(given) - set(tangents))
    forward |= {n for n in graph.nodes if n.target is getitem and n.args[0] in forward}
    backward = _ancestors(outputs[num_fwd_outputs:])
    read = {a for n in backward - forward for a in n.all_input_nodes} | set(outputs[num_fwd_outputs:])
    saved = [n for n in graph.nodes if n in forward and n in read and n.op != "get_attr"]
    first = [n for n in graph.nodes if n in forward and n.op != "placeholder"]
    rest = [n for n in graph.nodes if n in backward and (n not in forward or n.op == "get_attr") and n not in tangents]
    primals = [n for n in given if n not in tangents]
    return (
        _extract(joint_module, primals, first, [*outputs[:num_fwd_outputs], *saved]),
        _extract(joint_module, [*saved, *tangents], rest, outputs[num_fwd_outputs:]),
    )


def _draws(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _given(module: fx.GraphModule) -> list[fx.Node]:
    return list(module.graph.find_nodes(op="placeholder"))


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
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(None if o is None else copies[o] for o in outputs))
    return fx.GraphModule(module, graph)


def _copy_saved(forward: fx.GraphModule, count: int, written: set[str]) -> None:
    """Saved values that lie in memory that the call writes become copies."""
    (output,) = forward.graph.find_nodes(op="output")
    values = list(output.args[0])
    for k in range(count, len(values)):
        if values[k].name in written:
            with forward.graph.inserting_before(output):
                copy = forward.graph.call_function(torch.ops.aten.clone.default, (values[k],))
            copy.meta, values[k] = dict(values[k].meta), copy
    output.args = (tuple(values),)
    forward.recompile()
