"""``aotcheck.check``: one function, every variation, eager against a backend."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from aotcheck.backends import Backend, Promise, require_device, resolve
from aotcheck.checking.changes import NotApplicableError
from aotcheck.checking.quiet import quiet
from aotcheck.checking.report import AS_GIVEN, DifferenceError, Report, Result, Standing
from aotcheck.checking.schemas import schema_lies
from aotcheck.checking.subject import Given, Subject, UserRun, as_subject, shell
from aotcheck.checking.variations import VARIATIONS, Variation
from aotcheck.oracle import Difference, Pair, Severity, as_promised, compare
from aotcheck.oracle.execute import Observation, identity
from aotcheck.oracle.kinds import OracleKind, Phase, Place, Role
from aotcheck.oracle.state import canary, global_state
from aotcheck.program import Program

__all__ = ["DifferenceError", "check", "judged", "name_of", "spoils_the_process", "variation_called"]


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
        function: a function or custom op over tensors and pytrees of them, or a module; of a module, gradients and
            mutations of parameters and buffers are compared too.
        make_inputs: a function that makes new positional arguments at each call, with the same random numbers each
            time; or example arguments, which are copied.
        backend: a name that ``aotcheck fuzz --backend`` takes, or a :class:`~aotcheck.backends.Backend`.
        device: where to run; ``make_inputs`` must put its tensors there.
        variations: which to try, by name or as objects; by default all of ``aotcheck.checking.VARIATIONS``.
        exact: whether values must be bitwise equal; if not, they may differ by rounding.

    Returns:
        The result of each variation. A difference raises nothing; see :meth:`Report.raise_for_differences`. After a
        variation that leaves the process unusable, no other one is tried.

    Raises:
        BackendError: there is no such backend or device.
        KeyError: there is no variation of that name; the message says which there are.
    """
    compiled = resolve(backend) if isinstance(backend, str) else backend
    place = require_device(device)
    asked = VARIATIONS.values() if variations is None else variations
    chosen = [variation_called(v) if isinstance(v, str) else v for v in asked]
    subject = as_subject(function, make_inputs)
    with quiet():
        lies = schema_lies(subject, VARIATIONS[AS_GIVEN], place)
        results: list[Result] = []
        for variation in chosen:
            results.append(judged(subject, variation, compiled, place, exact))
            if spoils_the_process(results[-1]):
                break
    return Report(name_of(function), compiled.name, tuple(results), lies)


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, a module or an op in reports."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def variation_called(name: str) -> Variation:
    """The variation of this name.

    Raises:
        KeyError: there is none; the message says which there are.
    """
    if name not in VARIATIONS:
        raise KeyError(f"no variation is called '{name}'; there are: {'; '.join(VARIATIONS)}")
    return VARIATIONS[name]


def judged(subject: Subject, variation: Variation, backend: Backend, device: torch.device, exact: bool) -> Result:
    """The result of one variation."""
    return _Trial(subject, variation, backend, device, exact).result()


def spoils_the_process(result: Result) -> bool:
    """True if no further program may run in this process."""
    return any(difference.oracle is OracleKind.POISONING for difference in result.differences)


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
        at_once = bool(eager) and eager[0].raised is not None
        state = global_state()
        self.backend.reset()
        before = dict(self.backend.refusals())
        whole = Promise.MODULES in self.backend.promises
        alike = () if Promise.ALIASING in self.backend.promises else eager
        compiled = self.run(self.subject.as_module(self.backend.compile) if whole else self.backend.compile, alike)
        reasons = [r for r, n in self.backend.refusals().items() if n > before.get(r, 0)]
        reasons += [seen.raised.refusal for seen in compiled if seen.raised is not None and seen.raised.refusal]
        if reasons:
            return Result(self.variation, Standing.REFUSED, reason=reasons[0], raised=raised, refused_at_once=at_once)
        found = self.first_difference(eager, compiled)
        if canary(self.device) or global_state() != state:
            place = Place(Role.PROCESS, call=0, phase=Phase.FORWARD)
            left = Difference(OracleKind.POISONING, Severity.HARD, place, "leaves the process as it was", "unusable")
            return Result(self.variation, Standing.DIFFERS, (left, *found), raised=raised, refused_at_once=at_once)
        if found and self.first_difference(eager, self.run(identity)):
            return Result(self.variation, Standing.UNSTABLE, raised=raised, refused_at_once=at_once)
        return Result(
            self.variation,
            Standing.DIFFERS if found else Standing.AGREES,
            found,
            raised=raised,
            refused_at_once=at_once,
        )

    def run(
        self, compile_function: Callable[[Callable[..., Any]], Callable[..., Any]], alike: Sequence[Observation] = ()
    ) -> list[Observation]:
        """What one path shows; ``alike`` is as in ``observe``."""
        run = UserRun(self.subject, self.variation, compile_function, self.program, self.device)
        run.alike = alike
        return list(run.observations())

    def first_difference(self, eager: list[Observation], other: list[Observation]) -> tuple[Difference, ...]:
        """The hard differences of the first step that has any."""
        for one, two in zip(eager, other, strict=False):
            pair = Pair(one, two, exact=self.exact, backend=self.backend)
            hard = tuple(d for d in compare(pair) if d.severity is Severity.HARD)
            if hard:
                return hard
        return ()
