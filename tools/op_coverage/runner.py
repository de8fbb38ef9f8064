"""Runs subjects in processes that may die or hang, and keeps what comes of each."""

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pebble import ProcessExpired, ProcessPool

from aotcheck.workers import how_it_ended, processes
from tools.op_coverage.compare import Side
from tools.op_coverage.subjects import Subject
from tools.op_coverage.worker import Outcome, prepare, run

Task = tuple[Side, Subject]

_DATABASES = (
    "torch.testing._internal.common_methods_invocations",
    "torch.testing._internal.common_modules",
    "functorch.compile",
    "tools.op_coverage.worker",
)


def run_all(
    tasks: Sequence[Task], most: int, jobs: int, timeout: float, started: Callable[[int], None]
) -> Iterator[tuple[Task, Outcome]]:
    """Each task with its outcome, as they end. A process that dies or takes too long is that task's failure."""
    if not tasks:
        return
    started(len(tasks))
    with ProcessPool(jobs, max_tasks=100, initializer=prepare, context=processes(*_DATABASES)) as pool:
        futures: dict[Any, Task] = {
            pool.schedule(run, args=(subject, side, most), timeout=timeout): (side, subject) for side, subject in tasks
        }
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], _outcome(future, timeout)
        except BaseException:
            pool.stop()
            raise


def _outcome(future: Any, timeout: float) -> Outcome:
    try:
        outcome: Outcome = future.result()
        return outcome
    except concurrent.futures.TimeoutError:
        return Outcome(1, {0: f"takes more than {timeout:g} seconds"}, timeout)
    except ProcessExpired as error:
        return Outcome(1, {0: f"the process {how_it_ended(error.exitcode)}"}, 0.0)
    except Exception as error:
        return Outcome(1, {0: f"{type(error).__name__}: {str(error)[:100]}"}, 0.0)
