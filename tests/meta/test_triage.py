"""From findings to bugs: one signature for one bug, two for two, whatever broke the campaign off in between."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aotcheck.backends import resolve
from aotcheck.campaign import Campaign, ExitCode, Past, Settings, Tally
from aotcheck.campaign.corpus.known import known_bugs
from aotcheck.campaign.findings.signature import KnownBug, Signature, embeds, is_known, skeleton
from aotcheck.campaign.record.events import (
    Event,
    FindingExplained,
    FindingFlaky,
    FindingSigned,
    FindingWritten,
    PairsCounted,
    ProgramChecked,
    RunFinished,
    RunResumed,
    RunStarted,
)
from aotcheck.campaign.results.triage import MOST_PER_KEY, Triage, stage_of
from aotcheck.campaign.running.worker import write_finding
from aotcheck.oracle import CoarseKey, check
from aotcheck.program import Backward, Call, Program, Ref, TupleExpr, emit, parse_file
from aotcheck.report.jsonl import JsonLines, load_events
from tests.meta.small import DOUBLE, MUTATES, TRAINED, X, op, program
from tests.meta.test_campaigns import campaign, settings
from tests.unit.blame.faults import FAULTS, Fault

DOUBLES = "tests.meta.planted:doubles"
KEY = CoarseKey("values", "output")


def test_numbers_sizes_and_dtypes_are_not_in_a_skeleton() -> None:
    other = program(op("v0", "torch.mul", X, 7), size=(2, 3), dtype="float64")
    assert skeleton(other) == skeleton(DOUBLE) == "v0 = mul(x0); return v0"
    assert skeleton(program(op("v0", "torch.narrow", X, 0, 0, 2))) == "v0 = getitem(x0); return v0"
    assert skeleton(program(op("v0", "torch.mul", X, X))) == skeleton(DOUBLE), "a number or the tensor again: chance"
    assert skeleton(program(op("v0", "torch.mul", X, 2j))) == "v0 = mul(x0, complex); return v0", "another kind of op"


@pytest.mark.parametrize(
    "other",
    [
        program(op("v0", "torch.add", X, 2)),
        program(op("v0", "torch.mul", X, 2), outputs=X),
        TRAINED,
        MUTATES,
        replace(DOUBLE, calls=DOUBLE.calls * 2),
        replace(DOUBLE, calls=(replace(DOUBLE.calls[0], steps=(Backward((0,)),)),)),
        replace(DOUBLE, calls=(DOUBLE.calls[0], Call(None))),
    ],
    ids=["op", "result", "trained", "write", "second-call", "backward", "same-objects"],
)
def test_what_a_bug_needs_is_in_a_skeleton(other: Program) -> None:
    assert skeleton(other) != skeleton(DOUBLE)


def test_a_program_that_makes_the_calls_of_another_embeds_it() -> None:
    longer = program(op("v0", "torch.neg", X), op("v1", "torch.mul", Ref("v0"), 3), outputs=Ref("v1"))
    assert embeds(DOUBLE, longer)
    assert not embeds(longer, DOUBLE)
    assert not embeds(MUTATES, DOUBLE)


def test_a_known_bug_is_the_same_calls_or_with_a_message_some_of_them() -> None:
    longer = program(op(None, "Tensor.add_", X, 1), op("v0", "torch.mul", X, 3), outputs=X)
    crash = CoarseKey("exception", "forward", "RuntimeError: planted")
    assert is_known(KEY, DOUBLE, KnownBug(str(KEY), "", program(op("v0", "torch.mul", X, 9), outputs=X)))
    assert not is_known(KEY, DOUBLE, KnownBug(str(KEY), "", longer))
    assert is_known(crash, DOUBLE, KnownBug(str(crash), "", longer))
    assert not is_known(crash, longer, KnownBug(str(crash), "", DOUBLE))
    assert not is_known(crash, DOUBLE, KnownBug(str(KEY), "", DOUBLE))


def finding(told: Settings, index: int, found: Program, key: CoarseKey = KEY) -> FindingWritten:
    header = {"backend": told.backend, "block": 0, "index": index}
    told.findings.mkdir(parents=True, exist_ok=True)
    path = write_finding(told.findings, 1, 0, index, key, found, header)
    return FindingWritten(0, index, key, "values of output[0] after forward of call 1: ...", str(path))


def triaged(told: Settings, findings: list[FindingWritten]) -> list[Event]:
    triage = Triage(told, (), threading.Event())
    for one in findings:
        triage.feed(one)
    return list(triage.events())


def test_findings_of_one_bug_have_one_signature(tmp_path: Path) -> None:
    told = settings(tmp_path, DOUBLES, minimize_seconds=300.0)
    drawn = [program(op("v0", "torch.mul", X, n + 2), size=(n + 2,)) for n in range(MOST_PER_KEY + 2)]
    events = triaged(told, [finding(told, i, p) for i, p in enumerate(drawn)])
    signed = [e for e in events if isinstance(e, FindingSigned)]
    explained = [e for e in events if isinstance(e, FindingExplained)]
    assert {(e.key, e.skeleton, e.stage) for e in signed} == {(KEY, "v0 = clone(x0); return v0", "")}
    assert len(signed) + len(explained) == len(drawn)
    assert len(signed) >= MOST_PER_KEY
    (path,) = {e.minimized for e in signed}
    assert [str(p) for p in told.signatures.iterdir()] == [path]
    assert parse_file(Path(path)).header["skeleton"] == signed[0].skeleton


def test_findings_that_no_known_bug_explains_are_all_minimized(tmp_path: Path) -> None:
    told = settings(tmp_path, "tests.unit.minimize.planted:four_values", minimize_seconds=300.0)
    wrong = [
        op("v0", "torch.neg", X),
        op("v0", "torch.cumsum", X, 0),
        op("v0", "torch.sum", X),
        op("v0", "torch.amax", X),
    ]
    assert len(wrong) > MOST_PER_KEY
    events = triaged(told, [finding(told, i, program(statement, size=(2,))) for i, statement in enumerate(wrong)])
    signed = [event for event in events if isinstance(event, FindingSigned)]
    assert len(signed) == len({event.skeleton for event in signed}) == len(wrong)


def test_a_finding_that_shows_nothing_when_it_runs_alone_is_flaky(tmp_path: Path) -> None:
    told = settings(tmp_path, "eager", minimize_seconds=60.0)
    (event,) = triaged(told, [finding(told, 0, DOUBLE)])
    assert isinstance(event, FindingFlaky) and event.text == "agrees"


def test_a_finding_whose_script_is_gone_is_said_to_be(tmp_path: Path) -> None:
    told = settings(tmp_path, DOUBLES, minimize_seconds=60.0)
    gone = finding(told, 0, DOUBLE)
    Path(gone.path).unlink()
    (event,) = triaged(told, [gone])
    assert isinstance(event, FindingFlaky) and "gone" in event.text


def test_without_time_nothing_is_minimized(tmp_path: Path) -> None:
    _, tally = campaign(settings(tmp_path, DOUBLES, examples=25))
    assert tally.findings and not tally.signatures and tally.untriaged == tally.findings


def test_known_bugs_are_counted_and_are_no_findings(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    header = {
        "found": "by hand",
        "issue": "none found",
        "difference": "all of it",
        "keys": {DOUBLES: str(KEY)},
        "expect": {DOUBLES: {"*": "differs"}},
    }
    (corpus / "everything-is-doubled.py").write_text(emit(program(op("v0", "Tensor.clone", X), size=(1,)), header))
    told = settings(tmp_path / "run", DOUBLES, examples=25, corpus=corpus, minimize_seconds=60.0)
    _, tally = campaign(told)
    assert tally.findings and tally.signatures
    assert {signed.known for signed in tally.signatures.values()} == {"everything-is-doubled"}
    assert (tally.new_findings, tally.exit_code) == (0, ExitCode.CLEAN)


CORPUS = Path(__file__).parents[2] / "corpus"
TWICE = (
    program(op("v0", "Tensor.detach", X), outputs=TupleExpr((Ref("v0"), Ref("v0")))),
    program(
        op("v0", "torch.neg", X),
        op("v1", "Tensor.detach", X),
        op("v2", "torch.mul", Ref("v1"), 3),
        outputs=TupleExpr((Ref("v1"), Ref("v0"), Ref("v1"), Ref("v2"))),
        size=(2, 3),
    ),
)
"""What torch's ``aot_function`` gives another object for: findings of a bug that the corpus has."""


