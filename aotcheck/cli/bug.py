"""``aotcheck bug``: one failing program as a report for whoever makes the backend."""

import os
import sys
from pathlib import Path

import click

from aotcheck.cli.base import INSPECTION, Gibibytes, Seconds, Usage, parsed_file, require_importable
from aotcheck.cli.explain import left_out


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--backend", help="What it differs on. Default: what the file names, or aotcheck.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write it to this file. Default: print it.")
@click.option("--script", is_flag=True, help="Only the script.")
@click.option("--blame/--no-blame", "blames", default=True, help="Say which part of the backend is to blame.")
@click.option(
    "--minimize-time", type=Seconds(), default="1m", show_default=True, help="For minimizing FILE, if it is not small."
)
@click.option("--no-minimize", is_flag=True, help="Report the program of FILE as it is.")
@click.option("--timeout", type=Seconds(), default="60", show_default=True, help="For one run of the script.")
@click.option("--memory", type=Gibibytes(), default="6", show_default=True, help="GiB for one run.")
def bug(
    path: Path,
    backend: str | None,
    device: str,
    out: Path | None,
    script: bool,
    blames: bool,
    minimize_time: float,
    no_minimize: bool,
    timeout: float,
    memory: float,
) -> None:
    """Write what one posts upstream: what differs, on which versions, and a script of plain torch that shows it.

    The script has no harness, and has been run in a fresh process, where it exited with status 1. Where there is no
    such script, the report says why.

    Exits 0 when a report is written, 1 when FILE does not differ.
    """
    from aotcheck.backends import BackendError, require_device
    from aotcheck.campaign import ExitCode
    from aotcheck.campaign.results.bugs import reported
    from aotcheck.minimize import Limits, Subject

    if backend is not None:
        require_importable(backend)
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise Usage(f"cannot write to '{out}'; choose another --out")
    try:
        parsed, compiled = parsed_file(path, require_device(device), backend)
    except BackendError as error:
        raise Usage(str(error)) from error
    subject = Subject(compiled.name, device, INSPECTION, left_out(parsed, compiled))
    limits = Limits(len(os.sched_getaffinity(0)), timeout, int(memory * 2**30))
    seconds = 0.0 if no_minimize else minimize_time
    report = reported(parsed, subject, limits, blames=blames, minimize_seconds=seconds)
    if report.text is None:
        click.echo(f"{path}: {compiled.name}: there is nothing to report: {report.reason}", err=True)
        sys.exit(int(ExitCode.FINDINGS))
    if script and not report.script:
        click.echo(f"{path}: {compiled.name}: there is no script of plain torch: {report.reason}", err=True)
        sys.exit(int(ExitCode.FINDINGS))
    text = report.script if script else report.text
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
        click.echo(f"wrote {out}")
