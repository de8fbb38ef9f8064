"""Each pass on a planted case: what it leaves, and that no other pass would have got there."""

import pytest

import aotcheck.minimize.reduce as reduce
from aotcheck.minimize import minimize, size
from aotcheck.minimize.edit import closed
from aotcheck.minimize.passes import PASSES
from tests.unit.minimize.cases import CASES, Case
from tests.unit.minimize.scripts import text

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.made_by.__name__)


def test_every_pass_has_a_case() -> None:
    assert {case.made_by for case in CASES} == set(PASSES)


@cases
def test_the_minimal_program_is_this_one(case: Case) -> None:
    assert case.fails(case.before)
    assert text(minimize(case.before, case.fails)) == text(case.after)


@cases
def test_no_other_pass_gets_there(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "PASSES", tuple(each for each in PASSES if each is not case.made_by))
    left = minimize(case.before, case.fails)
    assert size(left) > size(case.after)


@cases
def test_a_pass_proposes_nothing_simpler_of_its_minimal_program_that_it_was_not_asked(case: Case) -> None:
    """What is proposed of the minimal program is rejected by the predicate, not overlooked."""
    proposed = [candidate for candidate in case.made_by(case.after) if closed(candidate)]
    assert not [c for c in proposed if size(c) < size(case.after) and case.fails(c)]
