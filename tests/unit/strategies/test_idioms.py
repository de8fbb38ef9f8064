"""Each idiom finds what it needs often enough, and does what it is there for."""

from collections.abc import Callable
from random import Random

import pytest
import torch

from aotcheck.program import (
    Block,
    Call,
    Context,
    Feature,
    Inputs,
    OpCall,
    Program,
    Ref,
    Storage,
    Strided,
    TupleExpr,
    difficulty,
    flat_calls,
)
from strategies.arguments import Impossible
from strategies.chooser import Chooser
from strategies.idioms import IDIOMS, Idiom
from strategies.state import State

pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")

IDIOM = {idiom.__name__.removeprefix("_"): idiom for idiom, _ in IDIOMS}


def _inputs() -> Inputs:
    """A float with other memory behind it, another one like it, an int, a complex one, and one that is not there."""
    return Inputs(
        (
            Storage("s0", "float32", (1, -2, 3, 0, 2, -1)),
            Storage("s1", "float32", (2, 2, 0, 1)),
            Storage("s2", "int64", (1, 2)),
            Storage("s3", "complex64", (1, 2, 3, 4)),
            Storage("s4", "float32", (1, 2)),
        ),
        (
            Strided("a0", "s0", "float32", (2, 2), (2, 1), 1),
            Strided("a1", "s1", "float32", (2, 2), (2, 1)),
            Strided("a2", "s2", "int64", (2,), (1,)),
            Strided("a3", "s3", "complex64", (2,), (1,)),
            Strided("a4", "s4", "float32", (2,), (1,)),
        ),
        (),
        (Ref("a0"), Ref("a1"), Ref("a2"), Ref("a3"), Ref("a4")),
    )


def drawn(idiom: Callable[[Idiom], None], count: int = 60) -> list[Program]:
    """What an idiom makes of some inputs, over and over."""
    programs = []
    for seed in range(count):
        state = State(_inputs())
        try:
            idiom(Idiom(Chooser(Random(seed)), state))
        except Impossible:
            continue
        state.close()
        names = tuple(Ref(name) for name, _ in state.tensors())
        programs.append(Program(state.params, tuple(state.body), TupleExpr(names), (Call(_inputs()),)))
    return programs


@pytest.mark.parametrize("name", IDIOM)
def test_an_idiom_finds_what_it_needs_and_runs(name: str) -> None:
    programs = drawn(IDIOM[name])
    assert len(programs) >= 40
    assert sum(program.statements >= 2 for program in programs) >= 30, "several statements belong together"
    for program in programs:
        assert Feature.EAGER_REFUSES not in difficulty(program)


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("out", Feature.OUT_RESIZED),
        ("beyond", Feature.BEYOND_THE_VIEW),
        ("foreach", Feature.FOREACH_TWICE),
        ("foreach", Feature.FOREACH_ALIAS),
        ("expanded", Feature.EXPANDED_WRITE),
        ("cycle", Feature.STORAGE_RESIZED),
        ("cycle", Feature.RETURNS_FREED),
        ("left_behind", Feature.DATA_ASSIGNED),
        ("left_behind", Feature.SWAPPED),
        ("no_grad_view", Feature.INFERENCE_BLOCK),
        ("cancel", Feature.SWAPPED),
        ("turned", Feature.COMPLEX_NUMBER),
    ],
)
def test_an_idiom_does_what_it_is_there_for(name: str, feature: Feature) -> None:
    programs = drawn(IDIOM[name], 120)
    if feature is Feature.RETURNS_FREED:
        everything = TupleExpr(tuple(Ref(p) for p in programs[0].params))
        programs = [Program(p.params, p.body, everything, p.calls) for p in programs]
    assert sum(feature in difficulty(program) for program in programs) >= 2


def test_what_cancels_leaves_the_arguments_as_they_were() -> None:
    unchanged = 0
    for program in drawn(IDIOM["cancel"]):
        unchanged += Feature.MUTATES_INPUT not in difficulty(program)
    assert unchanged >= 30


def test_memory_of_the_cycle_is_filled_before_it_is_used() -> None:
    for program in drawn(IDIOM["cycle"]):
        paths = [call.path for call in flat_calls(program.body)]
        assert "resize" in paths[0]
        used = [i for i, path in enumerate(paths) if path in ("torch.neg", "Tensor.clone", "torch.square")]
        filled = [i for i, path in enumerate(paths) if path in ("Tensor.fill_", "Tensor.copy_")]
        assert not used or filled[0] < used[0]


def test_views_made_without_grad_are_made_inside_and_written_outside() -> None:
    programs = drawn(IDIOM["no_grad_view"])
    assert {p.body[0].context for p in programs if isinstance(p.body[0], Block)} == {Context.NO_GRAD, Context.INFERENCE}
    assert any(isinstance(s, OpCall) and s.path.endswith("_") for p in programs for s in p.body[1:])


def test_a_state_tells_freed_tensors_from_others() -> None:
    state = State(_inputs())
    assert not state.freed()
    name = state.params[4]
    state.env[name].untyped_storage().resize_(0)
    assert [n for n, _ in state.freed()] == [name]
    assert name not in dict(state.tensors()) and name in dict(state.every_tensor())
    assert isinstance(state.env[name], torch.Tensor)
