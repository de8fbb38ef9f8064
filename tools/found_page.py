"""Writes docs/found.md from the corpus: the worst causes by rank, then counts of all files.

With ``--check`` it also makes each report of the worst on the installed torch, and notes what came of the report.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from aotcheck.campaign.corpus.files import NO_ISSUE, Entry, Expected, backend_of, entry_of, resolved
from aotcheck.campaign.findings.impact import impact_of
from aotcheck.campaign.findings.oddity import oddity_of
from aotcheck.campaign.results.bugs import reported
from aotcheck.campaign.results.rank import Rank, rank_of, title
from aotcheck.cli.base import INSPECTION
from aotcheck.cli.explain import left_out
from aotcheck.minimize import Limits, Subject
from aotcheck.oracle import CoarseKey
from aotcheck.program import flat_calls, parse_file
from aotcheck.program.ops.registry import UnknownOpError, find

PAGE = Path(__file__).resolve().parents[1] / "docs" / "found.md"
CORPUS = PAGE.parents[1] / "corpus"
WORST, VERSIONS, BACKENDS = 40, ("2.13.0", "2.15.0"), ("aot_function", "aot_eager", "inductor", "aotcheck")
KEY = re.compile(r"\(([\w-]+), ([^,]*(?:, both raise|, later call)*)(?:, (.*))?\)", re.DOTALL)
HEAD = "| | what goes wrong | backend | eager gives | the backend gives | upstream | the report |"


@dataclass(frozen=True)
class Found:
    """A corpus file, with what the page says of it: on which backend, what the oracle said, and the header's note."""

    entry: Entry
    backend: str
    said: str
    note: str
    key: CoarseKey
    title: str
    rank: Rank

    @classmethod
    def of(cls, path: Path) -> Found:
        """Read a file."""
        parsed = parse_file(path)
        entry, backend, said = entry_of(path, parsed), backend_of(parsed), str(parsed.header["difference"])
        oracle, place, rest = KEY.fullmatch(entry.keys[backend]).groups("")  # type: ignore[union-attr]  # else it raises
        key = CoarseKey(oracle, place, *(("", rest) if oracle == "values" else (rest, "")))
        note = parsed.header.get("note", "")
        return cls(entry, backend, said, str(note), key, title(said, key, parsed.program), rank_of(key, parsed.program))

    @property
    def differs(self) -> bool:
        """Whether a backend is expected to differ on it, in a version of torch."""
        return any(Expected.DIFFERS in said.values() for said in self.entry.expect.values())

    @property
    def group(self) -> str:
        """The kind of its least usual op."""
        with suppress(UnknownOpError, ValueError):
            odd = max((call.path for call in flat_calls(self.entry.program.body)), key=oddity_of)
            return find(odd)[0].group.value.replace("_", " ")
        return "other"


def found() -> list[Found]:
    """The corpus, the worst first."""
    return sorted(map(Found.of, CORPUS.glob("*.py")), key=lambda one: (one.rank, one.entry.path))


def causes(files: list[Found]) -> list[list[Found]]:
    """Files that a backend differs on, those with one upstream issue or one title together, headed by the worst."""
    entries: dict[str, list[Found]] = {}
    for one in (one for one in files if one.differs):
        cause = one.title.partition(" (")[0] if one.entry.issue in NO_ISSUE else one.entry.issue
        entries.setdefault(cause, []).append(one)
    return list(entries.values())


def page(introduction: str, files: list[Found], checked: dict[tuple[str, str], str]) -> str:
    """The page; ``checked`` is what a report came to, by file and version of torch."""
    lines = [f"{introduction}{HEAD} {' | '.join(VERSIONS)} |", f"| ---: |{' --- |' * (6 + len(VERSIONS))}"]
    for at, (one, *more) in enumerate(causes(files)[:WORST], 1):
        issue, name, also = one.entry.issue, one.entry.path.name, f" +{len(more)}" if more else ""
        _, _, sides = one.said.partition(": eager ")
        eager, _, compiled = sides.partition(", compiled ") if sides else ("returns", "", one.said)
        cells = [f"**{one.title}**{one.note and f': {one.note}'}", f"`{one.backend}`", _short(eager), _short(compiled)]
        cells += ["" if issue in NO_ISSUE else _link(issue), f"[`aotcheck bug corpus/{name}`](../corpus/{name}){also}"]
        cells += [checked.get((name, version), "") for version in VERSIONS]
        lines.append(f"| {at} | {' | '.join(cells)} |")
    lines += ["", f"## All {len(files)} files, by effect and by the oracle that saw the difference", ""]
    lines += _table("effect: oracle", files, lambda one: f"{impact_of(one.key).words}: {one.key.oracle}")
    lines += ["", "## All files, by the group of the least usual op (`Group` in aotcheck/program/ops/registry.py)", ""]
    lines += _table("group", files, lambda one: one.group)
    counts = Counter(_link(one.entry.issue) for one in files).most_common()
    lines += ["", "## All files, by upstream issue", "", ", ".join(f"{issue}: {n}" for issue, n in counts), ""]
    return "\n".join(lines)


def _table(what: str, files: list[Found], of: Callable[[Found], str]) -> Iterator[str]:
    """A row for each kind of file, in the order of the worst files, which are its examples."""
    yield f"| {what} | files | {' | '.join(f'`{name}`' for name in BACKENDS)} | the worst |"
    yield f"| --- | {'---: | ' * (1 + len(BACKENDS))}--- |"
    for kind in dict.fromkeys(map(of, files)):
        group = [one for one in files if of(one) == kind]
        counts = [len(group), *(sum(name in one.entry.keys for one in group) for name in BACKENDS)]
        examples = ", ".join(f"[{one.entry.path.stem}](../corpus/{one.entry.path.name})" for one in group[:2])
        yield f"| {kind} | {' | '.join(map(str, counts))} | {examples} |"


def _short(text: str) -> str:
    return f"{text[:60]}{'...' * (len(text) > 60)}".replace("|", "\\|")


def _link(issue: str) -> str:
    return f"`{issue}`" if issue in NO_ISSUE else f"[#{issue.rpartition('/')[2]}]({issue})"


def checks(text: str) -> dict[tuple[str, str], str]:
    """What a page says that reports came to."""
    rows = re.findall(r"/([\w-]+\.py)\)[ +\d]*\|" + r" ([^|]*) \|" * len(VERSIONS) + "\n", text)
    return {(name, version): cell for name, *cells in rows for version, cell in zip(VERSIONS, cells, strict=True)}


def check(one: Found) -> str:
    """What a report of a file comes to here."""
    parsed = parse_file(one.entry.path)
    subject = Subject(one.backend, "cpu", INSPECTION, left_out(parsed, resolved(parsed)))
    report = reported(parsed, subject, Limits(jobs=1, timeout=120.0, memory=6 * 2**30), blames=False)
    return "shown" if report.script else "no script" if report.text else report.reason.removeprefix("the backend ")


def main(arguments: list[str]) -> None:
    """Write the page."""
    files, checked = found(), checks(text := PAGE.read_text(encoding="utf-8"))
    if "--check" in arguments:
        for one, *_ in causes(files)[:WORST]:
            checked[one.entry.path.name, torch.__version__.partition("+")[0]] = check(one)
    PAGE.write_text(page(text.partition(HEAD)[0], files, checked), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