@pytest.mark.parametrize("minimize_seconds", [0.0, 120.0], ids=["counted", "minimized"])
def test_what_the_corpus_knows_of_a_backend_of_torchs_is_no_finding(tmp_path: Path, minimize_seconds: float) -> None:
    told = settings(tmp_path, "aot_function", minimize_seconds=minimize_seconds, corpus=CORPUS)
    tally = Tally()
    known = list(known_bugs(CORPUS, "aot_function"))
    triage = Triage(told, known, threading.Event())
    for index, found in enumerate(TWICE):
        (difference, *_) = check(found, resolve("aot_function"), torch.device("cpu")).hard
        written = finding(told, index, found, difference.key)
        for each in (ProgramChecked(0, index, "differs", 0.1, hard=(difference.key,), path=written.path), written):
            tally.feed(each)
        triage.feed(written)
    for event in triage.events():
        assert isinstance(event, FindingSigned if minimize_seconds else FindingExplained)
        tally.feed(event)
    assert {signed.known for signed in tally.signatures.values()} == {"tensor-returned-twice"}
    assert sum(signed.minimized + signed.explained for signed in tally.signatures.values()) == len(TWICE)
    assert (tally.findings, tally.new_findings, tally.untriaged) == (len(TWICE), 0, 0)


@pytest.mark.parametrize("fault", FAULTS[:2], ids=lambda fault: fault.name)
def test_the_stage_is_the_one_that_is_wrong(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stage_of(emit(fault.shown_by), "cpu") == "no stage"
    fault.plant(monkeypatch)
    assert stage_of(emit(fault.shown_by), "cpu") == fault.rung.value


# -- resuming


def events_of(told: Settings, past: Past, most: int | None = None) -> list[Event]:
    """Run a campaign as the command line does, or until so many programs are judged: then as if it were killed."""
    seen: list[Event] = []
    with JsonLines(told.folder / "run.jsonl") as lines:
        running = Campaign(told, threading.Event(), past).events()
        for event in running:
            lines.feed(event)
            seen.append(event)
            if most is not None and sum(isinstance(e, ProgramChecked) for e in seen) >= most:
                running.close()
                break
    return seen


def test_events_are_read_back_as_they_were(tmp_path: Path) -> None:
    told = settings(tmp_path, DOUBLES, examples=25, minimize_seconds=30.0, script_seconds=None)
    told.make_folders()
    written = events_of(told, Past())
    assert isinstance(written[-1], RunFinished)
    assert list(load_events(tmp_path / "run.jsonl")) == written


def test_a_run_that_was_killed_goes_on_and_tells_everything_once(tmp_path: Path) -> None:
    whole = settings(tmp_path / "whole", DOUBLES, examples=60)
    events, _ = campaign(whole)
    told = settings(tmp_path / "broken", DOUBLES, examples=60)
    told.make_folders()
    journal = told.folder / "run.jsonl"
    events_of(told, Past(), most=7)
    with journal.open("a") as file:
        file.write('{"event": "ProgramChecked", "block": 0, "ind')  # killed while it wrote
    events_of(told, Past.of(load_events(journal)), most=23)
    journal.write_text(journal.read_text() + "\x00garbage\n[]\n{}\n" + '{"event": "ProgramChecked"}\n')
    last = events_of(told, Past.of(load_events(journal)))
    assert isinstance(last[0], RunResumed) and last[0].programs == 30
    told_of = list(load_events(journal))
    assert isinstance(told_of[0], RunStarted)

    def programs(found: list[Event]) -> list[tuple[int, int]]:
        return sorted((e.block, e.index) for e in found if isinstance(e, ProgramChecked))

    def findings(found: list[Event]) -> list[tuple[int, int]]:
        return sorted((e.block, e.index) for e in found if isinstance(e, FindingWritten))

    assert programs(told_of) == programs(events)
    assert findings(told_of) == findings(events)


def test_a_finding_that_was_not_told_of_when_the_run_was_killed_is_told_of() -> None:
    checked = ProgramChecked(3, 4, "differs", 0.1, hard=(KEY,), texts=("values ...",), path="there.py")
    past = Past.of([checked])
    assert past.untold == (FindingWritten(3, 4, KEY, "values ...", "there.py"),)
    assert Past.of([checked, past.untold[0]]).untold == ()


def test_what_has_been_signed_is_not_minimized_again(tmp_path: Path) -> None:
    told = settings(tmp_path, DOUBLES, examples=25, minimize_seconds=60.0)
    told.make_folders()
    first = events_of(told, Past())
    again = events_of(told, Past.of(load_events(tmp_path / "run.jsonl")))
    assert any(isinstance(e, FindingSigned) for e in first)
    assert [type(e) for e in again] == [RunResumed, PairsCounted, RunFinished]
    tally = Tally()
    for event in load_events(tmp_path / "run.jsonl"):
        tally.feed(event)
    assert tally.untriaged == 0
    assert next(iter(tally.signatures)) == Signature(KEY, "v0 = clone(x0); return v0")
