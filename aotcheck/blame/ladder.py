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
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from aotcheck import _torch
from aotcheck.autograd.api import aot_function
from aotcheck.autograd.counters import counters
from aotcheck.autograd.record import Arg, BaseOf
from aotcheck.autograd.stages import Stage
from aotcheck.backends import resolve
from aotcheck.blame.describe import describe
from aotcheck.blame.specimen import Key, Specimen, dense
from aotcheck.blame.timeline import Wrong, wrong_step
from aotcheck.oracle import Difference, Outcome, Phase, Place, Severity, check, compare
from aotcheck.oracle.execute import Observation, Run
from aotcheck.oracle.kinds import Role
from aotcheck.oracle.raised import raised
from aotcheck.oracle.reference import Reference, identity
from aotcheck.oracle.snapshot import Snapshot, TensorFacts
from aotcheck.oracle.undefined import Pattern, undefined_memory
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

    def judged(self, found: Mapping[Rung, str]) -> Blame:
        """The same with its rungs; the first of those in ``found`` differs."""
        rungs: list[Judged] = []
        first = next((rung for rung in Rung if rung in found), None)
        for rung in Rung:
            if rung is first:
                rungs.append(Judged(rung, Standing.DIFFERS, found[rung]))
            else:
                reached = first is None or not any(j.standing is Standing.DIFFERS for j in rungs)
                rungs.append(Judged(rung, Standing.AGREES if reached else Standing.NOT_REACHED))
        return dataclasses.replace(self, rungs=tuple(rungs))

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
        return Blame((), seen=verdict.outcome.value).judged({Rung.EAGER: "does not agree with itself"})
    if verdict.outcome is not Outcome.DIFFERS:
        why = f" ({', '.join(verdict.refusals)})" if verdict.refusals else ""
        return Blame((), seen=f"{verdict.outcome.value}{why}")
    return dataclasses.replace(_climb(program, verdict.hard[0], device), twice=twice)


def _climb(program: Program, seen: Difference, device: torch.device) -> Blame:
    call = _call_of(program, seen.place)
    reference = Reference(program, device, len(program.calls))
    reference.fill()
    run = Anew(program, device)
    runtime = first_difference(run, reference, seen.place)
    start = Blame((), seen=seen.text, call=call)
    if call >= len(run.specimens):  # it could not even be made
        return start.judged({Rung.RUNTIME: runtime.text if runtime is not None else seen.text})
    specimen = run.specimens[call]
    if specimen.assembly is not None:
        start = dataclasses.replace(start, record=describe(specimen.assembly.record))
    question = Question(specimen, reference, call, _differentiated(program, seen.place))
    for rung, judge in JUDGES:
        found = judge(question)
        if found:
            return start.judged({rung: found})
    if runtime is None:
        return start.judged({Rung.SECOND_CALL: _second_call(run, seen)})
    wrong = None
    if specimen.assembly is not None:

        def again(prepare: Callable[[Specimen], None]) -> None:
            past(Anew(program, device, prepare, call), call)

        wrong = wrong_step(again, runtime, specimen)
    return dataclasses.replace(start.judged({Rung.RUNTIME: runtime.text}), wrong=wrong)


def _differentiated(program: Program, place: Place) -> bool:
    """Whether a backward came before a difference, or shows it."""
    calls = program.calls[: place.call + 1]
    made = [s for call in calls[:-1] for s in call.steps] + list(calls[-1].steps[: place.steps])
    return place.phase.differentiates or any(isinstance(s, Backward) for s in made)


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
    """A program whose calls are each compiled for themselves; ``specimens`` are what was compiled.

    ``prepare`` is called with that of the call ``prepared`` before the call is made.
    """

    def __init__(
        self,
        program: Program,
        device: torch.device,
        prepare: Callable[[Specimen], None] | None = None,
        prepared: int = 0,
    ) -> None:
        super().__init__(program, identity, device)
        self.specimens: list[Specimen] = []
        self.prepare, self.prepared = prepare, prepared

    def forward(self, scene: Scene) -> object:
        """The function itself, compiled for this call."""
        specimen = Specimen(function_of(self.program), scene, self.device)
        self.specimens.append(specimen)
        self.function = specimen.compiled
        if self.prepare is not None and specimen.assembly is not None and len(self.scenes) - 1 == self.prepared:
            self.prepare(specimen)
        return self.function(*scene.args)


class EagerCall(Run):
    """A program run eagerly until one call has been made; ``edges`` say where the gradients of its inputs arrive."""

    def __init__(self, program: Program, device: torch.device, call: int) -> None:
        super().__init__(program, identity, device)
        self.at = call
        self.edges: dict[str, GradientEdge] = {}
        past(self, call)

    def forward(self, scene: Scene) -> object:
        """The function itself."""
        if len(self.scenes) - 1 == self.at:
            self.edges = {name: e for name, t in scene.inputs.items() if (e := _edge(t)) is not None}
        return super().forward(scene)


