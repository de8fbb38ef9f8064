"""``aotcheck zoo``: small programs of the kinds that people train, on one backend."""

import os
import sys

import click

from aotcheck.cli.base import Gibibytes, Seconds, Usage, require_importable


@click.command()
@click.option("--backend", default="aotcheck", show_default=True, help="What to test: a name or module:callable.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--models", multiple=True, help="Models to run: 'conv_net,timm.deit'. Default: all of our own.")
@click.option("--libraries", is_flag=True, help="Without --models: all of torchvision, timm and transformers.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes. Default: one per core.")
@click.option("--timeout", type=Seconds(), default="5m", show_default=True, help="For one model.")
@click.option("--memory", type=Gibibytes(), default=6.0, show_default=True, help="GiB for one worker.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def zoo(
    backend: str,
    device: str,
    models: tuple[str, ...],
    libraries: bool,
    jobs: int | None,
    timeout: float,
    memory: float,
    as_json: bool,
) -> None:
    """Train the models of the zoo a few steps, eagerly and through a backend, and compare them after each step.

    Each model runs in a process of its own. What a backend refuses, or leaves to eager, is shown. Exits 0 when no model
    differs or fails, 1 if one does.
    """
    from aotcheck.backends import BackendError, require_device, resolve
    from aotcheck.campaign import ExitCode
    from aotcheck.report.console import Console
    from aotcheck.report.progress import counting
    from aotcheck.report.zoo import as_text, print_results
    from aotcheck.zoo.isolated import Zoo, judge_models
    from aotcheck.zoo.model import UnknownModelError, models_named

    try:
        names = [name.strip() for text in models for name in text.split(",") if name.strip()]
        chosen = models_named(names, libraries)
        require_device(device)
        require_importable(backend)
        resolve(backend)
    except (BackendError, UnknownModelError) as error:
        raise Usage(str(error)) from error
    settings = Zoo(backend, device, jobs or len(os.sched_getaffinity(0)), timeout, int(memory * 2**30))
    done = 0
    with counting("models", len(chosen)) as moved:

        def finished(_: object) -> None:
            nonlocal done
            done += 1
            moved(done)

        results = judge_models(chosen, settings, finished)
    if as_json:
        click.echo(as_text(backend, device, results))
    else:
        print_results(backend, results, Console())
    sys.exit(int(ExitCode.FINDINGS if any(result.failed for result in results) else ExitCode.CLEAN))
