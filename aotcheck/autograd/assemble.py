"""From a capture to something that runs: partition, compilers, and the runtime generated around what they return."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from aotcheck import _torch
from aotcheck.autograd.capture import Capture
from aotcheck.autograd.compile_graph import Compilers, compile_graph, compile_module, nop
from aotcheck.autograd.containers import ShapeResult
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.first_run import Restorable, laid_out_as, learn_strides, much_the_same, run_dead_code
from aotcheck.autograd.graph import FakeValues, Graph, cut, define
from aotcheck.autograd.partition.components import components, runs_once, saved_tensors
from aotcheck.autograd.partition.default import backward_values, forward_values, saved_values
from aotcheck.autograd.partition.joint import Division, divide, joint_graph, joint_module, unknown
from aotcheck.autograd.record import Visibility, Write
from aotcheck.autograd.replicas import disarm, rearm
from aotcheck.autograd.runtime import codegen, support
from aotcheck.autograd.runtime.support import StrideCorrection
from aotcheck.autograd.trace import CONSTANT, PLACEHOLDER, Geometry, Value, geometry_of, getitem
from aotcheck.autograd.twins import Kind, info_of

aten = torch.ops.aten


def _tangent_geometry(g: Geometry) -> Geometry:
    """The layout in which a backward expects the gradient of an output: the output's own if dense, else row-major."""
    if 0 in g.shape or g.dense_order is None:
        stride: list[int] = []
        step = 1
        for n in reversed(g.shape):
            stride.insert(0, step)
            step *= max(n, 1)
        return Geometry(0, g.shape, tuple(stride), g.dtype, False, False)
    return Geometry(0, g.shape, g.stride, g.dtype, False, False)


@dataclasses.dataclass
class Component:
    """Results that are backpropagated together: their places among the attached tensors, and what is saved for them.

    See Note [Components].
    """

    outputs: list[int]
    tangents: list[Value]
    saved: list[Value]
    # Which roots (and leaves, counted on from them) any of them has a gradient for: a backward must not reach the
    # others' graphs, let alone free them.
    targets: list[int]
    guards: list[codegen.Guard] = dataclasses.field(default_factory=list)