def past(run: Run, call: int) -> None:
    """Go on with a run until a call has been made."""
    for seen in run.calls():
        if seen.call == call and seen.phase is Phase.FORWARD:
            break


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


@dataclasses.dataclass(frozen=True)
class Question:
    """What a rung is asked about: a call as it was taken apart, what eager does, and whether gradients are involved."""

    specimen: Specimen
    reference: Reference
    call: int
    differentiated: bool = True

    @property
    def eager(self) -> Observation:
        """What eager shows when the call is over."""
        return self.reference.eager[self.index]

    @property
    def index(self) -> int:
        """Which of eager's observations that is."""
        steps = enumerate(self.reference.eager)
        return next(k for k, o in steps if o.call == self.call and o.phase is Phase.FORWARD)


# -- the trace


def judge_trace(question: Question) -> str:
    """What the trace says of the call's tensors when it is over, against what eager shows."""
    specimen, eager = question.specimen, question.eager
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
    pair = question.reference.pair(question.index, traced)
    pair = dataclasses.replace(
        pair,
        eager=_restricted(pair.eager, names),
        fills=(_restricted(pair.fills[0], names), _restricted(pair.fills[1], names)) if pair.fills else None,
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
    (None where there is none), or what eager raised."""

    stage: Stage
    key: Key
    tangents: tuple[Tensor, ...]
    eager: dict[Arg | BaseOf, Tensor | None] | None
    error: str


def judge_joint(question: Question) -> str:
    """The gradients that the trace holds, against eager's."""
    specimen, exact = question.specimen, question.reference.exact
    caller = Caller(question)
    for tried in caller.backwards():
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
        roots = [root.source for root in specimen.capture.roots]
        arrived = caller.arrived({s: done.dense(v) for s, v in zip(roots, values, strict=False)})
        for source, expected in tried.eager.items():
            text = differing(expected, arrived[source], exact)
            if text:
                return f"gradient of {_input(specimen, source)} from {_roots(tried)}: {text}"
    return ""


class Caller:
    """The caller's side of a call: eager's run of it, stopped when the call is over.

    Note [Gradients that go on]
    An input may be computed from another. Autograd is asked for the gradients of all of them at once, and what arrives
    at one goes on, in the caller's graph, to the other; the trace knows of no such path. So the trace's gradients are
    sent through the caller's graph too, before they are compared.
    """

    def __init__(self, question: Question) -> None:
        specimen, reference = question.specimen, question.reference
        judged = question.differentiated and specimen.assembly is not None and question.eager.raised is None
        self.stages = specimen.opened.stages if judged else []
        if not self.stages:
            return
        with undefined_memory(Pattern.PLAIN):
            run = EagerCall(reference.program, reference.device, question.call)
        scene = run.scenes[-1]
        self.eager = _counterparts(specimen, scene)
        self.edges: dict[Arg | BaseOf, list[GradientEdge]] = {}
        for root in specimen.capture.roots:
            name = _input(specimen, root.source)
            if name in run.edges and root.requires_grad:
                self.edges[root.source] = [run.edges[name]]
                later = _edge(scene.inputs[name]) if _torch.leafness(scene.inputs[name]) is True else None
                if later is not None and later.node is not run.edges[name].node:
                    self.edges[root.source].append(later)

    def backwards(self) -> Iterator[Tried]:
        """Eager's gradients for tangents of small integers: of each stage, from all its tensors and from each alone."""
        for stage in self.stages:
            known = [j for j, a in enumerate(stage.attached) if id(a.tensor) in self.eager]
            for key in dict.fromkeys([tuple(known), *[(j,) for j in known]]):
                if key:
                    yield self._tried(stage, key)

    def _tried(self, stage: Stage, key: Key) -> Tried:
        outputs = [self.eager[id(stage.attached[j].tensor)] for j in key]
        tangents = tuple(_tangent(t, j + 1) for j, t in zip(key, outputs, strict=True))
        try:
            return Tried(stage, key, tangents, self._gradients(outputs, tangents), "")
        except Exception as error:  # eager refuses this backward
            return Tried(stage, key, tangents, None, str(raised(error)))

    def arrived(self, gradients: Mapping[Arg | BaseOf, Tensor | None]) -> dict[Arg | BaseOf, Tensor | None]:
        """What arrives at each input in the end if the call gives these gradients: see Note [Gradients that go on]."""
        given = [(self.edges[s][0], g) for s, g in gradients.items() if g is not None and s in self.edges]
        return self._gradients([e for e, _ in given], [g for _, g in given])

    def _gradients(
        self, outputs: Sequence[Tensor] | Sequence[GradientEdge], tangents: Sequence[Tensor]
    ) -> dict[Arg | BaseOf, Tensor | None]:
        found: dict[Arg | BaseOf, Tensor | None] = dict.fromkeys(self.edges)
        wanted = [(source, e) for source, several in self.edges.items() for e in several]
        if wanted and outputs:
            gradients = torch.autograd.grad(
                outputs, [e for _, e in wanted], tangents, retain_graph=True, allow_unused=True
            )
            for (source, _), g in zip(wanted, gradients, strict=True):
                if g is not None:
                    before = found[source]
                    found[source] = dense(g) if before is None else before + dense(g)
        return found


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


def judge_partition(question: Question) -> str:
    """The forward graph and the backward graphs, against the trace that they were cut from."""
    specimen, exact = question.specimen, question.reference.exact
    if specimen.assembly is None or question.eager.raised is not None:
        return ""
    assembly = specimen.opened
    done = specimen.interpret()
    try:
        results, storages = specimen.forward()
    except Exception as error:
        return "" if done.raised is not None else f"the forward graph {raised(error)}, the trace raises nothing"
    for k, output in enumerate(assembly.record.outputs):
        expected = done.dense(output.value)
        text = differing(expected, dense(results[k]), exact)
        if expected is not None and text:
            return f"r{k} of the forward graph: {text.replace('eager', 'the trace')}"
    for tried in Caller(question).backwards():
        if tried.eager is None:
            continue
        results, storages = specimen.forward()
        _overwrite(question, storages)
        values = specimen.gradients(tried.stage, tried.key)
        live = {tried.stage.tangents[j]: t for j, t in zip(tried.key, tried.tangents, strict=True)}
        done = specimen.interpret(live)
        try:
            gradients = specimen.backward(tried.stage, tried.key, results, tried.tangents)
        except Exception as error:
            return f"the backward graph of {_roots(tried)} {raised(error)}, the trace raises nothing"
        for value, gradient in zip(values, gradients, strict=True):
            found = None if gradient is None else dense(gradient)
            text = differing(done.dense(value), found, exact)
            if text:
                return f"a gradient from {_roots(tried)}: {text.replace('eager', 'the trace')}"
    return ""


def _overwrite(question: Question, storages: dict[int, torch.UntypedStorage]) -> None:
    """Leave in the memory that the forward graph read what the call leaves in it."""
    specimen, seen = question.specimen, question.eager
    same = {t.name: t.storage for t in seen.snapshot.tensors}
    for name, contents in seen.snapshot.storages:
        if name not in specimen.keys:  # of a container that the call wrote
            continue
        held = storages[specimen.keys[name]]
        if same.get(name) == name and held.nbytes() >= contents.nbytes and contents.numel():
            torch.empty(0, dtype=contents.dtype).set_(held, 0, contents.shape, contents.stride()).copy_(contents)


JUDGES: tuple[tuple[Rung, Callable[[Question], str]], ...] = (
    (Rung.TRACE, judge_trace),
    (Rung.JOINT, judge_joint),
    (Rung.PARTITION, judge_partition),
)
"""How the rungs below the runtime are judged."""


# -- the second call


class Reusing(Run):
    """A program run as a caller runs it; ``reused`` are the calls for which no code was made."""

    def __init__(self, program: Program, device: torch.device) -> None:
        super().__init__(program, aot_function, device)
        self.reused: set[int] = set()

    def forward(self, scene: Scene) -> object:
        """The function itself, compiled when it is first called."""
        before = counters().compiled
        try:
            return super().forward(scene)
        finally:
            if counters().compiled == before:
                self.reused.add(len(self.scenes) - 1)


def _second_call(run: Anew, seen: Difference) -> str:
    """Whether the code of an earlier call was used again, and in what that call was another."""
    call = seen.place.call
    reusing = Reusing(run.program, run.device)
    past(reusing, call)
    shown = f"{seen.oracle.value} of {seen.place}: eager {seen.eager}, compiled {seen.compiled}"
    if call not in reusing.reused:
        return f"call {call + 1} is right alone and wrong after the calls before it: {shown}"
    others = []
    for k, other in enumerate(run.specimens[:call]):
        if k not in reusing.reused:
            now, then = run.specimens[call].entry, other.entry
            names = [n for n in now if n in then and now[n] != then[n]]
            if not names:
                return f"call {call + 1} runs the code of call {k + 1}, made for the same arguments: {shown}"
            others.append((len(names), k, f"{names[0]} is {now[names[0]]}, was {then[names[0]]}"))
    if not others:
        return f"call {call + 1} is right alone and wrong after the calls before it: {shown}"
    _, k, how = min(others)
    return f"call {call + 1} runs code made for another call, as like as any call {k + 1}, though {how}: {shown}"
