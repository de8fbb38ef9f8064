"""``python -m tools.op_coverage``: see ``make op-coverage``."""

import fnmatch
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tools.op_coverage import report
from tools.op_coverage.compare import Side
from tools.op_coverage.runner import Task, run_all
from tools.op_coverage.store import ROOT, Store
from tools.op_coverage.subjects import DTYPES, Kind, Subject, subjects


def _selected(
    every: list[Subject], ops: str, dtypes: tuple[str, ...], kinds: tuple[str, ...], limit: int | None
) -> list[Subject]:
    patterns = [p for p in ops.split(",") if p]
    chosen = [
        s
        for s in every
        if (not dtypes or s.dtype in dtypes)
        and (not kinds or s.kind.name.lower() in kinds)
        and (not patterns or any(fnmatch.fnmatch(s.name, p) for p in patterns))
    ]
    return chosen[:limit]


@click.command()
@click.option("--ops", default="", help="Only ops and modules of these names, by comma; * stands for anything.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(list(DTYPES)), help="Only these dtypes.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice([k.name.lower() for k in Kind]), help="Only of these kinds."
)
@click.option("--limit", type=int, help="Only so many subjects.")
@click.option("--compiler", type=click.Choice(["first", "second"]), default="first", help="Which of our compilers.")
@click.option("--dynamic", is_flag=True, help="Sizes are symbols; of the second compiler.")
@click.option("--side", type=click.Choice(["ours", "torchs"]), help="Only ours, or only torch's.")
@click.option("--samples", "most", default=8, show_default=True, help="At most so many samples of each.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds that one subject may take.")
@click.option("--failed", is_flag=True, help="Only what failed the last time.")
@click.option("--accept", is_flag=True, help="What fails now is expected from now on.")
@click.option("--write", is_flag=True, help="Write the page even if not everything has run.")
@click.option("--no-run", is_flag=True, help="Run nothing; report what is there.")
@click.option("--results", type=click.Path(path_type=Path), default=ROOT / "reports" / "op_coverage.jsonl")
def main(
    ops: str,
    dtypes: tuple[str, ...],
    kinds: tuple[str, ...],
    limit: int | None,
    compiler: str,
    dynamic: bool,
    side: str | None,
    most: int,
    jobs: int,
    timeout: float,
    failed: bool,
    accept: bool,
    write: bool,
    no_run: bool,
    results: Path,
) -> None:
    """Run torch's databases of ops and modules through both AOT autograds, and compare with eager.

    Goes on where the last run stopped. Once everything has run, writes docs/op_coverage.md. Exits with 1 if something
    of ours fails that was not expected to.
    """
    console = Console()
    store = Store(results)
    every = list(subjects(list(DTYPES)))
    chosen = _selected(every, ops, dtypes, kinds, limit)
    if compiler == "second":
        failures = second(store, [s for s in chosen if s.kind is not Kind.DERIVATIVES], dynamic, (most, jobs, timeout))
        if write:
            report.SECOND.write_text(report.second_page(store, every))
        raise SystemExit(1 if failures else 0)
    sides = [s for s in (Side.OURS, Side.TORCHS) if side is None or s.name.lower() == side]
    tasks: list[Task] = [(s, subject) for subject in chosen for s in sides if not store.holds(s, subject.key)]
    if failed:
        before = {s: store.failures(s, [c.key for c in chosen]) for s in sides}
        tasks = [(s, subject) for subject in chosen for s in sides if subject.key in before[s]]
    tasks = [] if no_run else tasks
    console.print(f"{len(chosen)} of {len(every)} subjects, {len(tasks)} runs to do")
    progress_is_seen = console.is_terminal
    known = report.expected()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(tasks))
        count = Counter[Side]()
        for (whose, subject), outcome in run_all(tasks, most, jobs, timeout, lambda total: None):
            store.put(whose, subject.key, outcome)
            if outcome.reason is not None:
                count[whose] += 1
                if whose is Side.OURS and subject.key not in known:
                    progress.print(
                        f"[red]{subject.key}[/]: {len(outcome.failures)} of {outcome.samples}:", outcome.reason
                    )
            described = ", ".join(f"{s.value} {count[s]} failed" for s in sides)
            progress.update(bar, advance=1, description=described)
            done = progress.tasks[0].completed
            if not progress_is_seen and done % 100 == 0:
                progress.print(f"{done:.0f} of {len(tasks)}: {described}")
    if write or len(report.compared(store, every)) == len(every):
        report.DOCUMENT.write_text(report.document(store, every))
        console.print(f"wrote {report.DOCUMENT.relative_to(ROOT)}")
    if accept:
        report.write_expected(store, every)
    failures = store.failures(Side.OURS, [s.key for s in chosen])
    new = [k for k in failures if k not in known]
    cured = [s.key for s in chosen if s.key in known and s.key not in failures]
    console.print(
        f"ours: {len(failures)} failed, {len(new)} of them not expected; {len(cured)} expected to fail passed"
    )
    if new and not accept:
        raise SystemExit(1)


def second(store: Store, chosen: list[Subject], dynamic: bool, limits: tuple[int, int, float]) -> dict[str, str]:
    """Run the second compiler, and torch's where it fails. Says, and gives, what torch's alone can do, by reason."""
    ours, torchs = (Side.SECOND_DYNAMIC, Side.TORCHS_DYNAMIC) if dynamic else (Side.SECOND, Side.TORCHS)
    keys = {s.key: s for s in chosen}
    for whose in (ours, torchs):
        wanted = list(keys) if whose is ours else list(store.failures(ours, keys))
        tasks: list[Task] = [(whose, keys[k]) for k in wanted if not store.holds(whose, k)]
        click.echo(f"{whose.value}: {len(wanted)} subjects, {len(tasks)} runs to do")
        for (_, subject), outcome in run_all(tasks, *limits, lambda total: None):
            store.put(whose, subject.key, outcome)
    worse = report.worse(store, chosen, ours, torchs)
    click.echo(f"{len(worse)} subjects fail on {ours.value} and not on {torchs.value}")
    for reason, count in Counter(worse.values()).most_common():
        click.echo(f"{count:5d} {reason}: {next(k for k, r in worse.items() if r == reason)}")
    return worse


if __name__ == "__main__":
    main()
