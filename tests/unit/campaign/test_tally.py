"""A run in figures: the same on the console, in reports and after it was resumed, in the words that replay uses."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from aotcheck.campaign import Past, Tally
from aotcheck.campaign.record.events import (
    Ending,
    Event,
    FindingExplained,
    FindingFlaky,
    FindingSigned,
    FindingWritten,
    ProgramChecked,
    RunFinished,
    RunResumed,
    RunStarted,
)
from aotcheck.campaign.record.tally import ExitCode, tallied
from aotcheck.campaign.record.words import counted
from aotcheck.oracle import CoarseKey
from aotcheck.report.html import write_html
from aotcheck.report.jsonl import JsonLines, load_past, load_timed
from aotcheck.report.terminal import print_summary

KEY = CoarseKey("values", "output")
STARTED = RunStarted("eager", "cpu", 0, 100, None, 1, 25, "s", {}, "then")
RESUMED = RunResumed(2, "later")


def checked(index: int, fit: bool = True) -> ProgramChecked:
    return ProgramChecked(0, index, "agrees", 0.1, fit=fit)


KILLED_AND_RESUMED: list[tuple[float, Event]] = [
    (1000.0, STARTED),
    (1000.5, checked(0)),
    (1001.0, checked(1)),  # killed
    (5000.0, RESUMED),
    (5000.25, checked(2)),
    (5000.6, checked(3)),
    (5100.0, RunFinished(Ending.INTERRUPTED, 100.0)),
]


def summary(tally: Tally) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_summary(tally, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_time_of_a_resumed_run_is_that_of_all_its_parts() -> None:
    tally = tallied(KILLED_AND_RESUMED)
    assert (tally.elapsed, tally.seconds, tally.rate) == (101.0, 101.0, pytest.approx(2.5))
    assert "101 s" in summary(tally)
    tally.feed(RESUMED, 9000.0)
    assert tally.ending is None, "it goes on"
    tally.feed(checked(4), 9001.0)
    tally.feed(RunFinished(Ending.DONE, 5.0), 9005.0)
    assert (tally.elapsed, tally.ending) == (106.0, Ending.DONE)


def test_what_was_killed_counts_to_the_time_that_a_resumed_run_has_taken() -> None:
    times, events = zip(*KILLED_AND_RESUMED[:3], strict=True)
    assert Past.of(events, times).seconds == 1.0
    assert list(Past.of(events, times).timed) == KILLED_AND_RESUMED[:3]


def test_console_and_report_say_one_rate(tmp_path: Path) -> None:
    with JsonLines(tmp_path / "run.jsonl") as lines:
        for at, event in KILLED_AND_RESUMED:
            lines.feed(event, at)
    assert load_past(tmp_path / "run.jsonl").seconds == 101.0
    console, report = tallied(KILLED_AND_RESUMED), tallied(load_timed(tmp_path / "run.jsonl"))
    assert (console.rate, console.elapsed) == (report.rate, report.elapsed)
    page = write_html(tmp_path).read_text()
    assert '<td class="n">2.5</td>' in page and '<td class="n">101</td>' in page
    assert "2.5 programs/s" in summary(console)


@dataclass
class Found:
    """Findings, fed to a tally."""

    tally: Tally = field(default_factory=Tally)

    def add(self, known: str | None = "", explained: bool = False) -> Found:
        """A finding: a new one, one of a corpus file, or, for None, a flaky one."""
        path = f"{self.tally.findings}.py"
        self.tally.feed(FindingWritten(0, self.tally.findings, KEY, "values of output[0]: ...", path))
        if known is None:
            self.tally.feed(FindingFlaky(path, KEY, "agrees"))
        elif explained:
            self.tally.feed(FindingExplained(path, KEY, f"of {known}", "", known))
        else:
            self.tally.feed(FindingSigned(path, KEY, f"of {known}", "", "", 1, True, known, 1.0))
        return self


def test_findings_are_new_known_and_flaky_as_in_replay() -> None:
    found = Found().add().add("a-bug").add("a-bug", explained=True).add(None)
    found.tally.feed(checked(0), 1.0)
    text = summary(found.tally)
    assert "  1    1+0  new: silently wrong: (values, output), of which there is no program to read\n" in text
    assert "  2    1+1  known (a-bug): silently wrong: " in text and "            (values, output) of a-bug\n" in text
    assert " flaky  (values, output): agrees (3.py)" in text
    assert "4 findings (1 new, 2 known, 1 flaky), 1 coarse key, in 1 program;" in text
    assert found.tally.exit_code is ExitCode.FINDINGS


def test_known_findings_alone_are_counted_and_do_not_fail_a_run() -> None:
    found = Found().add("a-bug")
    found.tally.feed(checked(0))
    found.tally.feed(RunFinished(Ending.DONE, 1.0))
    text = summary(found.tally)
    assert "done: 1 finding (1 known), 1 coarse key, in 1 program" in text and "1 findings" not in text
    assert found.tally.exit_code is ExitCode.CLEAN


@pytest.mark.parametrize(("unfit", "said"), [(0, "fit after each"), (1, "unfit after 1 of them")])
def test_a_canary_that_was_always_heard_is_not_said_to_be_missed(unfit: int, said: str) -> None:
    tally = Tally()
    for index in range(3):
        tally.feed(checked(index, fit=index >= unfit))
    assert f"canary: after 3 programs, 0 with a statement that eager refused; the process was {said}" in summary(tally)


def test_one_is_singular() -> None:
    assert [counted(n, "finding") for n in (0, 1, 2)] == ["0 findings", "1 finding", "2 findings"]
    assert counted(2, "finding written", "findings written") == "2 findings written"
