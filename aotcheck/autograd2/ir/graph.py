"""The functional program: nodes in the order in which they were recorded. FX, which is heavier, is made of it later."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck.autograd2.ir.meta import Geometry

PLACEHOLDER = "placeholder"
CONSTANT = "constant"
NO_KWARGS: Mapping[str, Any] = {}
getitem = operator.getitem


@dataclass(frozen=True)
class Where:
    """A line of the user's program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f'File "{self.file}", line {self.line}, in {self.function}'


class Node:
    """One value of the program: an input, a constant tensor or generator, or what ``op`` gives for its arguments.

    Arguments are nodes, sizes (ints or expressions), other constants, and lists of these.

    Attributes:
        geometry: how the value lies at run time; None for several results at once.
        memory: the placeholder or constant with which the value shares memory at run time, if it may.
        where: the line of the user's program that recorded it.
    """

    __slots__ = ("args", "constant", "device", "geometry", "kwargs", "memory", "name", "op", "sequence", "where")

    def __init__(self, op: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS) -> None:
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.geometry: Geometry | None = None
        self.device: torch.device | None = None
        self.memory: Node | None = None
        self.constant: Any = None
        self.where: Where | None = None
        self.sequence = -1
        self.name = ""

    def inputs(self) -> Sequence[Node]:
        """The nodes that it is computed from, one as often as it is used."""
        return list(nodes_in((*self.args, *self.kwargs.values())))

    def __repr__(self) -> str:
        return f"%{self.name or getattr(self.op, '__name__', self.op)}"


@dataclass
class Graph:
    """Nodes in order.

    Attributes:
        effects: what always runs in the forward graph: random ops, ops that return nothing, and what defines sizes.
        defined: symbols whose values data decide, by name: the node that defines it, and of which dimension of its
            result it is the size; None if the result is a number itself.
    """

    placeholders: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    effects: list[Node] = field(default_factory=list)
    defined: dict[str, tuple[Node, int | None]] = field(default_factory=dict)

    def placeholder(self, geometry: Geometry, device: torch.device) -> Node:
        """A new input."""
        node = Node(PLACEHOLDER)
        node.geometry, node.device, node.memory = geometry, device, node
        self.placeholders.append(node)
        return node

    def constant(self, value: Tensor, geometry: Geometry) -> Node:
        """A tensor that is the same in every call."""
        node = Node(CONSTANT)
        node.constant, node.geometry, node.device, node.memory = value, geometry, value.device, node
        self.nodes.append(node)
        return node

    def object(self, value: Any) -> Node:
        """A generator, the same in every call; it stands before all that is computed."""
        node = Node(CONSTANT)
        node.constant = value
        self.nodes.insert(0, node)
        return node

    def call(self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Node:
        """One more operation."""
        node = Node(op, args, kwargs or NO_KWARGS)
        self.nodes.append(node)
        return node

    def like(self, source: Node, op: Any, *args: Any, **kwargs: Any) -> Node:
        """An operation whose result is on the device of ``source``."""
        node = self.call(op, args, kwargs)
        node.device = source.device
        return node

    def view(self, op: Any, source: Node, *args: Any, **kwargs: Any) -> Node:
        """An operation on ``source`` whose result may share memory with it."""
        node = self.call(op, (source, *args), kwargs)
        node.device, node.memory = source.device, source.memory
        return node


def nodes_in(arguments: Iterable[Any]) -> Iterator[Node]:
    """The nodes among arguments, those in lists too."""
    for a in arguments:
        if type(a) is Node:
            yield a
        elif type(a) in (list, tuple):
            yield from nodes_in(a)


def ancestors(roots: Iterable[Node | None], stop: frozenset[Node] | set[Node] = frozenset()) -> set[Node]:
    """All that ``roots`` are computed from, themselves included; what comes before a node of ``stop`` is left out."""
    seen: set[Node] = set()
    todo = [r for r in roots if r is not None]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            if node not in stop:
                todo.extend(node.inputs())
    return seen
