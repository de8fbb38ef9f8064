"""``aotcheck fuzz``, ``replay``, ``refresh`` and ``minimize``.

Exit codes: 0 clean, 1 findings, 2 usage, 3 infrastructure. What the user can put right is one line on stderr.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import torch

    from aotcheck.backends import Backend
    from aotcheck.campaign import ExitCode, Settings
    from aotcheck.minimize import Reduction
    from aotcheck.program import ParsedFile

STRATEGY = "strategies:programs"
"""What is fuzzed with; only this layer and the pytest plugin know it."""

INSPECTION = "strategies.calls:inspect"
"""What says whether a program has a well-defined outcome: what is drawn passes it, and so must what is minimized."""


class Usage(click.ClickException):
    """Something the user can put right: one line, exit code 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        """Print the line to stderr."""
        click.echo(f"aotcheck: {self.message}", err=True)


class Seconds(click.ParamType[float]):
    """A duration: ``90``, ``90s``, ``10m``, ``2h``."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a duration."""
        try:
            return seconds(str(value))
        except ValueError:
            self.fail(f"'{value}' is not a duration; write 90, 90s, 10m or 2h", param, ctx)


def seconds(text: str) -> float:
    """The seconds that ``90``, ``90s``, ``10m`` or ``2h`` stand for."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    found = float(text[:-1]) * unit if unit else float(text)
    if not 0 < found < float("inf"):
        raise ValueError(text)
    return found


class OneLine(click.Group):
    """Commands whose usage errors are one line, as all others are."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the options before the command."""
        with _one_line_usage():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the command's options and run it."""
        with _one_line_usage():
            return super().invoke(ctx)


@contextmanager
def _one_line_usage() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "aotcheck"
        raise Usage(f"{' '.join(error.format_message().split()).rstrip('.')}; see {command} --help") from error


@click.group(cls=OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="aotcheck", message="%(package)s %(version)s")
def main() -> None:
    """Property-based tests for PyTorch compilers, and an AOT autograd of its own."""


@main.command()
@click.option("--backend", default="aotcheck", show_default=True, help="What to test: a name or module:callable.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--examples", type=click.IntRange(min=1), help="How many programs. Default: 1000, unless --time is given."
)
@click.option("--time", "duration", type=Seconds(), help="How long: 90s, 10m, 2h.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one per core.")
@click.option("--timeout", type=Seconds(), default="60", show_default=True, help="For one program.")
@click.option("--memory", type=click.FloatRange(min=0.5), default=6.0, show_default=True, help="GiB for one worker.")
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder. Default: reports/<time>-<backend>.")
@click.option("--strategy", default=STRATEGY, show_default=True, help="What draws programs, as module:attribute.")
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
    strategy: str,
) -> None:
    """Run random programs through a backend and compare everything observable with eager."""
    from aotcheck.campaign import Settings

    if examples is None and duration is None:
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
        folder=out or Path("reports") / f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}-{os.getpid()}",
    )
    sys.exit(_fuzz(settings))


def _fuzz(settings: Settings) -> int:
    from rich.console import Console

    from aotcheck.backends import BackendError, require_device, resolve
    from aotcheck.campaign import Campaign, SettingsError, Tally
    from aotcheck.campaign.generate import load_strategy
    from aotcheck.report.jsonl import JsonLines
    from aotcheck.report.terminal import LiveDisplay, print_summary

    try:
        require_device(settings.device)
        resolve(settings.backend)
        load_strategy(settings.strategy)
        settings.make_folders()
    except (BackendError, SettingsError) as error:
        raise Usage(str(error)) from error
    console, tally, stop = Console(), Tally(), threading.Event()
    # The writer comes first: what is shown has been written.
    with (
        contextlib.suppress(KeyboardInterrupt),  # what has been found is on disk; the summary says "broken off"
        _stopping_on_interrupt(stop),
        JsonLines(settings.folder / "run.jsonl") as lines,
        LiveDisplay(tally, console) as display,
    ):
        for event in Campaign(settings, stop).events():
            lines.feed(event)
            tally.feed(event)
            display.feed(event)
    print_summary(tally, console)
    console.print(f"run folder: {settings.folder}", soft_wrap=True, highlight=False)
    return int(tally.exit_code)


