"""FX GraphModules made of the nodes of a graph, for compilers and for printing."""

from __future__ import annotations

import contextlib
import functools
import keyword
from collections.abc import Mapping, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch import fx

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import CONSTANT, Node, getitem
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.size import symbols, symbols_in

NOTHING: Mapping[str, tuple[Node, int | None]] = {}


class _Lowering:
    """Arguments of a node as FX has them; a term becomes arithmetic on the placeholders of its symbols, once."""

    def __init__(self, graph: fx.Graph, at: Mapping[Node, fx.Node]) -> None:
        self.graph = graph
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
    return symbols_in([[*n.args, *n.kwargs.values()] for n in nodes])


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
    defined: Mapping[str, tuple[Node, int | None]] = NOTHING,
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
            assert node.constant is not None
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
            number = made if dim is None else graph.call_function(torch.ops.aten.sym_size.int, (made, dim))
            numbers[symbol] = number
            if symbol in found:
                lower.symbols[found[symbol]] = number
    graph.output((*[None if n is None else at[n] for n in outputs], *[numbers[symbol] for symbol in defined]))
    root = torch.nn.Module()
    for title, value in attributes.items():
        if isinstance(value, torch.Tensor):
            root.register_buffer(title, value, persistent=False)
        else:
            setattr(root, title, value)
    return fx.GraphModule(root, graph, class_name=name)


def examples(inputs: Sequence[Node | str], env: Any = None) -> list[Any]:
    """Fake tensors of one mode that lie as the inputs do, and SymInts for symbols; of the env, if sizes are symbols."""
    mode = _torch.FakeTensorMode(allow_non_fake_inputs=True, shape_env=env)
    made: list[Any] = []
    for node in inputs:
        if isinstance(node, str):
            made.append(_torch.symbolic_int(env, _torch.symbol_named(env, node)))
            continue
        assert node.geometry is not None
        made.append(_fake(mode, node.geometry, node.device))
    return made


def _fake(mode: Any, g: Geometry, device: torch.device | None) -> Any:
    """A fake tensor that lies so."""
    env = mode.shape_env
    shape, stride = ([n if type(n) is int else _torch.symbolic_int(env, n) for n in x] for x in (g.shape, g.stride))
    elem = torch.empty_strided(shape, stride, dtype=g.dtype, device=_torch.META)
    return _torch.FakeTensor(mode, elem, device or torch.device("cpu"))


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
            value = _fake(self.mode, node.geometry, node.device)
        elif defines and value is None:
            value = _torch.symbolic_int(self.mode.shape_env, _torch.symbol_named(self.mode.shape_env, defines[0]))
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
