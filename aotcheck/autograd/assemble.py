"""From a capture to something that runs: partition, hand the graphs to the compilers, generate the runtime around what they return."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch
from aotcheck.autograd.capture import Capture
from aotcheck.autograd.config import config
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graph import FakeValues, Graph, assert_functional, cut, define, geometry_matches, graph_module, interpreter
from aotcheck.autograd.partition.default import backward_values, forward_values, saved_values
from aotcheck.autograd.runtime import codegen, support
from aotcheck.autograd.runtime.support import StrideCorrection
from aotcheck.autograd.trace import CONSTANT, PLACEHOLDER, Geometry, Value, getitem
from aotcheck.autograd.tracer import METADATA
from aotcheck.autograd.twins import Kind, info_of

aten = torch.ops.aten
ShapeResult = Callable[[list[str], Callable[[Any], str]], str]
Compiler = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]


def nop(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The compiler that compiles nothing: the graph itself runs."""
    return module


@dataclasses.dataclass(frozen=True)
class Compilers:
    """What turns graphs into callables; None means that our own interpreter runs the graph."""

    forward: Compiler | None = None
    backward: Compiler | None = None
    inference: Compiler | None = None
    decompositions: dict[Any, Any] | None = None
    partition: Callable[..., Any] | None = None


def run_compiler(compiler: Compiler | None, graph: Graph, names: Sequence[str], fakes: FakeValues, decompositions: Any, title: str) -> Callable[..., Any]:
    """The graph as a callable that takes its inputs one by one and returns a sequence."""
    if compiler is None or (compiler is nop and not decompositions):
        if config().debug:
            assert_functional(graph_module(graph, names, fakes)[0])
        return interpreter(graph)
    module, examples = graph_module(graph, names, fakes, title)
    if decompositions:
        module = _decompose(module, examples, decompositions)
    if config().debug:
        assert_functional(module)
    with torch.enable_grad():
        compiled = compiler(module, examples)
    if isinstance(compiled, fx.GraphModule):
        return _torch.ready_forward(compiled)
    if getattr(compiled, "_boxed_call", False):
        return lambda *args: compiled(list(args))
    return compiled


def _decompose(module: fx.GraphModule, examples: list[Any], table: dict[Any, Any]) -> fx.GraphModule:
    """The graph with each op in ``table`` written out; its aliasing was settled before and does not change."""
    from torch.fx.experimental.proxy_tensor import make_fx

    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    with torch.no_grad():
        traced = make_fx(torch.func.functionalize(module.forward, remove="mutations"), decomposition_table=table, _allow_non_fake_inputs=True)(*examples)
    for node, name in zip([n for n in traced.graph.nodes if n.op == "placeholder"], names, strict=True):
        node.name = node.target = name
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def _tangent_geometry(g: Geometry) -> Geometry:
    """The layout in which a backward expects the gradient of an output: the output's own if it is dense, else row-major."""
    if 0 in g.shape or g.dense_order is None:
        stride, step = [], 1
        for n in reversed(g.shape):
            stride.insert(0, step)
            step *= max(n, 1)
        return Geometry(0, g.shape, tuple(stride), g.dtype, False, False)
    return Geometry(0, g.shape, g.stride, g.dtype, False, False)


