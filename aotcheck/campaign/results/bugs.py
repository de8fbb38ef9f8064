"""Reports that can be posted, for a program file and for the signatures of a run."""

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from aotcheck.bug import document, make
from aotcheck.campaign.corpus.files import NO_ISSUE
from aotcheck.campaign.findings.titles import title
from aotcheck.campaign.record.events import BugReported, Event, FindingExplained, FindingSigned
from aotcheck.campaign.record.journal import write_durably
from aotcheck.campaign.record.tally import Tally
from aotcheck.campaign.results.rank import impact_of, ranked
from aotcheck.campaign.setup.settings import Settings
from aotcheck.minimize import DoesNotFailError, Limits, Reduction, Subject
from aotcheck.program import ParsedFile, Program, emit, parse_file

__all__ = ["Reported", "Signatures", "reported"]


@dataclass(frozen=True)
class Reported:
    """A report, or the reason why there is none.

    Args:
        text: the report in Markdown; None if the program does not differ.
        script: the script in plain torch; empty if there is none.
        reason: why there is no script or no report.
    """

    text: str | None
    script: str = ""
    reason: str = ""


def reported(
    parsed: ParsedFile, subject: Subject, limits: Limits, *, blames: bool, minimize_seconds: float = 0.0
) -> Reported:
    """The report of a program file.

    Args:
        parsed: the file. Its header may name the coarse key of the difference to report, and an issue.
        subject: the backend, the device and what is not expected of the backend.
        limits: the time and memory that one run of the program may take.
        blames: whether the report says which part of the backend is to blame.
        minimize_seconds: how long to minimize a program that is not minimized yet; 0 to leave that out.
    """
    header = parsed.header
    keys = header.get("keys")
    wanted = keys.get(subject.backend) if isinstance(keys, dict) else header.get("key")
    program = parsed.program
    if minimize_seconds and "skeleton" not in header and program.statements > SMALL:
        program = _minimized(program, subject, replace(limits, seconds=minimize_seconds), wanted)
    source = emit(program, header)
    found = make(source, subject, lambda d: (str(d.key) != wanted, impact_of(d.key)), limits, blames=blames)
    if not found.differences:
        return Reported(None, reason=found.reason)
    first = found.differences[0]
    issue = str(header.get("issue", ""))
    text = document(
        found,
        title(first.text, first.key, program),
        subject.backend,
        subject.device,
        issue="" if issue in NO_ISSUE else issue,
        source=source,
    )
    return Reported(text, found.script, found.reason)


def _minimized(program: Program, subject: Subject, limits: Limits, wanted: object) -> Program:
    """``program`` as small as it gets in the time there is; itself where that shows another difference than is
    wanted."""
    reduction = Reduction(program, subject, limits)
    try:
        for _ in reduction.steps():
            pass
    except DoesNotFailError:
        return program
    reduced = reduction.result
    kept = reduced is not None and (wanted is None or str(reduced.shows.key) == wanted)
    return reduced.program if reduced is not None and kept else program


SMALL = 3
"""A program with at most this many statements is reported without minimizing."""

REPORT_SECONDS = 180.0
"""Seconds that all reports of a run together may take."""

RUN_SECONDS = 60.0


class Signatures:
    """The signatures of a run, for the first of which reports are written.

    Args:
        settings: the campaign's.
        past: the run's results from before it was interrupted.
    """

    def __init__(self, settings: Settings, past: Iterable[Event] = ()) -> None:
        self.settings = settings
        self._tally = Tally()
        self._done: set[str] = set()
        for event in past:
            self.feed(event)

    def feed(self, event: Event) -> None:
        """Record a signature, or that it has a report."""
        match event:
            case FindingSigned() | FindingExplained():
                self._tally.feed(event)
            case BugReported():
                self._done.add(event.minimized)

    def reports(self, stop: threading.Event) -> Iterator[BugReported]:
        """Write reports for the first signatures by rank that have none, while there is time."""
        settings = self.settings
        first = [path for path in self._ranked()[: settings.reports] if str(path) not in self._done]
        if not first:
            return
        settings.bugs.mkdir(parents=True, exist_ok=True)
        subject = Subject(settings.backend, settings.device, settings.inspection, settings.expectations)
        limits = Limits(1, min(RUN_SECONDS, settings.timeout), settings.memory)
        deadline = time.monotonic() + REPORT_SECONDS

        def written(path: Path) -> BugReported | None:
            if stop.is_set() or time.monotonic() >= deadline:
                return None
            return _written(path, settings.bugs / f"{path.stem}.md", subject, limits)

        with ThreadPoolExecutor(settings.jobs) as pool:
            for found in pool.map(written, first):
                if found is not None:
                    yield found

    def _ranked(self) -> list[Path]:
        """The smallest program of each new entry, in the order in which entries are told."""
        new = [entry.head for entry in ranked(self._tally) if not entry.known]
        return [Path(told.path) for told in new if told.program is not None and told.path and Path(told.path).exists()]


def _written(path: Path, target: Path, subject: Subject, limits: Limits) -> BugReported:
    try:
        found = reported(parse_file(path), subject, limits, blames=False)
    except Exception as error:  # a report that cannot be made ends no run
        return BugReported(str(path), "", False, f"{type(error).__name__}: {error}")
    if found.text is None:
        return BugReported(str(path), "", False, found.reason)
    write_durably(target, found.text)
    return BugReported(str(path), str(target), bool(found.script), found.reason)
