"""The functional program: nodes in the order in which they were recorded; and the FX graph modules made of it."""

from __future__ import annotations

import contextlib
import functools
import keyword
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch import Tensor, fx

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.size import symbols, symbols_in

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
        inputs: the nodes that it is computed from, one as often as it is used.
        geometry: how the value lies at run time; None for several results at once.
        memory: the placeholder or constant with which the value shares memory at run time, if it may.
        where: the line of the user's program that recorded it.
    """

    __slots__ = ("args", "constant", "device", "geometry", "inputs", "kwargs", "memory", "name", "op", "sequence",
                 "where")  # fmt: skip

    def __init__(self, op: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS) -> None:
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.inputs: Sequence[Node] = list(nodes_in((*args, *kwargs.values())))
        self.geometry: Geometry | None = None
        self.device: torch.device | None = None
        self.memory: Node | None = None
        self.constant: Any = None
        self.where: Where | None = None
        self.sequence = -1
        self.name = ""

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
        self.placeholders.append(node := placeholder(geometry, device))
        return node

    def constant(self, value: Tensor, geometry: Geometry) -> Node:
        """A tensor that is the same in every call."""
        node = Node(CONSTANT)
        node.constant, node.geometry, node.device, node.memory = value, geometry, value.device, node
        self.nodes.append(node)
        return node

    def call(self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Node:
        """One more operation."""
        self.nodes.append(node := Node(op, args, kwargs or NO_KWARGS))
        return node

    def like(self, source: Node, op: Any, *args: Any, **kwargs: Any) -> Node:
        """An operation whose result is on the device of ``source``, and comes of the same line of the user's."""
        node = self.call(op, args, kwargs)
        node.device, node.where = source.device, source.where
        return node

    def view(self, op: Any, source: Node, *args: Any, **kwargs: Any) -> Node:
        """An operation on ``source`` whose result may share memory with it."""
        node = self.like(source, op, source, *args, **kwargs)
        node.memory = source.memory
        return node


def placeholder(geometry: Geometry, device: torch.device) -> Node:
    """An input of a graph, or what stands for one."""
    node = Node(PLACEHOLDER)
    node.geometry, node.device, node.memory = geometry, device, node
    return node


def nodes_in(arguments: Iterable[Any]) -> Iterator[Node]:
    """The nodes among arguments, those in lists too."""
    for a in arguments:
        if type(a) is Node:
            yield a
        elif type(a) in (list, tuple):
            yield from nodes_in(a)


def ancestors(
    roots: Iterable[Any],
    stop: frozenset[Any] | set[Any] = frozenset(),
    inputs: Callable[[Any], Iterable[Any]] = operator.attrgetter("inputs"),
) -> set[Any]:
    """All that ``roots`` are computed from, themselves included; what comes before a node of ``stop`` is left out.

    Of other graphs than ours, as those of FX and autograd, ``inputs`` tells what a node is computed from.
    """
    seen: set[Any] = set()
    todo = [r for r in roots if r is not None]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            if node not in stop:
                todo.extend(inputs(node))
    return seen


class _Lowering:
    """Arguments of a node as FX has them; a term becomes arithmetic on the placeholders of its symbols, once."""

    def __init__(self, graph: fx.Graph, at: Mapping[Node, fx.Node]) -> None:
        self.at = at
        self.symbols: dict[Any, fx.Node] = {}
        self.tracer = fx.proxy.GraphAppendingTracer(graph)

    def __call__(self, a: Any) -> Any:
        if type(a) is Node:
            return self.at[a]
        if type(a) in (list, tuple):
            return [self(x) for x in a]
        if not isinstance(a, sympy.Basic):
            return a
        if a not in self.symbols:
            values = {s: fx.Proxy(self.symbols[s], self.tracer) for s in a.free_symbols}
            found = _torch.evaluated(a, values)
            if not isinstance(found, fx.Proxy):
                return found
            self.symbols[a] = found.node
        return self.symbols[a]


def symbols_of(nodes: Sequence[Node]) -> list[str]:
    """The names of the symbols that the arguments of nodes name, sorted."""
    return symbols_in([a for n in nodes for a in (*n.args, *n.kwargs.values()) if type(a) is not Node])


