"""Faults to plant in the AOT autograd, stage by stage, each with a program that shows it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotcheck.autograd import function
from aotcheck.autograd.assemble import Assembly
from aotcheck.autograd.backward import backward_graphs
from aotcheck.autograd.backward.backward_graphs import BackwardGraphs
from aotcheck.autograd.eager_graph import regions
from aotcheck.autograd.effects import capture
from aotcheck.autograd.effects.epilogue import EpilogueBuilder
from aotcheck.autograd.effects.plain_record import plain_record
from aotcheck.autograd.graphs import compile_graph
from aotcheck.autograd.ir import storage_state
from aotcheck.autograd.ir.emit import Emitter
from aotcheck.autograd.ir.trace import getitem
from aotcheck.autograd.ops import tracer, twins
from aotcheck.autograd.ops.storage import StorageTable
from aotcheck.autograd.record.record import Record
from aotcheck.autograd.record.steps import (
    Detach,
    PointAt,
    ReplayView,
    RequireGrad,
    ResizeStorage,
    Restride,
    Step,
    TakeHistory,
    WindowOn,
    Write,
)
from aotcheck.autograd.replicas import replica_maker
from aotcheck.autograd.runtime import backward_source, step_source
from aotcheck.autograd.specializing import specialization
from aotcheck.autograd.tracing import backward_tracer
from aotcheck.autograd.tracing.backward_tracer import BackwardTracer
from aotcheck.blame import Rung
from aotcheck.program import Program
from tests.unit.minimize.scripts import program

aten = torch.ops.aten
Plant = Callable[[pytest.MonkeyPatch], None]


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something wrong with one stage; where the runtime is to blame, ``wrong`` is in what is said of the step."""

    name: str
    rung: Rung
    plant: Plant
    shown_by: Program
    wrong: str = ""


# -- programs


def inputs(*tensors: str, call: int = 0, extra: str = "") -> str:
    """The inputs of a call: each tensor as ``size stride offset requires_grad`` on a storage of its own."""
    lines = []
    names = []
    for k, tensor in enumerate(tensors):
        size, stride, offset, requires_grad = tensor.split(" ")
        data = [(7 * n + 3 * k) % 5 + 1 + 5 * call for n in range(8)]
        lines.append(f"    s{k} = storage({data}, torch.float32, device)")
        trained = ", requires_grad=True" if requires_grad == "yes" else ""
        lines.append(f"    a{k} = strided(s{k}, torch.float32, {size}, {stride}, {offset}{trained})")
        names.append(f"a{k}")
    lines += [f"    {line}" for line in extra.splitlines() if not line.startswith("return")]
    given = next((line[7:] for line in extra.splitlines() if line.startswith("return")), f"({', '.join(names)},)")
    return "\n".join([f"def make_inputs_{call}(device):", *lines, f"    return {given}, named(locals())"])


BACKWARD = '{"do": "backward", "roots": (0, 1)}'


def plan(*calls: str, grad_mode: str = "enabled") -> str:
    """A plan: of each call its steps, beside the inputs of its own that each has."""
    lines = []
    for k, steps in enumerate(calls):
        mode = grad_mode if k else "enabled"
        lines.append(f'    {{"inputs": make_inputs_{k}, "grad_mode": "{mode}", "steps": ({steps})}},')
    return "\n".join(["CALLS = [", *lines, "]"])


