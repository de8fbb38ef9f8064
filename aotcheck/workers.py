"""Processes that run programs and may die of it: how they start, what they may take, how their end is told."""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import threading
import warnings
from collections.abc import Iterable
from multiprocessing.context import BaseContext
from pathlib import Path

import torch

from aotcheck._torch import DYNAMO, USED_BY_BACKENDS

__all__ = ["POISONED", "how_it_ended", "imports_of", "prepare_process", "processes"]

POISONED = 86
"""The exit status of a worker that is no longer fit to run programs."""


def processes(*preloaded: str) -> BaseContext:
    """Processes forked from a server that has imported torch and done nothing with it: clean, and quick to start.

    Torch imports Dynamo, seconds of work, when a dispatch mode is first used: here that is done once.

    Args:
        preloaded: modules that the server imports besides.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", DYNAMO, *preloaded])
    return context


def imports_of(backends: Iterable[str]) -> tuple[str, ...]:
    """Modules that these backends import when they are first used: for the server, not for each process anew."""
    if all(name.startswith(("aotcheck", "eager")) for name in backends):
        return ()
    return ("functorch.compile", "networkx", *USED_BY_BACKENDS)


def prepare_process(memory: int, device: str, log: Path) -> None:
    """Make a fresh worker one that is quiet, single-threaded, bounded in memory, and deaf to Ctrl-C.

    Args:
        memory: bytes; on the CPU, twice as much address space may be mapped.
        device: as ``torch.device`` takes it.
        log: the folder for what the worker prints.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_the_parent()
    descriptor = os.open(log / f"worker-{os.getpid()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if device == "cpu":  # CUDA reserves address space by the terabyte
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 2 * memory, hard))


def how_it_ended(status: int | None) -> str:
    """A process's exit status in words, the same for every process that died so: part of a coarse key."""
    if status is not None and status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
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
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watches the supervisor").start()
