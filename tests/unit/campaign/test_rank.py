"""Findings are told in the order in which a maintainer would want them, in words that a maintainer understands."""

import io
import threading
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from aotcheck.campaign import Settings
from aotcheck.campaign.findings.impact import Impact, impact_of
from aotcheck.campaign.findings.oddity import oddity
from aotcheck.campaign.findings.signature import cause, skeleton
from aotcheck.campaign.findings.titles import MOST_WORDS, Seen, conditions, title
from aotcheck.campaign.nightly.night import Nightly
from aotcheck.campaign.record.events import FindingExplained, FindingSigned, FindingWritten
from aotcheck.campaign.record.tally import Tally
from aotcheck.campaign.record.words import Status
from aotcheck.campaign.results.rank import Cause, rank_of, ranked
from aotcheck.campaign.results.runs import summed_up
from aotcheck.campaign.results.triage import Triage
from aotcheck.oracle import CoarseKey, Deviation, Difference, OracleKind, Phase, Place, Role, Severity
from aotcheck.program import Call, GradMode, Program, Ref, emit, parse_file
from aotcheck.report.junit import write_junit
from aotcheck.report.markdown import markdown
from aotcheck.report.terminal import print_summary
from tests.meta.small import DOUBLE, INPUT, MUTATES, TRAINED, VIEW, X, op, program

CORPUS = Path(__file__).parents[3] / "corpus"
CUMSUM = program(op("v0", "torch.cumsum", X, 0), requires_grad=True, backward=True)
SPLIT = program(op("v0", "torch.split", X, 2))
SET = program(op(None, "Tensor.set_", X), op("v0", "torch.mul", X, 2))
THREE = program(op("v0", "torch.neg", X), op(None, "Tensor.set_", X), op("v1", "torch.sin", X), outputs=Ref("v1"))
K = OracleKind


def seen(
    kind: OracleKind,
    role: Role,
    eager: str = "1",
    compiled: str = "2",
    error: str = "",
    phase: Phase = Phase.FORWARD,
    call: int = 0,
    failed: bool = False,
    relation: str = "",
    deviation: Deviation = Deviation.PLAIN,
) -> Difference:
    place = Place(role, role.value, call, phase, relation, failed)
    return Difference(kind, Severity.HARD, place, eager, compiled, error, deviation)


def said(difference: Difference, shown_by: Program = DOUBLE) -> str:
    return title(difference.text, difference.key, shown_by)


def fits(words: str) -> bool:
    return len(words.split()) <= MOST_WORDS and not {"\n", "\\"} & set(words)


NOTHING = "raises nothing"
TITLES = [
    (seen(K.VALUES, Role.GRADIENT, phase=Phase.BACKWARD), CUMSUM, "gradient of cumsum is silently wrong"),
    (
        seen(K.VALUES, Role.RESULT, phase=Phase.DOUBLE_GRAD, call=1),
        CUMSUM,
        "second derivative of cumsum is silently wrong (second call)",
    ),
    (seen(K.VALUES, Role.OUTPUT), DOUBLE, "output of mul is silently wrong"),
    (seen(K.VALUES, Role.OUTPUT, deviation=Deviation.ROUNDING), DOUBLE, "output of mul is less exact than eager's"),
    (seen(K.VALUES, Role.INPUT, failed=True), MUTATES, "input mutation by add_ then mul is lost or wrong (both raise)"),
    (
        seen(K.EXCEPTION, Role.CALL, NOTHING, "raises IndexError('x')", "IndexError: x"),
        SPLIT,
        "split raises IndexError, eager does not",
    ),
    (
        seen(K.EXCEPTION, Role.CALL, "raises ValueError('y')", "raises a.b.IndexError('x')", "a.b.IndexError: x"),
        SPLIT,
        "split raises IndexError instead of ValueError",
    ),
    (
        seen(K.EXCEPTION, Role.CALL, "raises RuntimeError('y')", NOTHING, "missing RuntimeError: y", Phase.BACKWARD),
        SPLIT,
        "backward of split does not raise RuntimeError, eager does",
    ),
    (
        seen(K.REQUIRES_GRAD, Role.OUTPUT, "True", "False"),
        DOUBLE,
        "output of mul has wrong requires_grad (False instead of True)",
    ),
    (seen(K.GRADIENT_NONE, Role.GRADIENT, "torch.float32", "None"), TRAINED, "gradient of mul is missing"),
    (seen(K.ALIASING, Role.OUTPUT, relation="output-input vs none"), VIEW, "output of view does not alias an input"),
    (seen(K.IDENTITY, Role.OUTPUT, relation="none vs output-output"), VIEW, "output of view wrongly is another output"),
    (seen(K.CRASH, Role.PROCESS, error="killed by SIGSEGV"), SET, "set_ then mul kills the process: killed by SIGSEGV"),
    (
        seen(K.VALUES, Role.OUTPUT),
        program(op(None, "Tensor.imag=", X, X)),
        "output of assignment to .imag is silently wrong",
    ),
    (seen(K.VALUES, Role.OUTPUT), THREE, "output of neg, set_ then sin is silently wrong"),
]