PLAIN, OTHER, TRAINED = "(4,) (1,) 0 no", "(3,) (1,) 0 no", "(4,) (1,) 0 yes"
SQUARE = "(2,3) (3,1) 0 no"
ADDS = program(
    "def f(x0, x1):\n    x0.add_(x1)\n    v0 = torch.mul(x0, 2)\n    return v0", inputs(PLAIN, PLAIN), plan("")
)
WRITES_A_VIEW = program(
    "def f(x0):\n    v0 = x0[0:2]\n    v0.mul_(3)\n    v1 = torch.mul(x0, 2)\n    return v1", inputs(PLAIN), plan("")
)
PRODUCT = program(
    "def f(x0, x1):\n    v0 = torch.mul(x0, x1)\n    return v0", inputs(TRAINED, TRAINED), plan(f"{BACKWARD},")
)
TRANSPOSES = program(
    "def f(x0):\n    v0 = torch.mul(x0, 2)\n    x0.t_()\n    return v0", inputs("(2,3) (3,1) 0 no"), plan("")
)
NON_LEAF = inputs(TRAINED, extra="a1 = torch.mul(a0, 2)\nreturn (a1,)")
WRITES_A_NON_LEAF = program("def f(x0):\n    v0 = x0.mul_(x0)\n    return v0", NON_LEAF, plan(f"{BACKWARD},"))
DETACHES = program("def f(x0):\n    v0 = torch.mul(x0, 3)\n    x0.detach_()\n    return v0", NON_LEAF, plan(""))
RETURNS_VIEWS = program(
    "def f(x0):\n    v0 = x0[1:3]\n    v1 = x0.detach()\n    v2 = x0.view((2, 2))\n    return (v0, v1, v2)",
    inputs(PLAIN),
    plan(""),
)
RETURNS_A_DETACHED_VIEW = program(
    "def f(x0):\n    v0 = x0[1:3]\n    v1 = v0.detach()\n    return v1", inputs(TRAINED), plan("")
)
RESIZES = program(
    "def f(x0):\n    torch.ops.inductor.resize_storage_bytes_.default(x0, 64)\n    return x0", inputs(PLAIN), plan("")
)
MAKES_A_LEAF = program(
    "def f(x0):\n    v0 = torch.mul(x0, 2)\n    v0.requires_grad_()\n    return v0", inputs(PLAIN), plan("")
)
MOVES = program(
    "def f(x0, x1):\n    x0.set_(x1)\n    v0 = torch.mul(x0, 2)\n    return v0", inputs(PLAIN, OTHER), plan("")
)
TWO_RESULTS = program(
    "def f(x0):\n    v0 = torch.mul(x0, 2)\n    v1 = torch.add(x0, 1)\n    return (v0, v1)", inputs(PLAIN), plan("")
)
CONSTANT = program(
    "def f(x0):\n    v0 = torch.tensor([1, 2, 3, 4], device=x0.device)\n    v1 = torch.mul(x0, v0)\n    return v1",
    inputs(PLAIN),
    plan(""),
)
DOUBLES = "def f(x0):\n    v0 = torch.mul(x0, 2)\n    return v0"
SPLITS = program(
    "def f(x0):\n    v0, v1 = torch.split(x0, 2)\n    v2 = torch.mul(v1, 2)\n    return v2", inputs(PLAIN), plan("")
)


def twice(body: str, first: str, second: str, grad_mode: str = "enabled", steps: str = "") -> Program:
    """A function called with other inputs, or in another grad mode, the second time."""
    return program(body, f"{first}\n\n\n{second}", plan(steps, steps, grad_mode=grad_mode))


RESHAPED = twice(
    "def f(x0):\n    v0 = x0.sum()\n    return v0",
    inputs(TRAINED),
    inputs("(3,) (1,) 0 yes", call=1),
    steps=f"{BACKWARD},",
)
TRAINED_LATER = twice(DOUBLES, inputs(PLAIN), inputs(TRAINED, call=1))
WITHOUT_GRAD = twice(DOUBLES, inputs(TRAINED), inputs(TRAINED, call=1), grad_mode="no_grad")
OTHER_VALUES = twice(DOUBLES, inputs(PLAIN), inputs(PLAIN, call=1))
ALIASED_LATER = twice(
    "def f(x0, x1):\n    x0.add_(1)\n    v0 = torch.mul(x1, 2)\n    return v0",
    inputs(PLAIN, PLAIN),
    inputs(PLAIN, call=1, extra="a1 = a0[:]\nreturn (a0, a1)"),
)


# -- the trace


def wrong_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    op = aten.add_.Tensor
    monkeypatch.setitem(twins._infos, id(op), (dataclasses.replace(twins.info_of(op), twin=aten.sub.Tensor), op))


def writes_to_views_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    write = StorageTable.write

    def planted(self: StorageTable, view: Any, value: Any) -> None:
        if view.parent is None:
            write(self, view, value)

    monkeypatch.setattr(StorageTable, "write", planted)


def wrong_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    constant = tracer.Trace.constant
    monkeypatch.setattr(tracer.Trace, "constant", lambda self, t: constant(self, t + 1))


def replicas_without_grad(monkeypatch: pytest.MonkeyPatch) -> None:
    root = replica_maker.ReplicaMaker.root

    def planted(self: Any, real: torch.Tensor, versions: Any = None) -> Any:
        return root(self, real.detach(), versions)

    monkeypatch.setattr(replica_maker.ReplicaMaker, "root", planted)


