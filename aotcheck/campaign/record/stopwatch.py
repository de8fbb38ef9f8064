"""The duration of a run, read off the times of its events: the same on the console, in reports and after --resume."""

from dataclasses import dataclass

from aotcheck.campaign.record.events import Event, ProgramChecked, RunResumed, RunStarted

__all__ = ["Stopwatch"]


@dataclass
class Stopwatch:
    """Fed events and when they happened, in seconds since the epoch.

    The time between the end of one part of a run and the next part, after --resume, does not count.

    Args:
        checking: seconds until the last program of each part, from the beginning of the part.
    """

    checking: float = 0.0
    _earlier: float = 0.0
    _began: float | None = None
    _program: float = 0.0
    _latest: float = 0.0

    def feed(self, event: Event, at: float) -> None:
        """Note that ``event`` happened."""
        match event:
            case RunStarted() | RunResumed():
                self._earlier = self.seconds
                self._began = self._program = self._latest = at
            case ProgramChecked() if self._began is not None:
                self.checking += max(at - self._program, 0.0)
                self._program = max(at, self._program)
            case _:
                pass
        self._latest = max(at, self._latest)

    @property
    def seconds(self) -> float:
        """Seconds up to the last event."""
        return self.seconds_at(self._latest)

    def seconds_at(self, now: float) -> float:
        """Seconds up to ``now``, if the run still goes on."""
        return self._earlier if self._began is None else self._earlier + max(now - self._began, 0.0)
