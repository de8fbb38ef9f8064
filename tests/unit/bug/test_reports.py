"""``aotcheck bug``: the report of a program file, whose script has been run in a fresh process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from aotcheck.campaign.record.events import BugReported, FindingSigned
from aotcheck.campaign.results.bugs import Signatures
from aotcheck.campaign.setup.settings import Settings
from aotcheck.cli import main
from aotcheck.oracle import CoarseKey
from aotcheck.program import Program, emit
from tests.meta.small import X, op, program
from tests.unit.bug.test_scripts import program as written

PLANTED = "tests.unit.bug.planted"


@pytest.fixture
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where backends of the tests can be imported."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3]))


def bug(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["bug", *map(str, arguments)])


def script_of(report: str) -> str:
    return report.partition("```python\n")[2].partition("\n```")[0] + "\n"


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "posted.py"
    path.write_text(script, encoding="utf-8")
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=folder, env=environment)


def file(folder: Path, *body: object, header: Mapping[str, object] | None = None) -> Path:
    path = folder / "found.py"
    path.write_text(emit(program(*body, outputs=X), header), encoding="utf-8")  # type: ignore[arg-type]
    return path


@pytest.mark.usefixtures("in_root")
def test_a_report_has_what_an_issue_needs(tmp_path: Path) -> None:
    header = {"backend": f"{PLANTED}:copies", "issue": "https://example.org/1"}
    done = bug(file(tmp_path, op(None, "Tensor.add_", X, 1), header=header))
    assert done.exit_code == 0, done.output
    text = done.output
    assert text.startswith("# copies: input mutation by add_ is lost or wrong\n")
    assert "After the call of `f`, `x.tolist()` gives `[2.0, 3.0, 4.0, 5.0]` in eager and `[1.0, 2.0" in text
    assert "\n\nExpected: `tests.unit.bug.planted:copies` gives what eager gives.\n\n" in text
    assert "Known as https://example.org/1:" in text
    assert f"torch {torch.__version__}" in text and "device cpu" in text
    assert "eager:  [2.0, 3.0, 4.0, 5.0]\ncopies: [1.0, 2.0, 3.0, 4.0]\nAssertionError" in text
    ended = run(script_of(text), tmp_path)
    assert ended.returncode == 1 and "copies: [1.0, 2.0, 3.0, 4.0]" in ended.stdout


@pytest.mark.usefixtures("in_root")
def test_a_part_is_exact_where_the_difference_needs_it(tmp_path: Path) -> None:
    inputs = """    s0 = storage([1, 2, 3, 4], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())"""
    path = tmp_path / "found.py"
    path.write_text(emit(written("return torch.add(x0, 1)", inputs=inputs)), encoding="utf-8")
    done = bug(path, "--backend", f"{PLANTED}:picky", "--script")
    assert done.exit_code == 0, done.output
    assert "torch.tensor([1.0, 2.0, 3.0, 4.0]).as_strided((2,), (1,), 0)" in done.output
    assert run(done.output, tmp_path).returncode == 1


@pytest.mark.usefixtures("in_root")
def test_messages_are_whole(tmp_path: Path) -> None:
    done = bug(file(tmp_path, op("v0", "torch.add", X, 1)), "--backend", f"{PLANTED}:explains", "--no-blame")
    message = f"no 7 of 'x'{' and more' * 99}"
    assert f"planted:explains` raises `ValueError: {message}`." in done.output
    assert f"\nValueError: {message}\n\nand advice\n```" in done.output
    assert "Expected: `tests.unit.bug.planted:explains` raises no error, as in eager." in done.output


@pytest.mark.usefixtures("in_root")
def test_what_agrees_is_not_reported(tmp_path: Path) -> None:
    done = bug(file(tmp_path, op(None, "Tensor.add_", X, 1)), "--backend", "eager")
    assert done.exit_code == 1
    assert "there is nothing to report: the backend agrees with eager" in done.output


@pytest.mark.usefixtures("in_root")
def test_a_script_may_end_its_process(tmp_path: Path) -> None:
    path = file(tmp_path, op(None, "Tensor.add_", X, 1))
    done = bug(path, "--backend", f"{PLANTED}:dies", "--no-blame")
    assert done.exit_code == 0, done.output
    assert "with `tests.unit.bug.planted:dies` its process is killed by SIGABRT." in done.output
    assert run(script_of(done.output), tmp_path).returncode == -signal.SIGABRT


@pytest.mark.usefixtures("in_root")
def test_where_there_is_no_script_it_says_why(tmp_path: Path) -> None:
    path = file(tmp_path, op(None, "Tensor.add_", X, 1))
    done = bug(path, "--backend", f"{PLANTED}:hangs", "--no-blame", "--timeout", "5")
    assert done.exit_code == 0, done.output
    assert "There is no script of plain torch for it: a script of it does not end either." in done.output
    assert "make_inputs_0" in done.output


@pytest.mark.parametrize(
    "arguments", [["--out", "no/such/folder/bug.md"], ["--backend", "nothing"], ["--device", "no"]]
)
def test_usage_errors_are_one_line(tmp_path: Path, arguments: Sequence[str]) -> None:
    done = bug(file(tmp_path, op(None, "Tensor.add_", X, 1)), *arguments)
    assert done.exit_code == 2
    assert len(done.output.splitlines()) == 1


@pytest.mark.usefixtures("in_root")
@pytest.mark.parametrize("options", [(), ("--no-minimize",)])
def test_a_program_that_is_not_small_is_minimized(tmp_path: Path, options: tuple[str, ...]) -> None:
    names = ("v0", "v1", "v2", "v3")
    body = [op(name, "torch.neg", X) for name in names]
    path = file(tmp_path, *body, op(None, "Tensor.add_", X, 1))
    done = bug(path, "--backend", f"{PLANTED}:copies", "--no-blame", "--script", *options)
    assert done.exit_code == 0, done.output
    assert ("torch.neg" in done.output) == bool(options)
    assert run(done.output, tmp_path).returncode == 1


@pytest.mark.usefixtures("in_root")
def test_out_gets_the_report(tmp_path: Path) -> None:
    path = file(tmp_path, op(None, "Tensor.add_", X, 1))
    done = bug(path, "--backend", f"{PLANTED}:copies", "--no-blame", "--out", tmp_path / "bug.md")
    assert done.exit_code == 0 and done.output == f"wrote {tmp_path / 'bug.md'}\n"
    assert "```python" in (tmp_path / "bug.md").read_text(encoding="utf-8")


def signed(folder: Path, name: str, text: str, found: Program, known: str = "") -> FindingSigned:
    path = folder / f"{name}.py"
    path.write_text(emit(found), encoding="utf-8")
    key = CoarseKey(text, "output")
    return FindingSigned(str(path), key, name, "", str(path), found.statements, True, known, 1.0)


@pytest.mark.usefixtures("in_root")
def test_a_campaign_reports_the_gravest_signatures_once(tmp_path: Path) -> None:
    told = Settings(
        strategy="",
        backend=f"{PLANTED}:doubled",
        device="cpu",
        seed=0,
        examples=1,
        seconds=None,
        jobs=1,
        timeout=60.0,
        memory=2**32,
        folder=tmp_path,
        reports=1,
    )
    wrong = program(op("v0", "torch.add", X, 1))
    events = [
        signed(tmp_path, "strides", "stride", wrong),
        signed(tmp_path, "values", "values", wrong),
        signed(tmp_path, "old", "values", program(), known="known.py"),
    ]
    signatures = Signatures(told, events)
    (report,) = signatures.reports(threading.Event())
    assert report == BugReported(str(tmp_path / "values.py"), str(tmp_path / "bugs" / "values.md"), True)
    assert "assert eager == compiled" in (tmp_path / "bugs" / "values.md").read_text(encoding="utf-8")
    assert list(Signatures(told, [*events, report]).reports(threading.Event())) == []
