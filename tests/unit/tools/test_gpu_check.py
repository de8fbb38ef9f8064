"""The checks for a machine with a GPU, run without one."""

import json
import tarfile
from pathlib import Path

import pytest
import torch

from tools import gpu_check
from tools.gpu_check import (
    STEPS,
    Shown,
    Step,
    ended_as,
    exit_code,
    main,
    read_fuzz,
    read_tests,
    read_zoo,
    run,
    scaled,
    table,
)

CLEAN_STEP = Step("aotcheck", 5, 20, "aotcheck")
CLEAN = Shown("aotcheck", 20, "20 programs", (), True, "", 1.0)


@pytest.mark.by_day(0)
def test_on_the_cpu_it_runs_and_leaves_its_table_and_its_logs(tmp_path: Path):
    options = ["--device", "cpu", "--scale", "0.001", "--jobs", "1", "--steps", "zoo,aotcheck,zoo_second"]
    assert main([*options, "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]) == 0
    assert "| aotcheck | 2 | 2 programs | 0 | done |" in (tmp_path / "out" / "summary.md").read_text()
    assert "| zoo | 1 | every model | 0 | done |" in (tmp_path / "out" / "summary.md").read_text()
    zoo, fuzz, second = map(json.loads, (tmp_path / "out" / "steps.jsonl").read_text().splitlines())
    assert (zoo["judged"], fuzz["judged"], second["judged"]) == (1, 2, 1)
    with tarfile.open(tmp_path / "out" / "findings.tar.gz") as archive:
        assert {"aotcheck.log", "aotcheck/run.jsonl"} <= {*archive.getnames()}


def test_models_that_differ_are_told_and_a_log_that_was_cut_off_has_none():
    models = [{"model": "a", "outcome": "differs", "reason": "x"}, {"model": "b", "outcome": "refused"}]
    log = "a warning\n" + json.dumps({"models": models}, indent=2)
    assert read_zoo(log) == (2, ("a: differs: x",))
    assert read_zoo(log[:-9]) == (0, ())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--device", "cuda", "--out", str(tmp_path)]) == 3
    assert "finds no CUDA device" in capsys.readouterr().err


def test_what_is_done_is_on_disk_before_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given: list[float] = []

    def stopped(step: Step, device: str, jobs: int, seconds: float, work: Path) -> Shown:
        given.append(seconds)
        if step.name == "aotcheck_second":
            raise KeyboardInterrupt
        return Shown(step.name, 1, "1 program", ("it differs",), step.ours, "", 0.1)

    monkeypatch.setattr(gpu_check, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        main(["--device", "cpu", "--out", str(tmp_path), "--work", str(tmp_path / "work"), "--budget", "300"])
    text = (tmp_path / "summary.md").read_text()
    assert "| tests | 1 | 1 program | 1 | done |" in text and "| aotcheck_second |  |  |  | not yet |  |" in text
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 4
    # Of what is left, by share: the steps take no time here.
    assert given == pytest.approx([30, 50, 100, 60, 75], abs=5)


def test_a_step_whose_time_is_over_is_ended_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = "import time; print('[gw0] [ 10%] PASSED tests/a.py::b', flush=True); time.sleep(60)"
    monkeypatch.setattr(gpu_check, "command_of", lambda *_: [gpu_check.sys.executable, "-c", script])
    shown = run(Step("tests", 1, 1), "cpu", 1, 2.0, tmp_path)
    assert (shown.judged, shown.ended) == (1, "its time was over") and shown.seconds < 30


@pytest.mark.parametrize(
    ("printed", "ended"), [("done: no findings in 19 programs", ""), ("time is up: no findings", "its time was over")]
)
def test_programs_that_are_equal_are_judged_once_and_nothing_is_missing(printed: str, ended: str):
    assert ended_as(CLEAN_STEP, 0, 19, f"figures\n{printed}\nrun folder: x\n") == ended


def test_findings_are_read_from_a_campaign_that_was_killed_as_it_wrote(tmp_path: Path):
    events = tmp_path / "run.jsonl"
    line = {"event": "ProgramChecked", "block": 1, "index": 2, "outcome": "differs", "texts": ["values of x"]}
    events.write_text(json.dumps(line) + "\n" + json.dumps({**line, "outcome": "agrees"}) + '\n{"event": "Prog')
    assert read_fuzz(events) == (2, ("block 1, program 2: values of x",))


def test_failures_are_read_from_what_pytest_prints():
    log = """[gw0] [  1%] PASSED tests/a.py::b[cuda-1]
tests/a.py::c[cuda] FAILED                 [ 50%]
[gw1] [ 75%] ERROR tests/a.py::d
[gw1] [ 76%] SKIPPED tests/a.py::e
FAILED tests/a.py::c[cuda] - AssertionError
"""
    assert read_tests(log) == (3, ("tests/a.py::c[cuda]", "tests/a.py::d"))


@pytest.mark.parametrize(
    ("shown", "code"),
    [
        ([CLEAN], 0),
        ([CLEAN, Shown("tests", 9, "tests", ("one fails",), True, "", 1.0)], 1),
        ([CLEAN, Shown("inductor", 9, "programs", ("it differs",), False, "", 1.0)], 0),
        ([CLEAN, Shown("inductor", 9, "programs", (), False, "its time was over", 1.0)], 0),
        ([CLEAN, Shown("inductor", 0, "programs", (), False, "exit code 3: no compiler", 1.0)], 3),
        ([CLEAN, Shown("inductor", 0, "programs", (), False, "its time was over", 1.0)], 3),
    ],
)
def test_the_exit_code_tells_of_what_is_ours_and_of_what_could_not_run(shown: list[Shown], code: int):
    assert exit_code(shown) == code


def test_findings_of_torch_are_told_as_such():
    found = Shown("inductor", 9, "programs", ("it differs",), False, "", 1.0)
    assert "## inductor: found in torch" in table([CLEAN, found], STEPS, "# head")
    assert [scaled(s, 0.01).amount for s in STEPS] == [2, 20, 1, 2, 20, 3, 1]
