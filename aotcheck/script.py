"""What ``python FILE`` does with a program file: judge it as ``aotcheck replay`` would, and print what differs.

A program file ends in a call of :func:`main`. The file is read back as data, so what is run is the
program that every other command would run, and what is printed are the differences that the oracle finds.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotcheck.cli.base import OneLine, parsed_file
from aotcheck.named import find_modules_here

if TYPE_CHECKING:
    from aotcheck.oracle import Verdict

__all__ = ["main"]


def main(file: str) -> None:
    """Run the program of ``file`` eagerly and on a backend, print each difference, and exit.

    The options are those of the script's command line: ``--backend NAME`` (default: the backend that the header names,
    or the first one that it expects to differ) and ``--device NAME``.

    A backend of the user's may be a module of the working directory, as for ``aotcheck replay``.

    Nothing happens where the file is imported, as ``multiprocessing`` does in each process that a backend spawns.

    Exits 0 without a difference, 1 with one, 2 where the program, the backend or the device cannot be used, 3 where
    eager does not agree with itself.
    """
    here = inspect.currentframe()
    if here is None or here.f_back is None or here.f_back.f_globals["__name__"] != "__main__":
        return
    find_modules_here()
    group = OneLine(name=Path(file).name, commands={"run": _run}, add_help_option=False)
    group.main(args=["run", *sys.argv[1:]], obj=Path(file), prog_name=f"python {file}")


@click.command()
@click.option("--backend", help="What to compare with eager. Default: what the file names, or aotcheck.")
@click.option("--device", default="cpu", show_default=True)
@click.pass_obj
def _run(path: Path, backend: str | None, device: str) -> None:
    """Run the program eagerly and on a backend, and print each difference."""
    import torch

    from aotcheck.backends import BackendError, require_device
    from aotcheck.cli.base import Usage
    from aotcheck.oracle import Outcome, check

    try:
        found = require_device(device)
    except BackendError as error:
        raise Usage(str(error)) from error
    parsed, compiled = parsed_file(path, found, backend, disposable=True)
    verdict = check(parsed.program, compiled, found)
    _print(verdict, compiled.name)
    count = f"{len(verdict.hard)} difference{'s' * (len(verdict.hard) != 1)}"
    click.echo(f"{count} between eager and {compiled.name} on {device}, torch {torch.__version__}")
    sys.exit({Outcome.DIFFERS: 1, Outcome.UNSTABLE: 3}.get(verdict.outcome, 0))


def _print(verdict: Verdict, backend: str) -> None:
    from aotcheck.oracle import Outcome

    for found in verdict.hard:
        click.echo(f"DIFFERENT {found.oracle.value} of {found.place}")
        click.echo(f"    eager: {found.eager}\n    {backend}: {found.compiled}")
    if verdict.outcome is Outcome.REFUSED:
        click.echo(f"{backend} refuses the program: {', '.join(verdict.refusals)}")
    if verdict.outcome is Outcome.UNSTABLE:
        click.echo("eager does not agree with itself, so there is nothing to compare with")
