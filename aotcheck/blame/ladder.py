"""Which stage of the AOT autograd a difference comes from: the first rung whose observation is not eager's.

Note [Ladder]
Each rung is compared with eager by itself, on the call that shows the difference, so an error of a later rung does not
hide that an earlier one is right. The trace: its ops are interpreted; geometries, aliasing and histories are those of
the replicas. The joint graph: its gradients for chosen tangents are compared with eager's for the same tangents. The
partitioned graphs: forward and backward are compared with the trace, and in between the caller's memory is overwritten
as by the call. The runtime: the whole program, with every call compiled anew. The second call: the program as it is, so
compiled code is reused.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import warnings
from collections.abc import Callable, Mapping

import torch

from aotcheck.backends import Expectations, resolve
from aotcheck.blame.describe import describe
from aotcheck.blame.joint import judge_joint
from aotcheck.blame.layers import Layer, climb_stack
from aotcheck.blame.partition import judge_partition
from aotcheck.blame.runs import Anew, Question, Reusing, first_difference, past
from aotcheck.blame.specimen import Specimen
from aotcheck.blame.timeline import Wrong, wrong_step
from aotcheck.blame.traced import judge_trace
from aotcheck.oracle import Difference, OracleKind, Outcome, Phase, Place, check
from aotcheck.oracle.reference import Reference
from aotcheck.program import Backward, Program

OURS = "aotcheck"
"""The backend that is taken apart into rungs; of others there are layers (:mod:`aotcheck.blame.layers`)."""

_OF_HIGHER_ORDER = (Phase.DOUBLE_BACKWARD, Phase.DOUBLE_GRAD)


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


class Unseen(enum.Enum):
    """What the rungs below the runtime say nothing of, in words."""

    NOTHING = ""
    WRAPPERS = "gradients of wrappers are not looked into"
    CALLER = "not interpreted, as it calls hooks of the caller's"

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs that it is said of."""
        if self is Unseen.CALLER:
            return (Rung.TRACE, Rung.JOINT, Rung.PARTITION)
        return (Rung.JOINT, Rung.PARTITION) if self is Unseen.WRAPPERS else ()


