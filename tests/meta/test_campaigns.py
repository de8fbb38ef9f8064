"""A campaign survives what its programs do to it, finds each thing once, and draws the same programs on any day."""

import io
import json
import threading
from pathlib import Path

import pytest
from rich.console import Console

from aotcheck.campaign import Campaign, ExitCode, Settings, Tally
from aotcheck.campaign.record.events import Ending, Event, FindingWritten, ProgramChecked, RunFinished, ScriptRun, Shown
from aotcheck.campaign.record.tally import Canaries
from aotcheck.campaign.running import supervisor
from aotcheck.campaign.running.scripts import what_it_shows
from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.oracle import CoarseKey
from aotcheck.program import emit, parse_file
from aotcheck.report.jsonl import JsonLines, read_events
from aotcheck.report.terminal import print_summary
from tests.meta import planted

STRATEGY = "tests.meta.small:drawn"


def settings(folder: Path, backend: str, **changed: object) -> Settings:
    """Settings of a small campaign. First scripts take seconds each, and run only where a test asks for them."""
    facts: dict[str, object] = {
        "strategy": STRATEGY,
        "backend": backend,
        "device": "cpu",
        "seed": 1,
        "examples": 50,
        "seconds": None,
        "jobs": 1,
        "timeout": 20.0,
        "memory": 2**31,
        "folder": folder,
        "script_seconds": 0.0,
    }
    return Settings(**{**facts, **changed})  # type: ignore[arg-type]


def campaign(told: Settings, stop: threading.Event | None = None) -> tuple[list[Event], Tally]:
    events, tally = list(Campaign(told, stop or threading.Event()).events()), Tally()
    for event in events:
        tally.feed(event)
    assert isinstance(events[-1], RunFinished)
    return events, tally


