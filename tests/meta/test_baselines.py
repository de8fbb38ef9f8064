"""With a baseline one sees the bugs that are one's own, and nothing that the baseline does kills the run."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from aotcheck.backends import resolve
from aotcheck.campaign import ExitCode, Past
from aotcheck.campaign.record.events import (
    Event,
    FindingFlaky,
    FindingShared,
    FindingSigned,
    FindingWritten,
    ProgramChecked,
    RunStarted,
)
from aotcheck.campaign.running.baseline import Baselines
from aotcheck.cli import main
from aotcheck.oracle import CoarseKey, check
from aotcheck.program import Backward, Graph, Of, Way, emit, parse_file
from aotcheck.report.jsonl import load_events, load_past
from tests.meta.small import DOUBLE, TRAINED, X, op
from tests.meta.test_campaigns import campaign, marked, settings
from tests.meta.test_triage import finding, triaged

PLANTED = "tests.meta.planted"
IDENTITY = CoarseKey("identity", "output-input vs none")
VALUES = CoarseKey("values", "output")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.mark.by_day(0)
@pytest.mark.timeout(400)
def test_one_planted_bug_is_seen_beside_all_of_the_baseline_s(tmp_path: Path) -> None:
    arguments = ("--backend", f"{PLANTED}:aot_eager_and_more", "--baseline", "aot_eager", "--seed", 1, "--jobs", 1)
    drawn = (
        "--strategy",
        "tests.meta.small:products_and_dropouts",
        "--examples",
        25,
        "--minimize-time",
        "60s",
        "--no-scripts",
        "--bugs",
        0,
    )
    out = tmp_path / "run"
    result = run("fuzz", *arguments, *drawn, "--out", out)
    assert result.exit_code == ExitCode.FINDINGS, result.output
    events = list(load_events(out / "run.jsonl"))
    programs = {(e.block, e.index): e for e in events if isinstance(e, ProgramChecked)}
    shared = [e for e in events if isinstance(e, FindingShared)]
    own = [e for e in events if isinstance(e, FindingWritten)]
    assert shared and {(e.key, e.baselines) for e in shared} == {(IDENTITY, ("aot_eager",))}
    assert own and {e.key for e in own} == {VALUES}
    assert len(shared) + len(own) == sum(bool(e.hard) for e in programs.values())
    both = [e for e in own if IDENTITY in programs[e.block, e.index].hard]
    assert both, "torch's bug and the planted one in one program: choose another seed"
    for one in own:
        assert parse_file(Path(one.path)).header["key"] == str(VALUES)
    assert {path.name for path in (out / "findings").iterdir()} == {Path(e.path).name for e in own}
    assert {path.name for path in (out / "shared").iterdir()} == {Path(e.path).name for e in shared}
    signed = [e for e in events if isinstance(e, FindingSigned)]
    assert {e.key for e in signed} == {VALUES} and not any(isinstance(e, FindingFlaky) for e in events)
    assert f"{len(shared)} more also in aot_eager" in result.output
    assert f"{len(shared):>6}  also in aot_eager: {IDENTITY}" in result.output
    assert "also in a baseline, no findings" in (out / "report.html").read_text()


def test_what_only_the_baseline_does_too_does_not_fail_a_run(tmp_path: Path) -> None:
    backend, baseline = f"{PLANTED}:doubles", f"{PLANTED}:doubles_the_marked"
    _, plain = campaign(settings(tmp_path / "plain", backend, examples=25))
    _, tally = campaign(settings(tmp_path / "beside", backend, baselines=(baseline,), examples=25))
    assert tally.shared == {((baseline,), VALUES): len(marked(25))}
    assert tally.findings == plain.findings - len(marked(25))
    events, tally = campaign(settings(tmp_path / "all", f"{PLANTED}:doubles_the_marked", baselines=(backend,)))
    assert (tally.findings, tally.exit_code) == (0, ExitCode.CLEAN) and tally.shared
    assert not any(isinstance(e, FindingWritten) for e in events)


def test_a_baseline_that_kills_its_process_does_not_kill_the_run(tmp_path: Path) -> None:
    told = settings(tmp_path / "wrong", f"{PLANTED}:doubles_the_marked", baselines=(f"{PLANTED}:dies",))
    events, tally = campaign(told)
    assert [(e.block, e.index) for e in events if isinstance(e, FindingWritten)] == marked(50)
    assert (tally.deaths, tally.programs) == (0, 50) and not tally.failures
    told = settings(tmp_path / "dies", f"{PLANTED}:dies", baselines=(f"{PLANTED}:dies",))
    _, tally = campaign(told)
    assert (tally.findings, tally.shared.total()) == (0, len(marked(50))), "a death is the baseline's too"


def test_a_baseline_is_asked_what_the_backend_is_asked_though_it_promises_less(tmp_path: Path) -> None:
    created = Backward((0,), way=Way.RETURN, graph=Graph.CREATED)
    twice = replace(TRAINED, calls=(replace(TRAINED.calls[0], steps=(created, Backward((0,), of=Of.RESULTS))),))
    twice = replace(twice, body=(op("v0", "torch.mul", X, X),))
    backend = f"{PLANTED}:aot_eager_and_more"
    (difference, *_) = check(twice, resolve(backend), torch.device("cpu")).hard
    assert "does not currently support double backward" in str(difference.key)
    told = settings(tmp_path, backend, baselines=("aot_eager",))
    events = Baselines(told, threading.Event()).sifted([finding(told, 0, twice, difference.key)])
    assert [type(event) for event in events] == [FindingShared]


def test_minimizing_keeps_to_what_is_not_the_baseline_s(tmp_path: Path) -> None:
    told = settings(tmp_path, f"{PLANTED}:doubles", baselines=(f"{PLANTED}:doubles_the_marked",), minimize_seconds=60.0)
    (event,) = triaged(told, [finding(told, 0, DOUBLE)])
    assert isinstance(event, FindingSigned) and event.key == VALUES
    same = settings(tmp_path / "same", f"{PLANTED}:doubles", baselines=(f"{PLANTED}:doubles",), minimize_seconds=60.0)
    (event,) = triaged(same, [finding(same, 0, DOUBLE)])
    assert isinstance(event, FindingFlaky) and event.text.startswith(f"also in {PLANTED}:doubles: values of output ")


def test_minimize_takes_baselines_too(tmp_path: Path) -> None:
    script, small = tmp_path / "found.py", tmp_path / "small.py"
    script.write_text(emit(DOUBLE, {"backend": f"{PLANTED}:doubles"}))
    arguments = ("minimize", script, "--out", small, "--jobs", 1, "--baseline")
    shared = run(*arguments, f"{PLANTED}:doubles_the_marked", "--time", "30s")
    assert shared.exit_code == 0, shared.output
    assert run("replay", small, "--backend", f"{PLANTED}:doubles_the_marked").exit_code == 0, "not what it shares"
    itself = run(*arguments, f"{PLANTED}:doubles")
    assert (itself.exit_code, "cannot be its own baseline" in itself.stderr) == (2, True)


def test_a_resumed_run_keeps_its_baselines_and_tells_nothing_twice(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ("--strategy", "tests.meta.small:drawn", "--seed", 1, "--jobs", 1, "--no-minimize", "--no-scripts")
    backends = ("--backend", f"{PLANTED}:doubles_the_marked", "--baseline", f"{PLANTED}:doubles")
    assert run("fuzz", *backends, *arguments, "--examples", 25, "--out", out).exit_code == 0
    past = load_past(out / "run.jsonl")
    assert isinstance(past.started, RunStarted) and past.started.baselines == (f"{PLANTED}:doubles",)
    assert past.untold == ()
    other = run("fuzz", "--resume", out, "--baseline", "aot_eager")
    assert (other.exit_code, "the run has --baseline" in other.stderr) == (2, True)
    again = run("fuzz", "--resume", out, "--examples", 50, "--jobs", 1, "--no-minimize", "--no-scripts")
    assert again.exit_code == 0, again.output
    events = list(load_events(out / "run.jsonl"))
    shared = [(e.block, e.index) for e in events if isinstance(e, FindingShared)]
    assert shared == marked(50) and not any(isinstance(e, FindingWritten) for e in events)


def test_a_finding_that_the_run_was_killed_before_telling_is_held_against_the_baseline(tmp_path: Path) -> None:
    told = settings(tmp_path, f"{PLANTED}:doubles", baselines=(f"{PLANTED}:doubles",))
    found = finding(told, 0, DOUBLE)
    past = Past.of([ProgramChecked(0, 0, "differs", 0.1, hard=(VALUES,), texts=(found.text,), path=found.path)])
    events: list[Event] = list(Baselines(told, threading.Event(), past.events).sifted(past.untold))
    assert [type(e) for e in events] == [FindingShared]


def test_a_baseline_that_cannot_be_one_is_told_in_a_line() -> None:
    for baseline, word in (("aot_egaer", "did you mean 'aot_eager'?"), ("eager", "cannot be its own baseline")):
        result = run("fuzz", "--backend", "eager", "--baseline", baseline)
        assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1)
        assert word in result.stderr
