"""What a run found and the corpus has not is said, key by key, with the command that comes next."""

from pathlib import Path

import pytest

from aotcheck.campaign.corpus.files import complaints, entries
from aotcheck.campaign.record.events import (
    Event,
    FindingFlaky,
    FindingRechecked,
    FindingSigned,
    FindingWritten,
    Reproduced,
    RunStarted,
    ScriptRun,
    Shown,
)
from aotcheck.oracle import CoarseKey
from aotcheck.program import Program, emit, parse_file
from aotcheck.report.jsonl import JsonLines
from tests.meta.small import DOUBLE, MUTATES, TRAINED, VIEW, X, op, program
from tests.meta.test_campaigns import settings
from tests.meta.test_nightly import entry, run

BACKEND = "tests.meta.planted:doubles"
VALUES, INPUT = CoarseKey("values", "output"), CoarseKey("values", "input")
RAISES = CoarseKey("exception", "forward", "RuntimeError: planted")
LONGER = program(op("v0", "torch.mul", X, 3), op("v1", "torch.neg", X), outputs=X)
NEGATED = program(op("v0", "torch.neg", X))


def written(folder: Path, *found: tuple[CoarseKey, Program], then: tuple[Event, ...] = ()) -> list[Path]:
    """A run of these findings, and the scripts of them."""
    told = settings(folder, BACKEND)
    told.make_folders()
    with JsonLines(folder / "run.jsonl") as lines:
        lines.feed(RunStarted(BACKEND, "cpu", 1, 50, None, 1, 25, told.strategy, {}, "then"))
        paths = []
        for index, (key, shown) in enumerate(found):
            paths.append(told.findings / f"finding-{index}.py")
            paths[-1].write_text(emit(shown, {"backend": BACKEND}))
            lines.feed(FindingWritten(0, index, key, "planted", str(paths[-1])))
        for event in then:
            lines.feed(event)
    return paths


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    entry(tmp_path / "corpus", "doubled", BACKEND, "differs")
    entry(tmp_path / "corpus", "doubled-elsewhere", "eager", "differs", key=str(INPUT))
    return tmp_path / "corpus"


def test_a_run_of_known_keys_lacks_nothing(tmp_path: Path, corpus: Path) -> None:
    written(tmp_path / "run", (VALUES, DOUBLE), (VALUES, NEGATED))
    result = run("corpus", "missing", tmp_path / "run", "--corpus", corpus)
    assert result.exit_code == 0, result.output
    assert "2 findings of 1 coarse key; 0 keys in no file" in result.output
    assert "aotcheck minimize" not in result.output


def test_a_key_that_no_file_has_on_that_backend_is_missing(tmp_path: Path, corpus: Path) -> None:
    paths = written(
        tmp_path / "run", (INPUT, LONGER), (INPUT, MUTATES), (INPUT, VIEW), (VALUES, DOUBLE), (RAISES, VIEW)
    )
    result = run("corpus", "missing", tmp_path / "run", "--corpus", corpus)
    assert result.exit_code == 1
    *lines, last = result.output.splitlines()
    assert lines == [
        f"{INPUT}: 3 findings",
        f"    aotcheck minimize {paths[2]}",
        f"{RAISES}: 1 finding",
        f"    aotcheck minimize {paths[4]}",
    ], "the key with most findings first, of its programs the smallest"
    assert "2 keys in no file" in last and "of 4 findings" in last


def test_what_has_been_minimized_is_to_be_added(tmp_path: Path, corpus: Path) -> None:
    folder = tmp_path / "run"
    by_the_run = folder / "signatures" / "small.py"
    signed = FindingSigned(str(folder / "findings" / "finding-1.py"), RAISES, "", "", str(by_the_run), 1, True, "", 1.0)
    paths = written(folder, (INPUT, LONGER), (RAISES, LONGER), then=(signed,))
    by_the_run.parent.mkdir()
    by_the_run.write_text(emit(DOUBLE))
    by_hand = paths[0].with_suffix(".min.py")
    by_hand.write_text(emit(DOUBLE))
    output = run("corpus", "missing", folder, "--corpus", corpus).output
    assert f"aotcheck corpus add {by_hand} --name what-is-wrong --corpus {corpus}\n" in output
    assert f"aotcheck corpus add {by_the_run} --name what-is-wrong --corpus {corpus}\n" in output


