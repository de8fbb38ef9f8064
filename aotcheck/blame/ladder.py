"""Which stage of the AOT autograd a difference comes from: the first rung whose observation is not eager's.

Note [Ladder]
Every rung is held against eager by itself, on the call that shows the difference, so that what a later rung does wrong
cannot hide that an earlier one is right. The trace: its operations interpreted, geometries, aliasing and histories as
the replicas have them. The joint graph: gradients for chosen tangents against eager's for the same tangents, from the
same tensors to the same inputs. The partitioned graphs: forward and backward as they were cut, against the trace, with
the caller's memory overwritten in between as the call overwrites it. The runtime: the whole program, every call
compiled anew. The second call: the program as it is, code used again.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from aotcheck import _torch
from aotcheck.autograd.record import Arg, BaseOf
from aotcheck.autograd.stages import Stage
from aotcheck.backends import resolve
from aotcheck.blame.describe import describe
from aotcheck.blame.specimen import Key, Specimen, dense
from aotcheck.blame.timeline import Wrong, wrong_step
from aotcheck.oracle import Difference, OracleKind, Outcome, Phase, Place, Severity, check, compare
from aotcheck.oracle.execute import Observation, Run
from aotcheck.oracle.kinds import Role
from aotcheck.oracle.raised import raised
from aotcheck.oracle.reference import Reference, identity, may_leave_memory_undefined
from aotcheck.oracle.snapshot import Snapshot, TensorFacts
from aotcheck.oracle.values import Agreement, compare_values
from aotcheck.program import Backward, Program, Scene, function_of


class Rung(enum.Enum):
    """The stages of a compiled call, in the order in which each builds on the one before: see Note [Ladder]."""

    EAGER = "eager"
    TRACE = "trace"
    JOINT = "joint graph"
    PARTITION = "partition"
    RUNTIME = "runtime"
    SECOND_CALL = "second call"


class Standing(enum.Enum):
    """What became of a rung."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_REACHED = "not reached"


@dataclasses.dataclass(frozen=True)
class Judged:
    """A rung, and the first thing in which it differs from eager."""

    rung: Rung
    standing: Standing
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Blame:
    """What the ladder came to.

    Args:
        rungs: all of them, in order.
        seen: what the oracles say of the program; empty where it does not differ.
        call: the call that was taken apart, from 0.
        record: what that call does, in words (see :func:`describe`); empty where it was not compiled.
        wrong: where the runtime is to blame, the line of ``record`` that is wrong, or that there is none where there
            should be one.
        twice: the program differs only if all its calls are made twice.
    """

    rungs: tuple[Judged, ...]
    seen: str = ""
    call: int = 0
    record: tuple[str, ...] = ()
    wrong: Wrong | None = None
    twice: bool = False

    @property
    def rung(self) -> Rung | None:
        """The rung to blame, or None if the program does not differ."""
        return next((j.rung for j in self.rungs if j.standing is Standing.DIFFERS), None)

    @property
    def text(self) -> str:
        """The blame in one line: ``runtime: step 3 ...``."""
        judged = next((j for j in self.rungs if j.standing is Standing.DIFFERS), None)
        if judged is None:
            return "does not differ"
        return f"{judged.rung.value}: {self.wrong.text if self.wrong is not None else judged.text}"


def blame(program: Program, device: torch.device) -> Blame:
    """Climb the ladder with a program that differs from eager on the backend ``aotcheck``."""
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _blame(program, device)
    finally:
        logging.disable(silenced)


