"""Makes a script of plain torch that shows a program's difference: tries several ways of writing it, in processes of
their own."""

from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from typing import Any

from pebble import ProcessExpired

from aotcheck.backends import Promise, require_device, resolve
from aotcheck.bug.choices import Choices
from aotcheck.bug.control import control
from aotcheck.bug.script import Script, write
from aotcheck.bug.statements import CannotBeWrittenError
from aotcheck.bug.trial import AGREE, NO_ERROR, Fresh, run_fresh, shows
from aotcheck.minimize import Limits, Subject
from aotcheck.minimize.isolated import workers
from aotcheck.oracle import Difference, OracleKind, Outcome, Place, Role, Severity, check
from aotcheck.oracle.plan import as_promised
from aotcheck.program import Program, parse
from aotcheck.workers import Workers, how_it_ended

__all__ = ["Bug", "make"]

TORCHS = ("aot_function", "aot_eager", "inductor")
"""What users of torch have heard of: a script for one of them is run on the others too."""


@dataclass(frozen=True)
class Bug:
    """What was found out about a program.

    Args:
        differences: what it shows, first the one that the script is about; empty where it agrees.
        script: a script that shows the first one; empty where there is none.
        fresh: what that printed in a fresh process.
        reason: why there is no script; what to say of a program that shows nothing.
        blame: which part of the backend is to blame, in a sentence; empty where that is not known.
        looks: the expression whose values the script compares; empty where it compares what is raised.
        beside: other backends of torch's, and whether the same script shows it on them; without those on which it ends
            in another way.
        control: what was seen without lines of the script, in a sentence or two; empty for nothing.
    """

    differences: tuple[Difference, ...]
    script: str = ""
    fresh: Fresh | None = None
    reason: str = ""
    blame: str = ""
    looks: str = ""
    beside: tuple[tuple[str, bool], ...] = ()
    control: str = ""


@dataclass(frozen=True)
class _Death:
    """A worker did not live to answer: how it was ended; empty where it took too long."""

    how: str

    def __str__(self) -> str:
        return f"was {self.how}" if self.how else "did not end in time"


_NO_SCRIPT = Script("", "", False)


@dataclass(frozen=True)
class _Tried:
    """A way of writing a script, tried."""

    why_not: str
    script: Script = _NO_SCRIPT
    asked: tuple[tuple[str, int], ...] = ()
    made: dict[str, int] = field(default_factory=dict)
    exact: bool = False


Order = Callable[[Difference], Any]
"""What differences are sorted by: the first one is reported."""


def make(source: str, subject: Subject, order: Order, limits: Limits, *, blames: bool = False) -> Bug:
    """Write the script of a difference.

    Args:
        source: the program file's text.
        subject: the backend, the device, and what is not expected of it.
        order: which of several differences is to be reported.
        limits: what one process may take.
        blames: find out which part of the backend is to blame, too, and which others of torch's show it.
    """
    with workers(subject, replace(limits, jobs=1), max_tasks=1) as pool:
        search = _Search(pool, source, subject, limits)
        judged = search.call(_differences)
        if isinstance(judged, _Death):
            return search.fatal(judged)
        if not isinstance(judged, tuple):
            return Bug((), reason=str(judged))
        found = sorted(judged, key=order)
        if not found:
            return Bug((), reason="the backend agrees with eager")
        blame = str(search.call(_blamed)) if blames else ""
        reasons: list[str] = []
        for difference in found:
            tried = search.best(difference)
            if not tried.why_not:
                fresh = run_fresh(tried.script.text, limits.timeout)
                if fresh.status == 1 and _ends_as(tried.script, difference, fresh):
                    others = tuple(d for d in found if d is not difference)
                    beside = tuple(search.beside(difference, tried)) if blames else ()
                    said = search.call(_controlled, tried.script, difference)
                    told = said if isinstance(said, str) else ""
                    script = tried.script
                    return Bug((difference, *others), script.text, fresh, "", blame, script.looks, beside, told)
                ended = f"exit status {fresh.status}, {fresh.output[-100:]!r}"
                tried = _Tried(f"in a fresh process it ends in another way: {ended}")
            reasons.append(tried.why_not)
    return Bug(tuple(found), reason=reasons[0], blame=blame)


def _ends_as(script: Script, difference: Difference, fresh: Fresh) -> bool:
    """Whether a fresh process ended as the script does that was tried, and not by an import that fails, say."""
    kind = difference.error.removeprefix("missing ").partition(":")[0] if script.raises else "AssertionError"
    return kind in fresh.output


