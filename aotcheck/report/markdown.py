"""The summary of a night, for a pull request or a job's page."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from aotcheck.campaign.nightly.night import Nightly
from aotcheck.campaign.record.words import Status, counted
from aotcheck.campaign.results.runs import BackendRun

_SHOWN = (Status.NEW, Status.FIXED, Status.FLAKY, Status.REJECTED, Status.REFUSED)
_VERDICTS = {0: "clean", 1: "new findings", 2: "a file is no program", 3: "infrastructure failed"}


def markdown(night: Nightly) -> str:
    """The whole summary."""
    return "\n".join(_lines(night)) + "\n"


def counts(night: Nightly) -> str:
    """The corpus in a line: ``1 new, 1 known, 1 fixed, 1 flaky``."""
    found = Counter(one.status for one in night.replayed)
    order = (Status.NEW, Status.KNOWN, Status.FIXED, Status.FLAKY, Status.REFUSED, Status.REJECTED, Status.AGREES)
    return ", ".join(f"{found[status.value]} {status.value}" for status in order if found[status.value]) or "nothing"


def _lines(night: Nightly) -> Iterator[str]:
    yield f"# aotcheck: {_VERDICTS[int(night.exit_code)]}"
    yield ""
    yield f"{night.time}, {', '.join(f'{name} {version}' for name, version in night.versions.items())}"
    yield ""
    yield f"Corpus: {counts(night)}."
    yield ""
    rows = [one for status in _SHOWN for one in night.replayed if one.status == status.value]
    if rows:
        yield "| corpus file | backend | | |"
        yield "| --- | --- | --- | --- |"
        for one in rows:
            text = one.text or " ".join(one.shown)
            yield f"| {_cell(one.path)} | {_cell(one.backend)} | **{one.status}** | {_cell(text)} |"
        yield ""
    for run in night.runs:
        yield from _run(run)
    yield from _remembered(night)
    if night.changes.last:
        yield f"## Since {night.changes.last}"
        yield ""
        yield from (f"- {_cell(line)}" for line in night.changes.lines or ("nothing has changed",))
        yield ""
    yield from (f"- failed: {_cell(line)}" for line in night.failures)


def _remembered(night: Nightly) -> Iterator[str]:
    """What nights have told: what is news tonight first, in bold."""
    if not night.remembered:
        return
    yield "## Remembered"
    yield ""
    yield "| | backend | signature | first seen | last seen | file |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for one in sorted(night.remembered, key=lambda one: (not one.fails, not one.is_news, one.backend, one.first)):
        status = f"**{one.status.value}**" if one.is_news else one.status.value
        yield (
            f"| {status} | {_cell(one.backend)} | `{_cell(one.signature)}` | {one.first} | {one.last} | "
            f"{_cell(one.file) or 'not minimized'} |"
        )
    yield ""


def _run(run: BackendRun) -> Iterator[str]:
    yield f"## {run.backend}{f', {run.strategy}' if run.strategy else ''}"
    yield ""
    yield (
        f"Seed {run.seed}: {counted(run.programs, 'program')}, {run.rate:.1f} a second, {run.refused} refused, "
        f"{counted(run.findings, 'finding')}: {counted(len(run.new), 'new signature')}, "
        f"{len(run.signatures) - len(run.new)} known, {run.flaky} flaky, "
        f"{counted(run.untold, 'finding')} without a signature"
        f"{f'; {run.shared} more also in a baseline' if run.shared else ''}."
    )
    yield ""
    if run.signatures:
        yield "| findings | impact | | signature | | to post |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for bug, also in run.entries:
            standing = f"known ({bug.known})" if bug.known else "**new**"
            said = f"`{_cell(bug.signature)}`"
            said += "".join(f"; also seen as `{_cell(one.signature)}` ({one.findings})" for one in also)
            count = sum(one.findings for one in (bug, *also))
            at = [os.path.relpath(one.report, Path(run.folder).parent) for one in (bug, *also) if one.report]
            links = ", ".join(f"[report]({path})" for path in at)
            yield f"| {count} | {bug.impact} | {_cell(bug.title)} | {said} | {_cell(standing)} | {links} |"
        yield ""
    yield from (f"- failed: {_cell(line)}" for line in run.failures)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("`", "'").split())