class Assembly:
    """One specialization: its graphs, compiled, and the function that runs them. Backwards are cut and compiled when first needed."""

    def __init__(self, capture: Capture, compilers: Compilers, shape_result: ShapeResult) -> None:
        self.capture = capture
        self.record = capture.record
        self.compilers = compilers
        self.trace = capture.tracer.trace
        self.fakes = FakeValues()
        self._lock = threading.RLock()
        self._backwards: dict[tuple[bool, ...], Callable[..., Any]] = {}
        self.inputs = [r.placeholder for r in capture.roots] + [f.value for f in self.record.flats]
        self.input_names = [f"primals_{k + 1}" if self.record.differentiable else f"arg{k}_1" for k in range(len(self.inputs))]
        for v, name in zip(self.inputs, self.input_names, strict=True):
            v.name = name
        self.tangents: list[Value] = []
        self.saved: list[Value] = []
        self.outputs = self._distinct_outputs()
        self.backward_graphs: dict[tuple[bool, ...], list[Value | None]] = {}
        if self.record.differentiable:
            self._trace_joint()
        self._find_inputs_added_by_backward()
        self.forward_graph = self._cut_forward()
        self.call = self._generate(shape_result)

    # -- graphs

    def _distinct_outputs(self) -> list[Value]:
        """The forward's outputs as values that are neither inputs nor each other: a Function may return no tensor twice."""
        seen: set[Value] = set()
        values = []
        for o in self.record.outputs:
            v = o.value
            if v in seen or v.memory is not None or v.op is CONSTANT:
                copy = self.trace.call(aten.clone.default, (v,))
                copy.geometry, copy.device = v.geometry, v.device
                v = copy
            seen.add(v)
            values.append(v)
        return values

    def _trace_joint(self) -> None:
        count = 0
        for o in self.record.outputs:
            if o.differentiable:
                count += 1
                g = _tangent_geometry(o.geometry)
                t = Value(PLACEHOLDER, (), {})
                t.name, t.geometry, t.device = f"tangents_{count}", g, o.value.device
                self.tangents.append(t)
        everything = (True,) * count
        sets = [everything]
        try:
            self.backward_graphs[everything] = self.capture.trace_backward(everything, self.tangents)
        except UnsupportedError:
            raise
        except Exception:
            # Eager's backward from all outputs raises too, and will do so when it is called; what is saved is what each output needs alone.
            sets = [tuple(k == j for j in range(count)) for k in range(count)] if count > 1 else []
            for defined in list(sets):
                try:
                    self.backward_graphs[defined] = self.capture.trace_backward(defined, self.tangents)
                except UnsupportedError:
                    raise
                except Exception:
                    sets.remove(defined)
        self.forward = forward_values(self.trace.values, self.outputs, self.trace.effects)
        gradients = [g for defined in sets for g in self.backward_graphs[defined]]
        self.saved = saved_values(self.forward, set(self.inputs), gradients, self.trace.values)

    def _find_inputs_added_by_backward(self) -> None:
        if len(self.capture.tracer.table.flat_inputs) != len(self.record.flats):
            raise UnsupportedError("backward reads beyond a window", "the backward needs the whole storage of an input")

    def _cut_forward(self) -> Graph:
        order = self.trace.values
        if not self.record.differentiable:
            self.forward = forward_values(order, self.outputs, self.trace.effects)
        saved = []
        for v in self.saved:
            if v.memory in self.record.written_placeholders:
                # The epilogue overwrites the memory this value lies in; eager's backward sees it as it was.
                copy = self.trace.call(aten.clone.default, (v,))
                copy.geometry, copy.device = v.geometry, v.device
                self.forward.add(copy)
                v = copy
            saved.append(v)
        self.saved_outputs = saved
        self.forward.update(self.outputs)
        title = "forward" if self.record.differentiable else "inference"
        return cut(title, self.inputs, self.trace.values, self.forward, [*self.outputs, *saved])

    # -- code

    def _generate(self, shape_result: ShapeResult) -> Callable[[Sequence[Any]], Any]:
        compilers = self.compilers
        compiler = compilers.forward if self.record.differentiable else compilers.inference or compilers.forward
        compiled = run_compiler(compiler, self.forward_graph, self.input_names, self.fakes, compilers.decompositions, self.forward_graph.title)
        self.interpreted = compiler is None or compiler is nop
        self._shape_result = shape_result
        self._compiled = compiled
        self._link({})
        self._namespace["fw"] = self._first_run
        return self._call

    def _link(self, wrong: dict[int, Geometry]) -> None:
        """Generate the code around the compiled forward; ``wrong`` are outputs whose layout has to be set right."""
        record = self.record
        if record.differentiable:
            fresh = [self._is_fresh(v) for v in (*self.outputs, *self.saved_outputs)]
            w = codegen.write_function(record, self.saved, wrong, fresh)
            define(w, "forward", "function")
            w.globals.update(fw=self._compiled, backward_for=self.backward_for)
            self._namespace = w.globals
            function = codegen.make_function(w.globals["forward"], w.globals["backward"])
            c = codegen.write_call(record, {}, self._shape_result, bool(self.trace.effects))
            c.globals["apply"] = _torch.bound_apply(function)
        else:
            c = codegen.write_call(record, wrong, self._shape_result, bool(self.trace.effects))
            c.globals["fw"] = self._compiled
            self._namespace = c.globals
        self._call = define(c, "call", "call")
        self.call = self._call

    def _is_fresh(self, v: Value) -> bool:
        if v.op is PLACEHOLDER:
            return True
        if not self.interpreted or v.memory is not None:
            return False
        op = v.args[0].op if v.op is getitem else v.op
        return isinstance(op, _torch.OpOverload) and info_of(op).kind is Kind.PURE and info_of(op).cacheable

    def _first_run(self, *args: Any) -> Any:
        """The forward's first run: are the strides what the trace foretold? Nothing of the caller's has been touched yet."""
        random = bool(self.trace.effects)
        state = support.generator_states() if random else None
        try:
            results = self._compiled(*args)
        except Exception:
            if state is not None:
                support.restore_generators(state)
            if self.interpreted and self._learn_strides(args):
                raise StrideCorrection from None
            raise
        wrong = [k for k, v in enumerate(self.outputs) if not geometry_matches(results[k], _as(v, self.record.outputs[k].geometry))]
        if wrong and self.interpreted:
            if state is not None:
                support.restore_generators(state)
            if self._learn_strides(args):
                raise StrideCorrection
            if state is not None:
                results = self._compiled(*args)
        if wrong:
            layouts = {k: self.record.outputs[k].geometry for k in wrong if self.record.outputs[k].tensor is not None}
            self._link(layouts)
            results = list(results)
            for k, g in layouts.items():
                results[k] = support.with_layout(results[k], g)
        self._namespace["fw"] = self._compiled
        return results

    def _learn_strides(self, args: Sequence[Any]) -> bool:
        """Run op by op and note every op whose real strides differ from what its meta kernel said. True if any was new."""
        known: dict[Value, Any] = dict(zip(self.inputs, args, strict=True))
        tracer = self.capture.tracer
        learnt = False

        def real(a: Any) -> Any:
            if type(a) is Value:
                return known[a]
            return type(a)(real(x) for x in a) if type(a) in (list, tuple) else a

        with torch.no_grad():
            for v in self.forward_graph.values:
                if v.op is CONSTANT:
                    known[v] = v.constant
                    continue
                try:
                    known[v] = v.op(*[real(a) for a in v.args], **{k: real(a) for k, a in v.kwargs.items()})
                except Exception:
                    break
                key = tracer.keys.get(v)
                told = METADATA.get(key) if key is not None else None
                if told is None:
                    continue
                container, geometries, device = told
                tensors = [known[v]] if container is None else list(known[v])
                corrected = tuple(g if _agrees(t, g) else g._replace(stride=t.stride()) for t, g in zip(tensors, geometries, strict=True))
                if corrected != geometries:
                    METADATA.correct(key, (container, corrected, device))
                    learnt = True
        return learnt

    # -- backward

    def backward_for(self, defined: tuple[bool, ...]) -> Callable[..., Any]:
        """The backward for this set of defined tangents."""
        found = self._backwards.get(defined)
        if found is None:
            with self._lock:
                found = self._backwards.get(defined)
                if found is None:
                    found = self._backwards[defined] = self._make_backward(defined)
        return found

    def _make_backward(self, defined: tuple[bool, ...]) -> Callable[..., Any]:
        extra = len(self.record.flats)
        if not any(defined):
            nothing = (None,) * (len(self.record.roots) + extra)
            return lambda s, g: nothing
        gradients = self.backward_graphs.get(defined)
        if gradients is None:
            gradients = self.backward_graphs[defined] = self.capture.trace_backward(defined, self.tangents)
        live = [t for t, d in zip(self.tangents, defined, strict=True) if d]
        available = set(self.saved) | set(live)
        keep = backward_values(gradients, available)
        missing = [v for v in keep if v in set(self.inputs)]
        if missing:
            raise UnsupportedError("backward needs an unsaved value", f"{missing} for tangents {defined}")
        read = set(gradients) | {a for v in keep for a in v.inputs()}
        used = [k for k, v in enumerate(self.saved) if v in read]
        inputs = [self.saved[k] for k in used] + live
        graph = cut("backward", inputs, self.trace.values, keep, gradients)
        names = [self._saved_name(self.saved[k]) for k in used] + [t.name for t in live]
        compiled = run_compiler(self.compilers.backward, graph, names, self.fakes, self.compilers.decompositions, "backward")
        positions = [k for k, o in enumerate(self.record.outputs) if o.differentiable]
        pairs = [(k, t.geometry.stride) for k, t, d in zip(positions, self.tangents, defined, strict=True) if d and t.geometry is not None]
        w = codegen.write_backward(len(inputs), used, pairs, len(gradients), extra)
        run = define(w, "run", "backward")
        w.globals["bw"] = compiled
        return run

    def _saved_name(self, v: Value) -> str:
        names = self.__dict__.setdefault("_forward_names", self.forward_graph.named(self.input_names))
        return str(names.get(v, f"saved_{id(v)}"))


def _as(v: Value, g: Geometry) -> Value:
    probe = Value(v.op, (), {})
    probe.geometry = g
    return probe


def _agrees(t: Any, g: Geometry) -> bool:
    if t is None or tuple(t.shape) != g.shape:
        return True
    return 0 in g.shape or all(n == 1 or a == b for n, a, b in zip(g.shape, t.stride(), g.stride, strict=True))


__all__ = ["Assembly", "Compilers", "StrideCorrection", "nop"]
