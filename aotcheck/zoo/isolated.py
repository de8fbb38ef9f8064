"""Judges each model in a worker process of its own: a crash or a hang is the outcome of that model alone."""

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError
from dataclasses import dataclass
from pathlib import Path

from pebble import ProcessExpired, ProcessFuture

from aotcheck.backends import require_device, resolve
from aotcheck.workers import Workers, how_it_ended, imports_of, prepare_process, processes
from aotcheck.zoo import models as _models  # registers them
from aotcheck.zoo.judge import Outcome, Result, judged
from aotcheck.zoo.model import Model, models_named

__all__ = ["Zoo", "judge_models"]

assert _models is not None

_OURS = ("aotcheck", "aotcheck_second", "aotcheck_dynamic", "aotcheck_inductor", "dynamo+aotcheck")


@dataclass(frozen=True)
class Zoo:
    """What models are judged on.

    Args:
        backend: as ``backends.resolve`` takes it.
        device: as ``torch.device`` takes it.
        jobs: how many worker processes.
        timeout: seconds that one model may take.
        memory: bytes that one worker may take.
    """

    backend: str
    device: str
    jobs: int
    timeout: float
    memory: int


def judge_models(
    models: Sequence[Model], zoo: Zoo, finished: Callable[[Result], None] = lambda result: None
) -> tuple[Result, ...]:
    """Judge models, each in a process of its own, and tell ``finished`` each result; in the order of ``models``."""
    with tempfile.TemporaryDirectory(prefix="aotcheck-zoo-") as log:
        pool = Workers(
            max_workers=zoo.jobs,
            max_tasks=1,
            initializer=prepare_process,
            initargs=(zoo.memory, zoo.device, Path(log)),
            context=processes("aotcheck.zoo.isolated", *_preloaded(zoo.backend)),
        )
        found: list[Result] = []
        try:
            futures = [
                pool.schedule(judge, args=(model.name, zoo.backend, zoo.device), timeout=zoo.timeout)
                for model in models
            ]
            for model, future in zip(models, futures, strict=True):
                found.append(_result(model, future, zoo.timeout))
                finished(found[-1])
        finally:
            pool.stop()
            pool.join()
    return tuple(found)


def _preloaded(backend: str) -> tuple[str, ...]:
    """What a backend imports when it is first used, for the server from which all workers are forked."""
    ours = ("aotcheck.autograd.api",) if backend in _OURS else ()
    return (*imports_of([backend]), *ours)


def judge(name: str, backend: str, device: str) -> Result:
    """In a worker: what a model shows."""
    (model,) = models_named([name])
    return judged(model, resolve(backend), require_device(device))


def _result(model: Model, future: ProcessFuture[Result], timeout: float) -> Result:
    try:
        return future.result()
    except TimeoutError:
        reason = f"no end after {timeout:g} s"
    except ProcessExpired as error:
        reason = f"the process ends: {how_it_ended(error.exitcode)}"
    return Result(model.name, model.kind.value, Outcome.ERROR, reason, at_most=model.at_most)
