"""FX: nodes under names of ours, and graph modules with a forward of ours."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import CodeGen, _PyTreeCodeGen, _PyTreeInfo

_NO_KWARGS: Any = fx.immutable_collections.immutable_dict()  # one for all nodes: the less is there to be collected


def appending_to(graph: fx.Graph) -> Callable[..., fx.Node]:
    """What puts a node at the end of ``graph``: name, op, target, args, kwargs and, if it has any, what it is told.

    The caller keeps names unique; FX, told of each, keeps nodes that somebody adds later apart from them.
    """
    tell, insert, register, node_of, set_attribute = (
        graph._graph_namespace._used_names.add,
        graph._insert,
        graph._find_nodes_lookup_table.insert,
        fx.Node,
        object.__setattr__,  # nobody has asked for the node yet: there is nothing to tell
    )

    def append(
        name: str,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        meta: dict[str, Any] | None = None,
    ) -> fx.Node:
        node = node_of(graph, name, op, target, args, kwargs)
        if meta is not None:
            set_attribute(node, "meta", meta)
        if not kwargs:
            set_attribute(node, "_kwargs", _NO_KWARGS)
        tell(name)
        insert(node)
        register(node)
        graph._len += 1
        return node

    return append


parts_of_node: Callable[[fx.Node], tuple[str, Any, tuple[Any, ...], dict[str, Any], Iterable[fx.Node]]]
parts_of_node = operator.attrgetter("op", "target", "_args", "_kwargs", "_input_nodes")
"""Op, target, args and kwargs of a node, and the nodes that it is computed from, once each; not to be changed."""


def append_output(graph: fx.Graph, result: Any) -> fx.Node:
    """The node that ends ``graph``."""
    taken = "output" in graph._graph_namespace._used_names
    return graph.output(result) if taken else appending_to(graph)("output", "output", "output", (result,), {})


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

    FX makes a class for each module, to put its forward there. To make one takes longer than to make all else, so one
    of ours has its forward itself, and shares its class with others of its name until FX is to write its code.
    """

    class DirectGraphModule(_LazyGraphModule):
        def __new__(cls, root: Any = None, graph: Any = None, class_name: str = "GraphModule") -> Any:
            return object.__new__(shared_class(class_name))

        def __init__(self, root: Any, graph: fx.Graph, class_name: str = "GraphModule") -> None:
            if root is not NO_ATTRIBUTES or graph._tracer_cls is not None or graph._tracer_extras:
                super().__init__(root, graph, class_name)
                return
            common, containers = _attributes_of_modules()
            attributes = self.__dict__
            attributes.update(common)
            for name, kind in containers:
                attributes[name] = kind()
            attributes["_graph"] = graph
            graph.owning_module = self

        def __setattr__(self, name: str, value: Any) -> None:
            if name in _OF_GRAPH_MODULES:
                object.__setattr__(self, name, value)
            else:
                super().__setattr__(name, value)

        def recompile(self) -> Any:  # type: ignore[override]  # torch asks their classes, which these share
            self.__dict__.pop("forward", None)
            if not self._shares_class():
                type(self).forward = lazy

        def _needs_recompile(self) -> bool:  # type: ignore[override]  # torch asks modules, of their classes
            return "forward" not in self.__dict__ and type(self).forward is lazy

        def _real_recompile(self) -> Any:
            self.__dict__.pop("forward", None)
            if self._shares_class():
                self.__class__ = type(type(self).__name__, (DirectGraphModule,), {_OWN: True})
            return super()._real_recompile()

        def real_recompile(self) -> None:
            if self._needs_recompile() and not self._write():
                self._real_recompile()

        def _shares_class(self) -> bool:
            return _OWN not in vars(type(self))

        def _write(self) -> bool:
            forward = write(self) if type(self.graph._codegen) is CodeGen else None
            if forward is not None:
                self.__dict__["forward"] = types.MethodType(forward, self)  # the graph leads back to it, too
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

    lazy = DirectGraphModule._lazy_forward
    shared: dict[str, type[DirectGraphModule]] = {}

    def shared_class(name: str) -> type[DirectGraphModule]:
        found = shared.get(name)
        if found is None or found.__name__ != name:  # somebody has given it another
            found = shared[name] = type(name, (DirectGraphModule,), {})
        return found

    return cast("type[fx.GraphModule]", DirectGraphModule)


_OWN = "_is_of_one_module"

NO_ATTRIBUTES = torch.nn.Module()
"""What graphs that use no attributes take them from."""


@functools.cache
def _attributes_of_modules() -> tuple[dict[str, Any], list[tuple[str, type]]]:
    """What GraphModules without attributes of their own have in common, and the classes of what is empty in each."""
    own = vars(_LazyGraphModule(NO_ATTRIBUTES, fx.Graph()))
    containers = [(k, type(v)) for k, v in own.items() if isinstance(v, (dict, list, set))]
    names = {"_graph", *[k for k, _ in containers]}
    assert not any(own[k] for k, _ in containers)
    return {k: v for k, v in own.items() if k not in names}, containers


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
    given = set(names)
    graph._graph_namespace._used_names.update(given)
    for node in graph.nodes:
        if node.op != "placeholder" and node.name in given:
            node.name = graph._graph_namespace.create_name(node.name, None)
    for node, name in zip(graph.find_nodes(op="placeholder"), names, strict=True):
        node.name = node.target = name
