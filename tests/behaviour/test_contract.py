"""docs/contract.md and the folders of these tests name each other; the ledger is kept both ways."""

import re
from pathlib import Path

import pytest

from tests.behaviour.ledger import LEDGER, Ledger, print_ledger

HERE = Path(__file__).parent
CONTRACT = (HERE.parent.parent / "docs" / "contract.md").read_text(encoding="utf-8")
HEADINGS = sorted(path.name for path in HERE.iterdir() if path.is_dir() and any(path.glob("test_*.py")))


@pytest.mark.parametrize("heading", [heading for heading in HEADINGS if heading != "first_compiler"])
def test_the_contract_lists_the_tests_of_each_heading(heading):
    (listed,) = re.findall(rf"^Tests, in \[tests/behaviour/{heading}\]((?:.|\n)*?)\.$", CONTRACT, re.M)
    files = {path.stem.removeprefix("test_") for path in (HERE / heading).glob("test_*.py")}
    assert set(re.findall(r"`(\w+)`", listed)) == files


def test_the_contract_lists_no_heading_without_tests():
    assert set(re.findall(r"Tests, in \[tests/behaviour/(\w+)\]", CONTRACT)) <= set(HEADINGS)


def test_the_ledger_names_tests_and_headings_that_there_are():
    ledger = Ledger.read(LEDGER)
    assert set(ledger.later) <= set(HEADINGS)
    for case in ledger.entries:
        file, function = case.split("[")[0].split("::")
        assert f"def {function}(" in (HERE / file).read_text(encoding="utf-8")


def test_a_refusal_must_be_in_the_ledger_and_what_is_in_it_must_be_refused():
    ledger = Ledger(("hooks",), {"storage/test_set.py::test_x": "a", "storage/test_set.py::test_y[cpu-1]": "b"})
    case = "tests/behaviour/storage/test_set.py::test_{}".format
    assert ledger.judge(case("x[cpu-1]"), "a") is None
    assert ledger.judge(case("z"), None) is None
    assert ledger.judge("tests/behaviour/hooks/test_a.py::test_b", "whatever") is None
    assert "says a" in (ledger.judge(case("x[cpu-1]"), "b") or "")
    assert "says nothing" in (ledger.judge(case("y[cpu-2]"), "b") or "")
    assert "no longer refused" in (ledger.judge(case("y[cpu-1]"), None) or "")


def test_a_recorded_ledger_is_kept_by_what_it_was_recorded_of(tmp_path):
    outcomes = {"a/test_a.py::test_x[1]": "r", "a/test_a.py::test_x[2]": "r", "a/test_a.py::test_y[1]": "s"}
    outcomes |= {"a/test_a.py::test_y[2]": None, "a/test_a.py::test_z": None}
    (tmp_path / "refused.toml").write_text(print_ledger(outcomes))
    ledger = Ledger.read(tmp_path / "refused.toml")
    assert ledger.entries == {"a/test_a.py::test_x": "r", "a/test_a.py::test_y[1]": "s"}
    assert [ledger.judge(case, reason) for case, reason in outcomes.items()] == [None] * 5
