"""Each choice shrinks to something simple; writes whose order matters are told apart."""

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, settings

from aotcheck.program import Feature, OpCall, Program, Ref, difficulty
from strategies import programs
from strategies.state import hazardous, overlaps_itself, tidy

_SETTINGS = settings(
    max_examples=600,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)


def _minimal(condition) -> Program:
    return find(programs(), condition, settings=_SETTINGS)


def test_the_simplest_program_is_one_statement_on_one_argument() -> None:
    program = _minimal(lambda p: True)
    assert program.statements <= 1 and len(program.params) == 1 and len(program.calls) == 1


@pytest.mark.parametrize("feature", [Feature.MUTATES_INPUT, Feature.RETURNS_ALIAS, Feature.EAGER_REFUSES])
def test_minimal_programs_with_a_feature_are_short(feature: Feature) -> None:
    program = _minimal(lambda p: feature in difficulty(p))
    assert program.statements <= 3
    assert len(program.calls) == 1


@pytest.mark.parametrize(
    ("size", "stride", "overlapping"),
    [
        ((2, 3), (3, 1), False),
        ((2, 3), (1, 2), False),
        ((3,), (0,), True),
        ((2, 2), (1, 1), True),
        ((3, 2), (2, 3), False),
        ((0, 3), (0, 0), False),
    ],
)
def test_overlap_is_found(size: tuple[int, ...], stride: tuple[int, ...], overlapping: bool) -> None:
    assert overlaps_itself(torch.zeros(16).as_strided(size, stride)) == overlapping


def test_a_write_through_overlap_is_hazardous_unless_it_stores_one_value() -> None:
    env = {"x0": torch.zeros(2, 2).as_strided((2, 2), (1, 1)), "x1": torch.ones(2, 2)}
    assert hazardous(OpCall(None, "Tensor.copy_", (Ref("x0"), Ref("x1"))), env)
    assert not hazardous(OpCall(None, "Tensor.zero_", (Ref("x0"),)), env)
    assert not hazardous(OpCall(None, "Tensor.copy_", (Ref("x1"), Ref("x0"))), {**env, "x0": torch.ones(2, 2)})


def test_values_that_would_round_are_not_tidy() -> None:
    assert tidy(torch.tensor([1.0, -3.0]))
    assert not tidy(torch.tensor([float("nan")]))
    assert not tidy(torch.tensor([2.0**30]))
