"""``aotcheck nightly``."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotcheck.cli.base import (
    INSPECTION,
    STRATEGY,
    Usage,
    corpus_folder,
    require_importable,
    seconds,
    stopping_on_interrupt,
)

if TYPE_CHECKING:
    from aotcheck.campaign import Event


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), default=Path("nightly.toml"), show_default=True, help="What to run."
)
@click.option("--corpus", type=click.Path(path_type=Path), help="The corpus, in place of the configuration's.")
def nightly(config: Path, corpus: Path | None) -> None:
    """Replay the corpus, fuzz each backend for its time, and say what has changed since the last run.

    Leaves a folder with summary.md, junit.xml, nightly.json and the folder of each campaign, report.html in it. The
    folder `remembered` keeps what nights have told: each signature is new once, then known, fixed when it agrees, flaky
    when it wavers. Exits 0 when clean, 1 with new findings, findings that have become flaky, or corpus files that no
    longer differ, 2 when the configuration or a corpus file is wrong, 3 when something could not be run.
    """
    import hypothesis
    import torch

    from aotcheck.backends import BackendError, require_device, resolve
    from aotcheck.campaign import SettingsError
    from aotcheck.campaign.nightly.config import load_config
    from aotcheck.campaign.nightly.night import run
    from aotcheck.campaign.record.journal import write_durably
    from aotcheck.campaign.running.baseline import require_baselines
    from aotcheck.campaign.setup.declared import floors_by, inspection_by, undrawn_by
    from aotcheck.campaign.setup.generate import load_strategy
    from aotcheck.oracle import soft_kinds
    from aotcheck.report.html import write_html
    from aotcheck.report.jsonl import JsonLines
    from aotcheck.report.junit import write_junit
    from aotcheck.report.markdown import markdown
    from aotcheck.report.progress import staged

    try:
        told = load_config(config, seconds)
        if corpus is not None:
            told = dataclasses.replace(told, corpus=corpus_folder(corpus))
        require_importable(*(spec for job in told.jobs for spec in (job.backend, *job.baselines, job.strategy)))
        for job in told.jobs:
            require_device(job.device)
            soft_kinds(resolve(job.backend, job.expectations))
            require_baselines(job.backend, job.baselines)
            load_strategy(job.strategy or STRATEGY)
            undrawn_by(job.strategy or STRATEGY)
            floors_by(job.strategy or STRATEGY)
            inspection_by(job.strategy or STRATEGY, INSPECTION)
        told.reports.mkdir(parents=True, exist_ok=True)
    except (SettingsError, BackendError) as error:
        raise Usage(str(error)) from error
    except OSError as error:
        raise Usage(f"cannot write to '{told.reports}': {error.strerror}") from error
    versions = {"torch": torch.__version__, "hypothesis": hypothesis.__version__, "python": platform.python_version()}
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.enter_context(stopping_on_interrupt(stop))
        writers: dict[Path, JsonLines] = {}

        def heard(backend: str, folder: Path, event: Event, at: float) -> None:
            if folder not in writers:
                writers[folder] = stack.enter_context(JsonLines(folder / "run.jsonl"))
            writers[folder].feed(event, at)

        try:
            night = run(told, STRATEGY, INSPECTION, stop, heard, versions, click.echo, stack.enter_context(staged()))
        except OSError as error:
            click.echo(f"aotcheck: {told.reports}: cannot be written: {error.strerror}", err=True)
            sys.exit(3)
    folder = Path(night.folder)
    write_junit(folder / "junit.xml", night.replayed, night.runs, night.remembered)
    for campaign in night.runs:
        before = Path(night.changes.last) / Path(campaign.folder).name
        previous = before if night.changes.last and (before / "run.jsonl").exists() else None
        try:
            write_html(Path(campaign.folder), told.corpus, previous)
        except Exception as error:  # what was found matters more than how it looks
            click.echo(f"aotcheck: {campaign.folder}: no report.html: {type(error).__name__}: {error}", err=True)
    summary = markdown(night)
    write_durably(folder / "summary.md", summary)
    click.echo(summary)
    click.echo(f"folder: {folder}")
    sys.exit(int(night.exit_code))
