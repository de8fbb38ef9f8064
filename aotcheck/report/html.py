"""``report.html``: a run on one page that needs nothing else, from run.jsonl and the scripts beside it."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from aotcheck.campaign import Past, Tally
from aotcheck.campaign.corpus.files import entries
from aotcheck.campaign.record.events import FindingSigned, PairsCounted
from aotcheck.campaign.record.journal import write_durably
from aotcheck.campaign.record.tally import tallied
from aotcheck.campaign.record.words import COMMANDS, counted
from aotcheck.campaign.results.rank import Cause, Told, is_still_there, ranked
from aotcheck.program import ProgramSyntaxError, UnknownOpError, emit, flat_calls, parse_file
from aotcheck.program.source.emit import ENDING
from aotcheck.report.drawings import alias_diagram, labelled_heat_map, throughput
from aotcheck.report.illustrate import Illustration, illustrated
from aotcheck.report.jsonl import load_events, load_timed, read_events

__all__ = ["previous_run", "write_html"]

MOST_ILLUSTRATED = 40
"""As many entries are run again for their pictures."""

BUCKETS = 60


@dataclass(frozen=True)
class Finding:
    """An entry as the page shows it.

    Args:
        number: where it stands, from 1; its section is ``#f<number>``.
        entry: it.
        program: the smallest program, as text.
        ops: the ops of that.
        commands: what to do with its file next, as a shell takes it.
        report: the file of the report that can be posted, if the campaign has written one.
        issue: where it is reported, if its corpus file says.
        since: ``new since the last run``; empty for one that was there, or where there is no such run.
        picture: what the program shows, if it was run again.
        diagrams: eager's and the backend's tensors.
    """

    number: int
    entry: Cause
    program: str
    ops: tuple[str, ...]
    commands: tuple[str, ...]
    report: str
    issue: str
    since: str
    picture: Illustration | None
    diagrams: tuple[str, str]


@dataclass(frozen=True)
class Changed:
    """What is otherwise than in the run before: figures, and entries that are new, gone, and still there."""

    figures: tuple[str, ...]
    new: tuple[Cause, ...]
    gone: tuple[Cause, ...]
    still: tuple[Cause, ...]


def write_html(folder: Path, corpus: Path | None = None, previous: Path | None = None) -> Path:
    """Write ``report.html`` for the run in ``folder``; its path.

    Args:
        folder: a run's folder.
        corpus: where known bugs have their issues.
        previous: the run to compare with; by default the last one before it, of the same backend and strategy, beside
            it.

    Raises:
        OSError: there is no run, or nothing can be written.
    """
    tally = tallied(load_timed(folder / "run.jsonl"))
    before = previous or previous_run(folder)
    earlier = tallied(load_timed(before / "run.jsonl")) if before is not None else None
    found, past = ranked(tally), ranked(earlier) if earlier is not None else None
    findings = list(_findings(tally, found, past, corpus))
    pairs = tally.pairs
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("aotcheck.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.get_template("report.html.j2").render(
        run=tally.run,
        tally=tally,
        counted=counted,
        name=folder.name,
        floors=[
            (name.lower().replace("_", " "), tally.share(tally.features[name]), least)
            for name, least in tally.floors.items()
        ],
        findings=findings,
        throughput=throughput(_rates(folder / "run.jsonl")),
        previous=before,
        changed=_changed(tally, found, earlier, past or ()),
        impacts=list(dict.fromkeys(f.entry.head.rank.impact.words for f in findings)),
        ops=sorted({op for f in findings for op in f.ops}),
        pairs=pairs,
        heat=_heat(pairs),
        facets=list(_facets(pairs)),
    )
    path = folder / "report.html"
    write_durably(path, text)
    return path


def _times(path: Path) -> Iterator[float]:
    yield from (float(e["at"]) for e in read_events(path) if e.get("event") == "ProgramChecked" and "at" in e)


def previous_run(folder: Path) -> Path | None:
    """The last run before this one, of the same backend and strategy, beside it; None if there is none."""
    started = Past.of(load_events(folder / "run.jsonl")).started
    best: tuple[str, Path] | None = None
    for other in folder.resolve().parent.glob("*/run.jsonl"):
        if other.parent.resolve() == folder.resolve():
            continue
        first = next(read_events(other), {})
        if started is None or str(first.get("time", "")) >= started.time:
            continue
        if (first.get("backend"), first.get("strategy")) != (started.backend, started.strategy):
            continue
        if best is None or str(first["time"]) > best[0]:
            best = str(first["time"]), other.parent
    return best[1] if best is not None else None


def _findings(
    tally: Tally, found: tuple[Cause, ...], past: tuple[Cause, ...] | None, corpus: Path | None
) -> Iterator[Finding]:
    issues = {entry.path.stem: entry.issue for entry in entries(corpus)} if corpus is not None else {}
    sources = [_source(cause.head) for cause in found]
    shown = [i for i, source in enumerate(sources) if source][:MOST_ILLUSTRATED]
    run = tally.run
    pictures: Mapping[int, Illustration] = {}
    if run is not None and shown:
        made = illustrated([sources[i] for i in shown], run.backend, run.device, run.memory)
        pictures = dict(zip(shown, made, strict=True))
    for i, cause in enumerate(found):
        picture = pictures.get(i)
        diagrams = ("", "")
        if picture is not None and picture.eager is not None and picture.compiled is not None:
            diagrams = alias_diagram(picture.eager), alias_diagram(picture.compiled)
        path = cause.head.path
        commands = tuple(one.replace("FILE", shlex.quote(path)) for one in COMMANDS) if path else ()
        since = "" if past is None or is_still_there(cause, past) else "new since the last run"
        issue, ops = issues.get(cause.known, ""), _ops(cause.head)
        report = tally.reports[path].path if path in tally.reports else ""
        yield Finding(i + 1, cause, _body(path), ops, commands, report, issue, since, picture, diagrams)


def _ops(told: Told) -> tuple[str, ...]:
    return () if told.program is None else tuple(dict.fromkeys(call.path for call in flat_calls(told.program.body)))


def _source(told: Told) -> str:
    """The file of a signature that this run has minimized; those that it knew are not run again for the page."""
    if not isinstance(told.signed.first, FindingSigned) or not told.path:
        return ""
    try:
        return Path(told.path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _body(path: str) -> str:
    """The function and what it is called with, without the header and the ending."""
    try:
        text = emit(parse_file(Path(path)).program) if path else ""
    except (OSError, ProgramSyntaxError, UnknownOpError):
        return ""
    return "".join(text.removesuffix(ENDING).partition("def ")[1:]).rstrip()


def _rates(path: Path) -> list[tuple[float, float]]:
    """Programs per second over the time of the run, in at most ``BUCKETS`` pieces."""
    times = list(_times(path))
    if len(times) < 2:
        return []
    began, span = times[0], max(times[-1] - times[0], 1e-3)
    buckets = min(BUCKETS, max(2, len(times) // 5))
    counts = [0] * buckets
    for at in times:
        counts[min(int((at - began) / span * buckets), buckets - 1)] += 1
    return [((i + 0.5) * span / buckets, count / (span / buckets)) for i, count in enumerate(counts)]


def _changed(tally: Tally, found: tuple[Cause, ...], earlier: Tally | None, past: tuple[Cause, ...]) -> Changed | None:
    if earlier is None:
        return None
    refused = [one.share(one.refused) for one in (earlier, tally)]
    figures = (
        f"{earlier.programs} -> {tally.programs} programs, {earlier.rate:.1f} -> {tally.rate:.1f} a second",
        f"{earlier.findings} -> {tally.findings} findings, {refused[0]:.1%} -> {refused[1]:.1%} refused",
    )
    still = tuple(entry for entry in found if is_still_there(entry, past))
    new = tuple(entry for entry in found if entry not in still)
    return Changed(figures, new, tuple(entry for entry in past if not is_still_there(entry, found)), still)


def _heat(pairs: PairsCounted | None) -> str:
    if pairs is None or not pairs.traits:
        return ""
    return labelled_heat_map(pairs.traits, pairs.exercised, frozenset((i, j) for i, j, _ in pairs.excluded))


def _facets(pairs: PairsCounted | None) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
    """By pair of facets, how many of the pairs that can meet have met."""
    if pairs is None:
        return
    facets = list(dict.fromkeys(name.partition(":")[0] for name in pairs.traits))
    index = {facet: [i for i, name in enumerate(pairs.traits) if name.startswith(f"{facet}:")] for facet in facets}
    excluded = {(i, j) for i, j, _ in pairs.excluded}
    for a in facets:
        row = []
        for b in facets:
            places = {(max(i, j), min(i, j)) for i in index[a] for j in index[b] if i != j} - excluded
            met = sum(pairs.exercised[i][j] > 0 for i, j in places)
            row.append((b, met, len(places)))
        yield a, row
