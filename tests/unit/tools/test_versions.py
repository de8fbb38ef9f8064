"""The table of every torch: what counts as wrong, and what is remembered."""

import json
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from tools.versions import __main__ as command
from tools.versions import checks, report
from tools.versions.checks import (
    VERSIONS,
    WITH_BEHAVIOUR,
    Check,
    Piece,
    Result,
    pieces,
    read_fuzz,
    read_replay,
    read_tests,
)
from tools.versions.environments import NoEnvironmentError, is_whole
from tools.versions.known import Known, KnownError, read_known
from tools.versions.store import Store

PIECE = Piece("2.15.0", Check.PROGRAMS, 3, programs=2)


def _event(outcome: str, index: int) -> str:
    return json.dumps(
        {"event": "ProgramChecked", "block": 0, "index": index, "outcome": outcome, "texts": ["values of x"]}
    )


FINISHED = '{"event": "RunFinished", "ending": "done"}'


def test_programs_that_differ_are_wrong(tmp_path: Path):
    events = tmp_path / "run.jsonl"
    events.write_text("\n".join([_event("agrees", 0), _event("differs", 1), FINISHED]))
    assert read_fuzz(events, PIECE, 1, "") == Result(2, ("programs, seed 3, block 0, program 1: values of x",))


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_campaign_that_judged_too_little_is_no_clean_one(tmp_path: Path, code: int):
    events = tmp_path / "run.jsonl"
    events.write_text(_event("agrees", 0))
    assert read_fuzz(events, PIECE, code, "exit code: why").broken == "exit code: why"


def test_a_campaign_in_which_programs_were_equal_is_whole(tmp_path: Path):
    events = tmp_path / "run.jsonl"
    events.write_text("\n".join([_event("agrees", 0), FINISHED]))
    assert read_fuzz(events, PIECE, 0, "exit code 0") == Result(1)
    events.write_text("\n".join([_event("agrees", 0), FINISHED.replace("done", "interrupted")]))
    assert read_fuzz(events, PIECE, 0, "exit code 0").broken == "exit code 0"


def test_a_finding_that_no_program_shows_is_wrong_too(tmp_path: Path):
    """As where a worker died and the program by itself agrees."""
    events = tmp_path / "run.jsonl"
    events.write_text("\n".join([_event("agrees", 0), _event("agrees", 1)]))
    assert read_fuzz(events, PIECE, 1, "exit code 1: flaky").wrong == ("programs, seed 3: exit code 1: flaky",)


def test_of_the_corpus_what_nobody_expects_is_wrong_unless_eager_is_unlike_itself():
    printed = """corpus/a.py: aotcheck: agrees
corpus/b.py: aotcheck: new (exception of call)
    (exception, forward, RuntimeError)
corpus/c.py: aotcheck: new (crash)
corpus/d.py: aotcheck: fixed (differs on 2.13.0)
corpus/e.py: aotcheck: known (values)
5 files
"""
    result = read_replay(printed, {"corpus/b.py": "agrees", "corpus/c.py": "new (crash)"}, 5, "")
    assert result.judged == 5 and not result.broken
    assert result.wrong == ("corpus/b.py: new (exception of call)",)
    assert [line.split(":")[0] for line in result.others] == ["corpus/c.py", "corpus/d.py"]
    assert read_replay(printed, {}, 6, "exit code 3: stopped").broken == "exit code 3: stopped"


JUNIT = """<testsuites><testsuite><testcase classname="m" name="a"/><testcase classname="m" name="b[cpu-x]">
<failure message="AssertionError: 1&#10;more">trace</failure></testcase><testcase classname="m" name="c"><skipped/>
</testcase><testcase classname="m" name="d"><error message="no fixture"/></testcase></testsuite></testsuites>"""


def test_tests_that_fail_are_wrong_and_those_that_are_skipped_do_not_count(tmp_path: Path):
    (tmp_path / "junit.xml").write_text(JUNIT)
    wrong = ("m::b[cpu-x]: AssertionError: 1", "m::d: no fixture")
    assert read_tests(tmp_path / "junit.xml", "2.11.0", (), 1, "") == Result(3, wrong)
    assert read_tests(tmp_path / "none.xml", "2.11.0", (), 4, "exit code 4: usage").broken == "exit code 4: usage"


@pytest.mark.parametrize("pattern", ["m::b[cpu-*", "m::b[cpu-x]", "*::b*"])
def test_a_test_that_fails_for_a_known_reason_is_not_wrong_of_ours(tmp_path: Path, pattern: str):
    (tmp_path / "junit.xml").write_text(JUNIT)
    reasons = (Known("m::b", ("2.11.0",), "another test"), Known(pattern, ("2.11.0", "2.12.1"), "its torch is wrong"))
    found = read_tests(tmp_path / "junit.xml", "2.11.0", reasons, 1, "")
    assert found == Result(3, ("m::d: no fixture",), ("m::b[cpu-x]: its torch is wrong",))
    assert len(read_tests(tmp_path / "junit.xml", "2.15.0", reasons, 1, "").wrong) == 2


