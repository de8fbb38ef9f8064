"""Workers that died: which program killed them, and the finding that is written.

Note [Suspects]
    A worker that is gone may have died of the program that it ran, or somebody else may have killed it: the system for
    lack of memory, or a person. So another worker runs the program again, and the program is a finding if that worker
    dies too. A program whose worker the supervisor killed, for its time or memory, is a finding at once.

Note [Flaky deaths]
    A program that kills one worker and not the next is a flaky finding. The cause may be memory that an earlier program
    of that worker has spoilt, so the script and the output of the worker are kept. A death by SIGKILL is no finding:
    somebody else sent the signal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aotcheck.campaign.record.events import Event, FindingFlaky, FindingWritten, ProgramChecked, WorkerDied
from aotcheck.campaign.record.journal import write_durably
from aotcheck.campaign.running.flight import Flight
from aotcheck.campaign.running.worker import Task, header_of, write_finding
from aotcheck.campaign.setup.settings import Settings
from aotcheck.oracle import CoarseKey, OracleKind, Outcome
from aotcheck.program import difficulty, parse
from aotcheck.workers import log_of

__all__ = ["Deaths"]

LOG_BYTES = 64 * 1024
"""How much of the end of a worker's output is kept."""

FROM_OUTSIDE = frozenset({"killed by SIGKILL", "its pool broke", "cancelled"})
"""Ends that say nothing about the program that ran."""


@dataclass(frozen=True)
class _Death:
    """A worker's death: ``how`` it ended while it ran the program of ``source``, and what it had printed."""

    task: Task
    how: str
    source: str
    log: bytes


class Deaths:
    """Keeps the suspects of a campaign, and writes programs that killed their worker as findings.

    Args:
        settings: the campaign's.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._suspects: dict[tuple[int, int], _Death] = {}

    def suspect(self, flight: Flight, index: int, how: str) -> bool:
        """Suspect the program ``index`` that ``flight`` died of; False if it has been suspected before."""
        at = (flight.task.block, index)
        if at in self._suspects:
            return False
        self._suspects[at] = self._death(flight, how)
        return True

    def finding(self, flight: Flight, index: int, how: str) -> Iterator[Event]:
        """The finding of a program that killed its worker."""
        task, death = flight.task, self._death(flight, how)
        self._suspects.pop((task.block, index), None)
        kind = flight.killed or OracleKind.CRASH
        key = CoarseKey(kind.value, "process", how if kind is OracleKind.CRASH else "")
        text = f"{kind.value} of the worker: {how}"
        yield WorkerDied(task.block, index, how)
        path, _ = self._written(death, index, key, text)
        yield ProgramChecked(
            block=task.block,
            index=index,
            outcome=Outcome.DIFFERS.value,
            seconds=0.0,
            features=tuple(sorted(feature.name for feature in difficulty(parse(death.source, "journal").program))),
            hard=(key,),
            texts=(text,),
            path=path,
        )
        yield FindingWritten(task.block, index, key, text, path)

    def cleared(self, event: Event) -> Iterator[Event]:
        """Events for a suspect that another worker has judged, see Note [Flaky deaths]."""
        if isinstance(event, ProgramChecked) and (death := self._suspects.pop((event.block, event.index), None)):
            yield from self._flaky(death, event.index, "another worker ran the program to its end")

    def left(self) -> Iterator[Event]:
        """Events for suspects that have not run again when the run ends."""
        for (_, index), death in self._suspects.items():
            yield from self._flaky(death, index, "the run ended before the program was run again")
        self._suspects.clear()

    def _flaky(self, death: _Death, index: int, since: str) -> Iterator[Event]:
        if death.how in FROM_OUTSIDE:
            return
        key = CoarseKey(OracleKind.CRASH.value, "process", death.how)
        text = f"crash of the worker: {death.how}"
        path, log = self._written(death, index, key, text)
        yield FindingWritten(death.task.block, index, key, text, path)
        printed = f"its output: {log}" if log else "it printed nothing"
        yield FindingFlaky(path, key, f"a worker died ({death.how}); {since}; {printed}", death.how, log)

    def _death(self, flight: Flight, how: str) -> _Death:
        return _Death(flight.task, how, flight.reader.source_in_flight(), _output(self.settings.journals, flight.pid))

    def _written(self, death: _Death, index: int, key: CoarseKey, text: str) -> tuple[str, str]:
        """Write a script, and beside the folder of scripts what the worker had printed; both paths."""
        task = death.task
        header = {**header_of(task, index), "key": str(key), "difference": text}
        program = parse(death.source, "journal").program
        path = write_finding(task.findings, task.seed, task.block, index, key, program, header)
        if not death.log:
            return str(path), ""
        log = self.settings.logs / f"{path.stem}.log"
        log.parent.mkdir(exist_ok=True)
        write_durably(log, death.log.decode(errors="replace"))
        return str(path), str(log)


def _output(journals: Path, pid: int | None) -> bytes:
    """The end of what a worker has printed."""
    try:
        with log_of(journals, pid or 0).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - LOG_BYTES, 0))
            return file.read()
    except OSError:
        return b""
