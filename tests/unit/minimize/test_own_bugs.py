"""A finding keeps to its op, though the backend has other bugs that look the same from outside."""

import pytest

from aotcheck.campaign.findings.signature import embeds, skeleton
from aotcheck.minimize import Limits, Reduced, Reduction, Subject
from aotcheck.program import Program
from tests.unit.minimize.cases import vector
from tests.unit.minimize.scripts import program, text

PLANTED = "tests.unit.minimize.planted:"
SQUARE = vector("[1, 2, 3, 4]", "(2, 2)", "(2, 1)")
TRAINED = vector("[1, 2]", "(2,)", "(1,)", extra=", requires_grad=True")
BACKWARD = """
CALLS = [
    {"inputs": make_inputs_0, "grad_mode": "enabled", "steps": ({"do": "backward", "roots": (0,)},)},
]
"""


def reduced(found: Program, backend: str) -> Reduced:
    reduction = Reduction(found, Subject(PLANTED + backend), Limits(), to_root=True)
    for _ in reduction.steps():
        pass
    assert reduction.result is not None
    return reduction.result


def function(body: str, inputs: str = SQUARE) -> Program:
    return program(f"def f(x0):\n    {body}", inputs)


@pytest.mark.parametrize(
    ("backend", "body", "said"),
    [
        ("two_views", "v0 = x0.t()\n    v1 = v0[1:]\n    return v1", "slice"),
        ("two_views", "v0 = x0.t()\n    v1 = v0.detach()\n    return v1", "detach"),
        ("two_values", "v0 = torch.cumsum(x0, 0)\n    v1 = v0.sum()\n    return v1", "cumsum"),
        ("two_values", "v0 = torch.neg(x0)\n    v1 = v0.sum()\n    return v1", "neg"),
        ("two_writes", "v0 = torch.ge(x0, 1)\n    x0.masked_fill_(v0, 0)\n    return None", "masked_fill_"),
        ("two_writes", "x0.zero_()\n    return None", "zero_"),
        ("refuses_two", "v0 = x0.new_full((2,), 1)\n    v1 = torch.neg(v0)\n    return v1", "new_full"),
        ("refuses_two", "v0 = x0.clone()\n    v1 = torch.neg(v0)\n    return v1", "clone"),
    ],
)
def test_of_two_bugs_under_one_key_a_finding_comes_out_as_its_own(backend: str, body: str, said: str) -> None:
    found = skeleton(reduced(function(body), backend).root)
    assert said in found
    assert found.count("(") <= 2, found


def test_a_finding_in_a_gradient_keeps_to_the_op_whose_gradient_is_wrong() -> None:
    trained = program("def f(x0):\n    v0 = torch.exp(x0)\n    return v0", TRAINED, BACKWARD)
    found = reduced(trained, "gradients_of_two")
    assert "exp(" in text(found.program)
    negated = program("def f(x0):\n    v0 = torch.neg(x0)\n    return v0", TRAINED, BACKWARD)
    assert "neg(" in text(reduced(negated, "gradients_of_two").program)


def test_a_program_with_both_bugs_comes_out_as_one_of_them() -> None:
    holding = function("v0 = x0.detach()\n    v1 = x0[1:]\n    v2 = x0.t()\n    return (v0, v1, v2)")
    found = skeleton(reduced(holding, "two_views").root)
    assert found in ("v0 = detach(x0); return v0", "v0 = ops.aten.slice.Tensor(x0); return v0")


def test_an_op_with_a_bug_of_its_own_stands_for_no_other() -> None:
    """``detach`` is put in place of any view: as a bug of its own it explains no finding without it."""
    detached = reduced(function("v0 = x0.detach()\n    return v0"), "two_views")
    assert detached.own == {"Tensor.detach"}
    sliced = function("v0 = x0[1:]\n    return v0")
    assert embeds(detached.program, sliced)
    assert not embeds(detached.program, sliced, detached.own)
    assert embeds(detached.program, function("v0 = x0.detach()\n    return v0"), detached.own)


def test_a_bug_of_no_op_is_still_told_by_the_simplest_one() -> None:
    reduction = Reduction(
        function("v0 = torch.exp(x0)\n    return v0"), Subject("tests.meta.planted:doubles"), Limits(), to_root=True
    )
    for _ in reduction.steps():
        pass
    assert reduction.result is not None
    assert (skeleton(reduction.result.root), reduction.result.own) == ("v0 = clone(x0); return v0", frozenset())
