"""A finished functional graph: printable as Python, runnable as generated Python, exportable as an FX GraphModule."""

from __future__ import annotations

import builtins
import dataclasses
import keyword
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from aotcheck import _torch
from aotcheck.autograd.errors import NotFunctionalError
from aotcheck.autograd.graphs.node_meta import NodeMeta
from aotcheck.autograd.ir.sparse_geometry import SparseGeometry
from aotcheck.autograd.ir.trace import CONSTANT, NO_KWARGS, PLACEHOLDER, Geometry, Value, getitem
from aotcheck.autograd.ops import no_meta
from aotcheck.autograd.replicas.sparse import SparseResult

aten = torch.ops.aten
_LISTS = (list, torch.Size, fx.immutable_collections.immutable_list)
_NO_NAMES = frozenset({*dir(builtins), *keyword.kwlist, "device", "inf", "nan", "torch"})
"""What FX does not let nodes be named: it writes sum_1, never sum."""
_CPU = torch.device("cpu")
_INT = frozenset({int})


@dataclasses.dataclass(frozen=True)
class Graph:
    """``outputs`` computed from ``inputs`` by ``values``, in order. ``title`` says which stage made it."""

    title: str
    inputs: tuple[Value, ...]
    values: tuple[Value, ...]
    outputs: tuple[Value | None, ...]
    _named: dict[tuple[str, ...], dict[Value, str]] = dataclasses.field(default_factory=dict, compare=False)

    def named(self, input_names: Sequence[str]) -> dict[Value, str]:
        """A unique name per value, inputs under the given ones; not to be changed."""
        known = tuple(input_names)
        if known not in self._named:
            self._named[known] = self._name(known)
        return self._named[known]

    def _name(self, input_names: Sequence[str]) -> dict[Value, str]:
        names = dict(zip(self.inputs, input_names, strict=True))
        taken = set(input_names)  # a backward has values of the forward among them, by their names there
        last: dict[str, int] = {}  # the number of the last name made of a stem; 0 is written as nothing
        for v in self.values:
            if v in names:
                continue
            stem = "constant" if v.op is CONSTANT else _torch.op_name(v.op)
            number = last.get(stem, 0 if stem in _NO_NAMES else -1) + 1
            name = f"{stem}_{number}" if number else stem
            while name in taken:
                number += 1
                name = f"{stem}_{number}"
            last[stem] = number
            taken.add(name)
            names[v] = name
        return names


def cut(
    title: str, inputs: Sequence[Value], order: Sequence[Value], keep: set[Value], outputs: Sequence[Value | None]
) -> Graph:
    """The part ``keep`` of a trace as a graph."""
    given = set(inputs)
    return Graph(
        title,
        tuple(inputs),
        tuple(v for v in order if v in keep and v not in given and v.op is not PLACEHOLDER),
        tuple(outputs),
    )


