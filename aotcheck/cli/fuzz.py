"""``aotcheck fuzz``."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotcheck.cli.base import (
    INSPECTION,
    STRATEGY,
    Gibibytes,
    Seconds,
    Usage,
    corpus_folder,
    corpus_option,
    require_importable,
    stopping_on_interrupt,
)
from aotcheck.cli.report import write_reports

if TYPE_CHECKING:
    from aotcheck.backends import Promise
    from aotcheck.campaign import Past, Settings
    from aotcheck.campaign.record.events import RunStarted


def _promises(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[Promise, ...]:
    """Promises by name, separated by commas; a usage error that lists them for an unknown one."""
    from aotcheck.backends import ExpectationsError, promises_named

    try:
        return promises_named(_separated(ctx, param, value))
    except ExpectationsError as error:
        raise Usage(f"--without: {error}") from error


def _separated(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The names in an option that may be repeated and may hold several, separated by commas."""
    return tuple(name.strip() for one in value for name in one.split(",") if name.strip())


@click.command()
@click.option("--backend", default="aotcheck", show_default=True, help="What to test: a name or module:callable.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--examples", type=click.IntRange(min=1), help="How many programs. Default: 1000, unless --time is given."
)
@click.option("--time", "duration", type=Seconds(), help="How long: 90s, 10m, 2h.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one per core.")
@click.option("--timeout", type=Seconds(), default="60", show_default=True, help="For one program.")
@click.option("--memory", type=Gibibytes(), default="6", show_default=True, help="GiB for one worker.")
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder. Default: reports/<time>-<backend>.")
@click.option("--minimize-time", type=Seconds(), default="5m", show_default=True, help="For minimizing findings.")
@click.option(
    "--script-time", type=Seconds(), help="For first scripts of findings. Default: a tenth of the run's time."
)
@click.option("--no-scripts", is_flag=True, help="Do not run the first script of each coarse key by itself.")
@click.option("--bugs", type=click.IntRange(min=0), default=20, show_default=True, help="Write so many bug reports.")
@click.option("--no-minimize", is_flag=True, help="Leave findings as they were found.")
@click.option("--resume", metavar="RUN", type=click.Path(path_type=Path), help="Go on with a run that was broken off.")
@click.option("--strategy", default=STRATEGY, show_default=True, help="What draws programs, as module:attribute.")
@click.option(
    "--sizes", type=click.IntRange(0, 4), default=0, show_default=True, help="Calls at other sizes after each plan."
)
@click.option("--without", multiple=True, metavar="PROMISES", callback=_promises, help="What it does not promise.")
@click.option("--ignore", multiple=True, metavar="KIND", callback=_separated, help="Differences that are no findings.")
@click.option("--rtol", type=click.FloatRange(min=0, max=1), default=0.0, help="Of the largest magnitude in a tensor.")
@click.option("--refuses", multiple=True, metavar="EXCEPTION", help="Raised by it: a refusal. Repeatable.")
@corpus_option
@click.option(
    "--baseline", multiple=True, metavar="BACKEND", help="What this backend does too is no finding; again for more."
)
def fuzz(
    backend: str,
    device: str,
    seed: int,
    examples: int | None,
    duration: float | None,
    jobs: int | None,
    timeout: float,
    memory: float,
    out: Path | None,
    minimize_time: float,
    bugs: int,
    no_minimize: bool,
    script_time: float | None,
    no_scripts: bool,
    resume: Path | None,
    strategy: str,
    sizes: int,
    without: tuple[Promise, ...],
    ignore: tuple[str, ...],
    rtol: float,
    refuses: tuple[str, ...],
    corpus: Path | None,
    baseline: tuple[str, ...],
) -> None:
    """Run random programs through a backend and compare everything observable with eager.

    Findings are then minimized and told apart by their signatures. With --resume everything but --jobs, --time and the
    options about minimizing is as the run had it.
    """
    from aotcheck.backends import Expectations
    from aotcheck.campaign import Past, Settings

    strategy += f"?sizes={sizes}" if sizes and "?" not in strategy else ""
    expectations = Expectations(without, ignore, rtol, refuses)
    past = None if resume is None else _past(resume)
    if past is not None and past.started is not None:
        run = past.started
        _require_the_same(run, resume)
        backend, device, seed, strategy = run.backend, run.device, run.seed, run.strategy
        timeout, memory, expectations = run.timeout, run.memory / 2**30, run.expectations
        baseline = run.baselines
        examples = examples or run.examples
        duration = duration or (max(run.seconds - past.seconds, 1.0) if run.seconds is not None else None)
    elif out is not None and (out / "run.jsonl").exists():
        raise Usage(f"{out}: holds a run already; go on with --resume {out}, or choose another --out")
    elif examples is None and duration is None:
        examples = 1000
    slug = "".join(c if c.isalnum() or c in "_-" else "-" for c in backend)
    settings = Settings(
        strategy=strategy,
        backend=backend,
        device=device,
        seed=seed,
        examples=examples,
        seconds=duration,
        jobs=jobs or len(os.sched_getaffinity(0)),
        timeout=timeout,
        memory=int(memory * 2**30),
        folder=resume or out or Path("reports") / f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}-{os.getpid()}",
        minimize_seconds=0.0 if no_minimize else minimize_time,
        reports=bugs,
        script_seconds=0.0 if no_scripts else script_time,
        inspection=_inspection(strategy),
        corpus=corpus_folder(corpus),
        expectations=expectations,
        baselines=tuple(dict.fromkeys(baseline)),
    )
    sys.exit(_fuzz(settings, past or Past()))


