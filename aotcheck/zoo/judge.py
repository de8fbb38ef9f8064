"""Judges a model on a backend: whether its steps are eager's, and how they differ if not."""

import resource
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch

from aotcheck.backends import Backend, Promise
from aotcheck.oracle.compare import Pair, compare
from aotcheck.oracle.execute import Observation
from aotcheck.oracle.kinds import Difference, Severity
from aotcheck.oracle.raised import Raised
from aotcheck.oracle.values import Tolerance
from aotcheck.zoo.model import Model, Place
from aotcheck.zoo.run import Seen, compiler_of, not_promised, steps_of, uncompiled

__all__ = ["TRAINED", "Outcome", "Result", "judged"]

TRAINED = Tolerance(factor=2.0, epsilons=4.0, without_reference=512.0)
"""What values of a model may be off by, if they are not eager's bitwise: no further from a float64 run than twice
eager's own distance, and a few units in the last place."""

_FLOAT32_IN_BFLOAT16 = torch.finfo(torch.bfloat16).eps / torch.finfo(torch.float32).eps

TRAINED_IN_HALF = Tolerance(TRAINED.factor, TRAINED.epsilons * _FLOAT32_IN_BFLOAT16, 4.0 * _FLOAT32_IN_BFLOAT16)
"""The same for models that compute in bfloat16 what they keep in float32: a unit in the last place is bfloat16's."""

_RELATED = 0.1
"""A float64 run is a reference only while it stays this close to eager, as a share of the largest magnitude: it may
draw other random numbers, or take another branch."""

_NOISE = 1e-4
"""Tensors without larger values say nothing about that."""


class Outcome(Enum):
    """What became of a model on a backend."""

    EQUAL = "equal"
    DIFFERS = "differs"
    REFUSED = "refused"
    ERROR = "error"
    RAN_EAGERLY = "ran eagerly"
    UNSTABLE = "eager differs from itself"


@dataclass(frozen=True)
class Result:
    """What a model showed on a backend.

    Args:
        model: its name.
        kind: what it is an example of.
        outcome: what became of it.
        reason: of a refusal, an error or a run that was eager; of a difference, what differs.
        step: the step in which that showed, from 1; 0 if it was none.
        eager: what eager showed, where the two differ.
        compiled: what the backend showed.
        rounding: values are not eager's bitwise, but as close as they may be.
        compilations: how many there were; None where the backend cannot tell.
        at_most: how many the model may take; None where nobody has said.
        seconds: how long the steps took through the backend, compilations included.
        eager_seconds: how long they took eagerly.
        peak: bytes, the most that the process took; on CUDA the most memory of the device that the backend took.
    """

    model: str
    kind: str
    outcome: Outcome
    reason: str = ""
    step: int = 0
    eager: str = ""
    compiled: str = ""
    rounding: bool = False
    compilations: int | None = None
    at_most: int | None = None
    seconds: float = 0.0
    eager_seconds: float = 0.0
    peak: int = 0

    @property
    def failed(self) -> bool:
        """Whether the backend is wrong about the model."""
        return self.outcome in (Outcome.DIFFERS, Outcome.ERROR)

    @property
    def recompiled(self) -> bool:
        """Whether there were more compilations than the model may take."""
        return self.compilations is not None and self.at_most is not None and self.compilations > self.at_most

    @property
    def text(self) -> str:
        """What there is to say beside the outcome, in a line."""
        at = f" (step {self.step})" if self.step else ""
        if self.outcome is Outcome.DIFFERS:
            return f"{self.reason}: eager {self.eager}, compiled {self.compiled}{at}"
        if self.reason:
            return f"{self.reason}{at}"
        return "within rounding" if self.rounding else ""


def judged(model: Model, backend: Backend, device: torch.device) -> Result:
    """Run ``model`` eagerly and on ``backend``, and compare them step by step."""
    return _Trial(model, backend, device).result()


