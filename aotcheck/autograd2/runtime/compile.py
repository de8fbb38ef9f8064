"""compile: graphs become FX modules, and a user's compilers make callables of them; without one, Python functions.

First the check that a graph is functional (aten ops that write nothing, arithmetic on sizes; users' ops keep to their
schemas); then graphs as Python: ops are called straight, past autograd, and write their operand where nothing reads it
any more; then ops that no result needs: they run until they have not raised once, as in eager each may raise. So what
an op says of the kinds of its operands is found; what it says of values in a later call is not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch import Tensor, fx

from aotcheck import _torch2 as _torch
from aotcheck._torch2.dispatch import TENSOR, quick_op
from aotcheck.autograd2.config import config, log, python_of
from aotcheck.autograd2.errors import NotFunctionalError, SchemaError
from aotcheck.autograd2.ir import graph as ir
from aotcheck.autograd2.ir.size import text
from aotcheck.autograd2.partition import BackwardGraph, ForwardGraph, Partition, PartitionFunction
from aotcheck.autograd2.trace.info import info_of

aten = torch.ops.aten
_NEW = {aten.mm, aten.bmm, aten.addmm, aten.add, aten.sub, aten.mul, aten.div, aten.neg, aten.relu, aten.tanh}
_NEW |= {aten.sigmoid, aten.gelu, aten.silu, aten.exp}
"""Ops that give new tensors."""
_WITH_NUMBERS = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}
_count = itertools.count()


def assert_functional(module: fx.GraphModule) -> None:
    """Raise NotFunctionalError unless each op of the graph leaves its arguments alone and names are unique."""
    module.graph.lint()
    written: set[fx.Node] = set()
    for node in module.graph.nodes:
        target = getattr(node.target, "overload", node.target)
        if node.op in ("call_method", "call_module"):
            raise NotFunctionalError(f"node {node.name} is a {node.op}, not an ATen op")
        if read := next((source for source in node.all_input_nodes if source in written), None):
            raise NotFunctionalError(f"node {node.name} reads {read.name} after it was written")
        arithmetic = getattr(target, "__module__", "") in ("_operator", "math", "torch")
        if node.op != "call_function" or arithmetic or target is _torch.auto_functionalized:
            continue
        if isinstance(target, _torch.OpOverload) and not _torch.schema_of(target).is_mutable:
            continue
        into = node.args[0] if node.args else None
        kept = isinstance(target, _torch.OpOverload) and _torch.op_name(target) == "copy_" and not node.users
        if not (kept and isinstance(into, fx.Node) and into.op == "placeholder"):
            raise NotFunctionalError(f"node {node.name} calls {target}, which writes its arguments or is no ATen op")
        written.add(into)


def held_to_schema(op: Any) -> Callable[..., Any]:
    """A user's op that raises SchemaError where it writes an argument or returns its memory, and its schema says no."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with _torch.SchemaCheckMode():
                return op(*args, **kwargs)
        except RuntimeError as error:
            if "is not defined" not in str(error):
                raise
            raise SchemaError(f"{op}: {error}") from error

    return call


