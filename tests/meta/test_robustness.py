"""Disks that are full, journals that are garbled, files from strangers, and processes that share one budget."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from aotcheck.campaign import Campaign
from aotcheck.campaign.record.events import Event, FindingWritten, ProgramChecked
from aotcheck.campaign.running.claims import Claims
from aotcheck.campaign.running.flight import Flight
from aotcheck.campaign.running.worker import Task
from aotcheck.cli import main
from aotcheck.report.jsonl import load_events
from tests.meta.test_campaigns import campaign, settings
from tools.hostile import hostile, verdict
from tools.torture import torture

ROOT = Path(__file__).parents[2]
SOURCES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "corpus").glob("*.py"))[:10]]


def python(*arguments: str, most_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a module of ours, in a process whose files may not grow past ``most_bytes``: as good as a full disk."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most_bytes},) * 2); " if most_bytes else ""
    code = f"{limit}import runpy, sys; sys.argv = {['aotcheck', *arguments]!r}; runpy.run_module('aotcheck.cli')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300)


# -- processes that are killed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds workers in /proc")
def test_nothing_is_lost_and_nothing_told_twice_when_workers_and_supervisor_are_killed(tmp_path: Path) -> None:
    found = torture(tmp_path / "run", programs=150, every=4.0, supervisors=1, chance=random.Random(3))
    assert found is not None
    assert {kind for _, _, kind in found.planted} >= {"crash", "values"}, "choose another seed"
    assert found.supervisors_killed == 1
    assert found.wrong == []


# -- disks


def test_a_full_disk_ends_a_run_with_one_line_and_it_can_go_on(tmp_path: Path) -> None:
    whole, out = settings(tmp_path / "whole", "tests.meta.planted:doubles"), tmp_path / "run"
    events, _ = campaign(whole)
    asked = ("--strategy", "tests.meta.small:drawn", "--backend", "tests.meta.planted:doubles", "--seed", "1")
    full = python(
        "fuzz", *asked, "--examples", "50", "--no-minimize", "--no-scripts", "--out", str(out), most_bytes=16_000
    )
    assert full.returncode == 3, full.stdout + full.stderr
    (line,) = [line for line in full.stderr.splitlines() if line.startswith("aotcheck: ")]
    assert f"--resume {out}" in line and "Traceback" not in full.stderr
    again = CliRunner().invoke(main, ["fuzz", "--resume", str(out), "--no-minimize", "--no-scripts"])
    assert again.exit_code == 1, again.output

    def findings(told: list[Event]) -> list[tuple[int, int]]:
        return sorted((e.block, e.index) for e in told if isinstance(e, FindingWritten))

    assert findings(list(load_events(out / "run.jsonl"))) == findings(events)


def test_a_run_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(b"\x00\xff garbage\n" * 100)
    for folder in (tmp_path, tmp_path / "nowhere"):
        result = CliRunner().invoke(main, ["fuzz", "--resume", str(folder)])
        assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1


# -- journals


def test_a_garbled_journal_loses_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked, garbled = Flight._checked, set[int]()

    def sometimes(self: Flight, line: object) -> object:
        index = line["index"]  # type: ignore[index]
        if index % 7 == 3 and index not in garbled:
            garbled.add(index)
            raise KeyError("outcome")
        return checked(self, line)

    monkeypatch.setattr(Flight, "_checked", sometimes)
    told = settings(tmp_path, "tests.meta.planted:doubles", examples=25)
    events = list(Campaign(told, threading.Event()).events())
    seen = sorted(e.index for e in events if isinstance(e, ProgramChecked))
    assert garbled and seen == list(range(25))


@pytest.mark.parametrize("line", [b"{}", b"[]", b"null", b'{"kind": "finished"}', b'{"kind": "process", "pid": "x"}'])
def test_a_line_that_means_nothing_is_left_out(tmp_path: Path, line: bytes) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(line + b'\n{"kind": "started", "index": 4}\n\xff\xfe\n')
    task = Task("s:s", "eager", "cpu", 0, 0, frozenset(), 25, journal, tmp_path)
    flight = Flight(task, None, 1.0, 2**30)
    assert list(flight.news()) == []
    assert flight.running == 4


# -- files from strangers


def test_hostile_files_are_turned_down_with_one_line_and_nothing_of_them_runs(tmp_path: Path) -> None:
    trap, path = tmp_path / "trap", tmp_path / "stranger.py"
    for kind, data in hostile(SOURCES, 400, trap):
        path.write_bytes(data)
        line = verdict(path)
        assert (line or kind == "spoilt") and "\n" not in line, data
        assert not trap.exists()


def test_replay_turns_hostile_files_down_and_goes_on(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", tmp_path / "files"
    folder.mkdir()
    kept = [data for kind, data in hostile(SOURCES, 80, trap) if kind != "spoilt"]
    for number, data in enumerate(kept):
        (folder / f"{number}.py").write_bytes(data)
    result = CliRunner().invoke(main, ["replay", str(folder)])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == len(kept)
    assert result.stdout == f"{len(kept)} rejected\n"
    assert not trap.exists()


# -- one budget


def test_blocks_are_shared_out_and_none_is_given_twice(tmp_path: Path) -> None:
    one, two = (Claims(tmp_path, 60.0).blocks() for _ in range(2))
    taken = [next(one), next(two), next(two), next(one), next(one), next(two)]
    assert sorted(taken) == list(range(6))


def test_the_deadline_is_that_of_the_first(tmp_path: Path) -> None:
    first = Claims(tmp_path, 0.0).deadline
    assert Claims(tmp_path, 1000.0).deadline == first
    assert list(Claims(tmp_path, 1000.0).blocks()) == []


def test_pytest_workers_repeat_nothing_and_stop_together(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "tests/fuzz", "-n", "2", "-q", "-p", "no:cacheprovider"]
    options = ["--backend", "eager", "--fuzz-time", "5s", "--fuzz-out", str(tmp_path / "out"), "--junitxml"]
    report = tmp_path / "junit.xml"
    base = ["--basetemp", str(tmp_path / "temp")]
    done = subprocess.run(
        [*command, *options, str(report), *base], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    blocks = list((tmp_path / "temp").glob("aotcheck-claims-*/block-*"))
    assert sorted(int(path.name.split("-")[1]) for path in blocks) == list(range(len(blocks)))
    programs = [int(part.split('"')[0]) for part in report.read_text().split('name="programs" value="')[1:]]
    assert len(programs) == 2 and sum(programs) == 25 * len(blocks)
