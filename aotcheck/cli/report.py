"""``aotcheck report``."""

from pathlib import Path

import click

from aotcheck.cli.base import Usage, corpus_folder, corpus_option


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--previous", type=click.Path(path_type=Path), help="The run to compare with. Default: the last before.")
@corpus_option
def report(run: Path, previous: Path | None, corpus: Path | None) -> None:
    """Write RUN/report.html, one self-contained page, and RUN/junit.xml. The smallest programs are run again for it."""
    write_reports(run, corpus_folder(corpus), previous)
    click.echo(f"written: {run / 'report.html'}, {run / 'junit.xml'}")


def write_reports(run: Path, corpus: Path | None, previous: Path | None = None) -> None:
    """Both reports of a run; a usage error where there is none or nothing can be written."""
    from aotcheck.campaign.record.tally import tallied
    from aotcheck.campaign.results.runs import summed_up
    from aotcheck.report.html import write_html
    from aotcheck.report.jsonl import load_past
    from aotcheck.report.junit import write_junit

    try:
        past = load_past(run / "run.jsonl")
        if past.started is None:
            raise Usage(f"{run}: run.jsonl does not say what was run")
        tally = tallied(past.timed)
        write_junit(run / "junit.xml", (), (summed_up(tally, past.started.backend, run, past.started.seed),))
        write_html(run, corpus, previous)
    except OSError as error:
        raise Usage(f"{error.filename or run}: {error.strerror}") from error
