"""A signature is told as new once; afterwards its status is what the last nights showed."""

import datetime
import json
from pathlib import Path

import pytest

from aotcheck.campaign.corpus.files import Expected, entry_of
from aotcheck.campaign.corpus.known import known_bugs
from aotcheck.campaign.corpus.replay import Judged, Replayed
from aotcheck.campaign.nightly.remembered import Memory, Remembered, Seen
from aotcheck.campaign.record.words import Status
from aotcheck.oracle import CoarseKey, Outcome
from aotcheck.program import emit, parse_file
from tests.meta.small import DOUBLE

KEY = CoarseKey("values", "output")
SIGNATURE = f"{KEY} v0 = mul(x0); return v0"
MINE = "mine:compile"


class Nights:
    """One night after the other, each with a memory that it reads and saves."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nights = folder / "remembered", 0
        self.minimized = folder / "values-output-0123456789.py"
        self.minimized.write_text(emit(DOUBLE, {"format": 1, "backend": MINE, "key": str(KEY), "difference": "2, 4"}))

    def open(self) -> Memory:
        self.nights += 1
        return Memory(self.folder, datetime.datetime(2026, 11, self.nights, 2, 17, tzinfo=datetime.UTC))

    def night(self, *shown: str) -> Remembered:
        """A night in which fuzzing finds the bug (``found``) or replaying its file shows something."""
        memory = self.open()
        for what in shown:
            if what == "found":
                memory.found(MINE, "cpu", SIGNATURE, str(self.minimized))
            else:
                for path in memory.files([MINE]).get("cpu", []):
                    memory.replayed(replayed(path, what))
        memory.save()
        (one,) = memory
        return one


def replayed(path: Path, what: str) -> Replayed:
    match what:
        case "differs":
            return Replayed(path, MINE, Status.KNOWN, Judged(Outcome.DIFFERS, KEY))
        case "otherwise":
            return Replayed(path, MINE, Status.NEW, Judged(Outcome.DIFFERS, CoarseKey("stride", "output")))
        case "refused":
            return Replayed(path, MINE, Status.NEW, Judged(Outcome.REFUSED))
        case "wavers":
            return Replayed(path, MINE, Status.FLAKY, Judged(Outcome.AGREES))
        case "rejected":
            return Replayed(path, MINE, Status.REJECTED, Judged(rejected="no such backend"))
    return Replayed(path, MINE, Status.FIXED, Judged(Outcome.AGREES))


def test_a_bug_is_new_once_then_known_then_fixed(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    told = [nights.night(*shown) for shown in (["found"], ["differs", "found"], ["differs"], ["agrees"], ["agrees"])]
    assert [one.status for one in told] == [Status.NEW, Status.KNOWN, Status.KNOWN, Status.FIXED, Status.FIXED]
    assert [one.is_news for one in told] == [True, False, False, True, False]
    assert [one.fails for one in told] == [True, False, False, False, False]
    assert (told[-1].first, told[-1].last) == ("2026-11-01", "2026-11-03")


def test_what_wavers_in_a_night_or_comes_back_is_flaky_and_is_told_once(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    shown = (["found"], ["wavers"], ["differs"], ["differs"], ["differs"], ["agrees"], ["found"], ["differs"])
    told = [nights.night(*what) for what in shown]
    flaky = Status.FLAKY
    assert [one.status for one in told] == [Status.NEW, *[flaky] * 3, Status.KNOWN, Status.FIXED, flaky, flaky]
    assert [one.fails for one in told] == [True, True, False, False, False, False, True, False]
    assert told[-1].last == "2026-11-08"


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (["agrees", "found"], Status.KNOWN),
        (["wavers", "found"], Status.FLAKY),
        (["otherwise"], Status.KNOWN),
        (["refused"], Status.FIXED),
    ],
    ids=["found-though-the-file-agrees", "found-and-wavers", "under-another-key", "refused"],
)
def test_one_night_comes_to_one_answer(tmp_path: Path, shown: list[str], status: Status) -> None:
    nights = Nights(tmp_path)
    nights.night("found")
    assert nights.night(*shown).status is status


def test_a_flaky_finding_fails_one_night_and_is_remembered_by_its_key(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    for fails in (True, False, False):
        memory = nights.open()
        one = memory.found(MINE, "cpu", f"{KEY}, flaky", "", Seen.WAVERS)
        assert (one.status, one.fails, memory.files([MINE])) == (Status.FLAKY, fails, {})
        memory.save()


def test_a_night_that_did_not_judge_it_changes_nothing(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    nights.night("found")
    nights.night("differs")
    for shown in (["rejected"], []):
        one = nights.night(*shown)
        assert (one.status, one.is_news, one.last) == (Status.KNOWN, False, "2026-11-02")


def test_triage_and_replay_know_what_is_remembered(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    one = nights.night("found")
    path = nights.folder / one.file
    entry = entry_of(path, parse_file(path))
    assert (entry.keys, entry.expected(MINE, "9.9")) == ({MINE: str(KEY)}, Expected.DIFFERS)
    memory = nights.open()
    assert [memory.named(MINE, bug.name) for bug in known_bugs(nights.folder, MINE)] == [SIGNATURE]
    assert memory.named("eager", one.name) is None and memory.files(["eager"]) == {}


def test_who_deletes_the_file_forgets_the_signature(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    (nights.folder / nights.night("found").file).unlink()
    assert list(nights.open()) == []
    assert nights.night("found").status is Status.NEW


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 7, "signatures": []}', '{"format": 1, "signatures": [{"backend": 3}]}', "\x00\xff"],
)
def test_a_damaged_memory_is_kept_aside_and_rebuilt_from_the_files(tmp_path: Path, text: str) -> None:
    nights = Nights(tmp_path)
    nights.night("found")
    path = nights.folder / "memory.json"
    path.write_bytes(text.encode("latin-1"))
    memory = nights.open()
    (aside,) = nights.folder.glob("memory-damaged-*.json")
    assert aside.read_bytes() == text.encode("latin-1") and not path.exists()
    assert "memory.json: damaged (" in memory.damage and f"kept as {aside.name}; 1 of its" in memory.damage
    assert "\n" not in memory.damage
    memory.found(MINE, "cpu", SIGNATURE, str(nights.minimized))
    (one,) = memory
    assert (one.status, one.first) == (Status.KNOWN, "2026-11-01"), "not told as new twice"
    memory.save()
    assert json.loads(path.read_text())["format"] == 1 and nights.open().damage == ""
