"""A campaign in figures: a consumer of events that display, summary and exit code read from."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from aotcheck.campaign.events import (
    BlockFailed,
    Ending,
    Event,
    FindingExplained,
    FindingFlaky,
    FindingRechecked,
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
from aotcheck.campaign.signature import Signature
from aotcheck.oracle import CoarseKey, Outcome

FLOORS: dict[str, float] = {
    "MUTATES_INPUT": 0.30,
    "INPUTS_SHARE_STORAGE": 0.30,
    "RETURNS_ALIAS": 0.30,
    "SECOND_CALL_OTHER_KEY": 0.15,
    "EAGER_REFUSES": 0.10,
    "MANY_BACKWARDS": 0.50,
}
"""The difficulty floor: the least share of programs with each feature."""


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
    """Counts, fed one event at a time."""

    started: float = field(default_factory=time.monotonic)
    run: RunStarted | None = None
    ending: Ending | None = None
    seconds: float = 0.0
    programs: int = 0
    resumed_at: int = 0
    checking: float = 0.0
    findings: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    keys: Counter[CoarseKey] = field(default_factory=Counter)
    examples: dict[CoarseKey, tuple[str, str]] = field(default_factory=dict)
    rechecked: dict[CoarseKey, Reproduced] = field(default_factory=dict)
    scripts: dict[CoarseKey, Shown] = field(default_factory=dict)
    signatures: dict[Signature, Signed] = field(default_factory=dict)
    flaky: list[FindingFlaky] = field(default_factory=list)
    soft: Counter[CoarseKey] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    pairs: PairsCounted | None = None
    canaries: Canaries = field(default_factory=Canaries)
    deaths: int = 0
    failures: list[str] = field(default_factory=list)

    def feed(self, event: Event) -> None:
        """Count ``event``."""
        match event:
            case RunStarted():
                self.run = event
                self.started = time.monotonic()
            case RunResumed():
                self.started, self.checking, self.resumed_at = time.monotonic(), 0.0, self.programs
            case ProgramChecked():
                self.programs += 1
                self.checking = time.monotonic() - self.started
                self.outcomes[event.outcome] += 1
                self.soft.update(event.soft)
                self.refusals.update(event.refusals)
                self.features.update(event.features)
                self.left_out.update(event.left_out)
                self.canaries.feed(event)
            case FindingWritten():
                self.findings += 1
                self.keys[event.key] += 1
                self.examples.setdefault(event.key, (event.path, event.text))
            case FindingRechecked():
                self.rechecked[event.key] = event.reproduced
            case ScriptRun():
                self.scripts[event.key] = event.shown
            case FindingSigned() | FindingExplained():
                self._count_signature(event)
            case FindingFlaky():
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
                self.seconds = event.seconds
            case _:
                pass

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
    def new_findings(self) -> int:
        """Findings that are not known to be bugs of the corpus."""
        known = sum(s.minimized + s.explained for s in self.signatures.values() if s.known)
        return self.findings - known

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, or that it took."""
        return self.seconds if self.ending is not None else time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Programs per second while programs were run, since the run was last resumed; what comes after, findings once
        more, does not count."""
        return (self.programs - self.resumed_at) / self.checking if self.checking > 0 else 0.0

    @property
    def refused(self) -> int:
        """Programs that the backend refused."""
        return self.outcomes[Outcome.REFUSED.value]

    def share(self, count: int) -> float:
        """``count`` as a share of all programs."""
        return count / self.programs if self.programs else 0.0

    @property
    def below_floor(self) -> tuple[str, ...]:
        """The features of which too few programs have each."""
        return tuple(name for name, floor in FLOORS.items() if self.share(self.features[name]) < floor)

    @property
    def exit_code(self) -> ExitCode:
        """Findings go before failures of the infrastructure: nothing found is ever lost. Known bugs are no findings."""
        if self.new_findings:
            return ExitCode.FINDINGS
        if self.failures or self.ending is Ending.INFRASTRUCTURE:
            return ExitCode.INFRASTRUCTURE
        return ExitCode.CLEAN