@pytest.mark.parametrize(("difference", "shown_by", "words"), TITLES, ids=[words for _, _, words in TITLES])
def test_a_title_says_which_op_and_what_is_wrong(difference: Difference, shown_by: Program, words: str) -> None:
    assert words == said(difference, shown_by)


@pytest.mark.parametrize("kind", [kind for kind in OracleKind if kind is not K.EXCEPTION], ids=lambda kind: kind.value)
@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)
def test_every_difference_has_a_title_in_one_line(kind: OracleKind, role: Role) -> None:
    words = said(seen(kind, role, "long " * 99, "other\n" * 99))
    assert "mul" in words and fits(words)


def test_every_place_can_be_taken_apart() -> None:
    for phase in Phase:
        for role in Role:
            for failed in (False, True):
                for call in (0, 1):
                    kind = K.EXCEPTION if role is Role.CALL else K.VALUES
                    key = seen(kind, role, phase=phase, call=call, failed=failed).key
                    found = Seen.of(key)
                    assert (found.after, found.both_raise, found.later) == (phase, failed, bool(call))


GRAVEST_FIRST = [
    seen(K.VALUES, Role.GRADIENT, phase=Phase.BACKWARD),
    seen(K.CRASH, Role.PROCESS),
    seen(K.VALUES, Role.INPUT),
    seen(K.EXCEPTION, Role.CALL, error="IndexError: x"),
    seen(K.EXCEPTION, Role.CALL, error="missing IndexError: x"),
    seen(K.ALIASING, Role.OUTPUT, relation="output-input vs none"),
    seen(K.REQUIRES_GRAD, Role.OUTPUT),
]


def test_the_gravest_impact_is_told_first() -> None:
    ranks = [rank_of(one.key, DOUBLE) for one in GRAVEST_FIRST]
    assert ranks == sorted(ranks)
    assert [rank.impact for rank in ranks] == list(Impact)
    assert all(impact.words for impact in Impact)


def test_every_kind_has_an_impact() -> None:
    for kind in OracleKind:
        assert impact_of(seen(kind, Role.OUTPUT).key) in Impact
    assert impact_of(seen(K.SHAPE, Role.INPUT).key) is Impact.LOST
    assert impact_of(seen(K.SHAPE, Role.OUTPUT).key) is Impact.WRONG
    assert impact_of(seen(K.STRIDE, Role.OUTPUT).key) is Impact.METADATA
    assert impact_of(seen(K.STRUCTURE, Role.OUTPUT).key) is Impact.WRONG
    assert impact_of(seen(K.STRUCTURE, Role.OUTPUT, failed=True).key) is Impact.LOST


def test_of_one_impact_what_people_write_is_told_first() -> None:
    key = seen(K.VALUES, Role.OUTPUT).key
    subclass = replace(DOUBLE, calls=(replace(DOUBLE.calls[0], grad_mode=GradMode.INFERENCE),))
    programs = [DOUBLE, MUTATES, replace(DOUBLE, calls=(replace(DOUBLE.calls[0], steps=(INPUT,)),)), SET]
    ranks = [rank_of(key, shown_by) for shown_by in programs]
    assert ranks == sorted(ranks) and len(set(ranks)) == len(ranks)
    assert rank_of(key, DOUBLE, findings=9) < rank_of(key, DOUBLE) < rank_of(key, subclass) < rank_of(key, None)
    later = seen(K.VALUES, Role.OUTPUT, call=1).key
    refused = seen(K.VALUES, Role.OUTPUT, failed=True).key
    assert rank_of(key, SET) < rank_of(later, DOUBLE) < rank_of(refused, DOUBLE)


