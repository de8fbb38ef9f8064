"""What several tests of graphs use."""

import torch

aten = torch.ops.aten


def needless_copy(x, memory_format=None):
    """What a pass makes of a copy that it takes for needless."""
    return x


def names(graph: torch.fx.GraphModule) -> list[str]:
    return [node.name for node in graph.graph.nodes if node.op == "placeholder"]


def ops(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]


def outputs(graph: torch.fx.GraphModule) -> list[torch.fx.Node | None]:
    (node,) = (node for node in graph.graph.nodes if node.op == "output")
    return list(node.args[0])
