"""Processes that run programs and may die: how they start, their limits, and how their end is described.

Note [Exit status 0]
    A program may call ``os._exit(0)``. To a pool, exit status 0 says that a worker was sent home, and the task that the
    worker had is waited for until its time is up. So a worker that was sent home exits with a status of its own, and
    exit status 0 is a death like any other.

Note [Programs that fork]
    Each worker leads a process group. When the worker has ended, whatever is left of its group is killed. A child
    process that returns from a program ends there, at once: it writes no journal and answers no task.
"""

import contextlib
import faulthandler
import importlib
import logging
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from aotcheck._torch import DYNAMO, USED_BY_BACKENDS
from aotcheck.backends import PACKAGES

__all__ = [
    "POISONED",
    "Workers",
    "end_group",
    "end_on_import",
    "how_it_ended",
    "imports_of",
    "in_this_process",
    "log_of",
    "prepare_process",
    "processes",
]

P = ParamSpec("P")
T = TypeVar("T")

POISONED = 86
"""The exit status of a worker that is no longer fit to run programs."""

_SENT_HOME = 87
"""The exit status of a worker whose pool has no more tasks for it."""

_EXITED_WITH_0 = 256
"""What exit status 0 is told as, which pools do not take for a death: more than a process can exit with."""


IMPORT_SECONDS = 180.0
"""How long a module may take to be imported."""

_IMPORT_BYTES = 6 * 2**30


class _Worker(ForkServerProcess):
    """A worker process, see the notes above."""

    _group_ended = False

    def run(self) -> None:
        """In the worker: serve the pool until it has no more tasks."""
        super().run()
        sys.exit(_SENT_HOME)

    @property
    def exitcode(self) -> int | None:
        """The exit status; None while the worker runs."""
        status = super().exitcode
        return {_SENT_HOME: 0, 0: _EXITED_WITH_0}.get(status, status) if status is not None else None

    def is_alive(self) -> bool:
        """Whether the worker runs. Where it does not, its children are ended: pools ask this of every worker."""
        alive = super().is_alive()
        if not alive and not self._group_ended and self.pid is not None:
            self._group_ended = True
            end_group(self.pid)
        return alive


class _Context(ForkServerContext):
    Process = _Worker


class Workers(ProcessPool):
    """A pool of worker processes. Children that a task forks do not answer in the worker's place."""

    def schedule(
        self,
        function: Callable[..., T],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] = {},
        timeout: float | None = None,
    ) -> ProcessFuture[T]:
        """The future of a call in a worker."""
        return super().schedule(in_this_process, args=(function, *args), kwargs=kwargs, timeout=timeout)


def in_this_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function``. A child process that ``function`` forked ends where ``function`` returns or raises."""
    here = os.getpid()
    try:
        return function(*args, **kwargs)
    finally:
        if os.getpid() != here:
            os._exit(0)


def end_group(leader: int) -> None:
    """Kill what is left of the process group that ``leader`` led."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def processes(*preloaded: str) -> BaseContext:
    """Processes forked from a server that has imported torch and done nothing with it: clean, and quick to start.

    Torch imports Dynamo, seconds of work, when a dispatch mode is first used: here that is done once.

    Args:
        preloaded: modules that the server imports besides.
    """
    forkserver.set_forkserver_preload(["aotcheck.forked", "torch", DYNAMO, *preloaded])
    resource_tracker.ensure_running()  # which the server's start would do, and let Ctrl-C through again
    with _no_interrupt(), _for_workers():
        forkserver.ensure_running()
    return _Context()


_OF_WORKERS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""One thread: there is a worker for each core. And what the server imports may ask whether there is a GPU, which else
opens it: a process that is forked after that cannot use it any more."""


@contextlib.contextmanager
def _for_workers() -> Iterator[None]:
    """Start processes with the environment of workers."""
    environment = dict(os.environ)
    os.environ.update(_OF_WORKERS)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Start processes deaf to Ctrl-C, also while they import; a Ctrl-C meanwhile reaches this process afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def imports_of(backends: Iterable[str]) -> tuple[str, ...]:
    """Modules that these backends import when they are first used: for the server, not for each process anew."""
    names = tuple(backends)
    if all(name.startswith(("aotcheck", "eager")) for name in names):
        return ()
    packages = [module for name in names for module in PACKAGES.get(name, ())]
    return ("functorch.compile", "networkx", *USED_BY_BACKENDS, *packages)


def prepare_process(memory: int, device: str, log: Path) -> None:
    """Make a fresh worker one that is quiet, single-threaded, bounded in memory, and deaf to Ctrl-C.

    Args:
        memory: bytes; on the CPU, twice as much address space may be mapped.
        device: as ``torch.device`` takes it.
        log: the folder for what the worker prints.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(PermissionError):  # it leads a group already
        os.setsid()
    _die_with_the_parent()
    descriptor = os.open(log_of(log, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    faulthandler.enable(2, all_threads=False)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if device == "cpu":  # CUDA reserves address space by the terabyte
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 2 * memory, hard))


def end_on_import(module: str, *preloaded: str) -> str:
    """How a process ends that imports ``module``; empty where it lives. What the import raises is left to others.

    Args:
        module: its name.
        preloaded: as for :func:`processes`; whoever asks for processes first has his way.
    """
    with tempfile.TemporaryDirectory(prefix="aotcheck-import-") as log:
        pool = Workers(
            max_workers=1,
            max_tasks=1,
            initializer=prepare_process,
            initargs=(_IMPORT_BYTES, "cpu", Path(log)),
            context=processes(*preloaded),
        )
        try:
            error = pool.schedule(_imported, args=(module,), timeout=IMPORT_SECONDS).exception()
        finally:
            pool.stop()
            pool.join()
    match error:
        case ProcessExpired():
            return how_it_ended(error.exitcode)
        case TimeoutError():
            return f"did not end in {IMPORT_SECONDS:g} s"
        case _:
            return ""


def _imported(module: str) -> None:
    importlib.import_module(module)  # its result is a module, which cannot be sent


def log_of(folder: Path, pid: int) -> Path:
    """Where a worker's output is, with the Python stack of the instruction that killed it."""
    return folder / f"worker-{pid}.log"


def how_it_ended(status: int | None) -> str:
    """A process's exit status in words, the same for every process that died so: part of a coarse key."""
    if status is not None and status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    if status == _EXITED_WITH_0:
        status = 0
    return f"exited with status {status}"


def _die_with_the_parent() -> None:
    """End this process when the supervisor ends: a worker that hangs would else run forever, unseen.

    The server that forked it is no help: it lives as long as any of its children.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        if os.getpgrp() == os.getpid():
            end_group(os.getpid())
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watches the supervisor").start()
