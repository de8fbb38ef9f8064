"""What a run that was broken off has done already, read from its own events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from aotcheck.campaign.events import (
    Event,
    FindingRechecked,
    FindingWritten,
    ProgramChecked,
    ProgramFailed,
    RunFinished,
    RunStarted,
    ScriptRun,
)
from aotcheck.oracle import CoarseKey

__all__ = ["Past"]


@dataclass(frozen=True)
class Past:
    """The events of a run so far, and what follows from them.

    Args:
        events: all of them, in order.
        started: the first one; None where there is none to go by.
        done: by block, the programs that need not be run again.
        untold: findings whose program was told of and they themselves not: the run was killed in between.
        rerun: coarse keys whose first script has been run alone, or whose finding was judged again.
        seconds: how long it ran, as far as is known.
    """

    events: tuple[Event, ...] = ()
    started: RunStarted | None = None
    done: Mapping[int, frozenset[int]] = field(default_factory=dict)
    untold: tuple[FindingWritten, ...] = ()
    rerun: frozenset[CoarseKey] = frozenset()
    seconds: float = 0.0

    @property
    def programs(self) -> int:
        """How many programs need not be run again."""
        return sum(map(len, self.done.values()))

    @classmethod
    def of(cls, events: Iterable[Event]) -> Past:
        """Read the events of a run. Nothing in it is told twice afterwards, and nothing is lost."""
        told = tuple(events)
        done: defaultdict[int, set[int]] = defaultdict(set)
        findings: dict[tuple[int, int], FindingWritten] = {}
        checked: dict[tuple[int, int], ProgramChecked] = {}
        rerun: set[CoarseKey] = set()
        seconds = 0.0
        for event in told:
            match event:
                case ProgramChecked(block=block, index=index):
                    done[block].add(index)
                    if event.hard:
                        checked[block, index] = event
                case ProgramFailed(block=block, index=index):
                    done[block].add(index)
                case FindingWritten(block=block, index=index):
                    findings[block, index] = event
                case ScriptRun(key=key) | FindingRechecked(key=key):
                    rerun.add(key)
                case RunFinished():
                    seconds += event.seconds
                case _:
                    pass
        untold = tuple(
            FindingWritten(at[0], at[1], event.hard[0], event.texts[0], event.path)
            for at, event in checked.items()
            if at not in findings and event.texts
        )
        return cls(
            events=told,
            started=next((event for event in told if isinstance(event, RunStarted)), None),
            done={block: frozenset(indices) for block, indices in done.items()},
            untold=untold,
            rerun=frozenset(rerun),
            seconds=seconds,
        )