def results_taken_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a multi-output view are all the first."""
    viewop = Emitter.viewop

    def planted(self: Emitter, op: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return viewop(self, op, value, *([0] if op is getitem else args), **kwargs)

    monkeypatch.setattr(Emitter, "viewop", planted)
    derive = storage_state.View.derive_from

    def derived(self: Any, parent: Any, op: Any, args: Any = (), kwargs: Any = None, index: Any = None) -> None:
        derive(self, parent, op, args, kwargs, 0 if index else index)

    monkeypatch.setattr(storage_state.View, "derive_from", derived)


# -- the joint graph


def _changed_gradients(monkeypatch: pytest.MonkeyPatch, change: Callable[[list[Any]], list[Any]]) -> None:
    summed = backward_tracer._summed
    monkeypatch.setattr(backward_tracer, "_summed", lambda count, arrived: change(summed(count, arrived)))


def last_gradient_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    _changed_gradients(monkeypatch, lambda found: [*found[:-1], None])


def gradients_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    _changed_gradients(monkeypatch, lambda found: [None if g is None else g + g for g in found])


def gradients_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    _changed_gradients(monkeypatch, lambda found: found[::-1])


def wrong_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """In backwards, products are recorded as sums."""
    trace, call = BackwardTracer.trace, tracer.Tracer.call
    inside = []

    def planted(self: BackwardTracer, *args: Any) -> Any:
        inside.append(True)
        try:
            return trace(self, *args)
        finally:
            inside.pop()

    def called(self: Any, func: Any, args: Any, kwargs: Any) -> Any:
        wrong = inside and func is aten.mul.Tensor
        return call(self, aten.add.Tensor if wrong else func, args, kwargs)

    monkeypatch.setattr(BackwardTracer, "trace", planted)
    monkeypatch.setattr(tracer.Tracer, "call", called)


# -- the partition


def saved_values_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_forward = Assembly._cut_forward

    def planted(self: Assembly) -> Any:
        graph = cut_forward(self)
        n = len(self.outputs)
        return dataclasses.replace(graph, outputs=(*graph.outputs[:n], *reversed(graph.outputs[n:])))

    monkeypatch.setattr(Assembly, "_cut_forward", planted)


def forward_results_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    distinct = Assembly._distinct_outputs
    monkeypatch.setattr(Assembly, "_distinct_outputs", lambda self: distinct(self)[::-1])


def backward_results_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = BackwardGraphs.cut

    def planted(self: BackwardGraphs, *args: Any) -> Any:
        graph, used, windows = cut(self, *args)
        return dataclasses.replace(graph, outputs=graph.outputs[::-1]), used, windows

    monkeypatch.setattr(BackwardGraphs, "cut", planted)


def backward_saves_the_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved is looked up one place too far."""
    cut = BackwardGraphs.cut

    def planted(self: BackwardGraphs, stage: Any, *args: Any) -> Any:
        graph, used, windows = cut(self, stage, *args)
        return graph, [(k + 1) % len(stage.saved) for k in used], windows

    monkeypatch.setattr(BackwardGraphs, "cut", planted)


def backward_graphs_negated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code made of a backward graph is not what the graph says."""
    interpreter = compile_graph.interpreter

    def planted(graph: Any) -> Any:
        run = interpreter(graph)
        if graph.title != "backward":
            return run
        return lambda *args: [None if g is None else -g for g in run(*args)]

    monkeypatch.setattr(compile_graph, "interpreter", planted)


def everything_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that share saved tensors are backpropagated separately."""
    monkeypatch.setattr(regions, "components", lambda outputs, stop: [[k] for k in range(len(outputs))])


