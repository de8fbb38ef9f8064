"""``aotcheck check``: one function of the user's own under every variation of its inputs and calls."""

import difflib
import os
import sys
from collections.abc import Collection

import click

from aotcheck.cli.base import Gibibytes, Seconds, Usage


@click.command()
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option(
    "--inputs",
    required=True,
    help="What makes the arguments, as MODULE:FUNCTION, or the arguments: 'float32[2,3]+grad int64[4]'.",
)
@click.option("--backend", default="aotcheck", show_default=True, help="What to test: a name or module:callable.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--only", multiple=True, help="Variations to try: 'as given,transposed'. Default: all.")
@click.option("--exact", is_flag=True, help="Values must be equal bitwise.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one per core.")
@click.option("--timeout", type=Seconds(), default="60", show_default=True, help="For one variation.")
@click.option("--memory", type=Gibibytes(), default=6.0, show_default=True, help="GiB for one worker.")
def check(
    function: str,
    inputs: str,
    backend: str,
    device: str,
    only: tuple[str, ...],
    exact: bool,
    jobs: int | None,
    timeout: float,
    memory: float,
) -> None:
    """Compare a function of yours with its compiled form: aliasing, layouts, requires_grad, contexts, second calls.

    FUNCTION is a function over tensors, a module, or a custom op; it runs in worker processes. Exits 0 when it does as
    eager does, 1 if it differs or the schema of an op lies, 2 if eager itself fails in nearly all variations.
    """
    from aotcheck.backends import BackendError, require_device, resolve
    from aotcheck.campaign import ExitCode
    from aotcheck.checking import VARIATIONS, Standing
    from aotcheck.checking.isolated import Task, check_isolated
    from aotcheck.checking.specs import SpecError, function_named, inputs_named, require_callable_with
    from aotcheck.report.checking import print_report
    from aotcheck.report.console import Console
    from aotcheck.report.progress import counting

    variations = [name for text in only for name in _variations(text, VARIATIONS)]
    try:
        require_device(device)
        resolve(backend)
        require_callable_with(function, function_named(function), inputs_named(inputs, device))
    except (BackendError, SpecError) as error:
        raise Usage(str(error)) from error
    task = Task(function, inputs, backend, device, exact)
    cores = jobs or len(os.sched_getaffinity(0))
    chosen, judged = variations or list(VARIATIONS), list[str]()
    with counting("variations", len(chosen)) as moved:

        def told(name: str) -> None:
            judged.append(name)
            moved(len(judged))

        report = check_isolated(task, chosen, jobs=cores, timeout=timeout, memory=int(memory * 2**30), judged=told)
    print_report(report, Console())
    found = report.of(Standing.DIFFERS) or report.lies
    sys.exit(int(ExitCode.FINDINGS if found else ExitCode.USAGE if report.unchecked else ExitCode.CLEAN))


def _variations(text: str, known: Collection[str]) -> list[str]:
    """The variations that ``text`` names, separated by commas; names may hold commas themselves."""
    pieces, found = [piece.strip() for piece in text.split(",")], list[str]()
    while pieces:
        lengths = (n for n in range(len(pieces), 0, -1) if ", ".join(pieces[:n]) in known)
        length = next(lengths, 0)
        if not length:
            near = difflib.get_close_matches(pieces[0], known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are: {'; '.join(known)}"
            raise Usage(f"no variation is called '{pieces[0]}'; {hint}")
        found.append(", ".join(pieces[:length]))
        pieces = pieces[length:]
    return found
