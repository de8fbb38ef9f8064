"""Minimizing as a whole: what holds of every result, whatever the program and the predicate."""

from itertools import islice

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from aotcheck.minimize import minimize, size, steps
from aotcheck.minimize.edit import closed
from aotcheck.minimize.passes import PASSES
from aotcheck.oracle.kinds import Role
from aotcheck.program import Program, emit, flat_calls, parse
from aotcheck.program.data.samples import ALIASED_VIEWS, SAMPLES
from aotcheck.program.ops.registry import find
from strategies import settled
from tests.unit.minimize.scripts import Predicate, both, eagerly, paths, reads_freed_memory, runs, text


def mutates_an_input(made: Program) -> bool:
    """Eager writes to an input in the first call; building it counts as the first write."""
    return any(t.version > 1 for t in eagerly(made)[0].snapshot.tensors if t.role is Role.INPUT)


def returns_an_alias(made: Program) -> bool:
    return any(t.storage != t.name for t in eagerly(made)[0].snapshot.tensors if t.role is Role.OUTPUT)


def is_refused(made: Program) -> bool:
    if reads_freed_memory(made):
        return False
    try:
        return any(step.raised is not None for step in eagerly(made))
    except Exception:  # inputs that cannot be built
        return False


def has_the_last_group(program: Program) -> Predicate:
    wanted = find(paths(program)[-1])[0].group
    return lambda made: any(find(call.path)[0].group is wanted for call in flat_calls(made.body))


PREDICATES = {
    "mutates": both(runs, mutates_an_input),
    "aliases": both(runs, returns_an_alias),
    "refused": is_refused,
    "runs": runs,
}

MOST_STATEMENTS = {"mutates": 1, "aliases": 0, "refused": 2, "runs": 0}
"""What the predicate cannot do without; two tensors that do not fit may take a statement to make one of them."""

some = settings(
    max_examples=40,
    deadline=None,
    phases=(Phase.generate,),  # what is minimized here is not Hypothesis's to shrink
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", PREDICATES)
@some
@given(program=settled())
def test_a_result_fails_is_well_formed_is_no_larger_and_is_minimal(name: str, program: Program) -> None:
    fails = PREDICATES[name]
    assume(fails(program))
    result = minimize(program, fails)
    assert fails(result)
    assert closed(result)
    assert parse(emit(result)).program == result
    assert size(result) <= size(program)
    assert result.statements <= program.statements
    assert result.statements <= MOST_STATEMENTS[name]
    assert text(minimize(result, fails)) == text(result)


@settings(some, max_examples=12)
@given(program=settled())
def test_what_a_pass_proposes_and_holds_together_is_a_program_that_can_be_written(program: Program) -> None:
    for made_by in PASSES:
        for candidate in filter(closed, islice(made_by(program), 15)):
            assert parse(emit(candidate)).program == candidate, made_by.__name__


@some
@given(program=settled())
def test_each_step_is_smaller_than_the_one_before(program: Program) -> None:
    assume(paths(program))
    fails, last = has_the_last_group(program), program

    class Asks:
        over = False

        def first(self, candidates: object) -> Program | None:
            return next(filter(fails, candidates), None)  # type: ignore[call-overload]

    for step in steps(program, Asks()):
        assert size(step.program) < size(last)
        last = step.program
    assert last.statements == 1


@pytest.mark.parametrize("sample", SAMPLES, ids=["views", "refused", "transposed"])
def test_nothing_is_asked_twice_nor_of_a_program_that_does_not_hold_together(sample: Program) -> None:
    asked: list[Program] = []

    def fails(made: Program) -> bool:
        asked.append(made)
        return "Tensor.t_" in paths(made)

    minimize(sample, fails)
    assert all(map(closed, asked))
    rejected = [made for made in asked if "Tensor.t_" not in paths(made)]
    assert len(set(rejected)) == len(rejected)


def test_the_same_questions_are_asked_each_time() -> None:
    asked: list[list[Program]] = [[], []]
    for record in asked:
        minimize(ALIASED_VIEWS, lambda made, record=record: record.append(made) or runs(made))  # type: ignore[misc]
    assert asked[0] == asked[1]


def test_a_program_that_cannot_be_smaller_is_given_back() -> None:
    assert minimize(ALIASED_VIEWS, lambda made: False) is ALIASED_VIEWS


def test_an_error_of_the_predicate_is_the_callers() -> None:
    def broken(made: Program) -> bool:
        raise KeyError("planted")

    with pytest.raises(KeyError, match="planted"):
        minimize(ALIASED_VIEWS, broken)