class _Code:
    """Writes the source; ``names`` are what it names beside its own values."""

    def __init__(self, nodes: Sequence[ir.Node]) -> None:
        aliasing = [n for n in nodes if isinstance(n.op, _torch.OpOverload) and info_of(n.op).may_alias]
        self.own = set(nodes).difference(*(n.inputs for n in aliasing))  # what is saved comes from another graph
        self.names: dict[str, Any] = {"math": math, "torch": torch}
        self.lines: list[str] = []
        self.values: dict[ir.Node, str] = {}
        self.ops: dict[Any, str] = {}
        self.terms: dict[Any, str] = {}

    def bind(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def argument(self, a: Any) -> str:
        """An argument of an op as source."""
        if type(a) is ir.Node:
            return self.values[a]
        if type(a) in (list, tuple):
            return f"[{', '.join(map(self.argument, a))}]"
        if a is None or type(a) in (int, bool, str) or (type(a) is float and math.isfinite(a)):
            return repr(a)
        if not isinstance(a, sympy.Basic):
            return self.bind("c", a)
        if a not in self.terms:
            self.terms[a] = f"e{len(self.terms)}"
            self.lines.append(f"{self.terms[a]} = {text(a)}")
        return self.terms[a]

    def given(self, node: ir.Node) -> tuple[Any, ...]:
        """The node's arguments. A number that the op would make a tensor of in each call is that tensor already."""
        if node.op in _WITH_NUMBERS and type(number := node.args[-1]) in (int, float) and str(node.device) == "cpu":
            dtypes = {n.geometry and n.geometry.dtype for n in (node, node.args[0])}
            if dtypes in ({torch.float32}, {torch.float64}) and abs(number) < 2**53:
                with _torch.without_modes():
                    return node.args[0], torch.tensor(number, dtype=torch.float64, device="cpu").to(*dtypes)
        return node.args

    def in_place(self, node: ir.Node, dying: Sequence[ir.Node]) -> Any:
        """The op of a node, or its form that writes the first operand, if that is not read any more and lies so."""
        first, *others = node.inputs or [node]
        new = getattr(node.op, "overloadpacket", None) in _NEW and getattr(first.op, "overloadpacket", None) in _NEW
        if not new or first not in dying or first not in self.own or first in others or node.args[0] is not first:
            return node.op
        alike = first.geometry is not None and (first.geometry, first.device) == (node.geometry, node.device)
        packet = getattr(aten, f"{_torch.op_name(node.op)}_", None) if alike else None
        return getattr(packet, _torch.overload_name(node.op), node.op)

    def node(self, node: ir.Node, dying: list[ir.Node]) -> None:
        """The line of a node, after which values are let go of: the first by giving its name to the node."""
        name, *more = [self.values[n] for n in dying] or [f"n{len(self.values)}"]
        if node.op == ir.CONSTANT:
            self.names[name] = node.constant
        elif node.op is ir.getitem:
            self.lines.append(f"{name} = {self.argument(node.args[0])}[{node.args[1]}]")
        else:
            looked = config().debug and isinstance(node.op, _torch.OpOverload) and node.op.namespace != "aten"
            op = self.in_place(node, dying)
            args = self.given(node)
            called = held_to_schema(op) if looked else quick_op(op, args, node.kwargs, _example)
            op = self.ops.get(called) or self.ops.setdefault(called, self.bind("op", called))
            given = [*map(self.argument, args), *(f"{k}={self.argument(a)}" for k, a in node.kwargs.items())]
            self.lines.append(f"{name} = {op}({', '.join(given)})")
        self.values[node] = name
        self.lines += [f"del {', '.join(more)}"] if more else []


def function_of(
    inputs: Sequence[ir.Node | str],
    nodes: Sequence[ir.Node],
    outputs: Sequence[ir.Node | None],
    defined: Mapping[str, tuple[ir.Node, int | None]],
) -> Callable[..., Any]:
    """What takes ``inputs``, runs ``nodes`` and returns ``outputs`` and then the values of symbols that nodes define.

    Each value is let go of after its last use.
    """
    code = _Code(nodes)
    taken = [n if isinstance(n, str) else code.values.setdefault(n, f"a{k}") for k, n in enumerate(inputs)]
    sizes: dict[ir.Node, list[str]] = {}
    for symbol, (of, dim) in defined.items():
        sizes.setdefault(of, []).append(f"{symbol} = {{}}" if dim is None else f"{symbol} = {{}}.size({dim})")
    last = {operand: k for k, n in enumerate(nodes) for operand in n.inputs}
    dying: dict[int, list[ir.Node]] = {}
    kept = set(outputs)
    for operand, k in last.items():
        if operand not in kept and operand.op != ir.CONSTANT:
            dying.setdefault(k, []).append(operand)
    for k, node in enumerate(nodes):
        code.node(node, dying.get(k, []))
        code.lines += [line.format(code.values[node]) for line in sizes.get(node, ())]
        if node not in last and node not in kept and node.op != ir.CONSTANT:
            code.lines.append(f"del {code.values[node]}")
    given = ["None" if n is None else code.values[n] for n in outputs]
    lines = [*code.lines, f"return ({''.join(f'{x}, ' for x in [*given, *defined])})"]
    if len(nodes) > 2:  # autograd looks at each op otherwise, though it records none
        code.names["below"] = _torch.BelowAutograd
        lines = ["guard = below()", "try:", *(f"    {line}" for line in lines), "finally: del guard"]
    source = "\n    ".join([f"def graph({', '.join(taken)}):", *lines]) + "\n"
    exec(compile(source, f"<aotcheck graph {next(_count)}>", "exec"), code.names)
    return cast(Callable[..., Any], code.names["graph"])


def _example(a: Any) -> Any:
    """Arguments with ``TENSOR`` for nodes and a number for terms."""
    if type(a) is ir.Node:
        return TENSOR
    if isinstance(a, (list, tuple)):
        return [_example(x) for x in a]
    if isinstance(a, Mapping):
        return {k: _example(x) for k, x in a.items()}
    return (2 if a.is_integer else 2.5) if isinstance(a, sympy.Basic) else a


def unused(recorded: Sequence[ir.Node], part: Partition, known: Sequence[str]) -> list[ir.Node]:
    """Of what was recorded forward what no graph runs, with what it needs; but for views and ops not of torch's.

    Nor what needs the values of other symbols than the ``known`` ones.
    """
    runs = {*part.forward.nodes, *(n for graph in part.backwards for n in graph.nodes)}
    of_others: set[ir.Node] = set()
    dead, unknown = [], set(ir.symbols_of(recorded)).difference(known)
    for n in recorded:
        others = getattr(n.op, "namespace", "aten") != "aten" or (unknown and unknown & {*ir.symbols_of([n])})
        if others or not of_others.isdisjoint(n.inputs):
            of_others.add(n)  # it may do what must not be done twice
        elif n not in runs and n.op != ir.CONSTANT and n.memory is None:
            dead.append(n)
    needed = ir.ancestors(dead)
    return [n for n in recorded if n in needed]


def run_once(
    call: Callable[..., Any], inputs: Sequence[ir.Node | str], nodes: Sequence[ir.Node], draws: Sequence[Any], more: int
) -> None:
    """Have ``call`` run ``nodes`` first until they raise nothing; its graph does not take the last ``more`` inputs."""
    names = call.__globals__
    graph, first = names["forward"], function_of(inputs, nodes, (), {})
    forward = (lambda *given: graph(*given[:-more])) if more else graph

    def both(*given: Any) -> Any:
        states = [g.get_state() for g in draws]
        try:
            first(*given)
        finally:
            for g, state in zip(draws, states, strict=True):
                g.set_state(state)
        names["forward"] = forward
        return forward(*given)

    names["forward"] = both


Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def nop(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The compiler that runs graphs as they are."""
    return module


@dataclass(frozen=True)
class Compilers:
    """The user's: ``forward`` where there is a backward, ``inference`` where there is none.

    Args:
        decompositions: of ops that are to be made of others, what makes them.
        partition: cuts joint graphs, in place of the default partition.
        keep_writes: whether graphs without a backward write inputs themselves, where they end.
    """

    forward: Compiler = nop
    backward: Compiler = nop
    inference: Compiler = nop
    decompositions: Mapping[Any, Callable[..., Any]] | None = None
    partition: PartitionFunction | None = None
    keep_writes: bool = False


def compile_forward(
    graph: ForwardGraph, compilers: Compilers, kept: Mapping[int, int], *, differentiable: bool, env: Any = None
) -> Callable[..., Any]:
    """What computes results and saved tensors of a forward graph, taking its inputs one by one.

    Results that are ``kept``, by position, it writes to inputs; these it gives in their place.
    """
    compiler, table, gives = compilers.forward, compilers.decompositions, (*graph.results, *graph.saved)
    log("forward", lambda: python_of(forward_module(graph, differentiable=differentiable), "forward"))
    if compiler is nop and not table:
        if config().debug:
            assert_functional(forward_module(graph))
        return function_of(graph.inputs, graph.nodes, gives, graph.defined)
    module = forward_module(graph, differentiable=differentiable)
    made = _compiled(module, ir.examples(graph.inputs, env), compiler, table, kept)
    count, written = len(graph.results), set(kept.values())
    own = [k for k, n in enumerate(gives) if k not in kept and (n.op is aten.clone.default or k < count)]

    def run(*inputs: Any) -> list[Any]:
        results = [*made(*[a.data if k in written else a for k, a in enumerate(inputs)])]
        for k, j in kept.items():
            results.insert(k, inputs[j])
        return _with_own_memory(inputs, results, own)

    return run


def _with_own_memory(inputs: Sequence[Any], results: Sequence[Any], own: Sequence[int]) -> list[Any]:
    """Results, of which a compiler may have merged those that ``own`` memory with each other or with inputs."""
    found, met = list(results), {_address(a) for a in inputs}
    for k in own:
        if (address := _address(found[k])) in met and address is not None:
            found[k] = found[k].clone()
        met.add(address)
    return found


def _keep_writes(module: fx.GraphModule, kept: Mapping[int, int]) -> None:
    """Write results to inputs where the graph ends. A decomposition may give an input as a result: that is copied."""
    graph, output = module.graph, module.graph.output_node()
    inputs, results = graph.find_nodes(op="placeholder"), [*cast(Any, output.args[0])]
    memory = {_address(n.meta["val"]) for n in inputs}
    with graph.inserting_before(output):
        for k, n in enumerate(results):
            if (address := _address(n.meta.get("val"))) is not None and address in memory:
                results[k] = graph.call_function(aten.clone.default, (n,))
                results[k].meta.update(n.meta)
        for k, j in kept.items():
            graph.call_function(aten.copy_.default, (inputs[j], results[k])).meta.update(results[k].meta)
    output.args = ([n for k, n in enumerate(results) if k not in kept],)
    module.recompile()


def _address(a: Any) -> int | None:
    return _torch.address_of(a) if isinstance(a, Tensor) and a.numel() else None


def forward_module(graph: ForwardGraph, *, differentiable: bool = True) -> fx.GraphModule:
    """A forward graph as compilers get it."""
    named = [(f"primals_{k + 1}" if differentiable else f"arg{k}_1", n) for k, n in enumerate(graph.inputs)]
    for title, n in named:
        if isinstance(n, ir.Node):
            n.name = title
    return ir.graph_module(named, graph.nodes, (*graph.results, *graph.saved), "aotcheck_forward", graph.defined)


def compile_backward(graph: BackwardGraph, compilers: Compilers, env: Any = None) -> Callable[..., Any]:
    """What computes gradients, taking saved tensors, then symbols, then tangents."""
    compiler, table = compilers.backward, compilers.decompositions
    log("backward", lambda: python_of(backward_module(graph), "backward"))
    if compiler is nop and not table:
        if config().debug:
            assert_functional(backward_module(graph))
        return function_of(graph.inputs, graph.nodes, graph.backward.gradients, {})
    with torch.inference_mode(False), torch.enable_grad():
        return _compiled(backward_module(graph), ir.examples(graph.inputs, env), compiler, table, {})


def backward_module(graph: BackwardGraph) -> fx.GraphModule:
    """A backward graph as compilers get it."""
    first = len(graph.inputs) - len(graph.backward.tangents)
    names = [getattr(n, "name", "") or f"saved_{k + 1}" for k, n in enumerate(graph.inputs[:first])]
    names += [f"tangents_{k + 1}" for k in range(len(graph.backward.tangents))]
    named = list(zip(names, graph.inputs, strict=True))
    return ir.graph_module(named, graph.nodes, graph.backward.gradients, "aotcheck_backward")


def _compiled(
    module: fx.GraphModule, fakes: list[Any], compiler: Compiler, table: Any, kept: Mapping[int, int]
) -> Callable[..., Any]:
    if table:
        module = _torch.decomposed(module, fakes, table)
    else:
        ir.with_values(module, fakes)
    if kept:
        _keep_writes(module, kept)
    if config().debug:
        assert_functional(module)
    made = compiler(module, fakes)
    if not callable(made):
        raise TypeError(f"the compiler returned a {type(made).__name__}, which cannot be called")
    return (lambda *args: made(list(args))) if getattr(made, "_boxed_call", False) else made
