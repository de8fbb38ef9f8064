"""A campaign in figures: a consumer of events that display, summary and exit code read from."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from aotcheck.campaign.findings.signature import Signature
from aotcheck.campaign.record.events import (
    BlockFailed,
    BlockGenerated,
    BugReported,
    Ending,
    Event,
    FindingExplained,
    FindingFlaky,
    FindingRechecked,
    FindingShared,
    FindingSigned,
    FindingWritten,
    PairsCounted,
    ProgramChecked,
    ProgramFailed,
    Reproduced,
    RunFinished,
    RunResumed,
    RunStarted,
    ScriptRun,
    Shown,
    WorkerDied,
)
from aotcheck.campaign.record.stopwatch import Stopwatch
from aotcheck.campaign.record.words import Status, counted
from aotcheck.oracle import CoarseKey, OracleKind, Outcome


class ExitCode(IntEnum):
    """What the command line returns."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    INFRASTRUCTURE = 3


@dataclass
class Signed:
    """A signature: the first finding that has it, and how many have it, or probably have it."""

    first: FindingSigned | FindingExplained
    minimized: int = 0
    explained: int = 0

    @property
    def known(self) -> str:
        """The corpus file whose bug it is; empty for a new one."""
        return self.first.known

    @property
    def standing(self) -> str:
        """``new``, or ``known`` and the corpus file."""
        return f"{Status.KNOWN.value} ({self.known})" if self.known else Status.NEW.value


@dataclass
class Canaries:
    """After how many programs the process was looked at, and how many of them had a statement that eager refuses."""

    programs: int = 0
    after_refusals: int = 0
    unfit: int = 0

    def feed(self, event: ProgramChecked) -> None:
        """Count what was seen after a program."""
        if event.fit is not None:
            self.programs += 1
            self.after_refusals += event.eager_refuses
            self.unfit += not event.fit


