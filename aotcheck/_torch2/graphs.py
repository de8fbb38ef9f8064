"""FX graphs: decompositions, and joint graphs as partition functions expect them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, can_auto_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from torch.fx.traceback import preserve_node_meta

__all__ = ["as_joint", "auto_functionalized", "can_auto_functionalize", "decomposed"]


def decomposed(module: fx.GraphModule, fakes: Sequence[Any], table: Any) -> fx.GraphModule:
    """The graph with ops of ``table`` made of others; inputs keep their names, nodes the line of the user's program."""
    names = [n.target for n in module.graph.find_nodes(op="placeholder")]
    run = fx.Interpreter(module).run
    with preserve_node_meta(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        made = make_fx(lambda *args: run(*args), decomposition_table=dict(table))(*fakes)
    for node in made.graph.nodes:
        if node.name in names and node.op != "placeholder":
            node._rename(f"{node.name}_1")
    for node, name in zip(made.graph.find_nodes(op="placeholder"), names, strict=True):
        node.target = node.name = name
    made.graph.eliminate_dead_code()
    made.recompile()
    return made


def as_joint(module: fx.GraphModule, lists: dict[str, int]) -> fx.GraphModule:
    """A joint graph called, as partition functions ask, with a list for each of these."""
    given = tuple([object() for _ in range(count)] for count in lists.values())
    spec = pytree.tree_flatten((given, {}))[1]
    signature = _PyTreeInfo([*lists], spec, None)
    module.graph.set_codegen(_PyTreeCodeGen(signature))
    module.recompile()
    return module
