"""A night says exactly what is new, known, fixed and flaky, and returns what it should; one file does not spoil the
next."""

import dataclasses
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from aotcheck.campaign.corpus import replay
from aotcheck.campaign.corpus.files import Expected, entries, entry_of
from aotcheck.campaign.corpus.replay import Replay, Status, exit_status
from aotcheck.campaign.nightly import night as nightly
from aotcheck.campaign.nightly.config import Config, Job
from aotcheck.campaign.nightly.night import Nightly, ReplayedFile, compared
from aotcheck.campaign.results.runs import BackendRun, SignedBug
from aotcheck.cli import main
from aotcheck.program import emit, parse_file
from aotcheck.report.junit import write_junit
from tests.meta.small import DOUBLE, MUTATES, X, op, program

PLANTED = "tests.meta.planted"
KEY = "(values, output)"


def entry(folder: Path, name: str, backend: str, said: str, found: object = DOUBLE, key: str = KEY) -> Path:
    """A corpus file."""
    folder.mkdir(exist_ok=True)
    header = {
        "found": "by hand",
        "difference": "planted",
        "keys": {backend: key} if said == "differs" else {},
        "expect": {backend: {"*": said}},
    }
    path = folder / f"{name}.py"
    path.write_text(emit(found, header), encoding="utf-8")  # type: ignore[arg-type]
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def four(folder: Path) -> None:
    """One new, one known, one fixed and one flaky entry."""
    entry(folder, "a-new-one", f"{PLANTED}:doubles", "agree")
    entry(folder, "b-known-one", f"{PLANTED}:doubles", "differs")
    entry(folder, "c-fixed-one", f"{PLANTED}:identity", "differs")
    entry(folder, "d-flaky-one", f"{PLANTED}:sometimes_doubles", "agree")


def test_replay_tells_new_known_fixed_and_flaky(tmp_path: Path) -> None:
    four(tmp_path / "corpus")
    result = run("replay", tmp_path / "corpus")
    assert result.exit_code == 1
    statuses = [line.split(": ")[2].split(" ")[0] for line in result.output.splitlines() if "one.py" in line]
    assert statuses == ["new", "known", "fixed", "flaky"]
    assert result.output.splitlines()[-1] == "1 new, 1 known, 1 fixed, 1 flaky"


def test_a_known_bug_that_shows_otherwise_is_new(tmp_path: Path) -> None:
    path = entry(tmp_path, "other", f"{PLANTED}:doubles", "differs", key="(shape, output)")
    (one,) = Replay((path,)).results()
    assert (one.status, one.text) == (Status.NEW, "expected (shape, output)")


def test_replay_knows_the_bugs_that_fuzz_knows(tmp_path: Path) -> None:
    entry(tmp_path / "corpus", "all-is-doubled", f"{PLANTED}:doubles", "differs")
    longer = program(op("v1", "torch.neg", X), op("v0", "torch.mul", X, 3))
    other = program(op("v0", "torch.neg", X))
    for name, found in (("same", DOUBLE), ("longer", longer), ("other", other)):
        (tmp_path / f"{name}.py").write_text(emit(found, {"backend": f"{PLANTED}:doubles"}))
    paths = [tmp_path / f"{name}.py" for name in ("same", "longer", "other")]
    results = list(Replay(paths, corpus=tmp_path / "corpus").results())
    statuses = [(one.status, one.text) for one in results]
    assert statuses == [(Status.KNOWN, "all-is-doubled"), (Status.KNOWN, "all-is-doubled"), (Status.NEW, "")]
    assert [one.status for one in Replay(paths[:1]).results()] == [Status.NEW], "nobody knows it"


def test_flaky_alone_does_not_fail_and_a_file_that_is_no_program_does(tmp_path: Path) -> None:
    flaky = entry(tmp_path, "flaky", f"{PLANTED}:sometimes_doubles", "agree")
    results = list(Replay((flaky,)).results())
    assert ([one.status for one in results], exit_status(results)) == ([Status.FLAKY], 0)
    bad = tmp_path / "bad.py"
    bad.write_text("import os\nos.abort()\n")
    results = list(Replay((bad, flaky)).results())
    assert ([one.status for one in results], exit_status(results)) == ([Status.REJECTED, Status.FLAKY], 2)