@dataclass
class Tally:
    """Counts, fed one event at a time; ``waiting`` are the findings about which nothing has been said yet, by their
    scripts."""

    run: RunStarted | None = None
    ending: Ending | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)
    programs: int = 0
    findings: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    keys: Counter[CoarseKey] = field(default_factory=Counter)
    examples: dict[CoarseKey, tuple[str, str]] = field(default_factory=dict)
    shared: Counter[tuple[tuple[str, ...], CoarseKey]] = field(default_factory=Counter)
    rechecked: dict[CoarseKey, Reproduced] = field(default_factory=dict)
    scripts: dict[CoarseKey, Shown] = field(default_factory=dict)
    signatures: dict[Signature, Signed] = field(default_factory=dict)
    reports: dict[str, BugReported] = field(default_factory=dict)
    flaky: list[FindingFlaky] = field(default_factory=list)
    waiting: dict[str, CoarseKey] = field(default_factory=dict)
    soft: Counter[CoarseKey] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    pairs: PairsCounted | None = None
    canaries: Canaries = field(default_factory=Canaries)
    drawn: dict[int, tuple[str, ...]] = field(default_factory=dict)
    deaths: int = 0
    failures: list[str] = field(default_factory=list)

    def feed(self, event: Event, at: float | None = None) -> None:
        """Count ``event``, which happened ``at`` so many seconds after the epoch; now, if that is not said."""
        self.watch.feed(event, time.time() if at is None else at)
        match event:
            case RunStarted():
                self.run = event
            case RunResumed():
                self.ending = None
            case BlockGenerated():
                self.drawn[event.block] = event.digests
            case ProgramChecked():
                self.programs += 1
                self.outcomes[event.outcome] += 1
                self.soft.update(event.soft)
                self.refusals.update(event.refusals)
                self.features.update(event.features)
                self.left_out.update(event.left_out)
                self.canaries.feed(event)
            case FindingWritten():
                self.findings += 1
                self.keys[event.key] += 1
                self.waiting[event.path] = event.key
                self.examples.setdefault(event.key, (event.path, event.text))
            case FindingShared():
                self.shared[event.baselines, event.key] += 1
            case FindingRechecked():
                self.rechecked[event.key] = event.reproduced
            case ScriptRun():
                self.scripts[event.key] = event.shown
            case FindingSigned() | FindingExplained():
                self.waiting.pop(event.path, None)
                self._count_signature(event)
            case BugReported():
                self.reports[event.minimized] = event
            case FindingFlaky():
                self.waiting.pop(event.path, None)
                self.flaky.append(event)
            case WorkerDied():
                self.deaths += 1
            case ProgramFailed():
                self.failures.append(f"block {event.block}, program {event.index}: {event.error} ({event.path})")
            case BlockFailed():
                self.failures.append(f"block {event.block}: {event.error}")
            case PairsCounted():
                self.pairs = event
            case RunFinished():
                self.ending = event.ending

    def _count_signature(self, event: FindingSigned | FindingExplained) -> None:
        signed = self.signatures.setdefault(Signature(event.key, event.skeleton, event.stage), Signed(event))
        if isinstance(event, FindingSigned):
            signed.minimized += 1
        else:
            signed.explained += 1

    @property
    def untriaged(self) -> int:
        """Findings that nobody has minimized, counted under a signature, or found to be flaky."""
        told = sum(signed.minimized + signed.explained for signed in self.signatures.values())
        return self.findings - told - len(self.flaky)

    @property
    def known_findings(self) -> int:
        """Findings that are bugs of the corpus."""
        return sum(s.minimized + s.explained for s in self.signatures.values() if s.known)

    @property
    def new_findings(self) -> int:
        """Findings that are not known to be bugs of the corpus, flaky ones included: they fail a run."""
        return self.findings - self.known_findings

    @property
    def new_not_flaky(self) -> int:
        """The new findings that are not flaky."""
        return self.new_findings - len(self.flaky)

    @property
    def seconds(self) -> float:
        """Seconds from the beginning of the run to its last event, what it took before it was resumed included."""
        return self.watch.seconds

    @property
    def elapsed(self) -> float:
        """The same up to now while the run goes on."""
        return self.seconds if self.ending is not None else self.watch.seconds_at(time.time())

    @property
    def share_done(self) -> float | None:
        """The share of the programs, or of the time for them, that is behind the run; None where nothing limits it."""
        run = self.run
        if run is None:
            return None
        parts = [self.programs / run.examples] if run.examples else []
        parts += [self.elapsed / run.seconds] if run.seconds else []
        return min(max(parts), 1.0) if parts else None

    @property
    def rate(self) -> float:
        """Programs per second while programs were run; what comes after, findings once more, does not count."""
        return self.programs / self.watch.checking if self.watch.checking > 0 else 0.0

    @property
    def repeated(self) -> int:
        """How many of the programs that were drawn equal another one; a block runs those of its own once."""
        digests = [digest for block in self.drawn.values() for digest in block]
        return len(digests) - len(set(digests))

    @property
    def refused(self) -> int:
        """Programs that the backend refused."""
        return self.outcomes[Outcome.REFUSED.value]

    def share(self, count: int) -> float:
        """``count`` as a share of all programs."""
        return count / self.programs if self.programs else 0.0

    @property
    def floors(self) -> dict[str, float]:
        """The difficulty floor: the least share of programs with each feature that the strategy wants."""
        return self.run.floors if self.run is not None else {}

    @property
    def exit_code(self) -> ExitCode:
        """Findings go before failures of the infrastructure: nothing found is ever lost. Known bugs are no findings.
        Clean is only a run that came to its end and judged something."""
        if self.new_findings:
            return ExitCode.FINDINGS
        return ExitCode.INFRASTRUCTURE if self.shortcomings else ExitCode.CLEAN

    @property
    def scripts_not_run(self) -> int:
        """Coarse keys whose first script nobody has run by itself; nobody runs those that take all memory."""
        return sum(key not in self.scripts and key.oracle != OracleKind.MEMORY.value for key in self.keys)

    @property
    def judged(self) -> int:
        """Programs of which something was compared."""
        return self.programs - self.outcomes[Outcome.LEFT_OUT.value]

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """Why a run is not clean though it may have found nothing, one line each."""
        found = list(self.failures)
        if self.ending in (None, Ending.INTERRUPTED):
            found.append(f"interrupted after {counted(self.programs, 'program')}")
        if self.ending is Ending.INFRASTRUCTURE and not found:
            found.append(f"infrastructure failed after {counted(self.programs, 'program')}")
        if not self.judged:
            found.append("no program was judged")
        return tuple(found)


def tallied(events: Iterable[tuple[float, Event]]) -> Tally:
    """The tally of a run that has been written down: its events, each after the time at which it happened."""
    tally = Tally()
    for at, event in events:
        tally.feed(event, at)
    return tally
