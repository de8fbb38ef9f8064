"""``aotcheck replay`` and ``refresh``: program files judged again, or written anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotcheck.cli.base import Usage, one_line, parsed_file, program_files

if TYPE_CHECKING:
    import torch

    from aotcheck.campaign import ExitCode


@click.command()
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
    for path in program_files(paths):
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

    parsed, compiled = parsed_file(path, device, lambda header: backend or str(header.get("backend") or "aotcheck"))
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


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Only say which files are not as they would be written now.")
def refresh(paths: tuple[Path, ...], check: bool) -> None:
    """Write program files (or folders of them) anew, with the harness of this version. Nothing is executed."""
    from aotcheck.campaign import ExitCode, corpus
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
