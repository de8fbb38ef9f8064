"""FX: nodes under names of ours, and graph modules with a forward of ours."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, cast

import torch.utils._pytree as pytree
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import CodeGen, _PyTreeCodeGen, _PyTreeInfo

_NO_KWARGS: Any = fx.immutable_collections.immutable_dict()  # one for all nodes: the less is there to be collected


def appending_to(graph: fx.Graph) -> Callable[[str, str, Any, tuple[Any, ...], dict[str, Any]], fx.Node]:
    """What puts a node at the end of ``graph``: name, op, target, args and kwargs. The caller keeps names unique."""
    insert, register, node_of, set_attribute = (
        graph._insert,
        graph._find_nodes_lookup_table.insert,
        fx.Node,
        object.__setattr__,  # nobody has asked for the node yet: there is nothing to tell
    )

    def append(name: str, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        node = node_of(graph, name, op, target, args, kwargs)
        if not kwargs:
            set_attribute(node, "_kwargs", _NO_KWARGS)
        insert(node)
        register(node)
        graph._len += 1
        return node

    return append


parts_of_node: Callable[[fx.Node], tuple[str, Any, tuple[Any, ...], dict[str, Any], Iterable[fx.Node]]]
parts_of_node = operator.attrgetter("op", "target", "_args", "_kwargs", "_input_nodes")
"""Op, target, args and kwargs of a node, and the nodes that it is computed from, once each; not to be changed."""


def append_output(graph: fx.Graph, result: Any, taken: Collection[str]) -> fx.Node:
    """The node that ends ``graph``; the names in ``taken`` are those of others."""
    return (
        graph.output(result) if "output" in taken else appending_to(graph)("output", "output", "output", (result,), {})
    )


_OF_GRAPH_MODULES = frozenset(
    {
        "_create_node_hooks",
        "_deepcopy_hooks",
        "_erase_node_hooks",
        "_graph",
        "_replace_hooks",
        "_tracer_cls",
        "_tracer_extras",
        "graph",
        "meta",
        "shape_env",
        "training",
    }
)
"""Attributes that FX gives each module that it makes: none is a parameter, buffer or module."""


def direct_graph_module(write: Callable[[fx.GraphModule], Callable[..., Any] | None]) -> type[fx.GraphModule]:
    """A class of GraphModules whose ``forward``, made when first needed, is what ``write`` makes of the module.

    ``write`` takes a module to a method; None leaves that module to FX. The printed code is always FX's.
    """

    class DirectGraphModule(_LazyGraphModule):
        def __setattr__(self, name: str, value: Any) -> None:
            if name in _OF_GRAPH_MODULES:
                object.__setattr__(self, name, value)
            else:
                super().__setattr__(name, value)

        def real_recompile(self) -> None:
            if self._needs_recompile() and not self._write():
                self._real_recompile()

        def _write(self) -> bool:
            forward = write(self) if type(self.graph._codegen) is CodeGen else None
            if forward is not None:
                type(self).forward = forward
            return forward is not None

        def _print(self) -> None:
            self._real_recompile()
            self._write()

        @property
        def code(self) -> str:
            self._print()
            return str(self._code)

        def __str__(self) -> str:
            self._print()
            return fx.GraphModule.__str__(self)

    return cast("type[fx.GraphModule]", DirectGraphModule)


def ready_forward(module: fx.GraphModule) -> Callable[..., Any]:
    """The module's forward with its source made; a lazy one bound before that would stay slow for ever."""
    real = getattr(module, "real_recompile", None)
    if real is not None:
        real()
    return module.forward


def take_lists(module: fx.GraphModule, lists: dict[str, int]) -> None:
    """From now on ``module`` is called with lists by these names and of these lengths, not with single inputs."""

    example: tuple[Any, ...] = (tuple([0] * n for n in lists.values()), {})
    spec = pytree.tree_flatten(example)[1]
    module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(list(lists), spec, None)))
    module.recompile()


def rename_placeholders(graph: fx.Graph, names: Sequence[str]) -> None:
    """Give the graph's inputs these names; other nodes make way."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    taken = {n.name for n in graph.nodes} | set(names)
    for node in graph.nodes:
        if node.op != "placeholder" and node.name in names:
            number = 1
            while f"{node.name}_{number}" in taken:
                number += 1
            node.name = f"{node.name}_{number}"
            taken.add(node.name)
    for node, name in zip(placeholders, names, strict=True):
        node.name = node.target = name