@dataclasses.dataclass(frozen=True)
class Judged:
    """A rung, and the first thing in which it differs from eager."""

    rung: Rung | Layer
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
        unseen: what of the call the rungs below the runtime say nothing of.
        backend: what the program was run on.
    """

    rungs: tuple[Judged, ...]
    seen: str = ""
    call: int = 0
    record: tuple[str, ...] = ()
    wrong: Wrong | None = None
    twice: bool = False
    unseen: Unseen = Unseen.NOTHING
    backend: str = OURS

    def judged(self, found: Mapping[Rung, str], seen_in: Phase = Phase.FORWARD) -> Blame:
        """The same with its rungs, of which the first in ``found`` differs. ``seen_in`` is the phase that showed it."""
        rungs: list[Judged] = []
        first = next((rung for rung in Rung if rung in found), None)
        for rung in Rung:
            if rung is first:
                rungs.append(Judged(rung, Standing.DIFFERS, found[rung]))
            else:
                reached = first is None or not any(j.standing is Standing.DIFFERS for j in rungs)
                text = ""
                if reached and rung in (Rung.JOINT, Rung.PARTITION):
                    text = "as far as first derivatives go" if seen_in in _OF_HIGHER_ORDER else ""
                if reached and rung in self.unseen.rungs:
                    text = self.unseen.value
                rungs.append(Judged(rung, Standing.AGREES if reached else Standing.NOT_REACHED, text))
        return dataclasses.replace(self, rungs=tuple(rungs))

    @property
    def rung(self) -> Rung | Layer | None:
        """The rung, or layer, to blame, or None if the program does not differ."""
        return next((j.rung for j in self.rungs if j.standing is Standing.DIFFERS), None)

    @property
    def text(self) -> str:
        """The blame in one line: ``runtime: step 3 ...``."""
        judged = next((j for j in self.rungs if j.standing is Standing.DIFFERS), None)
        if judged is None:
            return "does not differ"
        return f"{judged.rung.value}: {self.wrong.text if self.wrong is not None else judged.text}"


def blame(
    program: Program, device: torch.device, backend: str = OURS, expectations: Expectations | None = None
) -> Blame:
    """Climb the ladder with a program that differs from eager on a backend, of which ``expectations`` say what is not
    expected.

    Raises:
        BackendError: a layer of the backend is not there.
    """
    if backend != OURS:
        return _blame_stack(program, device, backend, expectations)
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _blame(program, device)
    finally:
        logging.disable(silenced)


def _blame_stack(program: Program, device: torch.device, backend: str, expectations: Expectations | None) -> Blame:
    """The same for a backend that is a stack of others."""
    climbed = climb_stack(program, backend, device, expectations)
    seen = climbed.seen
    if seen.outcome is Outcome.UNSTABLE:
        judged = Judged(Layer.EAGER, Standing.DIFFERS, "does not agree with itself")
        return Blame((judged,), seen=seen.outcome.value, backend=backend)
    if seen.outcome is not Outcome.DIFFERS:
        why = f" ({', '.join(seen.refusals)})" if seen.refusals else ""
        return Blame((), seen=f"{seen.outcome.value}{why}", backend=backend)
    rungs = [Judged(Layer.EAGER, Standing.AGREES)]
    for one in climbed.stacked:
        differs = one.verdict.outcome is Outcome.DIFFERS
        said = one.verdict.hard[0].text if differs else ""
        rungs.append(
            Judged(
                one.layer, Standing.DIFFERS if differs else Standing.AGREES, f"{one.backend}: {said}" if said else ""
            )
        )
    reached = {judged.rung for judged in rungs}
    layers = (*climbed.layers, Layer.SECOND_CALL)
    rungs += [Judged(layer, Standing.NOT_REACHED) for layer in layers if layer not in reached]
    return Blame(tuple(rungs), seen=seen.hard[0].text, backend=backend)


def _blame(program: Program, device: torch.device) -> Blame:
    ours = resolve(OURS)
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
        start = dataclasses.replace(start, record=describe(specimen.assembly.record), unseen=unseen_of(specimen))
    refused = seen.place.phase.differentiates and seen.oracle is OracleKind.EXCEPTION
    question = Question(specimen, reference, call, _differentiated(program, seen.place), refused)
    for rung, judge in judges_of(specimen):
        found = judge(question)
        if found:
            return start.judged({rung: found}, seen.place.phase)
    if runtime is None:
        return start.judged({Rung.SECOND_CALL: _second_call(run, seen)}, seen.place.phase)
    wrong = None
    if specimen.assembly is not None and not specimen.wrapped:

        def again(prepare: Callable[[Specimen], None]) -> None:
            past(Anew(program, device, prepare, call), call)

        wrong = wrong_step(again, runtime, specimen)
    return dataclasses.replace(start.judged({Rung.RUNTIME: runtime.text}, seen.place.phase), wrong=wrong)


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


JUDGES: tuple[tuple[Rung, Callable[[Question], str]], ...] = (
    (Rung.TRACE, judge_trace),
    (Rung.JOINT, judge_joint),
    (Rung.PARTITION, judge_partition),
)
"""How the rungs below the runtime are judged."""


def unseen_of(specimen: Specimen) -> Unseen:
    """What of a call the rungs below the runtime say nothing of: hooks of the caller's are there in the call alone."""
    if specimen.hooked:
        return Unseen.CALLER
    return Unseen.WRAPPERS if specimen.wrapped else Unseen.NOTHING


def judges_of(specimen: Specimen) -> tuple[tuple[Rung, Callable[[Question], str]], ...]:
    """Those of ``JUDGES`` that can be asked of a call."""
    return tuple((rung, judge) for rung, judge in JUDGES if not (specimen.hooked and rung in Unseen.CALLER.rungs))


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
    whose = f"call {k + 1}" if len(others) == 1 else f"an earlier call, by its arguments call {k + 1}"
    return f"call {call + 1} runs the code of {whose}, though {how}: {shown}"
