"""A block in progress: what its worker has reported so far, and whether the worker may go on."""

import contextlib
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotcheck.campaign.record.events import BlockGenerated, Event, FindingWritten, ProgramChecked, ProgramFailed
from aotcheck.campaign.record.journal import JournalReader
from aotcheck.campaign.running.worker import Task
from aotcheck.oracle import CoarseKey, OracleKind

START_SECONDS = 180.0
"""How long a worker may take to start and to draw a block, before the first program runs."""


@dataclass
class Flight:
    """A task given to a worker.

    Args:
        task: what was asked.
        future: pebble's handle; cancelling it kills the worker.
        timeout: seconds that one program may take.
        memory: resident bytes that the worker may take.
    """

    task: Task
    future: Any
    timeout: float
    memory: int
    killed: OracleKind | None = None
    running: int | None = None
    done: set[int] = field(default_factory=set)
    repeated: frozenset[int] = frozenset()
    since: float = field(default_factory=time.monotonic)
    pid: int | None = None

    def __post_init__(self) -> None:
        self.reader = JournalReader(self.task.journal)

    def news(self) -> Iterator[Event]:
        """Events for what the worker has reported since the last call."""
        for line in self.reader.lines():
            self.since = time.monotonic()
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                yield from self._told(line)  # what a bad disk has garbled is left out: that program is run again

    def _told(self, line: Mapping[str, Any]) -> Iterator[Event]:
        """Events for one line."""
        match line.get("kind"):
            case "process":
                self.pid = int(line["pid"])
            case "generated":
                self.repeated = frozenset(map(int, line["repeated"]))
                yield BlockGenerated(
                    self.task.block,
                    int(line["programs"]),
                    float(line["seconds"]),
                    tuple(line["traits"]),
                    tuple(sorted(self.repeated)),
                    tuple(line["digests"]),
                )
            case "started":
                self.running = int(line["index"])
            case "finished":
                events = list(self._checked(line))
                self.running = None
                self.done.add(int(line["index"]))
                yield from events
            case "failed":
                self.running = None
                self.done.add(int(line["index"]))
                yield ProgramFailed(self.task.block, int(line["index"]), str(line["error"]), str(line["path"]))
            case _:
                pass

    def _checked(self, line: Any) -> Iterator[Event]:
        checked = ProgramChecked(
            block=self.task.block,
            index=line["index"],
            outcome=line["outcome"],
            seconds=line["seconds"],
            features=tuple(line["features"]),
            hard=tuple(CoarseKey(**key) for key in line["hard"]),
            soft=tuple(CoarseKey(**key) for key in line["soft"]),
            refusals=tuple(line["refusals"]),
            left_out=line["left_out"],
            texts=tuple(line["texts"]),
            path=line["path"],
            fit=line["fit"],
            eager_refuses=line["eager_refuses"],
        )
        yield checked
        if checked.hard:
            yield FindingWritten(self.task.block, checked.index, checked.hard[0], checked.texts[0], checked.path)

    def enforce(self) -> None:
        """Kill the worker if its program takes too long or the process too much memory."""
        if self.killed is not None or self.future.done():
            return
        limit = self.timeout if self.running is not None else START_SECONDS
        if time.monotonic() - self.since > limit:
            self.killed = OracleKind.TIMEOUT
        elif self.pid is not None and _resident(self.pid) > self.memory:
            self.killed = OracleKind.MEMORY
        if self.killed is not None:
            self.future.cancel()


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0  # gone, or a system without /proc: the address space limit is then the only one