def test_a_file_that_crashes_hangs_or_poisons_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "START_ALLOWANCE", 5.0)  # which a file that hangs is waited for, twice
    seven = program(op("v0", "torch.mul", X, 2), size=(7,))  # what the planted killers wait for
    paths = [
        entry(tmp_path, "a-dies", f"{PLANTED}:dies", "agree", seven),
        entry(tmp_path, "b-hangs", f"{PLANTED}:hangs", "agree", seven),
        entry(tmp_path, "c-poisons", f"{PLANTED}:poisons", "agree"),
        entry(tmp_path, "d-right", "eager", "agree"),
    ]
    results = list(Replay(paths, timeout=1.0).results())
    assert [one.status for one in results] == [Status.NEW, Status.NEW, Status.NEW, Status.AGREES]
    assert results[0].judged.key == "(crash, process, killed by SIGKILL)"
    assert results[1].judged.key == "(timeout, process)"
    assert any("leaves the process as it was" in text for text in results[2].judged.texts)


def test_an_expectation_is_that_of_the_version_or_of_the_newest_before_it(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    said = {"2.12.0": "agree", "2.13.0": "differs", "2.20.1": "agree"}
    path.write_text(emit(DOUBLE, {"keys": {}, "expect": {"eager": said, "aotcheck": {"*": "agree"}}}))
    found = entry_of(path, parse_file(path))
    versions = ("2.11.0", "2.12.0+cpu", "2.13.0", "2.14.0a0", "2.20.0", "2.20.1", "3.0")
    said_of = [found.expected("eager", version) for version in versions]
    agree, differs = Expected.AGREE, Expected.DIFFERS
    assert said_of == [None, agree, differs, differs, differs, agree, agree]
    assert found.expected("aotcheck", "9.9") is agree
    assert found.expected("inductor", "2.13.0") is None


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"issue": "ours"}, Expected.AGREE),
        ({}, None),
        ({"issue": "ours", "expect": {"aotcheck": {"2.13.0": "differs"}}}, Expected.DIFFERS),
        ({"issue": "ours", "expect": {"aotcheck": {}}}, None),
    ],
)
def test_aotcheck_is_expected_to_agree_on_corpus_files_that_do_not_say_otherwise(
    tmp_path: Path, header: dict[str, Any], expected: Expected | None
) -> None:
    path = tmp_path / "a.py"
    path.write_text(emit(DOUBLE, header))
    assert entry_of(path, parse_file(path)).expected("aotcheck", "2.13.0") is expected


# -- the night

CONFIG = """
corpus = "corpus"
reports = "reports"
workers = 1
replay_runs = 2
bugs = 0

[[backend]]
name = "{backend}"
examples = 5
seed = 1
strategy = "tests.meta.small:drawn"
minimize_time = "60s"
"""


def night(folder: Path, backend: str) -> tuple[Result, Path]:
    config = folder / "nightly.toml"
    config.write_text(CONFIG.format(backend=backend))
    result = run("nightly", "--config", config)
    return result, max((folder / "reports").glob("2*"))


def test_a_night_says_what_is_new_known_fixed_and_flaky(tmp_path: Path) -> None:
    four(tmp_path / "corpus")
    result, folder = night(tmp_path, "eager")
    assert result.exit_code == 1, result.output
    summary = (folder / "summary.md").read_text()
    assert "Corpus: 1 new, 1 known, 1 fixed, 1 flaky." in summary
    assert [line.split("|")[3].strip() for line in summary.splitlines() if "-one.py" in line] == [
        "**new**",
        "**fixed**",
        "**flaky**",
    ]
    suites = {suite.get("name"): suite for suite in ET.parse(folder / "junit.xml").getroot()}
    assert (suites["corpus"].get("tests"), suites["corpus"].get("failures")) == ("4", "2")
    failed = [case.get("name") for case in suites["corpus"] if case.find("failure") is not None]
    assert failed == [f"a-new-one on {PLANTED}:doubles", f"c-fixed-one on {PLANTED}:identity"]
    assert (suites["fuzz eager"].get("tests"), suites["fuzz eager"].get("failures")) == ("1", "0")
    assert "aotcheck fuzz: eager" in (folder / "0-eager" / "report.html").read_text()
    ran = json.loads((folder / "nightly.json").read_text())["runs"][0]
    assert (ran["programs"], ran["strategy"]) == (5, "tests.meta.small:drawn")
    assert "## eager, tests.meta.small:drawn" in summary
    assert [one.get("value") for one in suites["fuzz eager"].iter("property")] == ["tests.meta.small:drawn"]