def everything_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that share nothing are backpropagated together."""
    monkeypatch.setattr(regions, "components", lambda outputs, stop: [list(range(len(outputs)))])


# -- the record and the runtime


def _changed_record(monkeypatch: pytest.MonkeyPatch, change: Callable[[Record], Record]) -> None:
    made = EpilogueBuilder._record

    def planted(self: EpilogueBuilder, *args: Any) -> Record:
        return change(made(self, *args))

    def written_at_once(*args: Any) -> tuple[Record, list[regions.Cut]] | None:
        plain = plain_record(*args)
        return None if plain is None else (change(plain[0]), plain[1])

    monkeypatch.setattr(EpilogueBuilder, "_record", planted)
    monkeypatch.setattr(capture, "plain_record", written_at_once)


def _each_step(monkeypatch: pytest.MonkeyPatch, change: Callable[[Step], Step | None]) -> None:
    def changed(record: Record) -> Record:
        before, steps = (
            tuple(c for s in part if (c := change(s)) is not None) for part in (record.before, record.steps)
        )
        return dataclasses.replace(record, before=before, steps=steps)

    _changed_record(monkeypatch, changed)


def dropped(kind: type[Any]) -> Plant:
    """Steps of a kind are left out."""
    return functools.partial(_each_step, change=lambda s: None if isinstance(s, kind) else s)


def altered(kind: type[Any], change: Callable[[Any], Any]) -> Plant:
    """Steps of a kind are others."""
    return functools.partial(_each_step, change=lambda s: change(s) if isinstance(s, kind) else s)


def _flattened(step: Restride) -> Restride:
    return dataclasses.replace(step, geometry=step.geometry._replace(shape=(1, step.geometry.numel), stride=(1, 1)))


def _one_further(step: WindowOn) -> WindowOn:
    return dataclasses.replace(step, geometry=step.geometry._replace(offset=step.geometry.offset + 1))


def _of_a_copy(step: ReplayView) -> ReplayView:
    return dataclasses.replace(step, view_func=lambda base: step.view_func(base.clone()))


def _returns_reversed(record: Record) -> Record:
    return dataclasses.replace(record, returns=record.returns[::-1])


def returns_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    _changed_record(monkeypatch, _returns_reversed)


def writes_that_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(t: torch.Tensor, value: torch.Tensor) -> None:
        torch.autograd.graph.increment_version(t)

    monkeypatch.setitem(step_source.WRITERS, step_source.Visibility.VERSION, planted)


def gradients_to_other_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a backward returns goes to the inputs in reverse."""
    write = backward_source.write_backward

    def planted(used: Any, saved: Any, tangents: Any, differentiated: Any, *more: Any) -> Any:
        return write(used, saved, tangents, list(differentiated)[::-1], *more)

    monkeypatch.setattr(backward_graphs.backward_source, "write_backward", planted)


# -- the second call


def no_fast_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialization, "fast_guard", lambda *args: None)


KNOWN = (
    *("type", "geometry", "device", "requires_grad", "leafness", "inference", "uncounted"),
    *("storage", "nbytes", "base"),
)
"""What a key knows of a tensor."""


def a_key_without(*facts: str) -> Plant:
    """Keys of nothing but tensors, in which some facts are missing."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        key = function.call_key

        def planted(flat: Any) -> Any:
            tensors = [dict(zip(KNOWN, p, strict=True)) for p in key(flat)[: len(flat)]]
            return tuple(tuple(v for k, v in p.items() if k not in facts) for p in tensors)

        no_fast_guard(monkeypatch)
        monkeypatch.setattr(function, "call_key", planted)

    return plant


def keys_without_grad_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    key = function.call_key

    def planted(flat: Any) -> Any:
        with torch.enable_grad():
            return key(flat)

    no_fast_guard(monkeypatch)
    monkeypatch.setattr(function, "call_key", planted)


def guards_that_accept_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialization, "fast_guard", lambda *args: lambda flat: True)


def results_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second run on, a forward returns what its first run did."""
    first = Assembly._first_run

    def planted(self: Assembly, *args: Any) -> Any:
        results = first(self, *args)
        copies = [r.clone() for r in results]
        self._namespace["fw"] = lambda *again: [c.clone() for c in copies]
        return results

    monkeypatch.setattr(Assembly, "_first_run", planted)


def results_of_later_runs_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Assembly._first_run

    def planted(self: Assembly, *args: Any) -> Any:
        results = first(self, *args)
        self._namespace["fw"] = lambda *again: [r * 2 for r in self._compiled(*again)]
        return results

    monkeypatch.setattr(Assembly, "_first_run", planted)


SECOND_BACKWARD = plan('{"do": "backward", "roots": (0,)}, {"do": "backward", "roots": (1,)},')
SHARED = program(
    "def f(x0, x1):\n    v0 = torch.mul(x0, x1)\n    v1 = torch.mul(v0, v0)\n    v2 = torch.add(v1, 1)\n"
    "    v3 = torch.add(v1, 2)\n    return (v2, v3)",
    inputs(TRAINED, TRAINED),
    SECOND_BACKWARD,
)
DISJOINT = program(
    "def f(x0, x1):\n    v0 = torch.mul(x0, x0)\n    v1 = torch.mul(x1, x1)\n    return (v0, v1)",
    inputs(TRAINED, TRAINED),
    SECOND_BACKWARD,
)