def test_known_reasons_are_read_from_a_file(tmp_path: Path):
    path = tmp_path / "known.toml"
    path.write_text('[[test]]\nid = "m::b*"\nversions = ["2.11.0"]\nreason = "why"\n')
    assert read_known(path) == (Known("m::b*", ("2.11.0",), "why"),)
    path.write_text('[[test]]\nid = "m::b*"\nversions = ["2.11.0"]\n')
    with pytest.raises(KnownError, match=r"known.toml: an entry has id, versions and reason"):
        read_known(path)
    assert {version for entry in read_known() for version in entry.versions} <= set(WITH_BEHAVIOUR)


def test_every_check_has_its_pieces_on_every_torch():
    found = list(pieces(VERSIONS, tuple(Check), 250))
    assert len({p.key for p in found}) == len(found)
    assert [p.programs for p in found if (p.version, p.check) == ("2.12.1", Check.MIXED)] == [100, 100, 50]
    files = [f for p in found if (p.version, p.check) == ("2.14.1", Check.CORPUS) for f in p.files]
    assert files == sorted((checks.ROOT / "corpus").glob("*.py"))
    assert {p.version for p in found if p.check is Check.BEHAVIOUR} == {"2.11.0", "2.15.0"}


def test_what_is_done_is_remembered_until_a_source_changes(tmp_path: Path, monkeypatch):
    path = tmp_path / "results.jsonl"
    Store(path).add(PIECE, Result(2, ("wrong",), seconds=1.5))
    path.write_text(path.read_text() + '{"key": "cut o')
    assert Store(path).result(PIECE) == Result(2, ("wrong",))
    Store(path).add(PIECE, Result(1, broken="killed"))
    assert Store(path).result(PIECE) is None
    Store(path).add(PIECE, Result(2))
    monkeypatch.setattr("tools.versions.store.state_of", lambda check: "other sources")
    assert Store(path).result(PIECE) is None


def test_the_page_says_what_was_judged_what_is_wrong_and_what_has_not_run():
    other = Piece("2.15.0", Check.PROGRAMS, 4, programs=2)
    corpus = Piece("2.11.0", Check.CORPUS, 0, files=(Path("a.py"),))
    text = report.document({PIECE: Result(2, ("it differs",)), other: None, corpus: Result(1, (), ("fixed here",))})
    assert "| 2.15.0 | 2 programs, 1 wrong (not whole) | — |" in text
    assert "| 2.11.0 | — | 1 files, 0 wrong |" in text
    assert "- 2.15.0: it differs" in text and "- 2.11.0: fixed here" in text


@pytest.mark.parametrize(
    ("result", "code"), [(Result(2), 0), (Result(2, ("wrong",)), 1), (Result(1, broken="killed"), 3), (None, 3)]
)
def test_a_second_run_does_only_what_is_not_done(tmp_path: Path, monkeypatch, result: Result | None, code: int):
    ran: list[Piece] = []

    def interpreter(folder: Path, version: str) -> Path:
        if result is None:
            raise NoEnvironmentError("uv is not there")
        return folder / version

    def run(piece: Piece, python: Path, jobs: int) -> Result:
        ran.append(piece)
        assert result is not None
        return result

    monkeypatch.setattr(command, "interpreter", interpreter)
    monkeypatch.setattr(command, "run", run)
    options = ["--versions", "2.12.1", "--checks", "mixed", "--examples", "200", "--results", str(tmp_path / "r.jsonl")]
    assert CliRunner().invoke(command.main, options).exit_code == code
    first = len(ran)
    assert first == (0 if result is None else 2)
    assert CliRunner().invoke(command.main, options).exit_code == code
    assert len(ran) == (2 * first if result is None or result.broken else first)
    CliRunner().invoke(command.main, [*options, "--again"])
    assert result is None or len(ran) >= 2 * first


def test_an_unknown_version_is_a_usage_error():
    done = CliRunner().invoke(command.main, ["--versions", "2.9"])
    assert done.exit_code == 2 and "version '2.9' is unknown" in done.output


def test_an_environment_is_whole_with_its_torch_and_our_plugin(tmp_path: Path):
    here, version = Path(sys.executable), torch.__version__.partition("+")[0]
    assert is_whole(here, version)
    assert not is_whole(here, "2.10.0")
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {here} -S "$@"\n')
    bare.chmod(0o755)
    assert not is_whole(bare, version)