def test_junit_has_no_empty_output_and_counts_in_words(tmp_path: Path) -> None:
    files = (
        ReplayedFile("corpus/a.py", "eager", "known", "none found"),
        ReplayedFile("corpus/b.py", "eager", "refused"),
        ReplayedFile("corpus/c.py", "eager", "agrees"),
    )
    bugs = (SignedBug("(values, output) a", 1, "a-bug"), SignedBug("(values, output) b", 1))
    write_junit(tmp_path / "junit.xml", files, (BackendRun("eager", "there", 1, 1, signatures=bugs, untold=1),))
    root = ET.parse(tmp_path / "junit.xml").getroot()
    outputs = list(root.iter("system-out"))
    assert [one.text for one in outputs] == ["known: none found", "refused", "known (a-bug), 1 finding"]
    assert all(not one.attrib for one in outputs), "system-out has no message"
    assert [one.get("message") for one in root.iter("failure")] == ["new, 1 finding", "1 finding in there"]


def test_a_clean_night_is_clean_and_a_bug_of_the_corpus_is_none(tmp_path: Path) -> None:
    minimal = program(op("v0", "Tensor.clone", X), size=(1,))
    entry(tmp_path / "corpus", "everything-is-doubled", f"{PLANTED}:doubles", "differs", minimal)
    clean, _ = night(tmp_path, "eager")
    assert clean.exit_code == 0, clean.output
    known, folder = night(tmp_path, f"{PLANTED}:doubles")
    assert known.exit_code == 0, known.output
    assert "0 new signatures, 1 known" in (folder / "summary.md").read_text()
    for path in (tmp_path / "corpus").iterdir():
        path.unlink()
    entry(tmp_path / "corpus", "another", "eager", "agree")
    new, folder = night(tmp_path, f"{PLANTED}:doubles")
    assert new.exit_code == 1, new.output
    summary = (folder / "summary.md").read_text()
    assert "another on eager: not there -> agrees" in summary
    assert "everything-is-doubled on tests.meta.planted:doubles: known -> not there" in summary


MOODY = """
import torch
from pathlib import Path
from torch.utils import _pytree as pytree

HERE = Path(__file__)


def compile(fn):
    mood, turn = HERE.with_name("mood").read_text(), HERE.with_name("turn")
    if mood == "wavers":  # right in every second process
        mood = "right" if turn.exists() else "wrong"
        turn.unlink() if turn.exists() else turn.touch()
    if mood == "right":
        return fn
    return lambda *args: pytree.tree_map_only(torch.Tensor, lambda t: t * 2, fn(*args))
"""


@pytest.mark.timeout(600)
def test_a_bug_that_appears_stays_goes_and_wavers_is_told_once_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moody.py").write_text(MOODY)
    monkeypatch.syspath_prepend(tmp_path)
    config = tmp_path / "nightly.toml"
    said: dict[str, tuple[int, str]] = {}
    rows: dict[str, str] = {}
    for number, mood in enumerate(("wrong", "wrong", "right", "wavers")):
        (tmp_path / "mood").write_text(mood)
        fuzzed = mood if mood != "wavers" else "right"  # only the file that is replayed wavers
        text = CONFIG.replace('corpus = "corpus"', "").replace("bugs = 0", "bugs = 1").format(backend="moody:compile")
        config.write_text(text.replace("examples = 5", "examples = 3" if fuzzed == "wrong" else "examples = 1"))
        result = run("nightly", "--config", config)
        night = f"{number} {mood}"
        said[night] = (result.exit_code, result.output)
        folder = max((tmp_path / "reports").glob("2*"))
        (row,) = [line for line in (folder / "summary.md").read_text().splitlines() if "| moody:compile |" in line]
        rows[night] = row.split("|")[1].strip()
        names = [suite.get("name") for suite in ET.parse(folder / "junit.xml").getroot()]
        assert ("remembered" in names) == bool(number), "what is new fails in the suite of its campaign"
    assert rows == {"0 wrong": "**new**", "1 wrong": "known", "2 right": "**fixed**", "3 wavers": "**flaky**"}, said
    assert {night: code for night, (code, _) in said.items()} == {
        "0 wrong": 1,
        "1 wrong": 0,
        "2 right": 0,
        "3 wavers": 1,
    }, said
    assert "1 new signature" in said["0 wrong"][1] and "0 new signatures, 1 known" in said["1 wrong"][1]
    assert "moody:compile: fixed: (values, output)" in said["2 right"][1]
    first, second = sorted((tmp_path / "reports").glob("2*"))[:2]
    (report,) = (first / "0-moody-compile" / "bugs").glob("*.md")
    assert "```python" in report.read_text()
    assert f"[report](0-moody-compile/bugs/{report.name})" in said["0 wrong"][1], "of what is new"
    assert f'<a href="bugs/{report.name}">' in (first / "0-moody-compile" / "report.html").read_text()
    assert str(report) in (first / "junit.xml").read_text() and not (second / "0-moody-compile" / "bugs").exists()


