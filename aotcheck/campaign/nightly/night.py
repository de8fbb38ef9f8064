"""What runs every night: the corpus again, then each backend for its time, then what has changed since the last run.

The result is plain data, kept as ``nightly.json``; writers of JUnit XML, Markdown and HTML are told nothing else.
"""

import dataclasses
import datetime
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotcheck.backends import BackendError, Expectations, recorded, resolve
from aotcheck.campaign.corpus.replay import Replay, Status
from aotcheck.campaign.nightly.config import Config, Job
from aotcheck.campaign.nightly.remembered import Memory, Remembered, Seen
from aotcheck.campaign.record.events import Event
from aotcheck.campaign.record.journal import write_durably
from aotcheck.campaign.record.tally import ExitCode, Tally
from aotcheck.campaign.record.words import counted
from aotcheck.campaign.results.runs import BackendRun, summed_up
from aotcheck.campaign.running.supervisor import Campaign
from aotcheck.campaign.setup.declared import inspection_by
from aotcheck.campaign.setup.settings import Settings, SettingsError

__all__ = ["Changes", "Nightly", "ReplayedFile", "run"]

FORMAT = 1
REMEMBERED = "remembered"
"""The folder among the reports that keeps what nights have told."""


@dataclass(frozen=True)
class ReplayedFile:
    """What replaying a corpus file on a backend came to."""

    path: str
    backend: str
    status: str
    text: str = ""
    shown: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How it is called beside others."""
        return f"{Path(self.path).stem} on {self.backend}" if self.backend else Path(self.path).stem


@dataclass(frozen=True)
class Changes:
    """What is otherwise than in the last run: lines for people; ``last`` is that run's folder, empty for none."""

    last: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nightly:
    """A night."""

    folder: str
    time: str
    versions: Mapping[str, str]
    replayed: tuple[ReplayedFile, ...] = ()
    runs: tuple[BackendRun, ...] = ()
    changes: Changes = field(default_factory=Changes)
    remembered: tuple[Remembered, ...] = ()
    failures: tuple[str, ...] = ()
    format: int = FORMAT

    def count(self, status: Status) -> int:
        """How many replayed files came to ``status``."""
        return sum(one.status == status.value for one in self.replayed)

    @property
    def exit_code(self) -> ExitCode:
        """Findings first, since nothing that was found may be lost; then what could not be run."""
        if self.count(Status.NEW) or self.count(Status.FIXED) or any(run.new or run.untold for run in self.runs):
            return ExitCode.FINDINGS
        if any(one.fails for one in self.remembered):
            return ExitCode.FINDINGS
        if self.failures or any(run.failures for run in self.runs):
            return ExitCode.INFRASTRUCTURE
        return ExitCode.USAGE if self.count(Status.REJECTED) else ExitCode.CLEAN


# -- the night

Moved = Callable[[str, float, float], None]
"""Told how far a stage is: its name, how much is done, and of how much."""


def run(
    config: Config,
    strategy: str,
    inspection: str,
    stop: threading.Event,
    heard: Callable[[str, Path, Event, float], None],
    versions: Mapping[str, str],
    said: Callable[[str], None] = lambda line: None,
    moved: Moved = lambda stage, done, of: None,
) -> Nightly:
    """Replay, fuzz, compare. ``heard`` is given every event of every campaign, with the backend, the run's folder and
    when it happened; ``said`` a line for each thing that was done; ``moved`` how far each stage is."""
    now = datetime.datetime.now(datetime.UTC)
    before = list(past_nights(config.reports))
    folder = config.reports / now.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    memory = Memory(config.reports / REMEMBERED, now)
    failures = [memory.damage] if memory.damage else []
    replayed: list[ReplayedFile] = []
    if config.corpus is not None:
        for one in _replay(config, stop, failures, moved):
            replayed.append(one)
            if one.status not in (Status.AGREES.value, Status.KNOWN.value):
                said(f"{one.name}: {one.status}{f' ({one.text})' if one.text else ''}")
    failures += _recall(config, memory, stop, moved)
    runs: list[BackendRun] = []
    for number, job in enumerate(config.jobs):
        if stop.is_set():
            break
        into = folder / f"{number}-{_slug(job.backend)}"
        try:
            found = _fuzz(config, job, into, now, strategy, inspection, stop, heard, moved)
            runs.append(_remembered(found, job, memory))
            fuzzed, fresh = counted(runs[-1].programs, "program"), counted(len(runs[-1].new), "new signature")
            said(f"{job.backend}, {found.strategy}: {fuzzed}, {fresh}")
        except (SettingsError, OSError) as error:  # a full disk, say: the others may have room again
            drawn = job.strategy or strategy
            runs.append(BackendRun(job.backend, str(into), _seed(job, now), failures=(str(error),), strategy=drawn))
            said(f"{job.backend}: {error}")
    night = Nightly(str(folder), now.isoformat(timespec="seconds"), versions, tuple(replayed), tuple(runs))
    night = dataclasses.replace(
        night,
        changes=compared(night, before[-1]) if before else Changes(),
        failures=(*failures, *(["interrupted"] if stop.is_set() else [])),
        remembered=tuple(memory),
    )
    for told in night.remembered:
        if told.is_news:
            said(f"{told.backend}: {told.status.value}: {told.signature}")
    write_durably(folder / "nightly.json", json.dumps(dataclasses.asdict(night), indent=1) + "\n")
    memory.save()
    return night