def _blame(program: Program, device: torch.device) -> Blame:
    ours = resolve("aotcheck")
    twice = False
    verdict = check(program, ours, device)
    if verdict.outcome in (Outcome.AGREES, Outcome.REFUSED):
        again = dataclasses.replace(program, calls=program.calls * 2)
        second = check(again, ours, device)
        if second.outcome is Outcome.DIFFERS:
            program, verdict, twice = again, second, True
    if verdict.outcome is Outcome.UNSTABLE:
        return _result({Rung.EAGER: "does not agree with itself"})
    if verdict.outcome is not Outcome.DIFFERS:
        why = f" ({', '.join(verdict.refusals)})" if verdict.refusals else ""
        return Blame((), seen=f"{verdict.outcome.value}{why}")
    return dataclasses.replace(_climb(program, verdict.hard[0], device), twice=twice)


def _result(found: dict[Rung, str], **rest: object) -> Blame:
    """The rungs, of which the first in ``found`` differs."""
    judged = []
    differs = False
    for rung in Rung:
        standing = Standing.NOT_REACHED if differs else Standing.AGREES
        text = ""
        if not differs and rung in found:
            differs, standing, text = True, Standing.DIFFERS, found[rung]
        judged.append(Judged(rung, standing, text))
    return dataclasses.replace(Blame(tuple(judged)), **rest)  # type: ignore[arg-type]  # fields by name


def _climb(program: Program, seen: Difference, device: torch.device) -> Blame:
    call = _call_of(program, seen.place)
    reference = Reference(program, device, len(program.calls))
    if may_leave_memory_undefined(program):
        reference.fill()
    run = Anew(program, device)
    runtime = first_difference(run, reference, seen.place)
    rest: dict[str, object] = {"seen": seen.text, "call": call}
    if call >= len(run.specimens):
        return _result({Rung.RUNTIME: runtime.text if runtime else ""}, **rest)
    specimen = run.specimens[call]
    rest["record"] = describe(specimen.assembly.record) if specimen.assembly is not None else ()
    for rung, judge in JUDGES:
        found = judge(specimen, reference, call)
        if found:
            return _result({rung: found}, **rest)
    if runtime is not None:
        wrong = None
        if specimen.assembly is not None:
            wrong = wrong_step(Anew(program, device, call), runtime, specimen)
        return _result({Rung.RUNTIME: runtime.text}, **rest, wrong=wrong)
    return _result({Rung.SECOND_CALL: _second_call(run, call, seen)}, **rest)


def _call_of(program: Program, place: Place) -> int:
    """The call that a difference is about; a backward may be of an earlier call's tensors."""
    steps = program.calls[place.call].steps
    if place.phase.differentiates and 0 < place.steps <= len(steps):
        step = steps[place.steps - 1]
        if isinstance(step, Backward):
            return max(place.call - step.calls_ago, 0)
    return place.call


# -- runs


class Anew(Run):
    """A program whose calls are each compiled for themselves; ``specimens`` are what was compiled."""

    def __init__(self, program: Program, device: torch.device, probed: int | None = None) -> None:
        super().__init__(program, identity, device)
        self.specimens: list[Specimen] = []
        self.probed = probed
        self.moments: list[tuple[str, dict[str, object]]] = []

    def forward(self, scene: Scene) -> object:
        """The function itself, compiled for this call."""
        specimen = Specimen(function_of(self.program), scene, self.device)
        self.specimens.append(specimen)
        self.function = specimen.compiled
        return self.function(*scene.args)


class EagerCall(Run):
    """A program run eagerly until one call has been made; ``edges`` say where the gradients of its inputs arrive."""

    def __init__(self, program: Program, device: torch.device, call: int) -> None:
        super().__init__(program, identity, device)
        self.at = call
        self.edges: dict[str, GradientEdge] = {}
        steps = self.calls()
        while True:
            seen = next(steps)
            if seen.call == call and seen.phase is Phase.FORWARD:
                break
        steps.close()

    def forward(self, scene: Scene) -> object:
        """The function itself."""
        if len(self.scenes) - 1 == self.at:
            self.edges = {name: e for name, t in scene.inputs.items() if (e := _edge(t)) is not None}
        return super().forward(scene)


def _edge(t: Tensor) -> GradientEdge | None:
    if not t.requires_grad or _torch.leafness(t) is None:
        return None
    with torch.enable_grad():
        return get_gradient_edge(t)