class _Search:
    """Looks for the script that reads best among those that show a difference."""

    def __init__(self, pool: Workers, source: str, subject: Subject, limits: Limits) -> None:
        self.pool, self.source, self.subject, self.limits = pool, source, subject, limits

    def call(self, function: Callable[..., object], *args: object) -> object:
        """What a function of the source and the subject gives in a worker, or how that died."""
        given = self.source, self.subject, *args
        try:
            return self.pool.schedule(function, args=given, timeout=self.limits.timeout).result()
        except ProcessExpired as error:
            return _Death(how_it_ended(error.exitcode))
        except (TimeoutError, FutureTimeout):
            return _Death("")

    def attempt(self, difference: Difference, choices: Choices) -> _Tried:
        """Write it one way and see."""
        found = self.call(_attempt, difference, choices.made, choices.exact)
        return found if isinstance(found, _Tried) else _Tried(f"its process {found}")

    def beside(self, difference: Difference, tried: _Tried) -> Iterator[tuple[str, bool]]:
        """Of a backend of torch's: which others show the same in the same script."""
        if self.subject.backend not in TORCHS:
            return
        for name in TORCHS:
            guards = Promise.GUARDS in resolve(name).promises
            if name != self.subject.backend and (guards or not difference.place.call):
                found = self.call(_attempt, difference, tried.made, tried.exact, name)
                if isinstance(found, _Tried) and found.why_not in ("", AGREE, NO_ERROR):
                    yield name, not found.why_not

    def fatal(self, death: _Death) -> Bug:
        """The script of a program that ends its process: it is run in fresh ones alone."""
        if not death.how:
            ended = Difference(OracleKind.TIMEOUT, Severity.HARD, Place(Role.PROCESS), "ends", str(death))
            return Bug((ended,), reason="a script of it does not end either")
        ended = Difference(OracleKind.CRASH, Severity.HARD, Place(Role.PROCESS), "returns", death.how)
        reason = ""
        for exact in (False, True):
            script = self.call(_written, ended, exact)
            if not isinstance(script, Script):
                return Bug((ended,), reason=str(script))
            sane, fresh = (run_fresh(text, self.limits.timeout) for text in (script.identity, script.text))
            if sane.status == 0 and (fresh.status or 0) < 0:
                return Bug((ended,), script.text, replace(fresh, output=f"{fresh.output}\n{death.how}".strip()))
            reason = f"in a script of its own eager ends with status {sane.status}, the backend with {fresh.status}"
        return Bug((ended,), reason=reason)

    def best(self, difference: Difference) -> _Tried:
        """As a person would write it; else exactly, and then each part as a person would as far as that still shows
        the difference."""
        natural = self.attempt(difference, Choices())
        if not natural.why_not or not natural.asked:
            return natural
        exact = self.attempt(difference, Choices(exact=True))
        if exact.why_not:
            return exact
        best, made = exact, dict.fromkeys(dict(exact.asked), 99)
        for part, index in ((part, index) for part, ways in exact.asked for index in range(ways - 1)):
            if made.get(part, 0) <= index:
                continue
            tried = self.attempt(difference, Choices({**made, part: index}, exact=True))
            if not tried.why_not:
                best, made = tried, {**made, part: index}
        return best


def _differences(source: str, subject: Subject) -> tuple[Difference, ...] | str:
    """In a worker: the hard differences that a program shows."""
    backend = resolve(subject.backend, subject.expectations)
    verdict = check(parse(source).program, backend, require_device(subject.device))
    if verdict.outcome in (Outcome.UNSTABLE, Outcome.LEFT_OUT):
        return f"the program cannot be judged: {verdict.outcome.value}"
    return verdict.hard


def _blamed(source: str, subject: Subject) -> str:
    """In a worker: which layers agree with eager, and which is the first that does not."""
    from aotcheck.blame import Standing, blame

    device = require_device(subject.device)
    found = blame(parse(source).program, device, subject.backend, subject.expectations)
    if found.rung is None:
        return ""
    agree = [judged.rung.value for judged in found.rungs if judged.standing is Standing.AGREES]
    agree = [name for name in agree if name != "eager"]
    before = f"{', '.join(agree)} agree{'s' * (len(agree) == 1)} with eager; " if agree else ""
    return f"{before}{found.rung.value} is the first stage that differs." if len(found.rungs) > 2 else ""


def _written(source: str, subject: Subject, difference: Difference, exact: bool) -> Script | str:
    """In a worker: a script that is not run here; a string says why there is none."""
    choices = Choices(exact=exact)
    program = _promised(source, subject)
    try:
        return write(program, difference, subject.backend, require_device(subject.device), choices)
    except CannotBeWrittenError as error:
        return str(error)


def _promised(source: str, subject: Subject) -> Program:
    promises = resolve(subject.backend, subject.expectations).promises
    return as_promised(parse(source).program, promises)[0]


def _attempt(
    source: str, subject: Subject, difference: Difference, made: dict[str, int], exact: bool, backend: str = ""
) -> _Tried:
    """In a worker, which is of no use afterwards: write a script one way, and run it, perhaps on another backend."""
    program = _promised(source, subject)
    choices = Choices(made, exact=exact)
    try:
        script = write(program, difference, backend or subject.backend, require_device(subject.device), choices)
    except CannotBeWrittenError as error:
        return _Tried(str(error))
    why_not = shows(script, difference.error)
    asked = tuple((part, ways) for part, ways in choices.asked.items() if ways > 1)
    return _Tried(why_not, script, asked, made, exact)


def _controlled(source: str, subject: Subject, script: Script, difference: Difference) -> str:
    """In a worker, which is of no use afterwards: what is seen without lines of a script."""
    return control(script, difference.error, later=difference.place.call > 0)