class _Trial:
    """A model being judged."""

    def __init__(self, model: Model, backend: Backend, device: torch.device) -> None:
        self.model, self.backend, self.place = model, backend, Place(device)
        self.tolerance = TRAINED_IN_HALF if Promise.HALF in model.needs else TRAINED
        self.reference: list[Observation] | None = None
        self.rounding = False

    def result(self) -> Result:
        """Judge it."""
        nothing = Result(self.model.name, self.model.kind.value, Outcome.EQUAL, at_most=self.model.at_most)
        eager = list(steps_of(self.model, self.place, uncompiled))
        nothing = replace(nothing, eager_seconds=_seconds(eager))
        if error := eager[-1].observation.raised:
            return replace(nothing, outcome=Outcome.ERROR, reason=f"eager {error}", step=len(eager))
        if reason := not_promised(self.model, self.model.program(self.place), self.backend):
            return replace(nothing, outcome=Outcome.REFUSED, reason=reason)
        self.backend.reset()
        refusals, before = dict(self.backend.refusals()), self.backend.compilations()
        _forget_peak(self.place.device)
        compiled = list(steps_of(self.model, self.place, compiler_of(self.backend)))
        after = self.backend.compilations()
        run = replace(
            nothing,
            seconds=_seconds(compiled),
            peak=_peak(self.place.device),
            compilations=None if after is None or before is None else after - before,
        )
        reasons = [reason for reason, n in self.backend.refusals().items() if n > refusals.get(reason, 0)]
        found = self.verdict([s.observation for s in eager], [s.observation for s in compiled], run, reasons)
        return replace(found, rounding=self.rounding)

    def verdict(
        self, eager: Sequence[Observation], compiled: Sequence[Observation], run: Result, refused: Sequence[str]
    ) -> Result:
        """What the steps show; ``refused`` is why the backend left something to others."""
        for step, (one, other) in enumerate(zip(eager, compiled, strict=False), 1):
            if other.raised is not None:
                outcome = Outcome.REFUSED if self.refuses(other.raised) else Outcome.ERROR
                return replace(run, outcome=outcome, reason=_said(other.raised), step=step)
            if found := self.differences(one, other):
                return self.differs(found[0], step, run)
        if refused:
            return replace(run, outcome=Outcome.RAN_EAGERLY, reason="; ".join(refused))
        if run.compilations == 0:
            return replace(run, outcome=Outcome.RAN_EAGERLY, reason="nothing was compiled")
        return run

    def refuses(self, error: Raised) -> bool:
        """Whether the backend refuses by name what raised ``error``."""
        return bool(error.refusal) or not error.classes.isdisjoint(self.backend.refuses)

    def differences(self, eager: Observation, compiled: Observation) -> tuple[Difference, ...]:
        """The hard differences of a step: bitwise, and where there are any, as close as inexact kernels must be."""
        exact = Pair(eager, compiled, backend=self.backend, tolerance=self.tolerance)
        if not _hard(exact):
            return ()
        found = _hard(replace(exact, exact=False, reference=self.widened(eager)))
        self.rounding = self.rounding or not found
        return found

    def widened(self, eager: Observation) -> Observation | None:
        """The same step in float64, if it is a reference."""
        if self.reference is None:
            wide = replace(self.place, wide=True)
            self.reference = [seen.observation for seen in steps_of(self.model, wide, uncompiled)]
        if eager.call >= len(self.reference):
            return None
        wide_step = self.reference[eager.call]
        return wide_step if wide_step.raised is None and _related(eager, wide_step) else None

    def differs(self, found: Difference, step: int, run: Result) -> Result:
        """Tell a difference, unless eager differs from itself."""
        again = list(steps_of(self.model, self.place, uncompiled))[step - 1].observation
        once = list(steps_of(self.model, self.place, uncompiled))[step - 1].observation
        outcome = Outcome.UNSTABLE if _hard(Pair(again, once)) else Outcome.DIFFERS
        what = f"{found.oracle.value} of {found.place.name or found.place.role.value}"
        return replace(
            run, outcome=outcome, reason=what, step=step, eager=found.eager[:300], compiled=found.compiled[:300]
        )


def _hard(pair: Pair) -> tuple[Difference, ...]:
    return tuple(d for d in compare(pair) if d.severity is Severity.HARD)


def _said(error: Raised) -> str:
    """An error in a line: a refusal by its reason, anything else by type and message."""
    line = " ".join(error.message.split())
    if error.refusal:
        return line if line.startswith(error.refusal) else f"{error.refusal}: {line}"
    return f"{error.type}: {line}"[:500]


def _related(eager: Observation, wide: Observation) -> bool:
    """Whether a float64 run drew what eager drew and is anywhere near it."""
    if not all(map(torch.equal, eager.generators, wide.generators)):
        return False
    values = dict(wide.snapshot.storages) | {t.name: t.value for t in wide.snapshot.tensors if t.value is not None}
    mine = dict(eager.snapshot.storages) | {t.name: t.value for t in eager.snapshot.tensors if t.value is not None}
    return all(name in values and _near(value, values[name]) for name, value in mine.items())


def _near(eager: torch.Tensor, wide: torch.Tensor) -> bool:
    if eager.shape != wide.shape:
        return False
    if not eager.dtype.is_floating_point or not eager.numel():
        return True
    e, w = eager.double(), wide.double()
    size = float(e.abs().nan_to_num(posinf=0.0).max())
    return size < _NOISE or float((e - w).abs().nan_to_num(posinf=0.0).max()) <= _RELATED * size


def _seconds(steps: Sequence[Seen]) -> float:
    return sum(seen.seconds for seen in steps)


def _forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    usage: Any = resource.getrusage(resource.RUSAGE_SELF)
    return int(usage.ru_maxrss) * 1024