def marked(programs: int, seed: int = 1) -> list[tuple[int, int]]:
    """Where the programs are that the planted killers wait for."""
    strategy = load_strategy(STRATEGY)
    found = [
        (b, i)
        for b in range(programs // 25)
        for i, p in enumerate(programs_of_block(strategy, seed, b))
        if _numel(p) == planted.MARK
    ]
    assert found, "choose another seed"
    return found


def _numel(program: object) -> int:
    return program.calls[0].inputs.storages[0].numel  # type: ignore[attr-defined, no-any-return]


def test_the_same_seed_draws_the_same_programs() -> None:
    strategy = load_strategy(STRATEGY)
    assert programs_of_block(strategy, 3, 4) == programs_of_block(strategy, 3, 4)
    assert programs_of_block(strategy, 3, 4) != programs_of_block(strategy, 3, 5)
    assert programs_of_block(strategy, 3, 4) != programs_of_block(strategy, 4, 4)
    assert len(programs_of_block(strategy, 3, 4)) == 25


def test_any_number_of_jobs_finds_the_same(tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        told = settings(tmp_path / str(jobs), "tests.meta.planted:doubles", jobs=jobs, examples=60)
        events, tally = campaign(told)
        assert tally.programs == 60
        assert tally.exit_code is ExitCode.FINDINGS
        scripts = {path.name: path.read_text() for path in told.findings.iterdir()}
        assert len(scripts) == tally.findings
        found.append((scripts, {(e.block, e.index, e.outcome) for e in events if isinstance(e, ProgramChecked)}))
    assert found[0] == found[1]
    here = programs_of_block(load_strategy(STRATEGY), 1, 0)
    name, _ = min(found[0][0].items(), key=lambda item: item[0])
    block, index = map(int, name.removesuffix(".py").rsplit("-", 2)[1:])
    assert parse_file(tmp_path / "1" / "findings" / name).program == (
        here[index] if block == 0 else programs_of_block(load_strategy(STRATEGY), 1, block)[index]
    )


@pytest.mark.parametrize(
    ("backend", "oracle", "changed"),
    [("dies", "crash", {}), ("hangs", "timeout", {"timeout": 2.0}), ("devours", "memory", {"memory": 2**30})],
)
def test_a_program_that_takes_its_worker_with_it_is_one_finding(
    tmp_path: Path, backend: str, oracle: str, changed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "START_ALLOWANCE", 10.0)  # which a script that hangs is waited for
    expected = marked(25)
    changed = {**changed, "script_seconds": None}
    told = settings(tmp_path, f"tests.meta.planted:{backend}", examples=25, jobs=2, **changed)
    events, tally = campaign(told)
    findings = [e for e in events if isinstance(e, FindingWritten)]
    assert [(e.block, e.index) for e in findings] == expected
    assert {e.key.oracle for e in findings} == {oracle}
    assert tally.programs == 25
    assert tally.outcomes == {"agrees": 25 - len(expected), "differs": len(expected)}
    for finding in findings:
        program = parse_file(Path(finding.path)).program
        assert _numel(program) == planted.MARK
        assert emit(program)
    if oracle == "memory":  # nobody runs that without a limit
        assert [r.value for r in tally.rechecked.values()] == ["same"]
    else:
        assert list(tally.scripts.values()) == [Shown.YES]


def test_a_canary_is_heard_after_each_program_that_leaves_a_process(tmp_path: Path) -> None:
    told = settings(tmp_path, "tests.meta.planted:dies", examples=25, strategy="tests.meta.small:now_and_then_refused")
    events, tally = campaign(told)
    checked = [e for e in events if isinstance(e, ProgramChecked)]
    programs = programs_of_block(load_strategy(told.strategy), 1, 0)
    dead = [_numel(program) == planted.MARK for program in programs]
    refused = [program.body[-1].path == "Tensor.view" for program in programs]
    assert any(refused) and not all(refused)
    assert [e.fit for e in sorted(checked, key=lambda e: e.index)] == [None if d else True for d in dead]
    assert tally.canaries == Canaries(25 - sum(dead), sum(r for r, d in zip(refused, dead, strict=True) if not d), 0)
    written = io.StringIO()
    print_summary(tally, Console(file=written))
    said = f"canary: after {25 - sum(dead)} programs, {tally.canaries.after_refusals} with a statement that eager"
    assert said in written.getvalue()


def test_a_canary_that_is_silent_is_counted(tmp_path: Path) -> None:
    _, tally = campaign(settings(tmp_path, "tests.meta.planted:poisons", examples=3))
    assert tally.canaries == Canaries(3, 0, 3)


def test_the_first_script_of_a_key_is_run_alone(tmp_path: Path) -> None:
    events, tally = campaign(settings(tmp_path, "tests.meta.planted:doubles", script_seconds=None))
    runs = [e for e in events if isinstance(e, ScriptRun)]
    assert {run.key for run in runs} == set(tally.keys)
    assert {(run.exit_code, run.shown) for run in runs} == {(1, Shown.YES)}
    first = {key: path for key, (path, _) in tally.examples.items()}
    assert {run.key: run.path for run in runs} == first


def test_a_script_that_shows_something_else_is_told_apart() -> None:
    finding = FindingWritten(
        0, 0, CoarseKey("values", "output"), "values of output[0] after forward of call 1: ...", ""
    )
    right, wrong = (f"DIFFERENT values of {name} after forward of call 1\n" for name in ("output[0]", "output[1]"))
    assert what_it_shows(finding, 1, right) is Shown.YES
    assert what_it_shows(finding, 1, wrong) is Shown.OTHER
    assert what_it_shows(finding, 0, "0 differences\n") is Shown.NOTHING
    assert what_it_shows(finding, 1, "ImportError: no module\n") is Shown.FAILED
    assert what_it_shows(finding, None, right) is Shown.FAILED
    crash = FindingWritten(0, 0, CoarseKey("crash", "process", "killed by SIGSEGV"), "crash of the worker: ...", "")
    assert what_it_shows(crash, -11, "") is Shown.YES
    assert what_it_shows(crash, 1, "") is Shown.NOTHING


def test_a_campaign_that_is_stopped_keeps_what_it_found(tmp_path: Path) -> None:
    told, stop, tally = settings(tmp_path, "tests.meta.planted:doubles", examples=None), threading.Event(), Tally()
    with JsonLines(tmp_path / "run.jsonl") as lines:
        for event in Campaign(told, stop).events():
            lines.feed(event)
            tally.feed(event)
            if tally.findings >= 30:
                stop.set()
    assert tally.ending is Ending.INTERRUPTED
    written = [e for e in read_events(tmp_path / "run.jsonl") if e["event"] == "FindingWritten"]
    assert len(written) == tally.findings >= 30
    assert all(Path(e["path"]).exists() for e in written)


def test_time_ends_a_campaign(tmp_path: Path) -> None:
    told = settings(tmp_path, "eager", examples=None, seconds=6.0)
    _, tally = campaign(told)
    assert tally.ending is Ending.TIME
    assert tally.programs > 0
    assert tally.exit_code is ExitCode.CLEAN


def test_a_strategy_that_fails_is_the_infrastructures_fault(tmp_path: Path) -> None:
    _, tally = campaign(settings(tmp_path, "eager", strategy="tests.meta.small:broken"))
    assert tally.exit_code is ExitCode.INFRASTRUCTURE
    assert "planted" in tally.failures[0]


def test_a_half_written_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"event": "RunStarted"}) + '\n{"event": "Progr')
    assert [e["event"] for e in read_events(path)] == ["RunStarted"]