class SourceWriter:
    """Collects lines of Python and the objects they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {}
        self._named: dict[int, str] = {}

    def refer(self, obj: Any, stem: str = "c") -> str:
        """A global name for ``obj``."""
        name = self._named.get(id(obj))
        if name is None:
            name = self._named[id(obj)] = f"{stem}{len(self.globals)}"
            self.globals[name] = obj
        return name

    def literal(self, a: Any, names: Mapping[Any, str]) -> str:
        """Python source of an argument; the values or nodes in it go by ``names``."""
        if type(a) is Value or type(a) is fx.Node:
            return names[a]
        if a is None or type(a) in (int, bool, str) or (type(a) is float and math.isfinite(a)):
            return repr(a)
        if type(a) in _LISTS:
            if _INT.issuperset(map(type, a)):
                return str(list(a))
            return f"[{', '.join([self.literal(x, names) for x in a])}]"
        if type(a) is tuple:
            return f"({''.join([self.literal(x, names) + ', ' for x in a])})"
        return self.refer(a)


def write_body(graph: Graph, names: dict[Value, str], writer: SourceWriter, indent: str, free: bool = True) -> None:
    """The graph's operations as lines of Python; each value is released after its last use."""
    last: dict[Value, int] = {}
    for k, v in enumerate(graph.values):
        for a in v.inputs():
            last[a] = k
    pinned = {o for o in graph.outputs if o is not None} | set(graph.inputs)
    dying: dict[int, list[str]] = {}
    if free:
        for v, k in last.items():
            if v not in pinned and v.op is not CONSTANT:
                dying.setdefault(k, []).append(names[v])
    for k, v in enumerate(graph.values):
        if v.op is CONSTANT:
            writer.globals[names[v]] = v.constant
            continue
        if v.op is getitem:
            line = f"{names[v]} = {names[v.args[0]]}[{v.args[1]}]"
        else:
            op = writer.refer(_torch.quick_op(v.op, v.args, v.kwargs, Value), "o_")
            args = [writer.literal(a, names) for a in v.args] + [
                f"{key}={writer.literal(a, names)}" for key, a in v.kwargs.items()
            ]
            line = f"{names[v]} = {op}({', '.join(args)})"
        if k in dying:
            line += "; " + " = ".join(dying[k]) + " = None"
        writer.lines.append(indent + line)


def interpreter(graph: Graph) -> Callable[..., list[Any]]:
    """The graph as a Python function of its inputs that returns a list of its outputs."""
    writer = SourceWriter()
    names = {v: f"i{k}" for k, v in enumerate(graph.inputs)}
    for k, v in enumerate(graph.values):
        names[v] = f"v{k}"
    parameters = ", ".join(names[v] for v in graph.inputs)
    writer.lines.append(f"def run({parameters}):")
    write_body(graph, names, writer, "    ")
    outputs = ", ".join("None" if o is None else names[o] for o in graph.outputs)
    writer.lines.append(f"    return [{outputs}]")
    return define(writer, "run", graph.title)


_code_cache: dict[str, Any] = {}


def define(writer: SourceWriter, name: str, title: str) -> Callable[..., Any]:
    """Compile the lines (once per text) and return the function ``name``, which is not among its own globals."""
    namespace = writer.globals
    exec(compiled("\n".join(writer.lines), title), namespace)
    function: Callable[..., Any] = namespace.pop(name)
    return function


def compiled(source: str, title: str) -> Any:
    """The code of ``source``, compiled once per text."""
    code = _code_cache.get(source)
    if code is None:
        if len(_code_cache) > 2000:
            _code_cache.clear()
        code = _code_cache[source] = compile(source, f"<aotcheck {title}>", "exec")
    return code