def first_difference(run: Run, reference: Reference, last: Place | None = None) -> Difference | None:
    """The first hard difference of a run, up to the step that ``last`` is in."""
    for index, compiled in enumerate(run.observations()):
        if index >= len(reference.eager):
            return None
        hard = [d for d in compare(reference.pair(index, compiled)) if d.severity is Severity.HARD]
        if hard:
            return hard[0]
        reached = (compiled.call, compiled.steps, compiled.phase, compiled.nth)
        if last is not None and reached == (last.call, last.steps, last.phase, last.nth):
            return None
    return None


# -- the trace


def judge_trace(specimen: Specimen, reference: Reference, call: int) -> str:
    """What the trace says of the call's tensors when it is over, against what eager shows."""
    index = next(k for k, o in enumerate(reference.eager) if o.call == call and o.phase is Phase.FORWARD)
    eager = reference.eager[index]
    if specimen.refusal:
        return ""
    if specimen.assembly is None or specimen.replicas is None:
        if eager.raised is None and specimen.raised is not None:
            return f"tracing {specimen.raised}, eager raises nothing"
        return ""
    names = [name for name in specimen.scene.inputs if name in specimen.replicas.inputs]
    snapshot, scene, done = specimen.traced(names)
    if done.raised is not None or eager.raised is not None:
        if (done.raised is None) != (eager.raised is None):
            return f"eager {eager.raised or 'raises nothing'}, the trace {done.raised or 'raises nothing'}"
        return ""
    traced = dataclasses.replace(
        eager,
        structure=scene.words(),
        constants=tuple(scene.constants.items()),
        snapshot=snapshot,
        generators=done.generators,
    )
    pair = reference.pair(index, traced)
    pair = dataclasses.replace(
        pair,
        eager=_restricted(pair.eager, names),
        fills=tuple(_restricted(o, names) for o in pair.fills) if pair.fills else None,
    )
    hard = [d for d in compare(pair) if d.severity is Severity.HARD]
    return _said(hard[0], "the trace") if hard else ""


def _said(d: Difference, who: str) -> str:
    return f"{d.oracle.value} of {d.place.name or d.place.role.value}: eager {d.eager}, {who} {d.compiled}"


def _restricted(seen: Observation, names: Sequence[str]) -> Observation:
    """An observation without gradients and hooks, and of the inputs only ``names``."""
    kept: list[TensorFacts] = []
    storages: dict[str, str] = {}
    objects: dict[str, str] = {}
    for facts in seen.snapshot.tensors:
        if facts.role is Role.INPUT and facts.name not in names:
            continue
        storage = storages.setdefault(facts.storage, facts.name)
        identity = objects.setdefault(facts.identity, facts.name)
        kept.append(dataclasses.replace(facts, storage=storage, identity=identity))
    contents = {name: value for name, value in seen.snapshot.storages if name in names}
    return dataclasses.replace(seen, snapshot=Snapshot(tuple(kept), tuple(contents.items()), ()), firings=())


# -- the joint graph


@dataclasses.dataclass(frozen=True)
class Tried:
    """A backward that was tried: the tensors of a stage that have tangents, the tangents, eager's gradients by input
    (None where there is none), or that eager raises."""

    stage: Stage
    key: Key
    tangents: tuple[Tensor, ...]
    eager: dict[Arg | BaseOf, Tensor | None] | None
    error: str


