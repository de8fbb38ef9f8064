"""``aotcheck replay`` and ``refresh``: program files judged again, or written anew."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotcheck.cli.base import (
    Gibibytes,
    Seconds,
    Usage,
    corpus_folder,
    corpus_option,
    one_line,
    program_files,
    require_importable,
    stopping_on_interrupt,
)

if TYPE_CHECKING:
    from aotcheck.campaign.corpus.replay import Replayed


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@corpus_option
@click.option("--backend", "backends", multiple=True, help="On what. Default: all that the file expects something of.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one per core.")
@click.option("--timeout", type=Seconds(), default="60", show_default=True, help="For one program.")
@click.option("--memory", type=Gibibytes(), default="6", show_default=True, help="GiB for one process.")
@click.option("--strategy", "strategies", multiple=True, help="Imported first: it registers ops that the files name.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="To see what is flaky.")
@click.option("--quiet", is_flag=True, help="Say nothing of files that are as expected.")
def replay(
    paths: tuple[Path, ...],
    corpus: Path | None,
    backends: tuple[str, ...],
    device: str,
    jobs: int | None,
    timeout: float,
    memory: float,
    strategies: tuple[str, ...],
    runs: int,
    quiet: bool,
) -> None:
    """Judge program files (or folders of them) again, each in a process of its own.

    Each is new (differs though nobody expects it), known (differs as its header says, or is a bug of the corpus), fixed
    (no longer does: update the header), flaky, or agrees. Files are parsed, never executed. Exits 1 if anything is new
    or fixed, 2 if a file is no program.
    """
    from aotcheck.backends import BackendError, require_device, resolve
    from aotcheck.campaign import SettingsError
    from aotcheck.campaign.corpus.replay import Replay, exit_status
    from aotcheck.campaign.setup.generate import load_strategy
    from aotcheck.report.progress import counting

    require_importable(*backends, *strategies)
    try:
        for strategy in strategies:
            load_strategy(strategy)
        require_device(device)
        for backend in backends:
            resolve(backend)
    except (BackendError, SettingsError) as error:
        raise Usage(str(error)) from error
    stop, found = threading.Event(), list["Replayed"]()
    folder = corpus_folder(corpus)
    if not paths:
        if corpus is None:
            raise Usage("name files or folders, or give --corpus FOLDER; see aotcheck replay --help")
        paths = (corpus,)
    files = program_files(paths)
    cores = jobs or len(os.sched_getaffinity(0))
    engine = Replay(files, backends, device, cores, timeout, int(memory * 2**30), runs, stop, folder, strategies)
    with stopping_on_interrupt(stop), counting("files", len(files)) as moved:
        for one in engine.results():
            found.append(one)
            moved(len({result.path for result in found}) - 1)  # the last one may have further backends
            _show(one, quiet)
    if len(found) > 1:
        counts = Counter(one.status for one in found)
        click.echo(", ".join(f"{count} {status.value}" for status, count in counts.items()))
    if stop.is_set():
        left = len(files) - len({one.path for one in found})
        click.echo(f"interrupted: {left} of {len(files)} files not judged", err=True)
    sys.exit(3 if stop.is_set() else exit_status(found))


def _show(one: Replayed, quiet: bool) -> None:
    """A line for a file on a backend; beneath it what is new."""
    from aotcheck.campaign.record.words import Status

    where = str(one.path)
    if one.status is Status.REJECTED:
        text = one.text if where in one.text else f"{where}: {one.text}"
        click.echo(f"aotcheck: {text}", err=True)
        return
    if quiet and one.status in (Status.AGREES, Status.KNOWN):
        return
    click.echo(f"{where}: {one.backend}: {one.status.value}{f' ({one.text})' if one.text else ''}")
    if one.status in (Status.NEW, Status.FLAKY):
        for text in (one.judged.key, *one.judged.texts) if one.judged.key else ():
            click.echo(f"    {text}")


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Only say which files are not as they would be written now.")
def refresh(paths: tuple[Path, ...], check: bool) -> None:
    """Write program files (or folders of them) anew, in the format of this version. Nothing is executed."""
    from aotcheck.campaign import ExitCode
    from aotcheck.campaign.corpus import files as corpus
    from aotcheck.program import ProgramSyntaxError, UnknownOpError

    stale = 0
    for path in program_files(paths):
        try:
            old = corpus.canonical(path) != path.read_text(encoding="utf-8") if check else corpus.refresh(path)
        except (ProgramSyntaxError, UnknownOpError) as error:
            raise Usage(one_line(error, path)) from error
        except OSError as error:
            raise Usage(f"{path}: {error.strerror}") from error
        if old:
            stale += 1
            click.echo(f"{path}: {'out of date' if check else 'refreshed'}")
    sys.exit(int(ExitCode.FINDINGS if check and stale else ExitCode.CLEAN))
