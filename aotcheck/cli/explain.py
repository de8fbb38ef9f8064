"""``aotcheck minimize`` and ``blame``: one failing program, made small and explained."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotcheck.cli.base import (
    INSPECTION,
    Gibibytes,
    Seconds,
    Usage,
    parsed_file,
    require_importable,
    stopping_on_interrupt,
)

if TYPE_CHECKING:
    from aotcheck.backends import Backend, Expectations
    from aotcheck.minimize import Reduction
    from aotcheck.program import ParsedFile


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--backend", help="What it fails on. Default: what the file names, or aotcheck.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Where the result goes. Default: FILE with .min.py.")
@click.option("--time", "duration", type=Seconds(), default="10m", show_default=True, help="How long at most.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one per core.")
@click.option("--timeout", type=Seconds(), default="30", show_default=True, help="For one candidate.")
@click.option("--memory", type=Gibibytes(), default="6", show_default=True, help="GiB for one worker.")
@click.option("--baseline", multiple=True, metavar="BACKEND", help="What this backend does too does not count.")
def minimize(
    path: Path,
    backend: str | None,
    device: str,
    out: Path | None,
    duration: float,
    jobs: int | None,
    timeout: float,
    memory: float,
    baseline: tuple[str, ...],
) -> None:
    """Reduce a failing program to the least that still fails under the same coarse key.

    The result is a program file too. Exits 0 when it still fails, 1 when FILE does not fail to begin with.
    """
    from aotcheck.backends import BackendError, require_device, resolve
    from aotcheck.campaign import SettingsError
    from aotcheck.campaign.running.baseline import require_baselines
    from aotcheck.minimize import Limits, Reduction, Subject

    if backend is not None:
        require_importable(backend)
    try:
        found = require_device(device)
        if backend is not None:
            resolve(backend)
        parsed, compiled = parsed_file(path, found, backend)
        require_baselines(compiled.name, baseline)
    except (BackendError, SettingsError) as error:
        raise Usage(str(error)) from error
    target = out or path.with_suffix(".min.py")
    _require_writable(target)
    limits = Limits(jobs or len(os.sched_getaffinity(0)), timeout, int(memory * 2**30), duration)
    stop = threading.Event()
    subject = Subject(compiled.name, device, INSPECTION, left_out(parsed, compiled), baseline)
    reduction = Reduction(parsed.program, subject, limits, stop)
    sys.exit(_minimize(path, parsed, reduction, target, stop))


def left_out(parsed: ParsedFile, compiled: Backend) -> Expectations:
    """What is not expected of the backend that a file is run on; what its header says, said of that one alone."""
    from aotcheck.backends import Expectations, recorded
    from aotcheck.campaign.corpus.files import backend_of

    told = Expectations.of_header(parsed.header) if compiled.name == backend_of(parsed) else Expectations()
    return recorded(compiled, told)


def _minimize(path: Path, parsed: ParsedFile, reduction: Reduction, target: Path, stop: threading.Event) -> int:
    from aotcheck.campaign import ExitCode
    from aotcheck.campaign.record.journal import write_durably
    from aotcheck.minimize import DoesNotFailError
    from aotcheck.program import emit
    from aotcheck.report.console import Console
    from aotcheck.report.minimizing import MinimizingDisplay, print_reduced

    console = Console()
    try:
        with stopping_on_interrupt(stop), MinimizingDisplay(reduction, console) as display:
            for _ in reduction.steps():
                display.moved()
    except DoesNotFailError as error:
        click.echo(f"{path}: {reduction.subject.backend}: does not fail ({error}); there is nothing to minimize")
        return int(ExitCode.FINDINGS)
    except KeyboardInterrupt:
        click.echo(f"{path}: broken off; nothing is written")
        return int(ExitCode.INFRASTRUCTURE)
    reduced = reduction.result
    assert reduced is not None
    name = reduction.subject.backend
    kept = {key: parsed.header[key] for key in ("found", "block", "index", "torch") if key in parsed.header}
    header = {**kept, "backend": name, "key": str(reduced.shows.key), "difference": reduced.shows.text}
    header |= reduction.subject.expectations.header()
    write_durably(target, emit(reduced.program, header))
    print_reduced(reduction, reduced, target, console)
    return int(ExitCode.CLEAN)


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--backend", help="What it differs on. Default: what the file names, or aotcheck.")
@click.option("--device", default="cpu", show_default=True)
def blame(path: Path, backend: str | None, device: str) -> None:
    """Say which stage of the compiled path makes a program differ from eager.

    Of aotcheck's own AOT autograd also which step; of torch's compilers the layer: Dynamo, AOT autograd, decompositions
    and partition, compiler, code used again.

    Exits 0 when a stage is to blame, 1 when FILE does not differ.
    """
    from aotcheck.backends import BackendError, require_device
    from aotcheck.blame import blame as climb
    from aotcheck.campaign import ExitCode
    from aotcheck.report.blaming import print_blame
    from aotcheck.report.console import Console

    try:
        found = require_device(device)
        parsed, compiled = parsed_file(path, found, backend)
        result = climb(parsed.program, found, compiled.name, left_out(parsed, compiled))
    except BackendError as error:
        raise Usage(str(error)) from error
    print_blame(result, path, Console())
    sys.exit(int(ExitCode.FINDINGS if result.rung is None else ExitCode.CLEAN))


def _require_writable(path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise Usage(f"cannot write to '{path}'; choose another --out")
