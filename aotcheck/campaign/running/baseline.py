"""Separates the differences that a backend shares with a baseline, which are no findings, from its own.

Note [Baselines]
    A backend that is built on another one has the other one's bugs too. So a program that differs on the backend runs
    on each baseline too, in another process, which may die. The program is cut after the step in which the backend
    first differs, and the baseline must do all that the backend must do, whatever the baseline promises itself. A
    difference is shared if the baseline shows a hard difference under the same coarse key; deaths are compared by the
    signal, or by the timeout. If all differences of that step are shared, the program is counted and shown as shared,
    and its script goes to the folder ``shared``. Else it is a finding under the first difference that is the backend's
    own. Two bugs under one coarse key in one program cannot be told apart: such a program is shared. A program that a
    baseline refuses, or that could not run on it, is not shared. Programs that took too much memory do not run again.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotcheck.backends import resolve
from aotcheck.campaign.record.events import Event, FindingShared, FindingWritten, ProgramChecked
from aotcheck.campaign.running.worker import write_finding
from aotcheck.campaign.setup.settings import Settings, SettingsError
from aotcheck.minimize.isolated import Limits, outcome_of, workers
from aotcheck.minimize.judging import Subject, judge
from aotcheck.oracle import CoarseKey, OracleKind
from aotcheck.program import ParsedFile, ProgramSyntaxError, UnknownOpError, parse_file

__all__ = ["Baselines", "require_baselines"]

WAIT_SECONDS = 0.05
GRACE_SECONDS = 60.0
"""How long the last findings wait for baselines once all programs have run."""


def require_baselines(backend: str, baselines: Iterable[str]) -> None:
    """Raise if these cannot be baselines of ``backend``.

    Raises:
        BackendError: there is no such backend.
        SettingsError: the backend is its own baseline.
    """
    for name in baselines:
        resolve(name)
        if name == backend:
            raise SettingsError(f"'{name}' cannot be its own baseline: all of its differences would be no findings")


@dataclass
class _Held:
    """A finding that waits for what the baselines show."""

    finding: FindingWritten
    script: ParsedFile
    asked: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, frozenset[CoarseKey]] = field(default_factory=dict)


class Baselines:
    """Separates findings from differences that a baseline shares, by :meth:`sifted`.

    Args:
        settings: the campaign's.
        stop: the event that ends the waiting when it is set.
        past: the run's results from before it was interrupted.
    """

    def __init__(self, settings: Settings, stop: threading.Event, past: Iterable[Event] = ()) -> None:
        self.settings, self.stop = settings, stop
        self._held: list[_Held] = []
        self._texts: dict[tuple[int, int], dict[CoarseKey, str]] = {}
        self._pool: Any = None
        for event in past:
            self._note(event)

    def sifted(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass ``events`` on; those of findings come later, and only if the difference is the backend's own."""
        if not self.settings.baselines:
            yield from events
            return
        with contextlib.ExitStack() as stack:
            for event in events:
                self._note(event)
                held = self._hold(event, stack)
                if not held:
                    yield event
                yield from self._settled()
            limit = time.monotonic() + GRACE_SECONDS
            while self._held and not self.stop.is_set() and time.monotonic() < limit:
                yield from self._settled()
                time.sleep(WAIT_SECONDS)
            yield from (held.finding for held in self._held)  # rather told once too often than not at all

    def _note(self, event: Event) -> None:
        if isinstance(event, ProgramChecked) and event.hard:
            self._texts[event.block, event.index] = dict(zip(event.hard, event.texts, strict=False))

    def _hold(self, event: Event, stack: contextlib.ExitStack) -> bool:
        """Whether ``event`` is a finding that the baselines are asked about."""
        if not isinstance(event, FindingWritten) or event.key.oracle == OracleKind.MEMORY.value:
            return False
        try:
            script = parse_file(Path(event.path))
        except (OSError, ProgramSyntaxError, UnknownOpError):
            return False
        if self._pool is None:
            limits = Limits(1, self.settings.timeout, self.settings.memory)
            self._pool = stack.enter_context(workers(self._subject(self.settings.baselines[0]), limits))
        held = _Held(event, script)
        held.asked = {name: self._ask(name, held) for name in self.settings.baselines}
        self._held.append(held)
        return True

    def _subject(self, baseline: str) -> Subject:
        settings = self.settings
        return Subject(settings.backend, settings.device, expectations=settings.expectations).beside(baseline)

    def _ask(self, baseline: str, held: _Held) -> Any:
        arguments = (held.script.program, self._subject(baseline))
        return self._pool.schedule(judge, args=arguments, timeout=self.settings.timeout)

    def _settled(self) -> Iterator[Event]:
        """Events for the findings about which all baselines have been heard."""
        for held in list(self._held):
            for name, future in list(held.asked.items()):
                if not future.done():
                    continue
                found = outcome_of(future, self.settings.timeout)
                if found is None:  # the process had been poisoned before
                    held.asked[name] = self._ask(name, held)
                else:
                    del held.asked[name]
                    held.shown[name] = frozenset(key for key, _ in found.shown)
            if not held.asked:
                self._held.remove(held)
                yield self._told(held)

    def _told(self, held: _Held) -> Event:
        finding, theirs = held.finding, frozenset[CoarseKey]().union(*held.shown.values())
        texts = self._texts.get((finding.block, finding.index), {finding.key: finding.text})
        own = next((key for key in texts if key not in theirs), None)
        if own is None:
            names = tuple(name for name, keys in held.shown.items() if keys & texts.keys())
            path = self._moved(Path(finding.path))
            return FindingShared(finding.block, finding.index, finding.key, finding.text, str(path), names)
        return finding if own == finding.key else self._told_by(held, own, texts[own])

    def _moved(self, path: Path) -> Path:
        """Where the script of a shared finding is: not among the findings, which are replayed by their folder."""
        to = self.settings.shared / path.name
        to.parent.mkdir(parents=True, exist_ok=True)
        path.replace(to)
        return to

    def _told_by(self, held: _Held, key: CoarseKey, text: str) -> FindingWritten:
        """The finding under another of its differences, its script with it."""
        finding, settings = held.finding, self.settings
        header = {**held.script.header, "key": str(key), "difference": text}
        at = (settings.seed, finding.block, finding.index)
        path = write_finding(settings.findings, *at, key, held.script.program, header)
        Path(finding.path).unlink(missing_ok=True)
        return FindingWritten(finding.block, finding.index, key, text, str(path))
