"""Bars with the time left: what they say, and which commands show one."""

import io
import types
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from aotcheck.campaign.nightly.config import Config
from aotcheck.campaign.nightly.night import run
from aotcheck.cli import main
from aotcheck.minimize import Limits, Reduction, Subject
from aotcheck.program import emit
from aotcheck.program.data.samples import ALIASED_VIEWS
from aotcheck.report.minimizing import MinimizingDisplay
from aotcheck.report.progress import bar, counting, staged


def shown(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_bar_says_how_long_the_rest_takes_if_it_goes_on_so() -> None:
    assert "25%" in shown(bar(0.25, 10.0))
    assert "about 0:00:30 left" in shown(bar(0.25, 10.0))
    assert "at most 0:00:30 left" in shown(bar(0.25, 10.0, at_most=True))


def test_stages_are_counted_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with staged() as moved:
        moved("corpus", 1, 2)
        moved("corpus", 5, 2)
        moved("aotcheck", 30.4, 100)
    printed = capsys.readouterr()
    assert printed.out == ""
    for part in ("corpus", "2/2", "aotcheck", "30/100"):
        assert part in printed.err


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with counting("files", 3) as moved:
        moved(2)
    assert "files" not in capsys.readouterr().err


def test_replay_shows_how_many_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(emit(ALIASED_VIEWS, {"backend": "eager"}))
    result = CliRunner().invoke(main, ["replay", str(tmp_path), "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "files" in result.stderr
    assert "1/2" in result.stderr


def test_a_night_says_how_far_each_stage_is(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "views.py").write_text(emit(ALIASED_VIEWS, {"expect": {"eager": {"*": "agree"}}}))
    config = Config(jobs=(), corpus=corpus, reports=tmp_path / "nights", workers=1, replay_runs=1)
    told: list[tuple[str, float, float]] = []
    stop = types.SimpleNamespace(is_set=lambda: False)
    run(config, "", "", stop, lambda *_: None, {}, moved=lambda *stage: told.append(stage))  # type: ignore[arg-type]
    assert told == [("corpus", 0, 1)]


def test_minimizing_shows_its_limit() -> None:
    limited = Reduction(ALIASED_VIEWS, Subject("eager", "cpu"), Limits(seconds=600.0))
    display = MinimizingDisplay(limited, Console(file=io.StringIO()))
    assert "at most 0:" in shown(display._now())
    unlimited = Reduction(ALIASED_VIEWS, Subject("eager", "cpu"), Limits())
    assert "left" not in shown(MinimizingDisplay(unlimited, Console(file=io.StringIO()))._now())
