"""FX GraphModules made of the nodes of a graph, for compilers and for printing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import CONSTANT, Node, getitem

__all__ = ["examples", "graph_module"]


def graph_module(
    inputs: Sequence[tuple[str, Node]], nodes: Sequence[Node], outputs: Sequence[Node | None], name: str
) -> fx.GraphModule:
    """A module that takes ``inputs``, by their names, runs ``nodes`` and returns ``outputs`` in a tuple."""
    graph = fx.Graph()
    at: dict[Node, fx.Node] = {}
    attributes: dict[str, torch.Tensor] = {}
    for title, node in inputs:
        at[node] = graph.placeholder(title)
    for node in nodes:
        if node.op == CONSTANT:
            assert node.constant is not None
            title = f"_tensor_constant{len(attributes)}"
            attributes[title] = node.constant
            at[node] = graph.get_attr(title)
            continue
        args, kwargs = _lower(node.args, at), {k: _lower(v, at) for k, v in node.kwargs.items()}
        made = graph.call_function(node.op, tuple(args), kwargs)
        if node.where is not None:
            made.meta["stack_trace"] = f"  {node.where}"
        if node.sequence >= 0 and node.op is not getitem:
            made.meta["seq_nr"] = node.sequence
        at[node] = made
    graph.output(tuple([None if n is None else at[n] for n in outputs]))
    root = torch.nn.Module()
    for title, value in attributes.items():
        root.register_buffer(title, value, persistent=False)
    return fx.GraphModule(root, graph, class_name=name)


def _lower(a: Any, at: Mapping[Node, fx.Node]) -> Any:
    if type(a) is Node:
        return at[a]
    if type(a) in (list, tuple):
        return [_lower(x, at) for x in a]
    return a


def examples(inputs: Sequence[Node]) -> list[torch.Tensor]:
    """Fake tensors of one mode that lie as the inputs do."""
    mode = _torch.FakeTensorMode(allow_non_fake_inputs=True)
    made: list[torch.Tensor] = []
    for node in inputs:
        g = node.geometry
        assert g is not None and node.device is not None
        elem = torch.empty_strided(g.shape, g.stride, dtype=g.dtype, device=_torch.META)
        made.append(_torch.FakeTensor(mode, elem, node.device))
    return made