def test_what_hardly_anybody_writes_is_odder() -> None:
    assert oddity(DOUBLE) == 0 and oddity(TRAINED) == 0
    assert oddity(MUTATES) == 0, "a write to an input is usual"
    assert 0 < oddity(program(op("v0", "torch.mul", X, 2), dtype="complex64")) < oddity(SET)


def key_in(header: str) -> CoarseKey:
    """The key that is written so."""
    oracle, place, *rest = header[1:-1].split(", ")
    while rest and rest[0] in ("both raise", "later call"):
        place += f", {rest.pop(0)}"
    deviation = rest.pop() if rest and rest[-1] in {one.value for one in Deviation} else ""
    key = CoarseKey(oracle, place, ", ".join(rest), deviation)
    assert str(key) == header
    return key


def test_the_corpus_has_short_titles() -> None:
    found = []
    for path in sorted(CORPUS.glob("*.py"))[::5]:
        parsed = parse_file(path)
        told, keys = str(parsed.header["difference"]), parsed.header.get("keys", {})
        found += [title(told, key_in(key), parsed.program) for key in dict(keys).values()]  # type: ignore[call-overload]
    assert len(found) > 100 and [one for one in found if not fits(one)] == []


# -- entries


class Found:
    """Signatures, as triage tells them of findings, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tally, self.count = folder, Tally(), 0

    def add(self, difference: Difference, shown_by: Program, known: str = "", stage: str = "", times: int = 1) -> None:
        self.count += 1
        path, text = self.folder / f"{self.count}.py", difference.text
        path.write_text(emit(shown_by, {"key": str(difference.key), "difference": text}), encoding="utf-8")
        told = skeleton(shown_by)
        event = FindingSigned("f.py", difference.key, told, stage, str(path), 1, True, known, 1.0, cause(shown_by))
        self.tally.feed(replace(event, shown=difference.key, text=text))
        for _ in range(times - 1):
            self.tally.feed(FindingExplained("f.py", difference.key, told, stage, known))

    @property
    def entries(self) -> tuple[Cause, ...]:
        return ranked(self.tally)

    @property
    def told(self) -> list[str]:
        return [entry.head.title for entry in self.entries]


WRONG, GRADIENT = seen(K.VALUES, Role.OUTPUT), seen(K.VALUES, Role.GRADIENT, phase=Phase.BACKWARD)
FLAG, RAISED = seen(K.REQUIRES_GRAD, Role.OUTPUT), seen(K.EXCEPTION, Role.CALL, error="IndexError: x")


def test_consequences_are_told_under_their_cause(tmp_path: Path) -> None:
    found = Found(tmp_path)
    found.add(FLAG, TRAINED, times=5)
    found.add(GRADIENT, TRAINED)
    found.add(WRONG, DOUBLE, times=2)
    (entry,) = found.entries
    assert entry.head.signature.key == WRONG.key, "a plain program goes before one with a backward"
    assert [told.signature.key.oracle for told in entry.also] == ["values", "requires-grad"]
    assert (entry.findings, entry.minimized, entry.explained, entry.status) == (8, 3, 5, Status.NEW)


def test_other_ops_stages_errors_and_known_bugs_are_entries_of_their_own(tmp_path: Path) -> None:
    found = Found(tmp_path)
    found.add(WRONG, DOUBLE)
    found.add(WRONG, CUMSUM)
    found.add(WRONG, DOUBLE, stage="runtime")
    found.add(RAISED, DOUBLE)
    found.add(seen(K.EXCEPTION, Role.CALL, error="ValueError: y"), DOUBLE)
    found.add(GRADIENT, TRAINED, known="a-file")
    found.add(FLAG, CUMSUM, known="a-file")
    assert sorted(len(entry.also) for entry in found.entries) == [0, 0, 0, 1, 1]
    (known,) = (entry for entry in found.entries if entry.known)
    assert known is not found.entries[0] and known == found.entries[-1] and len(known.also) == 1


def test_entries_are_told_the_gravest_first_and_known_ones_last(tmp_path: Path) -> None:
    found = Found(tmp_path)
    found.add(FLAG, VIEW, times=99)
    found.add(WRONG, SET)
    found.add(WRONG, DOUBLE, known="a-file")
    found.add(RAISED, SPLIT, times=9)
    found.add(GRADIENT, CUMSUM)
    impacts = [entry.head.rank.impact for entry in found.entries]
    assert impacts == [Impact.WRONG, Impact.WRONG, Impact.RAISES, Impact.METADATA, Impact.WRONG]
    assert found.told[0] == "gradient of cumsum is silently wrong"
    assert "set_" in found.told[1]
    run = summed_up(found.tally, "b", tmp_path, 0)
    assert [one.title for one in run.signatures] == found.told, "what is written of a night has the same order"


def test_what_cannot_be_read_is_told_after_what_can(tmp_path: Path) -> None:
    found = Found(tmp_path)
    found.add(WRONG, DOUBLE)
    found.add(WRONG, CUMSUM)
    (tmp_path / "1.py").unlink()
    assert found.told[0] == "output of cumsum is silently wrong"
    assert found.told[1] == "(values, output), of which there is no program to read"


def test_console_junit_and_summary_tell_entries_in_one_order(tmp_path: Path) -> None:
    found = Found(tmp_path)
    found.add(FLAG, VIEW, times=99)
    found.add(FLAG, TRAINED, times=3)
    found.add(WRONG, DOUBLE)
    found.add(RAISED, SPLIT, known="a-file")
    told = found.told
    assert len(told) == 3 and "silently wrong" in told[0]
    console = io.StringIO()
    print_summary(found.tally, Console(file=console, width=400))
    run = summed_up(found.tally, "eager", tmp_path, 0)
    write_junit(tmp_path / "junit.xml", (), (run,))
    cases = [case.get("name", "") for case in ET.parse(tmp_path / "junit.xml").iter("testcase")][1:]
    assert cases[:3] == [str(entry.head.signature) for entry in found.entries], "a case is called by its signature"
    summary = markdown(Nightly("there", "now", {}, runs=(run,)))
    junit = (tmp_path / "junit.xml").read_text()
    for text in (console.getvalue(), summary):
        assert [text.index(words) for words in told] == sorted(text.index(words) for words in told)
    for text in (console.getvalue(), summary, junit):
        assert text.count("also seen as") == 1 and "a-file" in text
    assert "aotcheck bug FILE" in console.getvalue()


def test_keys_without_a_signature_are_told_the_gravest_first() -> None:
    tally = Tally()
    for number, one in enumerate((FLAG, FLAG, RAISED, WRONG)):
        tally.feed(FindingWritten(0, number, one.key, one.text, f"{number}.py"))
    tally.feed(FindingSigned("0.py", FLAG.key, "x", "", "", 1, True, "", 1.0))
    console = io.StringIO()
    print_summary(tally, Console(file=console, width=400))
    told = console.getvalue()[console.getvalue().index("program to read") :]
    places = [told.index(f"     1  {one.key}") for one in (WRONG, RAISED, FLAG)]
    assert places == sorted(places) and "3 findings left to minimize" in told


def test_the_gravest_finding_is_minimized_first(tmp_path: Path) -> None:
    triage = Triage(Settings("s:s", "eager", "cpu", 0, 1, None, 1, 60.0, 2**30, tmp_path), (), threading.Event())
    for number, one in enumerate((FLAG, RAISED, WRONG)):
        triage.feed(FindingWritten(0, number, one.key, one.text, f"{number}.py"))
    order = []
    while (finding := triage._next()) is not None:
        order.append(finding.path)
        triage.feed(FindingExplained(finding.path, finding.key, "x", ""))
    assert order == ["2.py", "1.py", "0.py"]


def test_a_title_says_what_is_out_of_the_ordinary_about_the_calls() -> None:
    plain = program(op("v0", "torch.neg", X))
    (call,) = plain.calls
    assert call.inputs is not None
    twice = replace(call.inputs, args=(Ref("a0"), Ref("a0")))
    (tensor,) = call.inputs.tensors
    other = replace(tensor, name="a1", dtype="int32")
    shared = replace(call.inputs, tensors=(tensor, other), args=(Ref("a0"), Ref("a1")))
    quiet = replace(call, grad_mode=GradMode.NO_GRAD)

    def told(*calls: Call) -> list[str]:
        return list(conditions(replace(plain, calls=calls)))

    assert told(call) == []
    assert told(replace(call, inputs=twice)) == ["same tensor twice"]
    assert told(replace(call, inputs=shared)) == ["arguments share memory as two dtypes"]
    assert told(quiet, call) == ["no_grad"]
