"""The workers of a campaign: a pool of one for each job.

Note [One pool a worker]
    The workers of one pebble pool share a channel and its locks. If one gets SIGKILL while it holds a lock, the others
    hang and the pool breaks. So each worker has a pool of its own, which is dropped when the worker has died.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotcheck.workers import Workers

__all__ = ["Crew"]


class Crew:
    """Runs as many tasks at a time as there are jobs.

    Args:
        make: makes a pool of one worker.
        jobs: how many there may be.
    """

    def __init__(self, make: Callable[[], Workers], jobs: int) -> None:
        self._make, self._jobs = make, jobs
        self._idle: list[Workers] = []
        self._busy: dict[int, Workers] = {}

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *ending: object) -> None:
        self.stop()

    def schedule(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in an idle worker; the future of the call."""
        assert len(self._busy) < self._jobs
        while self._idle:
            pool = self._idle.pop()
            if pool.active:
                break
            _end(pool)
        else:
            pool = self._make()
        future = pool.schedule(function, args=arguments)
        self._busy[id(future)] = pool
        return future

    def over(self, future: Any, alive: bool) -> None:
        """The call of a future has ended; a worker that is not ``alive``, or not fit, gets no further task."""
        pool = self._busy.pop(id(future))
        if alive:
            self._idle.append(pool)
        else:
            _end(pool)

    def stop(self) -> None:
        """Kill all workers."""
        for pool in (*self._idle, *self._busy.values()):
            pool.stop()
        for pool in (*self._idle, *self._busy.values()):
            pool.join()
        self._idle.clear()
        self._busy.clear()


def _end(pool: Workers) -> None:
    pool.stop()
    pool.join()