def judge_joint(specimen: Specimen, reference: Reference, call: int) -> str:
    """The gradients that the trace holds, against eager's."""
    for tried in backwards_of(specimen, reference, call):
        try:
            values = specimen.gradients(tried.stage, tried.key)
        except Exception as error:  # eager's own, or the sign of a wrong trace
            if tried.eager is not None:
                return f"tracing the backward of {_roots(tried)} {raised(error)}, eager's raises nothing"
            continue
        if tried.eager is None:
            return f"eager's backward of {_roots(tried)} {tried.error}, tracing it raises nothing"
        live = {tried.stage.tangents[j]: t for j, t in zip(tried.key, tried.tangents, strict=True)}
        done = specimen.interpret(live)
        if done.raised is not None:
            return f"the backward of {_roots(tried)} {done.raised}"
        for k, root in enumerate(specimen.capture.roots):
            if root.source in tried.eager:
                value = values[k]
                found = None if value is None else done.dense(value)
                text = differing(tried.eager[root.source], found, reference.exact)
                if text:
                    return f"gradient of {_input(specimen, root.source)} from {_roots(tried)}: {text}"
    return ""


def backwards_of(specimen: Specimen, reference: Reference, call: int) -> Iterator[Tried]:
    """Eager's gradients for tangents of small integers, of each stage: from all of its tensors and from each alone."""
    if specimen.assembly is None or not specimen.opened.stages:
        return
    run = EagerCall(reference.program, reference.device, call)
    scene = run.scenes[-1]
    eager = _counterparts(specimen, scene)
    edges: dict[Arg | BaseOf, list[GradientEdge]] = {}
    for root in specimen.capture.roots:
        name = next((n for n, t in specimen.scene.inputs.items() if t is specimen.real_at_entry(root.source)), None)
        if name in run.edges and root.requires_grad:
            edges[root.source] = [run.edges[name]]
            later = _edge(scene.inputs[name]) if _torch.leafness(scene.inputs[name]) is True else None
            if later is not None and later.node is not run.edges[name].node:
                edges[root.source].append(later)
    for stage in specimen.opened.stages:
        known = [j for j, a in enumerate(stage.attached) if id(a.tensor) in eager]
        for key in dict.fromkeys([tuple(known), *[(j,) for j in known]]):
            if key:
                yield _tried(stage, key, [eager[id(stage.attached[j].tensor)] for j in key], edges)


def _tried(stage: Stage, key: Key, outputs: list[Tensor], edges: dict[Arg | BaseOf, list[GradientEdge]]) -> Tried:
    tangents = tuple(_tangent(t, j + 1) for j, t in zip(key, outputs, strict=True))
    wanted = [(source, e) for source, several in edges.items() for e in several]
    found: dict[Arg | BaseOf, Tensor | None] = dict.fromkeys(edges)
    try:
        gradients: Sequence[Tensor | None] = ()
        if wanted:
            gradients = torch.autograd.grad(
                outputs, [e for _, e in wanted], tangents, retain_graph=True, allow_unused=True
            )
        for (source, _), g in zip(wanted, gradients, strict=True):
            if g is not None:
                before = found[source]
                found[source] = dense(g) if before is None else before + dense(g)
    except Exception as error:  # eager refuses this backward
        return Tried(stage, key, tangents, None, str(raised(error)))
    return Tried(stage, key, tangents, found, "")


def _tangent(t: Tensor, seed: int) -> Tensor:
    whole = (torch.arange(t.numel(), device=t.device) * 3 + seed) % 5 - 2
    return whole.reshape(t.shape).to(t.dtype)


def _counterparts(specimen: Specimen, scene: Scene) -> dict[int, Tensor]:
    """Eager's tensors by the id of the replica that stands for the same."""
    found: dict[int, Tensor] = {}
    replicas = specimen.replicas
    assert replicas is not None
    pairs = [(r, scene.inputs[name]) for name, r in replicas.inputs.items()]
    pairs += [(r, scene.outputs[name]) for name, r in replicas.outputs.items() if name in scene.outputs]
    for r, t in pairs:
        found.setdefault(id(r), t)
    with specimen.opened.backwards.rearmed():
        bases = [_torch.base_of(r) for r, _ in pairs]
    for base, (_, t) in zip(bases, pairs, strict=True):
        eager = _torch.base_of(t)
        if base is not None and eager is not None:
            found.setdefault(id(base), eager)
    return {key: t for key, t in found.items() if t.requires_grad}


