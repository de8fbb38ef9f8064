"""``report.html``: a run on one page that needs nothing else, from run.jsonl and the scripts beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from aotcheck.campaign import Past, Tally
from aotcheck.campaign.corpus import entries
from aotcheck.campaign.events import FindingSigned, PairsCounted
from aotcheck.campaign.journal import write_durably
from aotcheck.campaign.signature import Signature
from aotcheck.campaign.tally import Signed, tallied
from aotcheck.campaign.words import counted
from aotcheck.program import ProgramSyntaxError, UnknownOpError, body_source, parse_file
from aotcheck.report.drawings import alias_diagram, labelled_heat_map, throughput
from aotcheck.report.illustrate import Illustration, illustrated
from aotcheck.report.jsonl import load_events, load_timed, read_events

__all__ = ["previous_run", "write_html"]

MOST_ILLUSTRATED = 40
"""As many signatures are run again for their pictures."""

BUCKETS = 60


@dataclass(frozen=True)
class Finding:
    """A signature as the page shows it."""

    signature: Signature
    signed: Signed
    program: str
    path: str
    known: str
    issue: str
    new: bool
    picture: Illustration | None
    diagrams: tuple[str, str]

    @property
    def count(self) -> int:
        """How many findings have it, or probably have it."""
        return self.signed.minimized + self.signed.explained


def write_html(folder: Path, corpus: Path | None = None, previous: Path | None = None) -> Path:
    """Write ``report.html`` for the run in ``folder``; its path.

    Args:
        folder: a run's folder.
        corpus: where known bugs have their issues.
        previous: the run to compare with; by default the last one before it, of the same backend, beside it.

    Raises:
        OSError: there is no run, or nothing can be written.
    """
    tally = tallied(load_timed(folder / "run.jsonl"))
    before = previous or previous_run(folder)
    earlier = tallied(load_timed(before / "run.jsonl")) if before is not None else None
    findings = list(_findings(tally, earlier, corpus))
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
        changes=list(_changes(tally, earlier)),
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
    """The last run before this one, of the same backend, beside it; None if there is none."""
    started = Past.of(load_events(folder / "run.jsonl")).started
    best: tuple[str, Path] | None = None
    for other in folder.resolve().parent.glob("*/run.jsonl"):
        if other.parent.resolve() == folder.resolve():
            continue
        first = next(read_events(other), {})
        if started is None or first.get("backend") != started.backend or str(first.get("time", "")) >= started.time:
            continue
        if best is None or str(first["time"]) > best[0]:
            best = str(first["time"]), other.parent
    return best[1] if best is not None else None


def _findings(tally: Tally, earlier: Tally | None, corpus: Path | None) -> Iterator[Finding]:
    issues = {entry.path.stem: entry.issue for entry in entries(corpus)} if corpus is not None else {}
    ordered = sorted(tally.signatures.items(), key=lambda kv: (bool(kv[1].known), -(kv[1].minimized + kv[1].explained)))
    sources = [_source(signed) for _, signed in ordered]
    shown = [i for i, source in enumerate(sources) if source][:MOST_ILLUSTRATED]
    run = tally.run
    pictures: Mapping[int, Illustration] = {}
    if run is not None and shown:
        made = illustrated([sources[i] for i in shown], run.backend, run.device, run.memory)
        pictures = dict(zip(shown, made, strict=True))
    for i, (signature, signed) in enumerate(ordered):
        picture = pictures.get(i)
        diagrams = ("", "")
        if picture is not None and picture.eager is not None and picture.compiled is not None:
            diagrams = alias_diagram(picture.eager), alias_diagram(picture.compiled)
        path = getattr(signed.first, "minimized", "")
        new = earlier is not None and signature not in earlier.signatures
        issue = issues.get(signed.known, "")
        yield Finding(signature, signed, _body(path), path, signed.known, issue, new, picture, diagrams)


def _source(signed: Signed) -> str:
    if not isinstance(signed.first, FindingSigned) or not signed.first.minimized:
        return ""
    try:
        return Path(signed.first.minimized).read_text(encoding="utf-8")
    except OSError:
        return ""


def _body(path: str) -> str:
    """The function and what it is called with, without the header and the ending."""
    try:
        text = Path(path).read_text(encoding="utf-8") if path else ""
        body_source(parse_file(Path(path)).program) if path else ""
    except (OSError, ProgramSyntaxError, UnknownOpError):
        return ""
    lines = text.partition("if __name__ ==")[0].splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("def ")), 0)
    return "\n".join(lines[start:]).rstrip()


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


def _changes(tally: Tally, earlier: Tally | None) -> Iterator[str]:
    if earlier is None:
        return
    yield f"{earlier.programs} -> {tally.programs} programs, {earlier.rate:.1f} -> {tally.rate:.1f} a second"
    refused = [one.share(one.refused) for one in (earlier, tally)]
    yield f"{earlier.findings} -> {tally.findings} findings, {refused[0]:.1%} -> {refused[1]:.1%} refused"
    yield from (f"since then: {one}" for one in tally.signatures if one not in earlier.signatures)
    yield from (f"not found again: {one}" for one in earlier.signatures if one not in tally.signatures)


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
