"""Whatever a backend raises, gives or does to its process is a finding of that backend's, and no end of the run."""

import os
import signal
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from aotcheck.backends import resolve
from aotcheck.campaign import ExitCode
from aotcheck.cli import main
from aotcheck.oracle import Outcome, check
from aotcheck.program import parse_file
from tests.meta.small import DOUBLE
from tests.meta.test_campaigns import campaign, settings

RAISING = {
    "exits": "SystemExit",
    "exits_at_once": "SystemExit: nothing to do",
    "ends": "tests.meta.unruly.EndOfAll: planted",
    "is_garbled": "ValueError: half a \\udcff, \\x00 and \\x1b[31mred",
}
SILENT = ("gives_fake", "gives_sparse", "gives_unspeakable", "gives_itself")


@pytest.mark.parametrize("name", [*RAISING, *SILENT])
def test_it_is_a_finding(name: str) -> None:
    verdict = check(DOUBLE, resolve(f"tests.meta.unruly:{name}"), torch.device("cpu"))
    assert verdict.outcome is Outcome.DIFFERS
    assert not verdict.poisoned
    key, text = str(verdict.hard[0].key), verdict.hard[0].text
    if name in RAISING:
        assert key.startswith("(exception, forward, ")
        assert RAISING[name].partition(":")[0] in key
    assert (key + text).isprintable()


def test_an_interrupt_is_the_users_where_it_can_be() -> None:
    interrupting = resolve("tests.meta.unruly:interrupts")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background has none
    try:
        with pytest.raises(KeyboardInterrupt):
            check(DOUBLE, interrupting, torch.device("cpu"))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a worker
        assert check(DOUBLE, interrupting, torch.device("cpu")).outcome is Outcome.DIFFERS
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["exits", "interrupts", "wanders"])
def test_a_campaign_goes_on_and_says_so(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.syspath_prepend(os.getcwd())
    monkeypatch.chdir(tmp_path)
    told = settings(Path("run"), f"tests.meta.unruly:{name}", examples=30)
    _, tally = campaign(told)
    assert tally.programs == tally.findings == 30
    assert tally.exit_code is ExitCode.FINDINGS
    assert not tally.failures
    scripts = list(told.findings.iterdir())
    assert len(scripts) == 30
    assert parse_file(scripts[0])


def test_reports_hold_whatever_is_said(tmp_path: Path) -> None:
    told = ["--strategy", "tests.meta.small:drawn", "--examples", "2", "--jobs", "1", "--no-minimize", "--no-scripts"]
    backend = "tests.meta.unruly:is_garbled"
    result = CliRunner().invoke(main, ["fuzz", "--backend", backend, *told, "--out", str(tmp_path / "run")])
    assert result.exit_code == 1, result.output
    ElementTree.parse(tmp_path / "run" / "junit.xml")
    assert "half a" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "option"), [("fuzz", "--backend"), ("fuzz", "--strategy"), ("replay", "--backend")], ids=str
)
@pytest.mark.parametrize("body", ["import sys; sys.exit(main())", "import sys; sys.exit(0)", "1 / 0", "def f(: pass"])
def test_a_module_that_cannot_be_imported_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, option: str, body: str
) -> None:
    name = f"cannot_{abs(hash((body, command, option)))}"
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    result = CliRunner().invoke(main, [command, option, f"{name}:f", *([str(tmp_path)] if command == "replay" else [])])
    assert result.exit_code == 2, result.output
    assert name in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_strategy_that_is_none_is_a_usage_error() -> None:
    for strategy in ("os:getcwd", "os:sep", "os:nothing"):
        result = CliRunner().invoke(main, ["fuzz", "--backend", "eager", "--strategy", strategy])
        assert (result.exit_code, strategy in result.stderr) == (2, True), result.output


def test_a_script_says_how_its_program_is_drawn_again(tmp_path: Path) -> None:
    told = settings(tmp_path / "first", "tests.meta.unruly:exits", examples=2, seed=7)
    campaign(told)
    script = min(told.findings.iterdir())
    command = str(parse_file(script).header["found"]).split()[1:]
    again = tmp_path / "again"
    result = CliRunner().invoke(
        main, [*command, "--examples", "2", "--jobs", "1", "--no-minimize", "--no-scripts", "--out", str(again)]
    )
    assert result.exit_code == 1, result.output
    assert parse_file(again / "findings" / script.name).program == parse_file(script).program