class FakeValues:
    """Example inputs and ``node.meta['val']``: a fake tensor per value, from its geometry or its op run on fakes."""

    def __init__(self) -> None:
        self.fakes = _torch.Fakes()
        self.known: dict[Value, Any] = {}

    def of(self, v: Value) -> Any:
        """The fake that stands for ``v``."""
        found = self.known.get(v)
        if found is None:
            found = self.known[v] = self._make(v)
        return found

    def told_later(self, inference: bool) -> Callable[[Value], dict[str, Any]]:
        """What gives for a value what its node is told, whatever is in force by then but for inference mode."""

        def told(v: Value) -> dict[str, Any]:
            if _torch.mode_depths() == (0, 0) and torch.is_inference_mode_enabled() is inference:
                return self.told(v)
            with _torch.without_modes(), _torch.without_torch_function(), torch.inference_mode(inference):
                return self.told(v)

        return told

    def told(self, v: Value) -> dict[str, Any]:
        """What the node of ``v`` is told: ``val``, and where in the user's code it is from."""
        told: dict[str, Any] = {"val": self.of(v)}
        if v.where is not None:
            told["stack_trace"] = f'  File "{v.where[0]}", line {v.where[1]}, in {v.where[2]}'
        if v.sequence >= 0:
            told["seq_nr"] = v.sequence
        return told

    def _make(self, v: Value) -> Any:
        if v.op is getitem:
            return self.of(v.args[0])[v.args[1]]
        g = v.geometry
        if g is not None and v.sparse is None and not (g.offset or g.conj or g.neg):  # as of most
            elem = torch.empty_strided(g.shape, g.stride, dtype=g.dtype, device=_torch.META)
            return self.fakes.from_meta(elem, v.device or _CPU)
        if v.sparse is not None:
            return self._like(v.sparse, v.device)
        if g is not None and (v.op is PLACEHOLDER or v.op is CONSTANT or not (g.conj or g.neg)):
            return self._like(g, v.device)
        if v.op is PLACEHOLDER:
            return v.constant
        if v.parts is not None:
            return tuple([self._like(p, v.device) if isinstance(p, (Geometry, SparseGeometry)) else p for p in v.parts])
        args, kwargs = tuple([self._arg(a) for a in v.args]), {k: self._arg(a) for k, a in v.kwargs.items()}
        with torch.no_grad():
            try:
                with self.fakes.mode:
                    return v.op(*args, **kwargs)
            except Exception as lacking:
                if not _torch.lacks_meta_kernel(lacking):
                    raise
                return self._faked(no_meta.results_of(v.op, args, kwargs, lacking), v.device or _CPU)

    def _faked(self, a: Any, device: torch.device) -> Any:
        """Meta tensors as fake ones."""
        if isinstance(a, (list, tuple)):
            return type(a)(self._faked(x, device) for x in a)
        if isinstance(a, SparseResult):
            return self._like(a.geometry, device)
        return self.fakes.from_meta(a, device) if isinstance(a, torch.Tensor) else a

    def _like(self, g: Geometry | SparseGeometry, device: torch.device | None) -> Tensor:
        if isinstance(g, SparseGeometry):
            return self.fakes.from_meta(g.with_elements(0, _torch.META), device or _CPU)
        if g.offset:
            elem = torch.empty(g.elements_reached, dtype=g.dtype, device=_torch.META)
            elem = elem.as_strided(g.shape, g.stride, g.offset)
        else:
            elem = torch.empty_strided(g.shape, g.stride, dtype=g.dtype, device=_torch.META)
        fake = self.fakes.from_meta(elem, device or _CPU)
        fake = _torch.conj_view(fake) if g.conj else fake
        return _torch.neg_view(fake) if g.neg else fake

    def _arg(self, a: Any) -> Any:
        if type(a) is Value:
            return self.of(a)
        if type(a) in (list, tuple):
            return type(a)(self._arg(x) for x in a)
        return a


def graph_module(
    graph: Graph, input_names: Sequence[str], fakes: FakeValues, name: str = "GraphModule"
) -> tuple[fx.GraphModule, list[Any]]:
    """The graph as an FX GraphModule with its example inputs (fake tensors)."""
    names = graph.named(input_names)
    g = fx.Graph()
    root = torch.nn.Module() if CONSTANT in [v.op for v in graph.values] else _torch.NO_ATTRIBUTES
    nodes: dict[Value, fx.Node] = {}
    append = _torch.appending_to(g)
    for v in graph.inputs:
        nodes[v] = append(names[v], "placeholder", names[v], (), NO_KWARGS, {"val": fakes.of(v)})
    told_later = fakes.told_later(torch.is_inference_mode_enabled())
    for v in graph.values:
        like = v.geometry
        # Where it is not known how a value lies its op is run on other fakes, which may fail.
        known = like is not None and v.op is not getitem and not (like.conj or like.neg)
        meta = NodeMeta(told_later, v) if known else fakes.told(v)
        if v.op is CONSTANT:
            attribute = f"_tensor_{names[v]}"
            root.register_buffer(attribute, v.constant, persistent=False)
            nodes[v] = append(names[v], "get_attr", attribute, (), NO_KWARGS, meta)
        else:
            args = tuple([nodes[a] if type(a) is Value else _of_nodes(a, nodes) for a in v.args])
            kwargs = {k: _of_nodes(a, nodes) for k, a in v.kwargs.items()} if v.kwargs else NO_KWARGS
            nodes[v] = append(names[v], "call_function", v.op, args, kwargs, meta)
    _torch.append_output(g, tuple([None if o is None else nodes[o] for o in graph.outputs]))
    return GraphModule(root, g, name), [fakes.of(v) for v in graph.inputs]