def test_a_finding_that_is_flaky_lacks_nothing(tmp_path: Path, corpus: Path) -> None:
    folder = tmp_path / "run"
    gone = [str(folder / "findings" / f"finding-{index}.py") for index in range(2)]
    then = (FindingFlaky(gone[0], RAISES, "agrees"), FindingRechecked(gone[1], INPUT, Reproduced.GONE))
    written(folder, (RAISES, DOUBLE), (INPUT, DOUBLE), then=then)
    result = run("corpus", "missing", folder, "--corpus", corpus)
    assert (result.exit_code, "0 findings of 0 coarse keys" in result.output) == (0, True)


@pytest.mark.parametrize(
    ("status", "shown", "key"),
    [
        (-11, Shown.FAILED, "(crash, process, killed by SIGSEGV)"),
        (1, Shown.OTHER, str(RAISES)),
        (None, Shown.FAILED, str(RAISES)),
    ],
)
def test_what_kills_its_process_alone_is_a_crash(tmp_path: Path, status: int | None, shown: Shown, key: str) -> None:
    corpus, folder = tmp_path / "corpus", tmp_path / "run"
    entry(corpus, "doubled", BACKEND, "differs")
    ran = ScriptRun(str(folder / "findings" / "finding-0.py"), RAISES, status, shown)
    written(folder, (RAISES, DOUBLE), then=(ran,))
    assert f"{key}: 1 finding\n" in run("corpus", "missing", folder, "--corpus", corpus).output
    entry(corpus, "dies", BACKEND, "differs", key=key)
    assert run("corpus", "missing", folder, "--corpus", corpus).exit_code == 0


def test_a_run_may_be_moved_and_several_be_asked_about(tmp_path: Path, corpus: Path) -> None:
    written(tmp_path / "here", (RAISES, DOUBLE))
    (tmp_path / "here").rename(tmp_path / "there")
    written(tmp_path / "known", (VALUES, DOUBLE))
    result = run("corpus", "missing", tmp_path / "there", tmp_path / "known", "--corpus", corpus)
    assert result.exit_code == 1
    assert f"aotcheck minimize {tmp_path / 'there' / 'findings' / 'finding-0.py'}" in result.output
    assert f"{tmp_path / 'known'}: {BACKEND}: " in result.output


def test_other_causes_under_a_known_key_are_shown_when_asked_for(tmp_path: Path, corpus: Path) -> None:
    paths = written(tmp_path / "run", (VALUES, LONGER), (VALUES, TRAINED), (VALUES, NEGATED))
    asked = run("corpus", "missing", tmp_path / "run", "--causes", "--corpus", corpus)
    assert asked.exit_code == 0, "another cause is a guess, a key is not"
    assert f"{VALUES}: 1 finding\n    aotcheck minimize {paths[2]}\n" in asked.output


def test_a_folder_that_holds_no_run_is_one_line(tmp_path: Path, corpus: Path) -> None:
    result = run("corpus", "missing", tmp_path / "none", "--corpus", corpus)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("name", ["poisons", "dies_of_all"])
def test_what_leaves_a_process_unfit_is_taken_in_as_such(tmp_path: Path, name: str) -> None:
    corpus, found, backend = tmp_path / "corpus", tmp_path / "found.py", f"tests.meta.planted:{name}"
    corpus.mkdir()
    found.write_text(emit(DOUBLE, {"backend": backend}))
    added = run("corpus", "add", found, "--name", "unfit", "--corpus", corpus)
    assert added.exit_code == 0, added.output
    (one,) = entries(corpus)
    assert one.alone == {backend}
    assert list(complaints(one.path)) == []
    assert run("replay", corpus, "--backend", backend).exit_code == 0


def test_what_is_said_to_leave_a_process_unfit_differs(tmp_path: Path) -> None:
    path = entry(tmp_path, "odd", "eager", "agree")
    parsed = parse_file(path)
    path.write_text(emit(parsed.program, {**parsed.header, "alone": ["eager"]}))
    assert any("to be judged alone on eager" in line for line in complaints(path))