FAULTS = (
    Fault("an op that writes has the wrong twin", Rung.TRACE, wrong_twin, ADDS),
    Fault("a write to a view is lost", Rung.TRACE, writes_to_views_lost, WRITES_A_VIEW),
    Fault("a constant is another", Rung.TRACE, wrong_constant, CONSTANT),
    Fault("replicas do not require grad", Rung.TRACE, replicas_without_grad, PRODUCT),
    Fault("results of a split are all the first", Rung.TRACE, results_taken_from_one, SPLITS),
    Fault("a gradient is dropped", Rung.JOINT, last_gradient_dropped, PRODUCT),
    Fault("gradients are doubled", Rung.JOINT, gradients_doubled, PRODUCT),
    Fault("gradients go to each other's inputs", Rung.JOINT, gradients_reversed, PRODUCT),
    Fault("a formula is wrong", Rung.JOINT, wrong_formula, PRODUCT),
    Fault("saved values are swapped", Rung.PARTITION, saved_values_swapped, PRODUCT),
    Fault("results of the forward are swapped", Rung.PARTITION, forward_results_swapped, TWO_RESULTS),
    Fault("results of the backward are swapped", Rung.PARTITION, backward_results_swapped, PRODUCT),
    Fault("the backward reads another saved value", Rung.PARTITION, backward_saves_the_wrong_value, PRODUCT),
    Fault("the backward's code is not its graph", Rung.PARTITION, backward_graphs_negated, PRODUCT),
    Fault("results that share are taken apart", Rung.PARTITION, everything_apart, SHARED),
    Fault("results that share nothing are kept together", Rung.PARTITION, everything_together, DISJOINT),
    Fault("a write is left out", Rung.RUNTIME, dropped(Write), ADDS, "no step changes the values of a0"),
    Fault("a geometry is left out", Rung.RUNTIME, dropped(Restride), TRANSPOSES, "no step changes the shape"),
    Fault("a geometry is another", Rung.RUNTIME, altered(Restride, _flattened), TRANSPOSES, "step 1 (argument 0"),
    Fault("a history is left out", Rung.RUNTIME, dropped(TakeHistory), WRITES_A_NON_LEAF, "no step gives a1"),
    Fault("a cut is left out", Rung.RUNTIME, dropped(Detach), DETACHES, "no step changes the requires-grad of a1"),
    Fault(
        "a window is one further", Rung.RUNTIME, altered(WindowOn, _one_further), RETURNS_A_DETACHED_VIEW, "step 1 (t0"
    ),
    Fault("a view is of a copy", Rung.RUNTIME, altered(ReplayView, _of_a_copy), RETURNS_VIEWS, "step 1 (t0: a view of"),
    Fault("a size is left out", Rung.RUNTIME, dropped(ResizeStorage), RESIZES, "step 1 (write r0 over"),
    Fault(
        "a leaf is left as it is",
        Rung.RUNTIME,
        dropped(RequireGrad),
        MAKES_A_LEAF,
        "no step changes the requires-grad of output",
    ),
    Fault("an argument stays where it is", Rung.RUNTIME, dropped(PointAt), MOVES, "no step changes the"),
    Fault("results are returned in reverse", Rung.RUNTIME, returns_reversed, TWO_RESULTS, "returns r1 as output[0]"),
    Fault("a write writes nothing", Rung.RUNTIME, writes_that_write_nothing, ADDS, "no step changes the values of a0"),
    Fault("gradients reach other inputs", Rung.RUNTIME, gradients_to_other_inputs, PRODUCT),
    Fault(
        "the key lacks geometries",
        Rung.SECOND_CALL,
        a_key_without("geometry", "nbytes"),
        RESHAPED,
        "though the shape of a0 is (3,), was (4,)",
    ),
    Fault("the key lacks requires_grad", Rung.SECOND_CALL, a_key_without("requires_grad", "leafness"), TRAINED_LATER),
    Fault("the key lacks grad mode", Rung.SECOND_CALL, keys_without_grad_mode, WITHOUT_GRAD),
    Fault("the key lacks aliasing", Rung.SECOND_CALL, a_key_without("storage", "base"), ALIASED_LATER),
    Fault("the guard accepts every call", Rung.SECOND_CALL, guards_that_accept_everything, RESHAPED),
    Fault(
        "results are kept",
        Rung.SECOND_CALL,
        results_kept,
        OTHER_VALUES,
        "the code of call 1, made for the same arguments",
    ),
    Fault("later runs double", Rung.SECOND_CALL, results_of_later_runs_doubled, ADDS),
)
