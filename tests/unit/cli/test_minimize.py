"""``aotcheck minimize``: what it writes, prints and returns."""

import io
import os
import re
import signal
from pathlib import Path

import pytest
from rich.console import Console

from aotcheck.minimize import Limits, Reduction, Subject, size
from aotcheck.program import emit, parse_file
from aotcheck.program.data.samples import ALIASED_VIEWS
from aotcheck.report.minimizing import MinimizingDisplay
from tests.unit.cli.test_cli import assert_one_line, run

DOUBLES = "tests.meta.planted:doubles"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(emit(ALIASED_VIEWS, {"found": "by hand", "backend": DOUBLES, "expect": {}}))
    return path


def test_the_result_is_a_script_that_still_differs(script: Path) -> None:
    result = run("minimize", script, "--jobs", "1")
    assert result.exit_code == 0, result.output
    made = script.with_suffix(".min.py")
    parsed = parse_file(made)
    assert "3 statements, 2 inputs -> 0 statements, 1 input" in result.output
    assert f"written: {made}" in result.output
    assert (parsed.program.statements, len(parsed.program.calls)) == (0, 1)
    assert parsed.header["found"] == "by hand"
    assert (parsed.header["backend"], parsed.header["key"]) == (DOUBLES, "(identity, output-input vs none)")
    again = run("replay", made)
    assert again.exit_code == 1
    assert f"{made}: {DOUBLES}: new" in again.output


def test_minimizing_the_result_changes_nothing(script: Path) -> None:
    first, second = script.parent / "first.py", script.parent / "second.py"
    assert run("minimize", script, "--jobs", "1", "--out", first).exit_code == 0
    assert run("minimize", first, "--jobs", "1", "--out", second).exit_code == 0
    assert first.read_text() == second.read_text()


def test_a_file_that_does_not_fail_is_said_not_to(script: Path) -> None:
    result = run("minimize", script, "--backend", "eager", "--jobs", "1")
    assert result.exit_code == 1
    assert result.output == f"{script}: eager: does not fail (agrees); there is nothing to minimize\n"
    assert not script.with_suffix(".min.py").exists()


def test_the_backend_is_the_first_that_the_file_expects_to_differ(script: Path) -> None:
    script.write_text(emit(ALIASED_VIEWS, {"expect": {"aotcheck": {"*": "agree"}, "eager": {"2.13.0": "differs"}}}))
    assert "eager: does not fail" in run("minimize", script).output


def test_a_terminal_is_shown_how_far_it_is() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    reduction = Reduction(ALIASED_VIEWS, Subject(DOUBLES), Limits())
    with MinimizingDisplay(reduction, console) as display:
        for _ in reduction.steps():
            display.moved()
    assert "3 statements, 2 inputs now · 0 candidates tried" in shown.getvalue()
    assert re.search(r"0 statements, 1 input now · \d\d+ candidates tried · \d+ s", shown.getvalue())
    assert "(identity, output-input vs none)" in shown.getvalue()


def test_what_is_interrupted_is_written_as_far_as_it_came(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MinimizingDisplay, "moved", lambda display: os.kill(os.getpid(), signal.SIGINT))
    result = run("minimize", script, "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "(stopped: it may become smaller yet)" in result.output
    made = parse_file(script.with_suffix(".min.py")).program
    assert 0 < size(made).lines < size(ALIASED_VIEWS).lines
    assert len(made.calls) == 1


def test_a_second_interrupt_breaks_it_off(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(display: MinimizingDisplay) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MinimizingDisplay, "moved", impatient)
    result = run("minimize", script, "--jobs", "1")
    assert (result.exit_code, result.output) == (3, f"{script}: broken off; nothing is written\n")


def test_what_the_user_can_put_right_is_one_line(script: Path, tmp_path: Path) -> None:
    assert_one_line(run("minimize"), "--help")
    assert_one_line(run("minimize", tmp_path / "none.py"), "none.py")
    assert_one_line(run("minimize", tmp_path), "cannot be read")
    assert_one_line(run("minimize", script, "--backend", "aot_egaer"), "did you mean 'aot_eager'?")
    assert_one_line(run("minimize", script, "--device", "cuda:99"), "cuda:99")
    assert_one_line(run("minimize", script, "--out", tmp_path / "nowhere" / "x.py"), "nowhere", "--out")
    assert_one_line(run("minimize", script, "--time", "soon"), "soon", "--help")
    assert_one_line(run("minimize", script, "--jobs", "0"), "--help")
    script.write_text(script.read_text().replace("torch.mul", "torch.load"))
    assert_one_line(run("minimize", script), str(script))
    script.write_text("import os\nos.remove('/')\n")
    assert_one_line(run("minimize", script), str(script))
