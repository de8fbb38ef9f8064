"""``aotcheck.check``: one function, every variation, eager against a backend."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from aotcheck.backends import Backend, Promise, require_device, resolve
from aotcheck.checking.changes import NotApplicableError
from aotcheck.checking.subject import Given, Subject, UserRun, as_subject, shell
from aotcheck.checking.variations import VARIATIONS, Variation
from aotcheck.oracle import Difference, Pair, Severity, as_promised, compare
from aotcheck.oracle.execute import Observation, identity
from aotcheck.oracle.kinds import OracleKind, Phase, Place, Role
from aotcheck.oracle.state import canary, global_state
from aotcheck.program import Program

__all__ = ["DifferenceError", "Report", "Result", "Standing", "check"]


class Standing(Enum):
    """What became of a variation."""

    AGREES = "agrees"
    DIFFERS = "differs"
    REFUSED = "refused"
    UNSTABLE = "eager differs from itself"
    NOT_PROMISED = "not promised"
    NOT_APPLICABLE = "not applicable"


class DifferenceError(AssertionError):
    """A backend does not do as eager does; the message is the table of what was tried."""


@dataclass(frozen=True)
class Result:
    """What a variation showed.

    Args:
        variation: what was tried.
        standing: what became of it.
        differences: the hard differences of the first step that has any, causes before consequences.
        reason: of a refusal.
        raised: eager refuses the call, and says this; the backend is to refuse it too.
    """

    variation: Variation
    standing: Standing
    differences: tuple[Difference, ...] = ()
    reason: str = ""
    raised: str = ""

    @property
    def text(self) -> str:
        """One line for people."""
        if self.differences:
            more = f" (and {len(self.differences) - 1} more)" if len(self.differences) > 1 else ""
            return f"{self.differences[0].text}{more}"
        if self.reason:
            return self.reason
        return f"both raise: {self.raised}" if self.raised and self.standing is Standing.AGREES else ""


@dataclass(frozen=True)
class Report:
    """What :func:`check` found; prints as a table.

    Args:
        name: of the function.
        backend: of what was compared with eager.
        results: of each variation, in the order in which they were tried.
    """

    name: str
    backend: str
    results: tuple[Result, ...]

    def of(self, *standings: Standing) -> tuple[Result, ...]:
        """The results with one of these standings."""
        return tuple(result for result in self.results if result.standing in standings)

    @property
    def agrees(self) -> bool:
        """Whether no variation differs. A refusal does not differ; ``of(Standing.REFUSED)`` has them."""
        return not self.of(Standing.DIFFERS)

    def raise_for_differences(self) -> None:
        """Raise :class:`DifferenceError` if a variation differs."""
        if not self.agrees:
            raise DifferenceError(str(self))

    def __str__(self) -> str:
        tried = [result for result in self.results if result.standing is not Standing.NOT_APPLICABLE]
        width = max((len(result.variation.name) for result in tried), default=0)
        lines = [f"{self.name} on {self.backend}: {self.summary}"]
        lines += [f"  {r.variation.name:<{width}}  {r.standing.value:<8}  {r.text}".rstrip() for r in tried]
        return "\n".join(lines)

    @property
    def summary(self) -> str:
        """How many variations have each standing."""
        counts = [(standing, len(self.of(standing))) for standing in Standing]
        return ", ".join(f"{count} {standing.value}" for standing, count in counts if count)


def check(
    function: Callable[..., Any],
    make_inputs: Given,
    backend: str | Backend = "aotcheck",
    *,
    device: str = "cpu",
    variations: Iterable[str | Variation] | None = None,
    exact: bool = False,
) -> Report:
    """Compare a function with its compiled form under every variation of its inputs and of what the caller does.

    Args:
        function: over tensors and pytrees of them: a function, a custom op, or a module, which is checked as a function
            of its parameters and buffers too (gradients, mutations).
        make_inputs: makes the positional arguments, new ones each time it is called; or an example of them, which is
            copied. Random numbers in it are the same each time.
        backend: a name that ``aotcheck fuzz --backend`` takes, or a :class:`~aotcheck.backends.Backend`.
        device: where to run; ``make_inputs`` puts its tensors there itself.
        variations: which to try, by name or made by hand; all of ``aotcheck.checking.VARIATIONS`` by default.
        exact: values must be equal bitwise. Otherwise they may differ by some rounding.

    Returns:
        What each variation showed. Nothing is raised for a difference; see :meth:`Report.raise_for_differences`. One
        that leaves the process unusable is the last.

    Raises:
        BackendError: there is no such backend or device.
        KeyError: there is no variation of that name.
    """
    compiled = resolve(backend) if isinstance(backend, str) else backend
    place = require_device(device)
    chosen = (
        VARIATIONS.values() if variations is None else [VARIATIONS[v] if isinstance(v, str) else v for v in variations]
    )
    subject = as_subject(function, make_inputs)
    name = getattr(function, "__name__", None) or type(function).__name__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results: list[Result] = []
        for variation in chosen:
            results.append(_Trial(subject, variation, compiled, place, exact).result())
            if any(difference.oracle is OracleKind.POISONING for difference in results[-1].differences):
                break
    return Report(str(name), compiled.name, tuple(results))


class _Trial:
    """One variation being judged."""

    def __init__(
        self, subject: Subject, variation: Variation, backend: Backend, device: torch.device, exact: bool
    ) -> None:
        self.subject, self.variation, self.backend, self.device, self.exact = subject, variation, backend, device, exact
        self.program: Program = shell(variation)

    def not_promised(self) -> str:
        """What the variation asks of the backend that it does not promise."""
        missing = {promise for promise in Promise if promise not in self.backend.promises}
        if Promise.GUARDS in missing and len(self.variation.calls) > 1:
            return Promise.GUARDS.value
        changed = as_promised(self.program, self.backend.promises)[1]
        return next((promise.value for promise in changed), "")

    def result(self) -> Result:
        """Judge it."""
        if missing := self.not_promised():
            return Result(self.variation, Standing.NOT_PROMISED, reason=missing)
        try:
            eager = self.run(identity)
        except NotApplicableError:
            return Result(self.variation, Standing.NOT_APPLICABLE)
        raised = next((str(seen.raised) for seen in eager if seen.raised is not None), "")
        state = global_state()
        self.backend.reset()
        before = dict(self.backend.refusals())
        whole = Promise.MODULES in self.backend.promises
        compiled = self.run(self.subject.as_module(self.backend.compile) if whole else self.backend.compile)
        reasons = [r for r, n in self.backend.refusals().items() if n > before.get(r, 0)]
        reasons += [seen.raised.refusal for seen in compiled if seen.raised is not None and seen.raised.refusal]
        if reasons:
            return Result(self.variation, Standing.REFUSED, reason=reasons[0], raised=raised)
        found = self.first_difference(eager, compiled)
        if canary() or global_state() != state:
            place = Place(Role.PROCESS, call=0, phase=Phase.FORWARD)
            left = Difference(OracleKind.POISONING, Severity.HARD, place, "leaves the process as it was", "unusable")
            return Result(self.variation, Standing.DIFFERS, (left, *found), raised=raised)
        if found and self.first_difference(eager, self.run(identity)):
            return Result(self.variation, Standing.UNSTABLE, raised=raised)
        return Result(self.variation, Standing.DIFFERS if found else Standing.AGREES, found, raised=raised)

    def run(self, compile_function: Callable[[Callable[..., Any]], Callable[..., Any]]) -> list[Observation]:
        """What one path shows."""
        run = UserRun(self.subject, self.variation, compile_function, self.program, self.device)
        return list(run.observations())

    def first_difference(self, eager: list[Observation], other: list[Observation]) -> tuple[Difference, ...]:
        """The hard differences of the first step that has any."""
        for one, two in zip(eager, other, strict=False):
            pair = Pair(one, two, exact=self.exact, backend=self.backend)
            hard = tuple(d for d in compare(pair) if d.severity is Severity.HARD)
            if hard:
                return hard
        return ()
