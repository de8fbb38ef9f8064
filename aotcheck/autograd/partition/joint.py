"""Joint graphs as FX modules, for those who bring their own partition, and the default partition of such a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch
from aotcheck.autograd.config import config
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graphs.compile_graph import Decompositions, assert_sound, decompose
from aotcheck.autograd.graphs.graph import FakeValues, Graph, graph_module
from aotcheck.autograd.ir.trace import Value, ancestors, getitem

aten = torch.ops.aten


def joint_graph(
    inputs: Sequence[Value],
    tangents: Sequence[Value],
    order: Sequence[Value],
    forward: set[Value],
    outputs: Sequence[Value],
    gradients: Sequence[Value | None],
) -> Graph:
    """Forward and backward in one graph, the forward first: from primals and tangents to outputs and gradients."""
    given = {*inputs, *tangents}
    backward = ancestors(gradients) - forward - given
    first = [v for v in order if v in forward and v not in given]
    return Graph("joint", (*inputs, *tangents), (*first, *[v for v in order if v in backward]), (*outputs, *gradients))


def joint_module(
    graph: Graph,
    names: Sequence[str],
    fakes: FakeValues,
    primals: int,
    forward_outputs: int,
    decompositions: Decompositions | None,
) -> tuple[fx.GraphModule, list[Any]]:
    """``graph`` as a module called with two lists, primals and tangents, every node tagged with its direction."""
    module, examples = graph_module(graph, names, fakes, "joint")
    if decompositions:
        module = decompose(module, examples, decompositions)
    if config().debug:
        assert_sound(module)
    tag_directions(module, forward_outputs)
    _torch.take_lists(module, {"primals": primals, "tangents": len(examples) - primals})
    return module, examples


def tag_directions(module: fx.GraphModule, forward_outputs: int) -> None:
    """Note on each node (``meta["partitioner_tag"]``) whether the forward or only the backward computes it."""
    outputs = _outputs(module)
    forward = _ancestors(o for o in outputs[:forward_outputs] if isinstance(o, fx.Node))
    forward |= {n for n in module.graph.nodes if _draws(n) and not any(map(_is_tangent, _ancestors([n])))}
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.meta["partitioner_tag"] = "is_forward" if node in forward else "is_backward"


def default_partition(
    joint_module: fx.GraphModule, _joint_inputs: Any, *, num_fwd_outputs: int, **_more: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The partition that saves what eager saves: the forward is what the outputs need, the backward the rest.

    Args:
        joint_module: a graph from ``primals_*`` and ``tangents_*`` to outputs and then gradients.
        num_fwd_outputs: how many of its outputs are the forward's.

    Returns:
        The forward, which returns its outputs and what it saves, and the backward, which takes what was saved and the
        tangents.
    """
    nodes = list(joint_module.graph.nodes)
    outputs = _outputs(joint_module)
    wanted, gradients = outputs[:num_fwd_outputs], outputs[num_fwd_outputs:]
    primals = [n for n in nodes if n.op == "placeholder" and not _is_tangent(n)]
    tangents = [n for n in nodes if _is_tangent(n)]
    forward = _ancestors(o for o in wanted if isinstance(o, fx.Node))
    forward |= {n for n in nodes if n.meta.get("partitioner_tag") == "is_forward"} | set(primals)
    for n in nodes:
        if n.target is getitem and n.args[0] in forward:
            forward.add(n)
    needed = _ancestors(g for g in gradients if isinstance(g, fx.Node))
    saved: dict[fx.Node, None] = {}
    for n in nodes:
        if n in needed and n not in forward:
            saved.update({a: None for a in n.all_input_nodes if a in forward and a.op != "get_attr"})
    saved.update({g: None for g in gradients if isinstance(g, fx.Node) and g in forward})
    both = [n for n in nodes if n.op == "get_attr"]
    first = _extract(joint_module, primals, [n for n in nodes if n in forward], [*wanted, *saved])
    rest = [*both, *[n for n in nodes if n in needed and n not in forward and n.op != "get_attr"]]
    return first, _extract(joint_module, [*saved, *tangents], rest, gradients)


@dataclasses.dataclass(frozen=True)
class Division:
    """A joint graph divided by a user's partition. ``saved`` names the nodes that the forward saves."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: tuple[str, ...]


def divide(
    partition: Any,
    joint: fx.GraphModule,
    examples: Sequence[Any],
    primals: int,
    forward_outputs: int,
    written: set[str],
) -> Division:
    """Call a user's partition and check what it returns.

    Args:
        written: names of placeholders whose memory is overwritten after the forward; what is saved of them is copied.

    Raises:
        UnsupportedError: the modules do not fit the joint graph.
    """
    count = len(_outputs(joint)) - forward_outputs
    forward, backward = partition(
        joint, (list(examples[:primals]), list(examples[primals:])), num_fwd_outputs=forward_outputs
    )
    saved = _outputs(forward)[forward_outputs:]
    taken = [n for n in backward.graph.nodes if n.op == "placeholder"]
    if len([n for n in forward.graph.nodes if n.op == "placeholder"]) != primals:
        raise UnsupportedError("partition_fn", f"its forward does not take the {primals} primals")
    if len(taken) != len(saved) + len(examples) - primals or len(_outputs(backward)) != count:
        raise UnsupportedError("partition_fn", "its backward does not take what its forward saves, and the tangents")
    if not all(isinstance(n, fx.Node) for n in saved):
        raise UnsupportedError("partition_fn", "its forward saves something that is no tensor")
    names = tuple(n.name for n in saved)
    _copy_saved(forward, forward_outputs, written)
    return Division(forward, backward, names)


def _copy_saved(forward: fx.GraphModule, forward_outputs: int, written: set[str]) -> None:
    """Saved values that lie in the memory of a placeholder in ``written`` become copies."""
    (output,) = (n for n in forward.graph.nodes if n.op == "output")
    values = list(output.args[0])
    for k in range(forward_outputs, len(values)):
        root = values[k]
        while root.op == "call_function" and _is_view(root):
            root = root.args[0]
        if root.name in written:
            with forward.graph.inserting_before(output):
                copy = forward.graph.call_function(aten.clone.default, (values[k],))
            copy.meta = dict(values[k].meta)
            values[k] = copy
    output.args = (tuple(values),)
    forward.recompile()


def unknown(name: str) -> Value:
    """Stands for a saved value that only the user's own graphs know."""
    v = Value("unknown", (), {})
    v.name = name
    return v


def _is_view(node: fx.Node) -> bool:
    if node.target is getitem:
        return True
    target = node.target
    return isinstance(target, _torch.OpOverload) and any(
        r.alias_info is not None for r in _torch.schema_of(target).returns
    )


def _is_tangent(node: fx.Node) -> bool:
    return node.op == "placeholder" and "tangents" in str(node.target)


def _draws(node: fx.Node) -> bool:
    return isinstance(node.target, _torch.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _outputs(module: fx.GraphModule) -> list[Any]:
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    return list(output.args[0])


def _ancestors(roots: Iterable[fx.Node]) -> set[fx.Node]:
    seen: set[fx.Node] = set()
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(node.all_input_nodes)
    return seen


def _extract(
    module: fx.GraphModule, inputs: Sequence[fx.Node], body: Sequence[fx.Node], outputs: Sequence[Any]
) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in body:
        if node not in copies:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(tuple(copies[o] if isinstance(o, fx.Node) else o for o in outputs))
    graph.eliminate_dead_code(is_impure_node=lambda n: n.is_impure() or _draws(n))
    return fx.GraphModule(module, graph)
