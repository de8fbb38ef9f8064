"""Workers that die now and then, that leave, that fork: told as what they are. An unfinished run is not clean."""

import io
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from aotcheck.campaign import Campaign, ExitCode, Tally
from aotcheck.campaign.record.events import (
    Ending,
    Event,
    FindingFlaky,
    FindingWritten,
    ProgramChecked,
    RunFinished,
    RunStarted,
    ScriptRun,
)
from aotcheck.campaign.record.resume import Past
from aotcheck.campaign.results.runs import summed_up
from aotcheck.campaign.running.scripts import Scripts
from aotcheck.minimize import Limits, Reduction, Subject
from aotcheck.oracle import CoarseKey
from aotcheck.program import parse_file
from aotcheck.report.jsonl import JsonLines, load_events
from aotcheck.report.junit import write_junit
from aotcheck.report.terminal import LiveDisplay, print_summary
from tests.meta.small import DOUBLE
from tests.meta.test_campaigns import campaign, settings

UNRULY = "tests.meta.unruly"


@pytest.mark.parametrize(
    ("name", "how"), [("crashes_now_and_then", "killed by SIGSEGV"), ("leaves_now_and_then", "exited with status 0")]
)
def test_a_worker_that_dies_of_no_program_in_particular_is_told_as_flaky(tmp_path: Path, name: str, how: str) -> None:
    events, tally = campaign(settings(tmp_path, f"{UNRULY}:{name}", timeout=60.0))
    flaky = [event for event in events if isinstance(event, FindingFlaky)]
    assert tally.programs == 50 and flaky
    assert {event.how for event in flaky} == {how}
    assert [e.path for e in events if isinstance(e, FindingWritten)] == [event.path for event in flaky]
    assert all(parse_file(Path(event.path)) for event in flaky)
    if name == "crashes_now_and_then":
        assert all("in compiled" in Path(event.log).read_text() for event in flaky)
    assert (tally.exit_code, tally.untriaged) == (ExitCode.FINDINGS, 0)
    write_junit(tmp_path / "junit.xml", (), (summed_up(tally, "unruly", tmp_path, 1),))
    assert f"{len(flaky)} findings" in (tmp_path / "junit.xml").read_text()


def test_a_worker_that_somebody_kills_is_no_finding(tmp_path: Path) -> None:
    _, tally = campaign(settings(tmp_path, f"{UNRULY}:is_killed_now_and_then"))
    assert tally.deaths and tally.programs == 50
    assert (tally.findings, tally.exit_code) == (0, ExitCode.CLEAN)


def test_flaky_deaths_are_told_once_over_a_resumed_run(tmp_path: Path) -> None:
    told = settings(tmp_path, f"{UNRULY}:crashes_now_and_then")
    with JsonLines(tmp_path / "run.jsonl") as lines:
        for event in Campaign(told, threading.Event()).events():
            lines.feed(event)
    past = Past.of(load_events(tmp_path / "run.jsonl"))
    assert any(isinstance(event, FindingFlaky) and event.log for event in past.events)
    again = list(Campaign(told, threading.Event(), past).events())
    assert not [event for event in again if isinstance(event, (FindingFlaky, FindingWritten, ProgramChecked))]


def test_a_program_that_exits_with_status_0_dies_wherever_it_is_run(tmp_path: Path) -> None:
    _, tally = campaign(settings(tmp_path, f"{UNRULY}:leaves", examples=2, timeout=60.0))
    assert [str(key) for key in tally.keys] == ["(crash, process, exited with status 0)"]
    reduction = Reduction(DOUBLE, Subject(f"{UNRULY}:leaves"), Limits(seconds=60.0), threading.Event())
    assert list(reduction.steps()) is not None
    assert reduction.result is not None
    assert str(reduction.result.shows.key) == "(crash, process, exited with status 0)"


def test_children_that_return_are_not_counted(tmp_path: Path) -> None:
    events, tally = campaign(settings(tmp_path, f"{UNRULY}:forks", examples=25))
    assert sorted(e.index for e in events if isinstance(e, ProgramChecked)) == list(range(25))
    assert (tally.deaths, tally.findings, tally.exit_code) == (0, 0, ExitCode.CLEAN)


def test_children_end_with_their_worker(tmp_path: Path) -> None:
    told, printed = settings(tmp_path, f"{UNRULY}:forks_sleepers", examples=3), ""
    for event in Campaign(told, threading.Event()).events():
        if isinstance(event, ProgramChecked):
            printed = "".join(path.read_text() for path in told.journals.glob("worker-*.log"))
    children = [int(line.split()[1]) for line in printed.splitlines() if line.startswith("sleeper ")]
    assert children
    deadline = time.monotonic() + 10
    while any(_runs(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(child) for child in children)


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_run_that_was_interrupted_or_judged_nothing_is_not_clean() -> None:
    checked = ProgramChecked(0, 0, "agrees", 0.1)
    told: list[tuple[tuple[Event, ...], ExitCode]] = [
        ((checked, RunFinished(Ending.DONE, 1.0)), ExitCode.CLEAN),
        ((checked, RunFinished(Ending.TIME, 1.0)), ExitCode.CLEAN),
        ((checked, RunFinished(Ending.INTERRUPTED, 1.0)), ExitCode.INFRASTRUCTURE),
        ((checked,), ExitCode.INFRASTRUCTURE),
        ((RunFinished(Ending.TIME, 1.0),), ExitCode.INFRASTRUCTURE),
    ]
    for events, code in told:
        tally = Tally()
        for event in events:
            tally.feed(event)
        assert (tally.exit_code, bool(tally.shortcomings)) == (code, code is not ExitCode.CLEAN)


def test_scripts_are_not_run_if_nobody_wants_that_and_that_is_said(tmp_path: Path) -> None:
    told = settings(tmp_path, "tests.meta.planted:doubles", examples=2)
    events, tally = campaign(told)
    assert not [event for event in events if isinstance(event, ScriptRun)]
    assert tally.scripts_not_run == len(tally.keys) > 0
    written = io.StringIO()
    print_summary(tally, Console(file=written))
    assert f"{len(tally.keys)} not run" in written.getvalue()


def test_scripts_keep_to_their_time(tmp_path: Path) -> None:
    key = CoarseKey("values", "output", "")
    scripts = Scripts("eager", "cpu", 1, 60.0, tmp_path, seconds=0.01)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("import time; time.sleep(0.1)")
        scripts.add(FindingWritten(0, 0, key, "values of output", str(tmp_path / name)))
    ran = []
    while scripts.busy:
        ran += list(scripts.poll())
        time.sleep(0.02)
    assert [Path(event.path).name for event in ran] == ["a.py"]


def test_a_terminal_shows_how_long_a_run_still_takes() -> None:
    tally, written = Tally(), io.StringIO()
    tally.feed(RunStarted("eager", "cpu", 0, 100, None, 1, 25, "s:s", {}, "now"), 1000.0)
    display = LiveDisplay(tally, Console(file=written, force_terminal=True, width=200))
    for index in range(25):
        tally.feed(ProgramChecked(0, index, "agrees", 0.1), 1010.0)
    tally.watch.seconds_at = lambda now: 10.0  # type: ignore[method-assign]
    Console(file=written, width=200).print(display._now())
    assert "25% about 0:00:30 left" in written.getvalue()
