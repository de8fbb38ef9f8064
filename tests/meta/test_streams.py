"""The streams for other people's backends: each is what it says it is by eager's run, and not trivial."""

from collections import Counter
from functools import lru_cache
from typing import Any

import pytest
import torch

from aotcheck.campaign.generate import load_strategy, programs_of_block
from aotcheck.program import Backward, Block, Feature, OpCall, Program, build_call, difficulty, flat_calls, function_of
from aotcheck.program.build import around
from aotcheck.program.memory import tensors_of
from aotcheck.program.ops import find
from strategies import Writes
from strategies.selection import mutates

pytestmark = pytest.mark.filterwarnings("ignore")  # eager's, of what is deprecated and drawn

BLOCKS = 5
STREAMS = ("inference", "functional_training", "local_writes")
FUNCTIONAL = ("inference", "functional_training")


@lru_cache(maxsize=8)
def stream(name: str) -> tuple[Program, ...]:
    strategy = load_strategy(f"strategies:{name}")
    return tuple(program for block in range(BLOCKS) for program in programs_of_block(strategy, 5, block))


def _facts(t: torch.Tensor) -> tuple[object, ...]:
    memory = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage()).tolist()
    return id(t.untyped_storage()), memory, t.shape, t.stride(), t.storage_offset(), t.requires_grad, t.dtype


def _run(program: Program) -> tuple[dict[str, torch.Tensor], Any, list[str]]:
    """Inputs by name, what eager returns, and the names of the inputs that it changed."""
    built = build_call(program, 0)
    before = {name: _facts(t) for name, t in built.named.items()}
    torch.manual_seed(0)
    with around(program.calls[0], torch.device("cpu")):
        result = function_of(program)(*built.args)
    return built.named, result, [name for name, t in built.named.items() if _facts(t) != before[name]]


@pytest.mark.parametrize("name", STREAMS)
def test_a_program_makes_one_call_that_eager_runs_and_that_changes_no_input(name: str) -> None:
    for program in stream(name):
        assert len(program.calls) == 1 and not program.calls[0].before and not program.calls[0].around
        _, _, changed = _run(program)
        assert not changed, program
        assert difficulty(program).isdisjoint({Feature.EAGER_REFUSES, Feature.MUTATES_INPUT, Feature.GRAD_MODE_BLOCK})
        assert not any(isinstance(statement, Block) for statement in program.body)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_a_functional_program_writes_nothing_at_all(name: str) -> None:
    for call in (call for program in stream(name) for call in flat_calls(program.body)):
        assert not any(keyword == "out" for keyword, _ in call.kwargs)
        assert not all(map(mutates, find(call.path))), call


def test_nothing_requires_grad_in_inference() -> None:
    for program in stream("inference"):
        named, result, _ = _run(program)
        assert not program.calls[0].steps
        assert not any(t.requires_grad for t in (*named.values(), *tensors_of(result)))


def test_functional_training_has_one_backward_that_eager_does() -> None:
    for program in stream("functional_training"):
        (step,) = program.calls[0].steps
        assert isinstance(step, Backward)
        features = difficulty(program)
        assert Feature.BACKWARD in features and Feature.BACKWARD_REFUSED not in features


def test_local_writes_write_mostly_and_train_in_some_programs() -> None:
    programs = stream("local_writes")
    written = [any(_writes(call) for call in flat_calls(program.body)) for program in programs]
    assert sum(written) >= 0.6 * len(programs)
    trained = sum(bool(program.calls[0].steps) for program in programs)
    assert 0.25 * len(programs) <= trained <= 0.75 * len(programs)
    assert all(len(program.calls[0].steps) <= 1 for program in programs)


def _writes(call: OpCall) -> bool:
    return any(map(mutates, find(call.path))) and (call.path.endswith("_") or "out" in dict(call.kwargs))


LEAST = {"inference": 45, "functional_training": 45, "local_writes": 60}
"""How many ops the programs have at least."""


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_not_trivial(name: str) -> None:
    programs = stream(name)
    paths = Counter(call.path for program in programs for call in flat_calls(program.body))
    groups = Counter(find(path)[0].group.value for path in paths.elements())
    assert len(paths) >= LEAST[name]
    assert {"view", "pointwise", "reduce", "matmul", "join", "gather", "nn", "cast", "multi_view", "sort"} <= set(
        groups
    )
    assert max(groups.values()) < 0.5 * sum(groups.values()), "no group is most of it"
    statements = [program.statements for program in programs]
    assert sum(statements) >= 4 * len(programs) and max(statements) >= 10
    assert len(set(programs)) >= 0.9 * len(programs)
    dtypes = Counter(tensor.dtype for program in programs for tensor in _inputs(program))
    assert {"float32", "float64", "int64", "bool"} <= set(dtypes) and dtypes["float32"] < 0.9 * dtypes.total()
    assert ("complex64" in dtypes) == (name != "inference")
    several = sum(isinstance(result, tuple) and len(result) > 1 for _, result, _ in map(_run, programs))
    assert several >= 0.3 * len(programs)
    shared = sum(Feature.INPUTS_SHARE_STORAGE in difficulty(program) for program in programs)
    aliases = sum(Feature.RETURNS_ALIAS in difficulty(program) for program in programs)
    assert shared >= 0.2 * len(programs) and aliases >= 0.2 * len(programs)


def _inputs(program: Program) -> Any:
    inputs = program.calls[0].inputs
    assert inputs is not None
    return inputs.tensors


def test_what_a_function_may_write_is_one_of_three() -> None:
    assert [kind.name for kind in Writes] == ["NOTHING", "LOCAL", "ANYTHING"]
