"""Candidates in worker processes: what kills one is an outcome, and what is odd in eager is rejected."""

import threading

import pytest

from aotcheck.minimize import DoesNotFailError, InspectionError, Limits, Reduced, Reduction, Subject, load_inspection
from aotcheck.program import Program
from tests.unit.minimize.cases import RETURNS_NOTHING, vector
from tests.unit.minimize.planted import FATAL
from tests.unit.minimize.scripts import program, text

SEVEN = program(
    "def f(x0):\n    v0 = torch.neg(x0)\n    x0.zero_()\n    return (x0, v0)",
    vector("[1, 2, 3, 4, 5, 6, 7]", "(7,)", "(1,)"),
)
"""What ``dies`` and ``hangs`` are waiting for: seven elements."""

ONE_WORKER = Limits()
RETURNS_A_FRESH_TENSOR = "def f(x0):\n    v0 = x0.clone()\n    return v0"


def reduced(program: Program, backend: str, limits: Limits = ONE_WORKER, inspection: str = "") -> Reduced:
    reduction = Reduction(program, Subject(backend, "cpu", inspection), limits)
    for _ in reduction.steps():
        pass
    assert reduction.result is not None
    return reduction.result


def test_a_difference_is_minimized_and_the_number_of_workers_does_not_matter() -> None:
    found = [reduced(SEVEN, "tests.meta.planted:doubles", Limits(jobs=jobs)) for jobs in (1, 2)]
    assert found[0].program == found[1].program
    assert found[0].tried == found[1].tried
    assert [str(one.shows.key) for one in found] == ["(identity, output-input vs none)"] * 2
    assert text(found[0].program) == text(program("def f(x0):\n    return x0"))
    assert found[0].finished


def test_a_crash_is_minimized() -> None:
    found = reduced(SEVEN, "tests.meta.planted:dies")
    assert str(found.shows.key) == "(crash, process, killed by SIGKILL)"
    assert text(found.program) == text(program(RETURNS_NOTHING, vector("[0, 0, 0, 0, 0, 0, 0]", "(7,)", "(1,)")))


def test_a_hang_is_minimized() -> None:
    small = program(RETURNS_NOTHING.replace("None", "x0"), vector("[0, 0, 0, 0, 0, 0, 0]", "(7,)", "(1,)"))
    found = reduced(small, "tests.meta.planted:hangs", Limits(timeout=2.0))
    assert str(found.shows.key) == "(timeout, process)"
    assert text(found.program) == text(program(RETURNS_NOTHING, vector("[0, 0, 0, 0, 0, 0, 0]", "(7,)", "(1,)")))


def test_what_kills_eager_too_is_no_finding() -> None:
    body = f"def f(x0):\n    v0 = {FATAL}(x0)\n    return v0"
    three = program(body, vector("[0, 0, 0]", "(3,)", "(1,)"))
    found = reduced(three, "tests.unit.minimize.planted:dies_of_many")
    assert str(found.shows.key) == "(crash, process, killed by SIGKILL)"
    assert text(found.program) == text(program(RETURNS_NOTHING, vector("[0, 0, 0]", "(3,)", "(1,)")))
    single = program(body, vector("[0]", "(1,)", "(1,)"))
    with pytest.raises(DoesNotFailError, match="eager does not survive it"):
        reduced(single, "tests.unit.minimize.planted:dies_of_many")


def test_a_worker_that_a_program_has_poisoned_runs_no_other() -> None:
    found = reduced(program(RETURNS_A_FRESH_TENSOR), "tests.meta.planted:poisons")
    assert str(found.shows.key) == "(global-state, process, mode_depths)"
    assert (found.program.statements, found.program.params) == (0, ())


def test_a_candidate_that_eager_refuses_is_rejected_where_the_original_ran() -> None:
    """``mistypes`` turns a RuntimeError into an IndexError: only a program that eager refuses differs at all."""
    refused = program("def f(x0):\n    x0.neg_()\n    x0.squeeze_(3)\n    return x0")
    with pytest.raises(DoesNotFailError, match="agrees"):
        reduced(program(RETURNS_A_FRESH_TENSOR), "tests.meta.planted:mistypes")
    with pytest.raises(DoesNotFailError, match="agrees"):  # an IndexError already
        reduced(refused, "tests.meta.planted:mistypes")
    fits = program("def f(x0):\n    x0.neg_()\n    v0 = x0.view((3,))\n    return v0", vector("[0, 0]", "(2,)", "(1,)"))
    found = reduced(fits, "tests.meta.planted:mistypes")
    assert str(found.shows.key) == "(exception, forward, IndexError: shape 'X' is invalid for input of size N)"
    assert [str(step) for step in found.shows.eager.raises] == [  # type: ignore[union-attr]
        "forward: RuntimeError: shape 'X' is invalid for input of size N"
    ]
    assert found.program.statements == 1


def test_a_candidate_that_is_less_well_defined_is_rejected() -> None:
    before = program("def f(x0):\n    return (x0, x0)", vector("[0, 0]", "(2,)", "(1,)"))
    inspection = "tests.unit.minimize.planted:wants_two_elements"
    found = reduced(before, "tests.meta.planted:doubles", inspection=inspection)
    assert text(found.program) == text(program("def f(x0):\n    return x0", vector("[0, 0]", "(2,)", "(1,)")))
    assert text(reduced(before, "tests.meta.planted:doubles").program) == text(program("def f(x0):\n    return x0"))


def test_a_program_that_does_not_fail_is_said_not_to() -> None:
    with pytest.raises(DoesNotFailError, match="agrees"):
        reduced(SEVEN, "eager")


