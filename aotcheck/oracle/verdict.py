"""The verdict on one program and one backend."""

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import torch

from aotcheck.backends import Backend, Promise
from aotcheck.oracle.compare import compare
from aotcheck.oracle.execute import Observation, StepKey, observe
from aotcheck.oracle.kinds import CoarseKey, Difference, OracleKind, Phase, Place, Role, Severity
from aotcheck.oracle.needs import fails_assertions, needs
from aotcheck.oracle.plan import as_promised, calls_with_the_first_key
from aotcheck.oracle.reference import Reference, may_leave_memory_undefined, upto
from aotcheck.oracle.state import canary, global_state
from aotcheck.program import Program


class Outcome(Enum):
    """The outcome of a program on a backend."""

    AGREES = "agrees"
    DIFFERS = "differs"
    REFUSED = "refused"
    UNSTABLE = "unstable"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one program and one backend.

    Args:
        outcome: DIFFERS iff there is a hard difference; REFUSED if the backend says that it does not support the
            program; UNSTABLE if two runs of eager differ; LEFT_OUT if the program needs something that the backend does
            not promise.
        hard: hard differences of the first step that has any, causes before consequences.
        soft: soft differences of all steps up to that one, one per kind.
        refusals: the reasons of refusals.
        left_out: how many calls or steps were left out or changed, by the missing promise; for a program that is left
            out, 1 for each missing promise.
        poisoned: why the process cannot run another program: the canary fails, or global state has changed.
        eager_refuses: whether the function raises in eager, in a call that the backend ran too.
    """

    outcome: Outcome
    hard: tuple[Difference, ...] = ()
    soft: tuple[Difference, ...] = ()
    refusals: tuple[str, ...] = ()
    left_out: tuple[tuple[Promise, int], ...] = ()
    poisoned: bool = False
    eager_refuses: bool = False

    @property
    def shown(self) -> tuple[tuple[CoarseKey, str], ...]:
        """The coarse keys of the hard differences, each once, with its first difference as text."""
        found: dict[CoarseKey, str] = {}
        for difference in self.hard:
            found.setdefault(difference.key, difference.text)
        return tuple(found.items())


def check(program: Program, backend: Backend, device: torch.device) -> Verdict:
    """Run ``program`` eagerly and on ``backend`` and compare every step.

    Whatever the program or the backend raises becomes part of the verdict. Only values that eager defines are compared
    (Note [Undefined memory]).
    """
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # Dynamo logs the errors of the programs that it is meant to refuse
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _Check(program, backend, device).verdict()
    finally:
        logging.disable(silenced)


class _Check:
    """The state of one check; :func:`check` is the interface."""

    def __init__(self, program: Program, backend: Backend, device: torch.device) -> None:
        self.program, changed = as_promised(program, backend.promises)
        self.backend, self.device = backend, device
        self.left_out: dict[Promise, int] = dict(changed)
        self.calls = len(program.calls)
        self.soft: dict[OracleKind, Difference] = {}
        self.eager_refuses = False
        self.raised: set[StepKey] = set()

    def verdict(self) -> Verdict:
        before_state = global_state()
        if fails_assertions(self.program, self.device):
            return Verdict(Outcome.LEFT_OUT, left_out=((Promise.VALUE_ERRORS, 1),))
        reference = Reference(self.program, self.device, self.calls)
        if Promise.GUARDS not in self.backend.promises and self.calls > 1:
            made = calls_with_the_first_key(self.program, self.device, reference.eager)
            if made < self.calls:
                self.left_out[Promise.GUARDS] = self.calls - made
            self.calls = reference.calls = made
        if needed := needs(self.program, reference.eager, self.backend.promises, self.device):
            return Verdict(Outcome.LEFT_OUT, left_out=tuple((promise, 1) for promise in needed))
        left_out = tuple(self.left_out.items())
        if may_leave_memory_undefined(self.program):
            reference.fill()
        before = self.backend.refusals()
        hard, refused, poison = self._judge(reference, before_state)
        if hard and not poison and not reference.fills and reference.fill():
            hard, refused, poison = self._judge(reference, before_state)
        if not poison and any(d.oracle is OracleKind.EXCEPTION for d in hard) and reference.keep(self.raised):
            hard, refused, poison = self._judge(reference, before_state)
        if not poison and reference.fills and any(d.oracle is OracleKind.VALUES for d in hard):
            reference.look_closer()
            hard, refused, poison = self._judge(reference, before_state)
        reasons = _grown(before, self.backend.refusals())
        if refused and refused not in reasons:
            reasons = (*reasons, refused)
        if poison is not None:  # nothing that runs here now can be trusted, eager again neither
            hard, soft = (*hard, poison), tuple(self.soft.values())
            return Verdict(Outcome.DIFFERS, hard, soft, reasons, left_out, True, self.eager_refuses)
        if not reference.stable or (hard and not reference.repeats()):
            return Verdict(Outcome.UNSTABLE, left_out=left_out, eager_refuses=self.eager_refuses)
        outcome = Outcome.DIFFERS if hard else Outcome.REFUSED if reasons else Outcome.AGREES
        return Verdict(outcome, hard, tuple(self.soft.values()), reasons, left_out, eager_refuses=self.eager_refuses)

    def _judge(
        self, reference: Reference, before_state: object
    ) -> tuple[tuple[Difference, ...], str, Difference | None]:
        """The first hard differences, a refusal that comes before, and what the run left wrong with the process."""
        self.soft.clear()
        self.backend.reset()
        hard, refused = self._first_difference(reference)
        return hard, refused, self._poison(before_state)

    def _first_difference(self, reference: Reference) -> tuple[tuple[Difference, ...], str]:
        """The hard differences of the first step that has any, or the reason of a refusal that comes before."""
        alike = () if Promise.ALIASING in self.backend.promises else reference.eager
        steps = observe(self.program, self.backend.compile, self.device, alike)
        reference.expected = reference.eager
        for index, compiled in enumerate(upto(steps, self.calls)):
            expected = reference.expected[index]
            if compiled.raised is not None:
                self.raised.add(compiled.step)
            self.eager_refuses |= expected.phase is Phase.FORWARD and expected.raised is not None
            if reason := _refusal(expected, compiled, self.backend):
                return (), reason
            found = compare(reference.pair(index, compiled, self.backend))
            for difference in found:
                if difference.severity is Severity.SOFT:
                    self.soft.setdefault(difference.oracle, difference)
            hard = tuple(d for d in found if d.severity is Severity.HARD)
            if hard:
                return hard, ""
            if any(d.oracle is OracleKind.EXCEPTION for d in found) and not reference.goes_on(index):
                break  # a soft one: from here on the two runs make different steps
        return (), ""

    def _poison(self, before: object) -> Difference | None:
        """What is wrong with the process now, if anything is."""
        wrong = canary(self.device)
        if not wrong and global_state() == before:
            return None
        place = Place(Role.PROCESS, call=0, phase=Phase.FORWARD)
        text = wrong or "global state has changed"
        return Difference(OracleKind.POISONING, Severity.HARD, place, "leaves the process as it was", text)


def _refusal(eager: Observation, compiled: Observation, backend: Backend) -> str:
    """Why the backend does not support the program, if that is what it says by raising."""
    raised = compiled.raised
    if raised is None or raised.refusal:
        return "" if raised is None else raised.refusal
    if raised.classes.isdisjoint(backend.refuses) or (eager.raised and eager.raised.type == raised.type):
        return ""
    return raised.key


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(reason for reason, count in after.items() if count > before.get(reason, 0)))
