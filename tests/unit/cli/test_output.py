"""What the command line does where its output has no reader or few characters, on Ctrl-C, with modules that crash."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from aotcheck.cli import main
from aotcheck.cli.output import tolerant_output
from aotcheck.program import emit
from aotcheck.program.data.samples import ALIASED_VIEWS

ROOT = Path(__file__).parents[3]
DOUBLES = ("--strategy", "tests.meta.small:drawn", "--backend", "tests.meta.planted:doubles")
SMALL = (*DOUBLES, "--no-minimize", "--no-scripts")


def start(*arguments: str, **changed: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **changed}
    return subprocess.Popen(
        [sys.executable, "-m", "aotcheck.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )


def hear_ctrl_c() -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("arguments", [("--help",), ("replay",), ("fuzz", *SMALL, "--examples", "1")], ids=" ".join)
def test_a_closed_pipe_is_no_finding(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    script = tmp_path / "program.py"
    script.write_text(emit(ALIASED_VIEWS, {"format": 1}))
    more = {"replay": (str(script), "--backend", "tests.meta.planted:doubles"), "fuzz": ("--out", str(tmp_path / "r"))}
    command = start(*arguments, *more.get(arguments[0], ()))
    assert command.stdout is not None and command.stderr is not None
    command.stdout.close()
    assert command.stderr.read() == ""
    assert command.wait() == 3


def test_what_an_encoding_lacks_is_printed_otherwise(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    command = start("fuzz", *SMALL, "--examples", "2", "--jobs", "1", "--out", out, PYTHONIOENCODING="ascii")
    printed, errors = command.communicate()
    assert (command.returncode, errors) == (1, "")
    assert "on cpu, seed 0 - 2 of 2 programs" in printed


def test_a_surrogate_is_printed_as_a_question_mark(capsys: pytest.CaptureFixture[str]) -> None:
    with tolerant_output():
        print("half \udcff")
    assert capsys.readouterr().out == "half ?\n"


@pytest.mark.parametrize("seconds", [2.0, 6.0])
def test_ctrl_c_while_a_run_starts_ends_with_3_and_without_a_traceback(tmp_path: Path, seconds: float) -> None:
    command = start(
        "fuzz", *SMALL, "--strategy", "tests.meta.small:drawn", "--examples", "100000", "--out", str(tmp_path)
    )
    time.sleep(seconds)
    os.killpg(command.pid, signal.SIGINT)
    try:
        printed, errors = command.communicate(timeout=120)
    finally:
        command.kill()
    assert command.returncode == 3 or (command.returncode == 1 and "finding" in printed)
    assert "Traceback" not in printed + errors
    assert "interrupted" in printed + errors


@pytest.mark.parametrize("command", ["fuzz", "replay", "minimize", "blame"])
def test_a_module_that_crashes_when_it_is_imported_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "crashes_at_import.py").write_text("import ctypes\nctypes.string_at(0)\n")
    script = tmp_path / "program.py"
    script.write_text(emit(ALIASED_VIEWS, {"format": 1}))
    monkeypatch.syspath_prepend(str(tmp_path))
    files = [] if command == "fuzz" else [str(script)]
    result = CliRunner().invoke(main, [command, *files, "--backend", "crashes_at_import:f"])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert "importing 'crashes_at_import' ended the process (killed by SIGSEGV)" in line