class Assembly:
    """One specialization: its graphs, compiled, and the function that runs them.

    Backwards are cut and compiled when first needed. Where the user brings a partition, all differentiable outputs are
    one component, as a joint graph knows only one backward; a backward for fewer tangents is then cut from what the
    user's forward saves.
    """

    def __init__(self, capture: Capture, compilers: Compilers, shape_result: ShapeResult) -> None:
        self.capture = capture
        self.record = capture.record
        self.compilers = compilers
        self.trace = capture.tracer.trace
        self.kept: list[Value] = []  # writes to inputs that stay in the graph
        if compilers.keep_inference_mutations and not self.record.differentiable:
            self._keep_mutations()
        self.traced_forward = len(self.trace.values)
        self.fakes = FakeValues()
        self._lock = threading.RLock()
        self._backwards: dict[tuple[int, ...], Callable[..., Any]] = {}
        self.inputs = [r.placeholder for r in capture.roots] + [f.value for f in self.record.flats]
        self.inputs += list(capture.tracer.generators.values())
        self.input_names = [
            f"primals_{k + 1}" if self.record.differentiable else f"arg{k}_1" for k in range(len(self.inputs))
        ]
        for v, name in zip(self.inputs, self.input_names, strict=True):
            v.name = name
        self.outputs = self._distinct_outputs()
        wanted = [*self.outputs, *[v.args[1] for v in self.kept]]
        self.forward = forward_values(self.trace.values, wanted, self.trace.effects)
        self.gradients: dict[tuple[int, ...], list[Value | None]] = {}
        self.components = self._components()
        self.saved = list(dict.fromkeys(v for c in self.components for v in c.saved))
        if len(capture.tracer.table.flat_inputs) != len(self.record.flats):
            raise UnsupportedError("backward reads beyond a window", "the backward needs the whole storage of an input")
        self.division: Division | None = None
        if compilers.partition is not None and self.components:
            self._divide(compilers.partition)
        else:
            self.forward_graph = self._cut_forward()
        self.call = self._generate(shape_result)

    # -- graphs

    def _distinct_outputs(self) -> list[Value]:
        """The forward's outputs, values that are neither inputs nor each other: a Function returns no tensor twice."""
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

    def _keep_mutations(self) -> None:
        """Turn the writes to whole inputs, whose metadata stays, from steps after the graph into final nodes of it."""
        record = self.record
        moved = {getattr(s, "target", None) for s in record.all_steps if not isinstance(s, Write)}
        moved |= {getattr(s, "source", None) for s in record.all_steps}
        roots = {r.source: k for k, r in enumerate(record.roots)}
        chosen = {
            s.result.index: s
            for s in record.before
            if isinstance(s, Write)
            and s.visibility in (Visibility.VERSION, Visibility.HIDDEN)
            and s.target in roots
            and s.target not in moved
        }
        hidden = set()
        for index, step in chosen.items():
            target = self.capture.roots[roots[step.target]].placeholder
            value = record.outputs[index].value
            if value.memory is not None:  # another final write may come first
                value = self._copy(value)
            copy = Value(aten.copy_.default, (target, value), {})
            copy.geometry, copy.device = target.geometry, target.device
            self.kept.append(copy)
            if step.visibility is Visibility.HIDDEN:
                hidden.add(roots[step.target])
        left = [k for k in range(len(record.outputs)) if k not in chosen]
        dropped = set(map(id, chosen.values()))
        self.record = dataclasses.replace(
            record,
            roots=tuple(dataclasses.replace(r, hidden=k in hidden) for k, r in enumerate(record.roots)),
            before=tuple(s for s in record.before if id(s) not in dropped),
        ).renumber({old: new for new, old in enumerate(left)})

    def _components(self) -> list[Component]:
        places = list(range(len(self.record.attached)))
        tangents: list[Value] = []
        for number, a in enumerate(self.record.attached):
            t = Value(PLACEHOLDER, (), {})
            t.name, t.device = f"tangents_{number + 1}", a.device
            t.geometry = _tangent_geometry(geometry_of(a.tensor))
            tangents.append(t)
        self._targets = len(self.record.roots) + len(self.record.leaves)
        groups = [list(range(len(places)))] if places else []
        if len(places) > 1 and self.compilers.partition is None:
            groups = components([a.tensor for a in self.record.attached], self._ends())
        made = []
        for group in groups:
            keys = [tuple(places[j] for j in group)]
            self._by_place = dict(zip(places, tangents, strict=True))
            if not self._try_backward(keys[0]):
                # Eager's backward from all of them raises too, and will say so when called; saved is what each needs
                # alone.
                keys = [(places[j],) for j in group if len(group) > 1 and self._try_backward((places[j],))]
            gradients = [g for key in keys for g in self.gradients[key]]
            saved = saved_values(self.forward, set(self.inputs), gradients, self.trace.values)
            reached = [k for k in range(self._targets) if any(self.gradients[key][k] is not None for key in keys)]
            component = Component([places[j] for j in group], [tangents[j] for j in group], saved, reached)
            component.guards = self._guards(component.outputs)
            made.append(component)
        return made

    def _ends(self) -> list[Any]:
        """The nodes of autograd at which the function's own graph ends."""
        return [e.node for r in self.capture.roots for e in r.edges]

    def _guards(self, outputs: Sequence[int]) -> list[codegen.Guard]:
        """Arguments, written inside, whose memory eager saves: after a later write the backward raises."""
        touched = [a for a in self.capture.arguments if _torch.version_of(a.replica) != a.version]
        if not touched:
            return []
        guards = []
        for place, k in enumerate(outputs):
            try:
                saved = saved_tensors(self.record.attached[k].tensor, self._ends())
            except RuntimeError:  # written inside already: the backward raises at once
                continue
            for a in touched:
                if any(s.dtype == a.replica.dtype and _torch.version_groups([a.replica, s])[1] == 0 for s in saved):
                    guards.append(codegen.Guard(a.index, place))
        return guards

    def _runs_once(self, component: Component) -> bool:
        """Whether a second backward is refused although nothing is saved: eager's nodes free more than tensors."""
        if component.saved:
            return True
        return any(runs_once(self.record.attached[k].tensor, self._ends()) for k in component.outputs)

    def _moved(self) -> set[Value]:
        """Placeholders whose version the epilogue moves without writing: what is saved of them must not notice."""
        changed = {id(a.state) for a in self.capture.arguments if _torch.version_of(a.replica) != a.version}
        changed |= {id(r.state) for r in self.capture.roots if _torch.version_of(r.replica) != r.version}
        return {r.placeholder for r in self.capture.roots if id(r.state) in changed}

    def _try_backward(self, key: tuple[int, ...]) -> bool:
        try:
            self._gradients(key)
        except UnsupportedError:
            raise
        except Exception:
            return False
        return True

    def _gradients(self, key: tuple[int, ...]) -> list[Value | None]:
        """The roots' gradients if just the outputs ``key`` have defined tangents; raises what eager's backward does."""
        found = self.gradients.get(key)
        if found is None:
            found = self.gradients[key] = self.capture.trace_backward(
                [(self.record.attached[k], self._by_place[k]) for k in key]
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
        keep = self.forward | set(self.kept)
        return cut(title, self.inputs, [*self.trace.values, *self.kept], keep, [*self.outputs, *saved])

    def _divide(self, partition: Any) -> None:
        """Let the user's partition make forward and backward from a joint graph."""
        (component,) = self.components
        key = tuple(component.outputs)
        if key not in self.gradients:
            raise UnsupportedError("partition_fn", "no backward takes all tangents: eager's raises")
        gradients = self._per_input(self.gradients[key])
        primals, tables = len(self.inputs), self.compilers.decompositions
        graph = joint_graph(self.inputs, component.tangents, self.trace.values, self.forward, self.outputs, gradients)
        names = [*self.input_names, *[t.name for t in component.tangents]]
        joint, examples = joint_module(graph, names, self.fakes, primals, len(self.outputs), tables)
        written = {v.name for v in self.record.written_placeholders}
        self.division = divide(partition, joint, examples, primals, len(self.outputs), written)
        known = {name: v for v, name in graph.named(names).items()} if not tables else {}
        # What no value of ours stands for can only be used by the user's own backward.
        component.saved = [known.get(name) or unknown(name) for name in self.division.saved]
        self.saved = self.saved_outputs = list(component.saved)

    # -- code

    def _generate(self, shape_result: ShapeResult) -> Callable[[Sequence[Any]], Any]:
        compilers = self.compilers
        compiler = compilers.forward if self.record.differentiable else compilers.inference or compilers.forward
        if self.division is not None:
            compiled = compile_module(compiler, self.division.forward, _examples(self.division.forward))
        else:
            compiled = compile_graph(
                compiler,
                self.forward_graph,
                self.input_names,
                self.fakes,
                compilers.decompositions,
                self.forward_graph.title,
            )
        self.interpreted = (compiler is None or compiler is nop) and self.division is None
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
        several = any(len(c.outputs) > 1 for c in self.components)
        # What is saved for one of several outputs is unpacked by itself, which works for what is no output.
        fresh_saved = [self._is_fresh(v) and not (several and v in self.outputs) for v in self.saved_outputs]
        for number, c in enumerate(self.components):
            w = codegen.write_function(len(c.outputs), len(c.saved), len(c.targets), bool(c.guards), self._runs_once(c))
            define(w, "forward", "function")
            w.globals["backward_for"] = functools.partial(self.backward_for, c)
            functions[f"apply{number}"] = _torch.bound_apply(
                codegen.make_function(w.globals["forward"], w.globals["backward"])
            )
            saved = tuple(index[v] for v in c.saved)
            attachments.append(codegen.Attachment(tuple(c.outputs), saved, tuple(c.targets), tuple(c.guards)))
        fresh = [self._is_fresh(v) for v in self.outputs] + fresh_saved
        moved = self._moved() if self.saved else set()
        aliases = frozenset(k for k, v in enumerate(self.saved_outputs) if v.memory in moved and v.memory is not None)
        random = bool(self.trace.effects)
        w = codegen.write_call(record, attachments, wrong, fresh, self._shape_result, random, aliases)
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

    @contextlib.contextmanager
    def _rearmed(self) -> Iterator[None]:
        kernels = self.capture.maker.kernels
        with self._lock:
            rearm(kernels)
            try:
                yield
            finally:
                disarm(kernels)

    def _first_run(self, *args: Any) -> Any:
        """The forward's first run: see Note [First run]."""
        with self._rearmed():
            return self._run_and_check(args)

    def _run_and_check(self, args: Sequence[Any]) -> Any:
        written = [args[self.inputs.index(v.args[0])] for v in self.kept]
        generators = [a for a in args if isinstance(a, torch.Generator)]
        before = Restorable(bool(self.trace.effects), generators, written)
        try:
            if run_dead_code(self.trace.values[: self.traced_forward], self.inputs, self.forward, args):
                before.restore()
            results = self._compiled(*args)
        except Exception:
            before.restore()
            if self._learn_strides(args, before):
                raise StrideCorrection from None
            raise
        wrong = [k for k in range(len(self.outputs)) if not laid_out_as(results[k], self.record.outputs[k])]
        # Strides of empty tensors show only in the offsets of what is cut from them: settle them before anyone sees.
        empty = self.interpreted and any(v.geometry is not None and 0 in v.geometry.shape for v in self.trace.values)
        if (wrong or empty) and self.interpreted:
            before.restore()
            if self._learn_strides(args, before):
                raise StrideCorrection
            results = self._compiled(*args)
        if wrong:
            layouts = {
                k: self.record.outputs[k].geometry
                for k in wrong
                if empty or not much_the_same(results[k], self.record.outputs[k].geometry)
            }
            self._link(layouts)
            results = list(results)
            for k, g in layouts.items():
                results[k] = support.with_layout(results[k], g)
        self._namespace["fw"] = self._compiled
        return results

    def _learn_strides(self, args: Sequence[Any], before: Restorable) -> bool:
        if not self.interpreted:
            return False
        try:
            return learn_strides(self.forward_graph, self.capture.tracer.keys, args)
        finally:
            before.restore()

    # -- backward

    def backward_for(self, component: Component, defined: tuple[bool, ...]) -> Callable[..., Any]:
        """The backward of ``component`` for this set of defined tangents."""
        key = tuple(k for k, d in zip(component.outputs, defined, strict=True) if d)
        found = self._backwards.get(key)
        if found is None:
            with self._rearmed():
                found = self._backwards.get(key)
                if found is None:
                    found = self._backwards[key] = self._make_backward(component, key)
        return found

    def _make_backward(self, component: Component, key: tuple[int, ...]) -> Callable[..., Any]:
        if not key:
            nothing = (None,) * (1 + max(1, len(component.targets)))
            return lambda ctx, g: nothing
        live = [t for k, t in zip(component.outputs, component.tangents, strict=True) if k in key]
        if self.division is not None and len(live) == len(component.tangents):
            used = list(range(len(component.saved)))
            module = self.division.backward
            compiled = compile_module(self.compilers.backward, module, _examples(module))
        else:
            graph, used = self._cut_backward(component, key, live)
            names = [self._saved_name(component.saved[k]) for k in used]
            names += [f"tangents_{number + 1}" for number in range(len(live))]
            compiled = compile_graph(
                self.compilers.backward, graph, names, self.fakes, self.compilers.decompositions, "backward"
            )
        places = [j for j, k in enumerate(component.outputs) if k in key]
        tangents = [
            (j, t.geometry.stride, t.geometry.dtype.is_complex)
            for j, t in zip(places, live, strict=True)
            if t.geometry is not None
        ]
        shift = len(self.inputs) - len(self.record.roots)
        differentiated = [k if k < len(self.record.roots) else k + shift for k in component.targets]
        count = self._targets + shift
        w = codegen.write_backward(used, len(component.saved), tangents, differentiated, count)
        run = define(w, "run", "backward")
        w.globals["bw"] = compiled
        return run

    def _cut_backward(self, component: Component, key: tuple[int, ...], live: list[Value]) -> tuple[Graph, list[int]]:
        """The backward for the tangents of ``key``, and which of the component's saved values it takes."""
        gradients = self._per_input(self._gradients(key))
        keep = backward_values(gradients, set(component.saved) | set(live))
        missing = [v for v in self.inputs if v in keep] + [v for v in self.trace.effects if v in keep]
        if missing:
            raise UnsupportedError("backward needs an unsaved value", f"{missing} for the tangents of outputs {key}")
        read = {g for g in gradients if g is not None} | {a for v in keep for a in v.inputs()}
        used = [k for k, v in enumerate(component.saved) if v in read]
        inputs = [component.saved[k] for k in used] + live
        return cut("backward", inputs, self.trace.values, keep, gradients), used

    def _per_input(self, gradients: Sequence[Value | None]) -> list[Value | None]:
        """One per input of the forward, as compilers expect, and after those the leaves'."""
        roots = len(self.record.roots)
        return [*gradients[:roots], *[None] * (len(self.inputs) - roots), *gradients[roots:]]

    def _saved_name(self, v: Value) -> str:
        if self.division is not None:
            return self.division.saved[self.saved.index(v)]
        names = self.__dict__.setdefault("_forward_names", self.forward_graph.named(self.input_names))
        return str(names.get(v, f"saved_{id(v)}"))


def _examples(module: fx.GraphModule) -> list[Any]:
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]


__all__ = ["Assembly", "StrideCorrection"]