def _recall(config: Config, memory: Memory, stop: threading.Event, moved: Moved) -> Iterator[str]:
    """Replay what is remembered of the backends of this night; a line for each file that cannot be."""
    drawn = tuple(dict.fromkeys(job.strategy for job in config.jobs if job.strategy))
    for device, files in memory.files(job.backend for job in config.jobs).items():
        limits = (config.workers, 60.0, config.memory, config.replay_runs)
        engine = Replay(files, (), device, *limits, stop=stop, strategies=drawn)
        for number, one in enumerate(engine.results(), 1):
            memory.replayed(one)
            moved("remembered", number, len(files))
            if one.status is Status.REJECTED:
                yield f"{one.path}: {one.text}"


def _remembered(run: BackendRun, job: Job, memory: Memory) -> BackendRun:
    """``run`` with its signatures known that earlier nights have told; what none has told is remembered."""
    signed = []
    for bug in run.signatures:
        told = memory.named(job.backend, bug.known) if bug.known else bug.signature
        if told is not None:  # else it is one of the corpus
            one = memory.found(job.backend, job.device, told, bug.minimized)
            bug = dataclasses.replace(bug, known="" if one.status is Status.NEW else one.name)
        signed.append(bug)
    for key in run.wavering:
        memory.found(job.backend, job.device, f"{key}, flaky", "", Seen.WAVERS)
    return dataclasses.replace(run, signatures=tuple(signed))


def _seed(job: Job, now: datetime.datetime) -> int:
    return int(now.strftime("%Y%m%d")) if job.seed is None else job.seed


def _slug(backend: str) -> str:
    return "".join(c if c.isalnum() or c in "_-" else "-" for c in backend)


def _replay(config: Config, stop: threading.Event, failures: list[str], moved: Moved) -> Iterator[ReplayedFile]:
    assert config.corpus is not None
    files = sorted(config.corpus.glob("*.py"))
    if not files:
        failures.append(f"{config.corpus}: no files")
    engine = Replay(files, jobs=config.workers, memory=config.memory, runs=config.replay_runs, stop=stop)
    for one in engine.results():
        moved("corpus", files.index(one.path), len(files))
        shown = (one.judged.key, *one.judged.texts) if one.judged.key else ()
        yield ReplayedFile(str(one.path), one.backend, one.status.value, one.text, shown)


def _fuzz(
    config: Config,
    job: Job,
    folder: Path,
    now: datetime.datetime,
    strategy: str,
    inspection: str,
    stop: threading.Event,
    heard: Callable[[str, Path, Event, float], None],
    moved: Moved,
) -> BackendRun:
    seed, drawn = _seed(job, now), job.strategy or strategy
    settings = Settings(
        strategy=drawn,
        backend=job.backend,
        device=job.device,
        seed=seed,
        examples=job.examples,
        seconds=job.seconds,
        jobs=config.workers,
        timeout=job.timeout,
        memory=config.memory,
        folder=folder,
        minimize_seconds=job.minimize_seconds,
        reports=config.bugs,
        inspection=inspection_by(drawn, inspection),
        corpus=config.corpus,
        baselines=job.baselines,
        remembered=config.reports / REMEMBERED,
        expectations=_recorded(job),
    )
    tally = Tally()
    settings.make_folders()
    for event in Campaign(settings, stop).events():
        at = round(time.time(), 3)
        heard(job.backend, folder, event, at)
        tally.feed(event, at)
        moved(job.backend, 100 * (tally.share_done or 0.0), 100)
    return summed_up(tally, job.backend, folder, seed)


def _recorded(job: Job) -> Expectations:
    """What findings say that is not expected of the backend."""
    try:
        return recorded(resolve(job.backend, job.expectations), job.expectations)
    except BackendError as error:
        raise SettingsError(str(error)) from error


# -- comparison


def past_nights(reports: Path) -> Iterator[Mapping[str, Any]]:
    """What earlier runs came to, in their order; what cannot be read is left out."""
    for path in sorted(reports.glob("*/nightly.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and found.get("format") == FORMAT:
            yield found


def compared(night: Nightly, last: Mapping[str, Any]) -> Changes:
    """What is otherwise than in the last run."""
    lines: list[str] = []
    then = {(f["path"], f["backend"]): f["status"] for f in last.get("replayed", [])}
    now = {(f.path, f.backend): f.status for f in night.replayed}
    for at in sorted(then.keys() | now.keys()):
        if then.get(at) != now.get(at):
            name = f"{Path(at[0]).stem} on {at[1]}"
            lines.append(f"{name}: {then.get(at, 'not there')} -> {now.get(at, 'not there')}")
    before: defaultdict[str, list[Any]] = defaultdict(list)  # a backend may be fuzzed in more ways than one
    for old in last.get("runs", []):
        before[old["backend"]].append(old)
    for run_ in night.runs:
        old = before[run_.backend].pop(0) if before[run_.backend] else {}
        had = {s["signature"] for s in old.get("signatures", [])}
        has = {s.signature for s in run_.signatures}
        lines += [f"{run_.backend}: since then: {one}" for one in sorted(has - had)]
        lines += [f"{run_.backend}: not found again: {one}" for one in sorted(had - has)]
        if old.get("rate"):
            lines.append(f"{run_.backend}: {old['rate']:.1f} -> {run_.rate:.1f} programs/s")
    return Changes(str(last.get("folder", "")), tuple(lines))