@functools.cache
def _callable(op: Any) -> Any:
    """The op itself, or a function that calls it where its name cannot stand in Python code, as ``random.from``."""
    name = _torch.overload_name(op) if isinstance(op, _torch.OpOverload) else ""
    if not keyword.iskeyword(name) and not keyword.iskeyword(_torch.op_name(op)):
        return op

    def call(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    vars(call)["overload"] = op
    call.__name__ = call.__qualname__ = f"{_torch.op_name(op)}_{name}"
    return call


def graph_module(
    inputs: Sequence[tuple[str, Node | str]],
    nodes: Sequence[Node],
    outputs: Sequence[Node | None],
    name: str,
    defined: Mapping[str, tuple[Node, int | None]] = {},
) -> fx.GraphModule:
    """A module that takes ``inputs``, by their names, runs ``nodes`` and returns ``outputs`` in a tuple.

    An input is a node, or the name of a symbol, whose value the module is given as an int. The values of symbols that
    nodes define are returned after the outputs.
    """
    graph = fx.Graph()
    at: dict[Node, fx.Node] = {}
    lower = _Lowering(graph, at)
    attributes: dict[str, Any] = {}
    found = {str(s): s for s in symbols([[*n.args, *n.kwargs.values()] for n in nodes])}
    sizes: dict[Node, list[tuple[str, int | None]]] = {}
    for symbol, (source, dim) in defined.items():
        sizes.setdefault(source, []).append((symbol, dim))
    numbers: dict[str, fx.Node] = {}
    for title, node in inputs:
        if isinstance(node, str):
            lower.symbols[found[node]] = graph.placeholder(title)
        else:
            at[node] = graph.placeholder(title)
    for node in nodes:
        if node.op == CONSTANT:
            title = f"_tensor_constant{len(attributes)}"
            attributes[title] = node.constant
            at[node] = graph.get_attr(title)
            continue
        args, kwargs = lower(node.args), {k: lower(v) for k, v in node.kwargs.items()}
        title = "getitem" if node.op is getitem else _torch.op_name(node.op)
        made = graph.create_node("call_function", _callable(node.op), tuple(args), kwargs, name=title)
        if node.where is not None:
            made.meta["stack_trace"] = f"  {node.where}"
        made.meta["aotcheck"] = node, [symbol for symbol, _ in sizes.get(node, ())]
        if node.sequence >= 0 and node.op is not getitem:
            made.meta["seq_nr"] = node.sequence
        at[node] = made
        node.name = node.name or made.name
        for symbol, dim in sizes.get(node, ()):
            numbers[symbol] = made if dim is None else graph.call_function(torch.ops.aten.sym_size.int, (made, dim))
            if symbol in found:
                lower.symbols[found[symbol]] = numbers[symbol]
    graph.output((*[None if n is None else at[n] for n in outputs], *[numbers[symbol] for symbol in defined]))
    return fx.GraphModule(attributes, graph, class_name=name)


def examples(inputs: Sequence[Node | str], env: Any = None) -> list[Any]:
    """Fake tensors of one mode that lie as the inputs do, and SymInts for symbols; of the env, if sizes are symbols."""
    mode = _torch.FakeTensorMode(allow_non_fake_inputs=True, shape_env=env)
    return [_named(env, x) if isinstance(x, str) else _fake(mode, x) for x in inputs]


def _named(env: Any, name: str) -> Any:
    """A symbol of the env as a SymInt."""
    return _torch.symbolic_int(env, _torch.symbol_named(env, name))


def _fake(mode: Any, node: Node) -> Any:
    """A fake tensor that lies as the node's value does."""
    g, env = node.geometry, mode.shape_env
    assert g is not None
    shape, stride = ([n if type(n) is int else _torch.symbolic_int(env, n) for n in x] for x in (g.shape, g.stride))
    elem = torch.empty_strided(shape, stride, dtype=g.dtype, device=_torch.META)
    return _torch.FakeTensor(mode, elem, node.device or torch.device("cpu"))


class _Values(fx.Interpreter):
    """Notes what each node gives for fake inputs: what its op gives, or, where data decide that, the trace knows."""

    mode: Any

    def run_node(self, n: fx.Node) -> Any:
        """What the node gives; None where nothing tells."""
        value, (node, defines) = None, n.meta.pop("aotcheck", (None, []))
        if not defines:
            with contextlib.suppress(Exception):  # of an op that has no fake kernel, or takes what nothing tells of
                value = super().run_node(n)
        if value is None and node is not None and node.geometry is not None:
            value = _fake(self.mode, node)
        elif defines and value is None:
            value = _named(self.mode.shape_env, defines[0])
        if value is not None:
            n.meta["val"] = value
        return value


def with_values(module: fx.GraphModule, fakes: Sequence[Any]) -> None:
    """Let nodes have in ``meta["val"]`` what they give for fake inputs."""
    mode = next((x.fake_mode for x in fakes if isinstance(x, _torch.FakeTensor)), None)
    if mode is not None:
        with torch.no_grad(), _torch.autocast_off(), mode:
            values = _Values(module)
            values.mode = mode
            values.run(*fakes)
