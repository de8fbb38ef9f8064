"""The part of an interrupted run that is done, read from the run's own events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from aotcheck.campaign.record.events import (
    BlockGenerated,
    Event,
    FindingRechecked,
    FindingShared,
    FindingWritten,
    ProgramChecked,
    ProgramFailed,
    RunStarted,
    ScriptRun,
)
from aotcheck.campaign.record.stopwatch import Stopwatch
from aotcheck.oracle import CoarseKey

__all__ = ["Past"]


@dataclass(frozen=True)
class Past:
    """The events of a run so far, and what follows from them.

    Args:
        events: all of them, in order.
        times: when each of them happened, in seconds since the epoch.
        started: the first one; None where there is none to go by.
        done: by block, the programs that need not be run again.
        untold: findings whose program was told of and they themselves not: the run was killed in between.
        rerun: coarse keys whose first script has been run alone, or whose finding was judged again.
        seconds: how long it ran, the parts of it that were killed included.
    """

    events: tuple[Event, ...] = ()
    times: tuple[float, ...] = ()
    started: RunStarted | None = None
    done: Mapping[int, frozenset[int]] = field(default_factory=dict)
    untold: tuple[FindingWritten, ...] = ()
    rerun: frozenset[CoarseKey] = frozenset()
    seconds: float = 0.0

    @property
    def programs(self) -> int:
        """How many programs need not be run again."""
        return sum(map(len, self.done.values()))

    @property
    def timed(self) -> Iterator[tuple[float, Event]]:
        """The events, each after the time at which it happened."""
        return zip(self.times, self.events, strict=True)

    @classmethod
    def of(cls, events: Iterable[Event], times: Iterable[float] = ()) -> Past:
        """Read the events of a run and when they happened. Nothing is told twice afterwards, and nothing is lost."""
        told = tuple(events)
        at = tuple(times) or (0.0,) * len(told)
        watch = Stopwatch()
        for when, event in zip(at, told, strict=True):
            watch.feed(event, when)
        done: defaultdict[int, set[int]] = defaultdict(set)
        findings: dict[tuple[int, int], Event] = {}
        checked: dict[tuple[int, int], ProgramChecked] = {}
        rerun: set[CoarseKey] = set()
        for event in told:
            match event:
                case ProgramChecked(block=block, index=index):
                    done[block].add(index)
                    if event.hard:
                        checked[block, index] = event
                case ProgramFailed(block=block, index=index):
                    done[block].add(index)
                case BlockGenerated(block=block, repeated=repeated):
                    done[block].update(repeated)
                case FindingWritten(block=block, index=index) | FindingShared(block=block, index=index):
                    findings[block, index] = event
                case ScriptRun(key=key) | FindingRechecked(key=key):
                    rerun.add(key)
                case _:
                    pass
        untold = tuple(
            FindingWritten(at[0], at[1], event.hard[0], event.texts[0], event.path)
            for at, event in checked.items()
            if at not in findings and event.texts
        )
        return cls(
            events=told,
            times=at,
            started=next((event for event in told if isinstance(event, RunStarted)), None),
            done={block: frozenset(indices) for block, indices in done.items()},
            untold=untold,
            rerun=frozenset(rerun),
            seconds=watch.seconds,
        )