def _roots(tried: Tried) -> str:
    return ", ".join(str(tried.stage.attached[j].ref) for j in tried.key)


def _input(specimen: Specimen, source: Arg | BaseOf) -> str:
    real = specimen.real_at_entry(source)
    return next((n for n, t in specimen.scene.inputs.items() if t is real), str(source))


def differing(eager: Tensor | None, found: Tensor | None, exact: bool) -> str:
    """How two gradients differ, or nothing."""
    if eager is None or found is None:
        return "" if eager is found else f"eager {_shown(eager)}, here {_shown(found)}"
    if (eager.shape, eager.dtype) != (found.shape, found.dtype):
        return f"eager {_shown(eager)}, here {_shown(found)}"
    compared = compare_values(eager, found, exact=exact)
    if compared.agreement is Agreement.DIFFERENT:
        return f"eager {compared.eager}, here {compared.compiled}"
    return ""


def _shown(t: Tensor | None) -> str:
    return "has none" if t is None else f"has one, {str(t.dtype)[6:]}{list(t.shape)}"


# -- the partition


def judge_partition(specimen: Specimen, reference: Reference, call: int) -> str:
    """The forward graph and the backward graphs, against the trace that they were cut from."""
    if specimen.assembly is None:
        return ""
    assembly = specimen.opened
    done = specimen.interpret()
    try:
        results, storages = specimen.forward()
    except Exception as error:
        return "" if done.raised is not None else f"the forward graph {raised(error)}, the trace raises nothing"
    for k, output in enumerate(assembly.record.outputs):
        expected = done.dense(output.value)
        text = differing(expected, dense(results[k]), exact=reference.exact)
        if expected is not None and text:
            return f"r{k} of the forward graph: {text.replace('eager', 'the trace')}"
    for tried in backwards_of(specimen, reference, call):
        if tried.eager is None:
            continue
        results, storages = specimen.forward()
        _overwrite(specimen, storages, reference, call)
        values = specimen.gradients(tried.stage, tried.key)
        live = {tried.stage.tangents[j]: t for j, t in zip(tried.key, tried.tangents, strict=True)}
        done = specimen.interpret(live)
        try:
            gradients = specimen.backward(tried.stage, tried.key, results, tried.tangents)
        except Exception as error:
            return f"the backward graph of {_roots(tried)} {raised(error)}, the trace raises nothing"
        for value, gradient in zip(values, gradients, strict=True):
            found = None if gradient is None else dense(gradient)
            text = differing(done.dense(value), found, reference.exact)
            if text:
                return f"a gradient from {_roots(tried)}: {text.replace('eager', 'the trace')}"
    return ""


def _overwrite(
    specimen: Specimen, storages: dict[int, torch.UntypedStorage], reference: Reference, call: int
) -> None:
    """Leave in the memory that the forward graph read what the call leaves in it."""
    seen = next(o for o in reference.eager if o.call == call and o.phase is Phase.FORWARD)
    same = {t.name: t.storage for t in seen.snapshot.tensors}
    for name, contents in seen.snapshot.storages:
        held = storages[specimen.keys[name]]
        if same.get(name) == name and held.nbytes() >= contents.nbytes and contents.numel():
            torch.empty(0, dtype=contents.dtype).set_(held, 0, contents.shape, contents.stride()).copy_(contents)


JUDGES: tuple[tuple[Rung, Callable[[Specimen, Reference, int], str]], ...] = (
    (Rung.TRACE, judge_trace),
    (Rung.JOINT, judge_joint),
    (Rung.PARTITION, judge_partition),
)
"""How the rungs below the runtime are judged."""


# -- the second call


def _second_call(run: Anew, call: int, seen: Difference) -> str:
    """Which earlier call's code was used again, and in what that call was another."""
    return _said(seen, "with code used again")
