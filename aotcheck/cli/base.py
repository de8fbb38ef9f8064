"""What all commands share: usage errors on one line, durations, the files they are given, and Ctrl-C."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from aotcheck.cli.output import tolerant_output

if TYPE_CHECKING:
    import torch

    from aotcheck.backends import Backend
    from aotcheck.program import ParsedFile

STRATEGY = "strategies:programs"
"""What is fuzzed with; only this layer and the pytest plugin know it."""

CORPUS = Path("corpus")
"""Where the corpus is, seen from where commands are run."""

INSPECTION = "aotcheck_strategies.calls:inspect"
"""What says whether a program has a well-defined outcome: what is drawn passes it, and so must what is minimized."""


_OURS = frozenset({"aotcheck", STRATEGY.partition(":")[0]})

_PRELOADED = (
    "hypothesis",
    "aotcheck.campaign.running.worker",
    "aotcheck.campaign.corpus.replay",
    "aotcheck.minimize.judging",
)


class Usage(click.ClickException):
    """Something the user can put right: one line, exit code 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        """Print the line to stderr."""
        click.echo(f"aotcheck: {self.message}", err=True)


corpus_option = click.option(
    "--corpus", type=click.Path(path_type=Path), help=f"Folder of known bugs. Default: {CORPUS}, where there is one."
)
"""The option of what :func:`corpus_folder` takes."""


def corpus_folder(given: Path | None) -> Path | None:
    """The corpus: the folder that was given, else ``corpus`` where commands are run, if it is there."""
    if given is not None and not given.is_dir():
        raise Usage(f"--corpus {given}: no such folder")
    return given or (CORPUS if CORPUS.is_dir() else None)


class Seconds(click.ParamType[float]):
    """A duration: ``90``, ``90s``, ``10m``, ``2h``."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a duration."""
        try:
            return seconds(str(value))
        except ValueError:
            self.fail(f"'{value}' is not a duration; write 90, 90s, 10m or 2h", param, ctx)


class Gibibytes(click.ParamType[float]):
    """What a process may take: a number of GiB; torch alone takes some tenths of one."""

    name = "GiB"
    least = 0.5
    most = 2.0**20

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a number of GiB."""
        try:
            found = float(str(value))
        except ValueError:
            found = math.nan
        if not self.least <= found < self.most:  # false for nan
            self.fail(f"'{value}' is not a number of GiB; write {self.least:g} or more", param, ctx)
        return found


def seconds(text: str) -> float:
    """The seconds that ``90``, ``90s``, ``10m`` or ``2h`` stand for."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    found = float(text[:-1]) * unit if unit else float(text)
    if not 0 < found < float("inf"):
        raise ValueError(text)
    return found


class OneLine(click.Group):
    """Commands whose usage errors are one line, as all others are, and whose output may have no reader."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the options before the command."""
        with tolerant_output(), _one_line_usage():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the command's options and run it."""
        with tolerant_output(), _one_line_usage(), _remembering_interrupts():
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
                raise
            except KeyboardInterrupt:
                click.echo("aotcheck: interrupted", err=True)
            except Exception:  # a bug of ours: Python's own exit code for it, 1, would say that there are findings
                if _interrupted.is_set():  # an import that was interrupted may raise anything
                    click.echo("aotcheck: interrupted", err=True)
                else:
                    traceback.print_exc()
            sys.exit(3)


_interrupted = threading.Event()
"""Whether there was a Ctrl-C: imports of torch and numpy may swallow the exception."""


@contextmanager
def _remembering_interrupts() -> Iterator[None]:
    _interrupted.clear()

    def interrupt(number: int, frame: FrameType | None) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _heed_interrupt() -> None:
    """Raise the KeyboardInterrupt that an import has swallowed."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def _one_line_usage() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "aotcheck"
        raise Usage(f"{' '.join(error.format_message().split()).rstrip('.')}; see {command} --help") from error


@contextmanager
def stopping_on_interrupt(stop: threading.Event) -> Iterator[None]:
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
    _heed_interrupt()
    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def require_importable(*specs: str) -> None:
    """A usage error where importing the module of a ``module:attribute`` kills its process, or does not end.

    A foreign module is imported in a process of its own before this one imports it. An import that raises is left to
    whoever resolves the name.
    """
    from aotcheck.workers import end_on_import, imports_of

    _heed_interrupt()
    for spec in dict.fromkeys(specs):
        module, colon, _ = spec.partition(":")
        if not colon or not module or module.partition(".")[0] in _OURS:
            continue
        if end := end_on_import(module, *_PRELOADED, *imports_of(specs)):
            hint = f"try python -X faulthandler -c 'import {module}'"
            raise Usage(f"'{spec}': importing '{module}' ended the process ({end}); {hint}")


def parsed_file(
    path: Path, device: torch.device, backend: str | None, *, disposable: bool = False
) -> tuple[ParsedFile, Backend]:
    """A program file, known to have inputs that can be built, and the backend to run it on: the one asked for, or the
    one that its header stands for. A process that is ``disposable`` imports it at once."""
    from aotcheck.backends import BackendError
    from aotcheck.campaign.corpus.files import backend_of, resolved
    from aotcheck.program import ProgramSyntaxError, UnknownOpError, build_call, parse_file

    try:
        parsed = parse_file(path)
        if not disposable:
            require_importable(backend or backend_of(parsed))
        compiled = resolved(parsed, backend)
    except (ProgramSyntaxError, UnknownOpError, BackendError) as error:
        raise Usage(one_line(error, path)) from error
    except OSError as error:
        raise Usage(f"{path}: cannot be read: {error.strerror}") from error
    for index, call in enumerate(parsed.program.calls):
        if call.inputs is not None:
            try:
                build_call(parsed.program, index, device)
            except Exception as error:  # whatever torch says of inputs that it cannot build
                raise Usage(one_line(ValueError(f"{path}: the inputs of call {index + 1}: {error}"), path)) from error
    return parsed, compiled


def program_files(paths: tuple[Path, ...]) -> list[Path]:
    """The program files that were named, or are in folders that were."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise Usage(f"{path}: no such file or folder")
        inside = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if not inside:
            raise Usage(f"{path}: holds no program files (*.py)")
        found.extend(inside)
    return found


def one_line(error: Exception, path: Path) -> str:
    """An error as one line that names the file."""
    text = " ".join(str(error).split())
    return text if str(path) in text else f"{path}: {text}"