def _of_nodes(a: Any, nodes: Mapping[Value, fx.Node]) -> Any:
    """An argument with the nodes of the values in it."""
    if type(a) is Value:
        return nodes[a]
    if type(a) is list:
        return [_of_nodes(x, nodes) for x in a]
    if type(a) is tuple:
        return tuple([_of_nodes(x, nodes) for x in a])
    return a


def _write_forward(module: fx.GraphModule) -> Callable[..., Any] | None:
    """``module``'s forward with its ops bound, where FX looks each up on every call; None for unusual graphs."""
    writer = SourceWriter()
    names: dict[fx.Node, str] = {}
    parameters = ["self"]
    # Lines are written from the last to the first: where a value is met first it is used last.
    nodes = list(module.graph.nodes)
    for k, node in enumerate(nodes):
        names[node] = f"v{k}"
    lines, seen, literal = writer.lines, set[fx.Node](), writer.literal
    for node in reversed(nodes):
        kind, target, given, kwargs, sources = _torch.parts_of_node(node)
        if kind == "call_function":
            args = [names[a] if type(a) is fx.Node else literal(a, names) for a in given]
            if target is getitem:
                line = f"    {names[node]} = {args[0]}[{args[1]}]"
            else:
                if kwargs:
                    args += [f"{key}={literal(a, names)}" for key, a in kwargs.items()]
                op = writer.refer(_torch.quick_op(target, given, kwargs, fx.Node), "o_")
                line = f"    {names[node]} = {op}({', '.join(args)})"
            dying = [names[n] for n in sources if n not in seen and n.op == "call_function"]
            if dying:
                line += f"; {' = '.join(dying)} = None"
        elif kind == "placeholder" and not given:
            parameters.append(names[node])
            continue
        elif kind == "get_attr":
            line = f"    {names[node]} = self.{target}"
        elif kind == "output":
            line = f"    return {literal(given[0], names)}"
        else:
            return None
        seen.update(sources)
        lines.append(line)
    parameters[1:] = reversed(parameters[1:])
    lines.append(f"def forward({', '.join(parameters)}):")
    lines.reverse()
    return define(writer, "forward", "graph")


GraphModule = _torch.direct_graph_module(_write_forward)


def assert_functional(module: fx.GraphModule) -> None:
    """Raise NotFunctionalError unless every op of the graph leaves its arguments alone.

    One final ``copy_``, ``set_`` or ``resize_`` into a placeholder whose result nobody reads is allowed, once per
    placeholder: a mutation kept in the graph on purpose.
    """
    written: set[fx.Node] = set()
    for node in module.graph.nodes:
        if node.op != "call_function":
            if node.op in ("call_method", "call_module"):
                raise NotFunctionalError(f"node {node.name} is a {node.op}, not an ATen op")
            continue
        for source in node.all_input_nodes:
            if source in written:
                raise NotFunctionalError(f"node {node.name} reads {source.name} after it was written")
        target = node.target
        if target is getitem or isinstance(target, _torch.HigherOrderOperator):
            continue
        if not isinstance(target, _torch.OpOverload):
            raise NotFunctionalError(f"node {node.name} calls {target}, which is no ATen op")
        if not _torch.schema_of(target).is_mutable:
            continue
        final = _torch.op_name(target) in ("copy_", "set_", "resize_") and not node.users
        into = node.args[0] if node.args else None
        if not (final and isinstance(into, fx.Node) and into.op == "placeholder"):
            raise NotFunctionalError(f"node {node.name} calls {target}, which writes its arguments")
        written.add(into)