def test_time_ends_it_with_what_there_is() -> None:
    found = reduced(SEVEN, "tests.meta.planted:doubles", Limits(seconds=0.001))
    assert (found.program, found.finished, found.tried) == (SEVEN, False, 0)


def test_whoever_stops_it_gets_what_there_is() -> None:
    stop = threading.Event()
    reduction = Reduction(SEVEN, Subject("tests.meta.planted:doubles"), Limits(), stop)
    for _ in reduction.steps():
        stop.set()
    assert reduction.result is not None
    assert not reduction.result.finished
    assert reduction.result.program != SEVEN


def test_an_inspection_that_is_not_there_is_named() -> None:
    with pytest.raises(InspectionError, match="nowhere"):
        load_inspection("nowhere:x")
    with pytest.raises(InspectionError, match="not a function"):
        load_inspection("strategies.calls:__all__")


WRITTEN_BACK = program(
    "def f(x0):\n    v0 = torch.neg(x0)\n    x0.copy_(v0)\n    return None", vector("[1, 2]", "(2,)", "(1,)")
)
"""A wrong value that is seen in an input."""

WINDOW_OF_A_COPY = program(
    "def f(x0):\n    v0 = x0[1:]\n    v1 = v0.as_strided((2,), (1,), 0)\n    return None",
    vector("[1, 2]", "(2,)", "(1,)"),
)
"""A view that is a copy, and too small for the window on it."""


UNNAMED_IN_A_BLOCK = program(
    "def f(x0):\n    with torch.inference_mode():\n        x0[:]\n    return None", vector("[1, 2]", "(2,)", "(1,)")
)
"""A copy in place of a view that cannot even be made."""


@pytest.mark.parametrize(
    ("found", "bug", "key", "body"),
    [
        (
            UNNAMED_IN_A_BLOCK,
            "slice_copies",
            "(aliasing, output-input vs none)",
            "def f(x0):\n    v0 = x0[:]\n    return v0",
        ),
        (WRITTEN_BACK, "neg_wrong", "(values, output)", "def f(x0):\n    v0 = torch.neg(x0)\n    return v0"),
        (
            WINDOW_OF_A_COPY,
            "slice_copies",
            "(aliasing, output-input vs none)",
            "def f(x0):\n    v0 = x0[:]\n    return v0",
        ),
    ],
    ids=["without a name", "written to an input", "too small for a window"],
)
def test_a_consequence_is_told_by_its_root(found: Program, bug: str, key: str, body: str) -> None:
    subject = Subject(f"tests.meta.bugs:{bug}")
    kept = Reduction(found, subject, ONE_WORKER)
    rooted = Reduction(found, subject, ONE_WORKER, to_root=True)
    for reduction in (kept, rooted):
        for _ in reduction.steps():
            pass
    assert kept.result is not None and rooted.result is not None
    assert str(kept.result.shows.key) != key
    assert str(rooted.result.shows.key) == key
    assert text(rooted.result.program).partition("def f")[2] == text(program(body)).partition("def f")[2]


SQUARE, CUBE = vector("[1, 2, 3, 4]", "(2, 2)", "(2, 1)"), vector("[1, 2]", "(2, 1, 1)", "(1, 1, 1)")
LONG = vector("[3, 2, 4]", "(3,)", "(1,)")


@pytest.mark.parametrize(
    ("body", "inputs", "bug", "key", "root"),
    [
        ("x0.t_()\n    return x0", SQUARE, "transpose_in_place_lost", "(shape, input)", "x0.t_()"),
        ("v0 = x0.clone()\n    v0.t_()\n    return v0", SQUARE, "transpose_in_place_lost", "(shape, input)", "x0.t_()"),
        ("x0.t_()\n    return None", CUBE, "transpose_in_place_lost", "(shape, input)", "x0.t_()"),
        (
            "v0 = torch.ones((2,), device=x0.device)\n    x0[:2] = v0\n    return None",
            LONG,
            "copy_to_a_part_lost",
            "(values, input)",
            "x0.copy_(x1)",
        ),
        (
            "v0 = x0[1:]\n    v1 = v0.view((2, 1))\n    v1.zero_()\n    return None",
            LONG,
            "zero_lost",
            "(values, input)",
            "x0.zero_()",
        ),
        ("v0 = torch.hsplit(x0, 3)\n    return v0", LONG, "slice_copies", "(aliasing, output-input vs none)", "slice"),
    ],
    ids=["a square", "made inside", "an error that is missing", "a subscript", "a chain of views", "a composite op"],
)
def test_a_bug_of_one_op_is_told_by_that_op(body: str, inputs: str, bug: str, key: str, root: str) -> None:
    rooted = Reduction(
        program(f"def f(x0):\n    {body}", inputs), Subject(f"tests.meta.bugs:{bug}"), ONE_WORKER, to_root=True
    )
    for _ in rooted.steps():
        pass
    assert rooted.result is not None
    assert str(rooted.result.root_shows.key) == key
    assert rooted.result.root.statements == 1
    assert root in text(rooted.result.root)


def test_a_flag_of_autograd_is_not_laid_on_one_op() -> None:
    """A difference that no single op shows keeps the program it is seen in."""
    found = program(
        "def f(x0):\n    v0 = x0.clone()\n    return v0", vector("[1, 2]", "(2,)", "(1,)", extra=", requires_grad=True")
    )
    reduction = Reduction(found, Subject("tests.unit.minimize.planted:detaches"), ONE_WORKER, to_root=True)
    for _ in reduction.steps():
        pass
    assert reduction.result is not None
    assert reduction.result.root == reduction.result.program