@contextmanager
def _stopping_on_interrupt(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the campaign in good order; a second Ctrl-C, a second later, at once."""
    asked = float("inf")

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if number == signal.SIGINT and time.monotonic() > asked + 1.0:
            raise KeyboardInterrupt
        asked = min(asked, time.monotonic())
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--backend", help="What to run. Default: what the file names, or aotcheck.")
@click.option("--device", default="cpu", show_default=True)
def replay(paths: tuple[Path, ...], backend: str | None, device: str) -> None:
    """Run program files (or folders of them) again and say which differ. Files are parsed, never executed."""
    from aotcheck.backends import BackendError

    try:
        sys.exit(_replay(paths, backend, device))
    except BackendError as error:
        raise Usage(str(error)) from error


def _replay(paths: tuple[Path, ...], backend: str | None, device_name: str) -> int:
    from aotcheck.backends import require_device, resolve
    from aotcheck.campaign import ExitCode

    device = require_device(device_name)
    if backend is not None:
        resolve(backend)
    codes = []
    for path in _files(paths):
        try:
            codes.append(_replay_file(path, backend, device))
        except Usage as error:  # the other files are still judged
            error.show()
            codes.append(ExitCode.USAGE)
    return int(max(codes, key=(ExitCode.CLEAN, ExitCode.FINDINGS, ExitCode.USAGE).index))


def _replay_file(path: Path, backend: str | None, device: torch.device) -> ExitCode:
    """Judge one file and say so, by what its header expects of the backend if it says anything."""
    from aotcheck.campaign import ExitCode
    from aotcheck.oracle import Outcome, check

    parsed, compiled = _parsed(path, device, lambda header: backend or str(header.get("backend") or "aotcheck"))
    name = compiled.name
    verdict = check(parsed.program, compiled, device)
    expected = parsed.header.get("expect")
    known = expected.get(name) if isinstance(expected, dict) else None
    notes = ", ".join(verdict.refusals)
    if known == "differs":
        notes = "as expected" if verdict.outcome is Outcome.DIFFERS else f"expected to differ; update {path}"
    click.echo(f"{path}: {name}: {verdict.outcome.value}{f' ({notes})' if notes else ''}")
    if known == "differs":
        return ExitCode.CLEAN if verdict.outcome is Outcome.DIFFERS else ExitCode.FINDINGS
    for difference in verdict.hard:
        click.echo(f"    {difference.text}")
    return ExitCode.FINDINGS if verdict.outcome is Outcome.DIFFERS else ExitCode.CLEAN


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Only say which files are not as they would be written now.")
def refresh(paths: tuple[Path, ...], check: bool) -> None:
    """Write program files (or folders of them) anew, with the harness of this version. Nothing is executed."""
    from aotcheck.campaign import ExitCode, corpus
    from aotcheck.program import ProgramSyntaxError, UnknownOpError

    stale = 0
    for path in _files(paths):
        try:
            old = corpus.canonical(path) != path.read_text(encoding="utf-8") if check else corpus.refresh(path)
        except (ProgramSyntaxError, UnknownOpError) as error:
            raise Usage(_one_line(error, path)) from error
        except OSError as error:
            raise Usage(f"{path}: {error.strerror}") from error
        if old:
            stale += 1
            click.echo(f"{path}: {'out of date' if check else 'refreshed'}")
    sys.exit(int(ExitCode.FINDINGS if check and stale else ExitCode.CLEAN))


def _parsed(
    path: Path, device: torch.device, backend_of: Callable[[Mapping[str, object]], str]
) -> tuple[ParsedFile, Backend]:
    """A program file, known to have inputs that can be built, and the backend that its header stands for."""
    from aotcheck.backends import BackendError, resolve
    from aotcheck.program import ProgramSyntaxError, UnknownOpError, build_call, parse_file

    try:
        parsed = parse_file(path)
        compiled = resolve(backend_of(parsed.header))
    except (ProgramSyntaxError, UnknownOpError, BackendError) as error:
        raise Usage(_one_line(error, path)) from error
    except OSError as error:
        raise Usage(f"{path}: cannot be read: {error.strerror}") from error
    for index, call in enumerate(parsed.program.calls):
        if call.inputs is not None:
            try:
                build_call(parsed.program, index, device)
            except Exception as error:  # whatever torch says of inputs that it cannot build
                raise Usage(_one_line(ValueError(f"{path}: the inputs of call {index + 1}: {error}"), path)) from error
    return parsed, compiled


@main.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--backend", help="What it fails on. Default: what the file names, or aotcheck.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Where the result goes. Default: FILE with .min.py.")
@click.option("--time", "duration", type=Seconds(), default="10m", show_default=True, help="How long at most.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one per core.")
@click.option("--timeout", type=Seconds(), default="30", show_default=True, help="For one candidate.")
@click.option("--memory", type=click.FloatRange(min=0.5), default=6.0, show_default=True, help="GiB for one worker.")
def minimize(
    path: Path,
    backend: str | None,
    device: str,
    out: Path | None,
    duration: float,
    jobs: int | None,
    timeout: float,
    memory: float,
) -> None:
    """Reduce a failing program to the least that still fails under the same coarse key.

    The result is a program file too. Exits 0 when it still fails, 1 when FILE does not fail to begin with.
    """
    from aotcheck.backends import BackendError, require_device, resolve
    from aotcheck.minimize import Limits, Reduction, Subject

    try:
        found = require_device(device)
        if backend is not None:
            resolve(backend)
    except BackendError as error:
        raise Usage(str(error)) from error
    parsed, compiled = _parsed(path, found, lambda header: backend or _expected_to_differ(header))
    target = out or path.with_suffix(".min.py")
    _require_writable(target)
    limits = Limits(jobs or len(os.sched_getaffinity(0)), timeout, int(memory * 2**30), duration)
    stop = threading.Event()
    reduction = Reduction(parsed.program, Subject(compiled.name, device, INSPECTION), limits, stop)
    sys.exit(_minimize(path, parsed, reduction, target, stop))


def _minimize(path: Path, parsed: ParsedFile, reduction: Reduction, target: Path, stop: threading.Event) -> int:
    from rich.console import Console

    from aotcheck.campaign import ExitCode
    from aotcheck.campaign.journal import write_durably
    from aotcheck.campaign.worker import script_backend
    from aotcheck.minimize import DoesNotFailError
    from aotcheck.program import emit
    from aotcheck.report.minimizing import MinimizingDisplay, print_reduced

    console = Console()
    try:
        with _stopping_on_interrupt(stop), MinimizingDisplay(reduction, console) as display:
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
    header = {"format": 1, **kept, "backend": name, "key": str(reduced.shows.key), "difference": reduced.shows.text}
    write_durably(target, emit(reduced.program, header, script_backend(name)))
    print_reduced(reduction, reduced, target, console)
    return int(ExitCode.CLEAN)


@main.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--device", default="cpu", show_default=True)
def blame(path: Path, device: str) -> None:
    """Say which stage of aotcheck's own AOT autograd makes a program differ from eager, and which step of it.

    Exits 0 when a stage is to blame, 1 when FILE does not differ.
    """
    from rich.console import Console

    from aotcheck.backends import BackendError, require_device
    from aotcheck.blame import blame as climb
    from aotcheck.campaign import ExitCode
    from aotcheck.report.blaming import print_blame

    try:
        found = require_device(device)
    except BackendError as error:
        raise Usage(str(error)) from error
    parsed, _ = _parsed(path, found, lambda header: "aotcheck")
    result = climb(parsed.program, found)
    print_blame(result, path, Console())
    sys.exit(int(ExitCode.FINDINGS if result.rung is None else ExitCode.CLEAN))


def _require_writable(path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise Usage(f"cannot write to '{path}'; choose another --out")


def _expected_to_differ(header: Mapping[str, object]) -> str:
    """The backend that a header names, or the first that it expects to differ; ours if it says nothing."""
    expected = header.get("expect")
    known = [name for name, said in expected.items() if said == "differs"] if isinstance(expected, dict) else []
    return str(header.get("backend") or next(iter(known), "aotcheck"))


def _files(paths: tuple[Path, ...]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise Usage(f"{path}: no such file or folder")
        inside = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if not inside:
            raise Usage(f"{path}: holds no program files (*.py)")
        found.extend(inside)
    return found


def _one_line(error: Exception, path: Path) -> str:
    text = " ".join(str(error).split())
    return text if str(path) in text else f"{path}: {text}"


if __name__ == "__main__":
    main()