def _inspection(strategy: str) -> str:
    from aotcheck.campaign import SettingsError
    from aotcheck.campaign.setup.declared import inspection_by

    try:
        return inspection_by(strategy, INSPECTION)
    except SettingsError as error:
        raise Usage(str(error)) from error


def _require_the_same(run: RunStarted, folder: Path | None) -> None:
    """What a run was started with is settled: a usage error where something else is asked for now."""
    ctx = click.get_current_context()
    settled = {name: getattr(run, name) for name in ("backend", "device", "seed", "strategy", "timeout")}
    settled |= {"baseline": run.baselines}
    settled |= {"memory": round(run.memory / 2**30, 3), "out": folder}
    for option, wanted in {"without": run.expectations.without, "ignore": run.expectations.ignored}.items():
        if more := set(ctx.params[option]) - set(wanted):
            said = ", ".join(sorted(getattr(one, "value", one) for one in more))
            raise Usage(f"--resume {folder}: the run was started without --{option} {said}; leave that out")
    for name, was in settled.items():
        asked = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        now = round(ctx.params[name], 3) if name == "memory" else ctx.params[name]
        if asked and now != was:
            raise Usage(f"--resume {folder}: the run has --{name} {was}, not {ctx.params[name]}; leave that out")


@contextlib.contextmanager
def _full_disk(folder: Path) -> Iterator[None]:
    """A disk that is full, or gone, ends a run with one line and exit code 3; what it has told of is on disk."""
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except OSError as error:
        click.echo(f"aotcheck: {folder}: cannot be written: {error.strerror}; go on with --resume {folder}", err=True)
        sys.exit(3)


def _past(folder: Path) -> Past:
    """What a run has done; a usage error where ``folder`` holds no run."""
    from aotcheck.report.jsonl import load_past

    try:
        past = load_past(folder / "run.jsonl")
    except OSError as error:
        raise Usage(f"{folder}: not a run: {error.strerror}: run.jsonl") from error
    if past.started is None:
        raise Usage(f"{folder}: run.jsonl does not say what was run; start anew with --out")
    return past


def _fuzz(settings: Settings, past: Past) -> int:
    from aotcheck.backends import BackendError, recorded, require_device, resolve
    from aotcheck.campaign import Campaign, SettingsError
    from aotcheck.campaign.record.tally import tallied
    from aotcheck.campaign.running.baseline import require_baselines
    from aotcheck.campaign.setup.declared import floors_by, undrawn_by
    from aotcheck.campaign.setup.generate import load_strategy
    from aotcheck.oracle import soft_kinds
    from aotcheck.report.console import Console
    from aotcheck.report.jsonl import JsonLines
    from aotcheck.report.terminal import LiveDisplay, print_summary

    require_importable(settings.backend, *settings.baselines, settings.strategy)
    try:
        require_device(settings.device)
        compiled = resolve(settings.backend, settings.expectations)
        soft_kinds(compiled)  # known ones, or a usage error
        settings = replace(settings, expectations=recorded(compiled, settings.expectations))
        require_baselines(settings.backend, settings.baselines)
        load_strategy(settings.strategy)
        undrawn_by(settings.strategy)
        floors_by(settings.strategy)
        settings.make_folders()
    except (BackendError, SettingsError) as error:
        raise Usage(str(error)) from error
    console, tally, stop = Console(), tallied(past.timed), threading.Event()
    # The writer comes first: what is shown has been written.
    with (
        _full_disk(settings.folder),
        contextlib.suppress(KeyboardInterrupt),  # what has been found is on disk; the summary says "broken off"
        stopping_on_interrupt(stop),
        JsonLines(settings.folder / "run.jsonl") as lines,
        LiveDisplay(tally, console) as display,
    ):
        for event in Campaign(settings, stop, past).events():
            at = round(time.time(), 3)
            lines.feed(event, at)
            tally.feed(event, at)
            display.feed(event)
    print_summary(tally, console)
    if not tally.programs and not tally.failures:
        return int(tally.exit_code)
    reported = _reported(settings.folder, settings.corpus)
    console.print(f"run folder: {settings.folder}", soft_wrap=True, highlight=False)
    return int(tally.exit_code) or (0 if reported else 3)


def _reported(folder: Path, corpus: Path | None) -> bool:
    """Write the reports; False, said why, where that fails: what was found matters more."""
    try:
        write_reports(folder, corpus)
    except Usage as error:
        error.show()
    except KeyboardInterrupt:
        click.echo(f"aotcheck: no reports; write them with aotcheck report {folder}", err=True)
    except Exception:
        traceback.print_exc()
    else:
        return True
    return False