def test_a_damaged_memory_is_said_and_the_night_goes_on(tmp_path: Path) -> None:
    remembered = tmp_path / "reports" / "remembered"
    remembered.mkdir(parents=True)
    (remembered / "memory.json").write_text("{")
    config = tmp_path / "nightly.toml"
    config.write_text(
        CONFIG.replace('corpus = "corpus"', "").format(backend="eager").replace("examples = 5", "examples = 1")
    )
    result = run("nightly", "--config", config)
    assert (
        result.exit_code == 3 and "memory.json: damaged" in result.output and "kept as memory-damaged-" in result.output
    )
    assert len(list(remembered.glob("memory-damaged-*.json"))) == 1
    assert run("nightly", "--config", config).exit_code == 0


def test_what_cannot_be_run_is_infrastructure(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    config = tmp_path / "nightly.toml"
    config.write_text('corpus = "corpus"\nreports = "reports"\n')
    assert run("nightly", "--config", config).exit_code == 3
    config.write_text(CONFIG.format(backend="eager").replace("drawn", "broken"))
    entry(tmp_path / "corpus", "right", "eager", "agree")
    assert run("nightly", "--config", config).exit_code == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("corpus = 3", "nightly.toml"),
        ("backend = [", "nightly.toml"),
        ("[[backend]]\ntime = '1m'", "has no name"),
        ("[[backend]]\nname = 'eager'", "give it time or examples"),
        ("[[backend]]\nname = 'eager'\ntime = 'soon'", "soon"),
        ("[[backend]]\nname = 'eagr'\ntime = '1m'", "did you mean 'eager'?"),
        ("corpus = 'nowhere'", "no folder"),
        ("what = 1\n[[backend]]\nname = 'eager'\ntime = '1m'", "unknown: what"),
        ("", "nothing to run"),
        ("[[backend]]\nname = 'eager'\nexamples = 1\nseed = 'x'", "'x' is not a whole number"),
        ("[[backend]]\nname = 'eager'\nexamples = 1\nseed = -1", "-1 is not a whole number"),
        ("[[backend]]\nname = 'eager'\nexamples = 1\nstrategy = 'nowhere:x'", "nowhere"),
        ("[[backend]]\nname = 'eager'\ntime = '1m'\nwithout = ['guard']", "unknown promise 'guard'"),
        ("[[backend]]\nname = 'eager'\ntime = '1m'\nignore = ['strides']", "unknown kind of difference 'strides'"),
        ("[[backend]]\nname = 'eager'\ntime = '1m'\nrtol = 2", "rtol = 2"),
        ("[[backend]]\nname = 'eager'\ntime = 0", "time = 0 is not a duration"),
        ("memory_gib = '6'\n[[backend]]\nname = 'eager'\ntime = 1", "memory_gib = '6'"),
        ("memory_gib = 0\n[[backend]]\nname = 'eager'\ntime = 1", "memory_gib = 0"),
        ("backend = ['eager']", "[[backend]]"),
        ("reports = 'nightly.toml'\n[[backend]]\nname = 'eager'\ntime = 1", "cannot write to"),
        ("reports = '/proc/nowhere'\n[[backend]]\nname = 'eager'\ntime = 1", "cannot write to '/proc/nowhere'"),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "nightly.toml"
    config.write_text(text)
    result = run("nightly", "--config", config)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1 and said in result.stderr


def test_a_backend_that_cannot_be_run_does_not_spoil_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = nightly._fuzz

    def fuzz(config: Config, job: Job, *rest: Any) -> BackendRun:
        if job.seed == 2:
            raise OSError(28, "No space left on device")
        return ran(config, job, *rest)

    monkeypatch.setattr(nightly, "_fuzz", fuzz)
    config = tmp_path / "nightly.toml"
    one = "[[backend]]\nname = 'eager'\nexamples = 1\nstrategy = 'tests.meta.small:drawn'\nseed = {}\n"
    config.write_text("reports = 'reports'\n" + "".join(one.format(seed) for seed in (1, 2, 3)))
    result = run("nightly", "--config", config)
    assert result.exit_code == 3, result.output
    assert "No space left on device" in result.stdout
    (told,) = (tmp_path / "reports").glob("*/nightly.json")
    assert [one["programs"] for one in json.loads(told.read_text())["runs"]] == [1, 0, 1]


def test_each_of_two_runs_of_a_backend_is_compared_with_its_own() -> None:
    def night(*signatures: str) -> Nightly:
        runs = tuple(
            BackendRun("eager", f"{k}-eager", k, signatures=(SignedBug(s, 1),)) for k, s in enumerate(signatures)
        )
        return Nightly("now", "", {}, runs=runs)

    last = dataclasses.asdict(night("(values, output) a", "(values, output) b"))
    assert compared(night("(values, output) a", "(values, output) b"), last).lines == ()
    assert len(compared(night("(values, output) a", "(values, output) c"), last).lines) == 2


def test_what_changed_since_the_last_run_is_said() -> None:
    def replayed(status: str) -> tuple[ReplayedFile, ...]:
        return (ReplayedFile("corpus/one.py", "eager", status),)

    last = {"folder": "then", "replayed": [{"path": "corpus/one.py", "backend": "eager", "status": "known"}]}
    changed = compared(Nightly("now", "", {}, replayed("fixed")), last)
    assert (changed.last, changed.lines) == ("then", ("one on eager: known -> fixed",))
    assert compared(Nightly("now", "", {}, replayed("known")), last).lines == ()


# -- the corpus commands


def test_a_program_is_added_with_what_it_shows_and_only_once(tmp_path: Path) -> None:
    corpus, found = tmp_path / "corpus", tmp_path / "found.py"
    corpus.mkdir()
    found.write_text(emit(MUTATES, {"backend": f"{PLANTED}:doubles", "found": "aotcheck fuzz"}))
    added = run("corpus", "add", found, "--name", "everything", "--corpus", corpus)
    assert added.exit_code == 0, added.output
    (one,) = entries(corpus)
    assert one.keys == {f"{PLANTED}:doubles": KEY}
    assert one.expect["aotcheck"] == {"*": Expected.AGREE}
    assert run("corpus", "check", corpus).output == "1 file, 0 complaints\n"
    assert run("replay", corpus, "--backend", f"{PLANTED}:doubles").exit_code == 0
    again = run("corpus", "add", found, "--corpus", corpus)
    assert (again.exit_code, "shows the same" in again.output) == (1, True)
    assert len(list(corpus.iterdir())) == 1


def test_keys_are_brought_up_to_date_where_a_file_still_differs(tmp_path: Path) -> None:
    doubles = f"{PLANTED}:doubles"
    entry(tmp_path, "a", doubles, "differs")
    entry(tmp_path, "b", "eager", "agree", MUTATES)
    path = tmp_path / "a.py"
    path.write_text(path.read_text().replace(KEY, "(values, output, of old)"))
    assert run("replay", path, "--backend", doubles).exit_code == 1
    result = run("corpus", "rekey", tmp_path)
    assert result.output.splitlines() == [f"{path}: {doubles}: (values, output, of old) is now {KEY}", "1 keys changed"]
    assert [one.keys for one in entries(tmp_path)] == [{doubles: KEY}, {}]


def test_a_corpus_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    found = tmp_path / "found.py"
    found.write_text(emit(MUTATES, {"backend": f"{PLANTED}:doubles"}))
    result = run("corpus", "add", found, "--corpus", tmp_path / "none")
    assert (result.exit_code, result.stderr) == (2, f"aotcheck: {tmp_path / 'none'}: no such folder\n")


def test_duplicates_are_pruned_and_nothing_else(tmp_path: Path) -> None:
    entry(tmp_path, "a", f"{PLANTED}:doubles", "differs")
    entry(tmp_path, "b", f"{PLANTED}:doubles", "differs", program(op("v0", "torch.mul", X, 5), size=(3,)))
    entry(tmp_path, "c", f"{PLANTED}:doubles", "differs", program(op("v0", "torch.neg", X)))
    entry(tmp_path, "d", "eager", "agree", MUTATES)
    assert run("corpus", "check", tmp_path).exit_code == 1
    dry = run("corpus", "prune", tmp_path, "--dry-run")
    assert "b.py: would go" in dry.output and len(list(tmp_path.iterdir())) == 4
    assert run("corpus", "prune", tmp_path).output.splitlines()[-1] == "3 of 4 files stay"
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "c", "d"]


def test_a_file_that_is_not_of_the_corpuss_form_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(emit(DOUBLE, {"expect": {"eager": "differs"}}))
    (tmp_path / "stranger.py").write_text("print(1)\n")
    result = run("corpus", "check", tmp_path)
    assert result.exit_code == 1
    assert "expect.eager is a table of versions" in result.output and "stranger.py:1: no header" in result.output
