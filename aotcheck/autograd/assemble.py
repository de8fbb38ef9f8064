"""From a capture to something that runs: partition, hand the graphs to the compilers, generate the runtime around what they return."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from aotcheck import _torch
from aotcheck.autograd.capture import Capture
from aotcheck.autograd.config import config
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.graph import FakeValues, Graph, assert_functional, cut, define, graph_module, interpreter
from aotcheck.autograd.partition.components import components
from aotcheck.autograd.partition.default import backward_values, forward_values, saved_values
from aotcheck.autograd.record import GraphOutput
from aotcheck.autograd.runtime import codegen, support
from aotcheck.autograd.runtime.support import StrideCorrection
from aotcheck.autograd.trace import CONSTANT, PLACEHOLDER, Geometry, Value, ancestors, getitem
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


def run_compiler(
    compiler: Compiler | None, graph: Graph, names: Sequence[str], fakes: FakeValues, decompositions: Any, title: str
) -> Callable[..., Any]:
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
        traced = make_fx(
            torch.func.functionalize(module.forward, remove="mutations"),
            decomposition_table=table,
            _allow_non_fake_inputs=True,
        )(*examples)
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


@dataclasses.dataclass
class Component:
    """Outputs that are backpropagated together (see Note [Components]): their places among the graph outputs, and what is saved for them."""

    outputs: list[int]
    tangents: list[Value]
    saved: list[Value]


class Assembly:
    """One specialization: its graphs, compiled, and the function that runs them. Backwards are cut and compiled when first needed."""

    def __init__(self, capture: Capture, compilers: Compilers, shape_result: ShapeResult) -> None:
        self.capture = capture
        self.record = capture.record
        self.compilers = compilers
        self.trace = capture.tracer.trace
        self.traced_forward = len(self.trace.values)
        self.fakes = FakeValues()
        self._lock = threading.RLock()
        self._backwards: dict[tuple[int, ...], Callable[..., Any]] = {}
        self.inputs = [r.placeholder for r in capture.roots] + [f.value for f in self.record.flats]
        self.input_names = [
            f"primals_{k + 1}" if self.record.differentiable else f"arg{k}_1" for k in range(len(self.inputs))
        ]
        for v, name in zip(self.inputs, self.input_names, strict=True):
            v.name = name
        self.differentiated = [k for k, r in enumerate(self.record.roots) if r.requires_grad]
        self.outputs = self._distinct_outputs()
        self.forward = forward_values(self.trace.values, self.outputs, self.trace.effects)
        self.gradients: dict[tuple[int, ...], list[Value | None]] = {}
        self.components = self._components()
        self.saved = list(dict.fromkeys(v for c in self.components for v in c.saved))
        if len(capture.tracer.table.flat_inputs) != len(self.record.flats):
            raise UnsupportedError("backward reads beyond a window", "the backward needs the whole storage of an input")
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
                v = self._copy(v)
            seen.add(v)
            values.append(v)
        return values

    def _copy(self, v: Value) -> Value:
        copy = self.trace.call(aten.clone.default, (v,))
        copy.geometry, copy.device = v.geometry, v.device
        return copy

    def _components(self) -> list[Component]:
        places = [k for k, o in enumerate(self.record.outputs) if o.differentiable]
        tangents = []
        for number, k in enumerate(places):
            o = self.record.outputs[k]
            t = Value(PLACEHOLDER, (), {})
            t.name, t.geometry, t.device = f"tangents_{number + 1}", _tangent_geometry(o.geometry), o.value.device
            tangents.append(t)
        groups = [list(range(len(places)))] if places else []
        if len(places) > 1:
            tensors = [t for k in places if (t := self.record.outputs[k].tensor) is not None]
            groups = components(tensors, [r.edge.node for r in self.capture.roots if r.edge is not None])
        made = []
        for group in groups:
            keys = [tuple(places[j] for j in group)]
            self._by_place = dict(zip(places, tangents, strict=True))
            if not self._try_backward(keys[0]):
                # Eager's backward from all of them raises too, and will say so when called; what is saved is what each needs alone.
                keys = [(places[j],) for j in group if len(group) > 1 and self._try_backward((places[j],))]
            gradients = [g for key in keys for g in self.gradients[key]]
            saved = saved_values(self.forward, set(self.inputs), gradients, self.trace.values)
            made.append(Component([places[j] for j in group], [tangents[j] for j in group], saved))
        return made

    def _try_backward(self, key: tuple[int, ...]) -> bool:
        try:
            self._gradients(key)
        except UnsupportedError:
            raise
        except Exception:
            return False
        return True

    def _gradients(self, key: tuple[int, ...]) -> list[Value | None]:
        """The roots' gradients when just the outputs ``key`` have defined tangents. Raises what eager's backward raises."""
        found = self.gradients.get(key)
        if found is None:
            found = self.gradients[key] = self.capture.trace_backward(
                [(self.record.outputs[k], self._by_place[k]) for k in key]
            )
        return found

    def _cut_forward(self) -> Graph:
        saved = []
        for v in self.saved:
            if v.memory in self.record.written_placeholders:
                # The epilogue overwrites the memory this value lies in; eager's backward sees it as it was.
                v = self._copy(v)
                self.forward.add(v)
            saved.append(v)
        self.saved_outputs = saved
        title = "forward" if self.record.differentiable else "inference"
        return cut(title, self.inputs, self.trace.values, self.forward, [*self.outputs, *saved])

    # -- code

    def _generate(self, shape_result: ShapeResult) -> Callable[[Sequence[Any]], Any]:
        compilers = self.compilers
        compiler = compilers.forward if self.record.differentiable else compilers.inference or compilers.forward
        compiled = run_compiler(
            compiler,
            self.forward_graph,
            self.input_names,
            self.fakes,
            compilers.decompositions,
            self.forward_graph.title,
        )
        self.interpreted = compiler is None or compiler is nop
        self._shape_result = shape_result
        self._compiled = compiled
        self._link({})
        self._namespace["fw"] = self._first_run
        return self.call

    def _link(self, wrong: dict[int, Geometry]) -> None:
        """Generate the code around the compiled forward; ``wrong`` are outputs whose layout has to be set right."""
        record = self.record
        attachments = []
        functions = {}
        index = {v: k for k, v in enumerate(self.saved)}
        fresh_saved = [self._is_fresh(v) for v in self.saved_outputs]
        for number, c in enumerate(self.components):
            w = codegen.write_function(len(c.outputs), len(c.saved))
            define(w, "forward", "function")
            w.globals["backward_for"] = functools.partial(self.backward_for, c)
            functions[f"apply{number}"] = _torch.bound_apply(
                codegen.make_function(w.globals["forward"], w.globals["backward"])
            )
            attachments.append(codegen.Attachment(tuple(c.outputs), tuple(index[v] for v in c.saved)))
        fresh = [self._is_fresh(v) for v in self.outputs] + fresh_saved
        w = codegen.write_call(record, attachments, wrong, fresh, self._shape_result, bool(self.trace.effects))
        w.globals.update(functions)
        w.globals["fw"] = self._compiled
        self._namespace = w.globals
        self.call = define(w, "call", "call")

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
            if self._run_dead_code(args) and state is not None:
                support.restore_generators(state)
            results = self._compiled(*args)
        except Exception:
            if state is not None:
                support.restore_generators(state)
            if self.interpreted and self._learn_strides(args):
                raise StrideCorrection from None
            raise
        wrong = [k for k in range(len(self.outputs)) if not _laid_out_as(results[k], self.record.outputs[k])]
        if wrong and self.interpreted:
            if state is not None:
                support.restore_generators(state)
            if self._learn_strides(args):
                raise StrideCorrection
            if state is not None:
                results = self._compiled(*args)
        if wrong:
            layouts = {
                k: self.record.outputs[k].geometry
                for k in wrong
                if not _much_the_same(results[k], self.record.outputs[k].geometry)
            }
            self._link(layouts)
            results = list(results)
            for k, g in layouts.items():
                results[k] = support.with_layout(results[k], g)
        self._namespace["fw"] = self._compiled
        return results

    def _run_dead_code(self, args: Sequence[Any]) -> bool:
        """Run once what the graph leaves out, because eager would run it and it may raise: meta kernels accept more than real ones."""
        dead = [v for v in self.trace.values[: self.traced_forward] if v not in self.forward and v.op is not CONSTANT]
        if not dead:
            return False
        keep = ancestors(dead)
        if any(v.op is PLACEHOLDER and v not in set(self.inputs) for v in keep):
            return False
        interpreter(cut("dead code", self.inputs, self.trace.values[: self.traced_forward], keep, []))(
            *[a.detach() for a in args]
        )
        return True

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
                tensors = [known[v]] if container is None else list(known[v])[: len(geometries)]
                corrected = tuple(
                    g if _agrees(t, g) else g._replace(stride=t.stride())
                    for t, g in zip(tensors, geometries, strict=True)
                )
                if corrected != geometries:
                    METADATA.correct(key, (container, corrected, device))
                    learnt = True
        return learnt

    # -- backward

    def backward_for(self, component: Component, defined: tuple[bool, ...]) -> Callable[..., Any]:
        """The backward of ``component`` for this set of defined tangents."""
        key = tuple(k for k, d in zip(component.outputs, defined, strict=True) if d)
        found = self._backwards.get(key)
        if found is None:
            with self._lock:
                found = self._backwards.get(key)
                if found is None:
                    found = self._backwards[key] = self._make_backward(component, key)
        return found

    def _make_backward(self, component: Component, key: tuple[int, ...]) -> Callable[..., Any]:
        if not key:
            nothing = (None,) * (1 + len(self.differentiated))
            return lambda s, g: nothing
        gradients = self._gradients(key)
        live = [t for k, t in zip(component.outputs, component.tangents, strict=True) if k in key]
        keep = backward_values(gradients, set(component.saved) | set(live))
        missing = [v for v in self.inputs if v in keep]
        if missing:
            raise UnsupportedError("backward needs an unsaved value", f"{missing} for the tangents of outputs {key}")
        read = {g for g in gradients if g is not None} | {a for v in keep for a in v.inputs()}
        used = [k for k, v in enumerate(component.saved) if v in read]
        inputs = [component.saved[k] for k in used] + live
        graph = cut("backward", inputs, self.trace.values, keep, gradients)
        names = [self._saved_name(component.saved[k]) for k in used] + [t.name for t in live]
        compiled = run_compiler(
            self.compilers.backward, graph, names, self.fakes, self.compilers.decompositions, "backward"
        )
        places = [j for j, k in enumerate(component.outputs) if k in key]
        strides = [(t.geometry.stride, t.geometry.dtype.is_complex) for t in live if t.geometry is not None]
        w = codegen.write_backward(
            used, [(j, stride, lazy) for j, (stride, lazy) in zip(places, strides, strict=True)], self.differentiated, len(self.record.roots)
        )
        run = define(w, "run", "backward")
        w.globals["bw"] = compiled
        return run

    def _saved_name(self, v: Value) -> str:
        names = self.__dict__.setdefault("_forward_names", self.forward_graph.named(self.input_names))
        return str(names.get(v, f"saved_{id(v)}"))


def _laid_out_as(t: Any, output: GraphOutput) -> bool:
    """Whether a result lies in its storage as eager's does.

    What is only copied into an input (no replica of its own) may lie as it likes.
    """
    g = output.geometry
    if output.tensor is None or not isinstance(t, Tensor):
        return True
    return t.storage_offset() == g.offset and _agrees(t, g)


def _much_the_same(t: Tensor, g: Geometry) -> bool:
    """Whether only strides that say nothing differ: of size-1 dimensions and of empty tensors."""
    if t.storage_offset() != g.offset:
        return False
    return 0 in g.shape or all(n == 1 or a == b for n, a, b in zip(g.shape, t.stride(), g.stride, strict=True))


def _agrees(t: Any, g: Geometry) -> bool:
    if t is None or tuple(t.shape) != g.shape:
        return True
    return t.stride() == g.stride


__all__ = ["Assembly", "Compilers", "StrideCorrection", "nop"]
