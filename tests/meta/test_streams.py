"""The streams for other people's backends: each is what it says it is by eager's run, and not trivial."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch

from aotcheck.backends import Backend
from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.oracle import Outcome, check
from aotcheck.program import (
    Backward,
    Block,
    Feature,
    OpCall,
    Program,
    Ref,
    UnknownOpError,
    build_call,
    difficulty,
    execute,
    flat_calls,
    function_of,
)
from aotcheck.program.ops.registry import Group, find
from aotcheck.program.running.build import around
from aotcheck.program.running.memory import tensors_of
from strategies import Profile, Writes, programs
from strategies.selection import mutates
from tests.meta.functionalized import functionalized
from tests.meta.small import X, op
from tests.meta.small import program as small

pytestmark = pytest.mark.filterwarnings("ignore")  # eager's, of what is deprecated and drawn

BLOCKS = 9
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
    torch.default_generator.manual_seed(0)
    with around(program.calls[0], torch.device("cpu")):
        result = function_of(program)(*built.args)
    return built.named, result, [name for name, t in built.named.items() if _facts(t) != before[name]]


@pytest.mark.by_day(2)
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
    drawn = stream("local_writes")
    written = [any(_writes(call) for call in flat_calls(program.body)) for program in drawn]
    assert sum(written) >= 0.6 * len(drawn)
    trained = sum(bool(program.calls[0].steps) for program in drawn)
    assert 0.25 * len(drawn) <= trained <= 0.75 * len(drawn)
    assert all(len(program.calls[0].steps) <= 1 for program in drawn)


def _writes(call: OpCall) -> bool:
    return any(map(mutates, find(call.path))) and (call.path.endswith("_") or "out" in dict(call.kwargs))


LEAST = {"inference": 45, "functional_training": 45, "local_writes": 60}
"""How many ops the programs have at least."""


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_not_trivial(name: str) -> None:
    drawn = stream(name)
    paths = Counter(call.path for program in drawn for call in flat_calls(program.body))
    groups = Counter(find(path)[0].group.value for path in paths.elements())
    assert len(paths) >= LEAST[name]
    assert {"view", "pointwise", "reduce", "matmul", "join", "gather", "nn", "cast", "multi_view", "sort"} <= set(
        groups
    )
    assert max(groups.values()) < 0.5 * sum(groups.values()), "no group is most of it"
    statements = [program.statements for program in drawn]
    assert sum(statements) >= 4 * len(drawn) and max(statements) >= 10
    assert len(set(drawn)) >= 0.9 * len(drawn)
    dtypes = Counter(tensor.dtype for program in drawn for tensor in _inputs(program))
    assert {"float32", "float64", "int64", "bool"} <= set(dtypes) and dtypes["float32"] < 0.9 * dtypes.total()
    assert ("complex64" in dtypes) == (name != "inference")
    several = sum(isinstance(result, tuple) and len(result) > 1 for _, result, _ in map(_run, drawn))
    assert several >= 0.3 * len(drawn)
    shared = sum(Feature.INPUTS_SHARE_STORAGE in difficulty(program) for program in drawn)
    aliases = sum(Feature.RETURNS_ALIAS in difficulty(program) for program in drawn)
    assert shared >= 0.2 * len(drawn) and aliases >= 0.2 * len(drawn)


def _inputs(program: Program) -> Any:
    inputs = program.calls[0].inputs
    assert inputs is not None
    return inputs.tensors


def test_what_a_function_may_write_is_one_of_three() -> None:
    assert [kind.name for kind in Writes] == ["NOTHING", "LOCAL", "ANYTHING"]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("block", range(6))
def test_functional_training_agrees_on_functionalize_and_make_fx(block: int) -> None:
    """Nothing in these programs is beyond a graph of functional ops on which autograd runs."""
    strategy, backend = load_strategy("strategies:functional_training"), Backend("functionalized", functionalized)
    for program in programs_of_block(strategy, 20, block):
        verdict = check(program, backend, torch.device("cpu"))
        assert verdict.outcome is Outcome.AGREES, (program, verdict)


@pytest.mark.parametrize("writes", [True, False])
def test_that_backend_is_told_apart_where_it_should_be(writes: bool) -> None:
    """A write to an argument is lost in a graph whose results are all that counts; what cuts the history is, too."""

    def forgets(fn: Any) -> Any:
        return lambda *args: functionalized(fn)(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))

    body = op(None, "Tensor.add_", X, 1) if writes else op("v1", "Tensor.data", X)
    last = op("v0", "torch.mul", X if writes else Ref("v1"), 2)
    program = small(body, last, requires_grad=not writes)
    verdict = check(program, Backend("forgets", forgets if writes else functionalized), torch.device("cpu"))
    assert verdict.outcome is Outcome.DIFFERS


def test_ops_are_chosen_by_name() -> None:
    profile = Profile(ops={"add", "mul", "view"}, writes=Writes.NOTHING, wrappers=0, idioms=0)
    found = _paths(profile)
    assert set(found) == {"torch.add", "torch.mul", "Tensor.view"}


def test_what_an_op_needs_is_made_unless_it_is_left_out() -> None:
    chosen = Profile(ops={"index_select", "sin"}, wrappers=0, idioms=0)
    assert set(_paths(chosen)) == {"torch.index_select", "torch.sin", "torch.tensor"}
    assert set(_paths(replace(chosen, without_ops={"torch.tensor"}))) == {"torch.sin"}


def test_ops_that_are_left_out_are_not_drawn() -> None:
    assert "torch.add" in _paths(Profile(wrappers=0), 3)
    found = _paths(Profile(wrappers=0, without_ops={"add", "Tensor.mul_"}), 3)
    assert found and not {"torch.add", "Tensor.mul_"} & set(found)


def test_dtypes_are_chosen() -> None:
    profile = Profile(dtypes={"float32", "bool"}, wrappers=0, inside=0)
    for program in programs_of_block(programs(profile), 3, 0):
        named, _, _ = _run(program) if Feature.EAGER_REFUSES not in difficulty(program) else ({}, None, [])
        assert {t.dtype for t in named.values()} <= {torch.float32, torch.bool}
    drawn = [p for p in programs_of_block(programs(replace(profile, refused=0)), 4, 0) if p.statements > 2]
    made = Counter(str(t.dtype) for p in drawn for t in tensors_of(_everything(p)))
    assert set(made) == {"torch.float32", "torch.bool"}


def _everything(program: Program) -> list[Any]:
    built = build_call(program, 0)
    env: dict[str, Any] = dict(zip(program.params, built.args, strict=True))
    torch.default_generator.manual_seed(0)
    with around(program.calls[0], torch.device("cpu")), suppress(Exception):
        for statement in program.body:
            execute(statement, env)
    return list(env.values())


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        ({"ops": {"ad", "mul"}}, "op 'ad' is not in the op table; did you mean .*'add'"),
        ({"without_ops": {"torch.relux"}}, "op 'torch.relux' is not in the op table; did you mean .*'torch.relu'"),
        ({"ops": {"nosuchthing"}}, "op 'nosuchthing' is not in the op table$"),
        ({"dtypes": {"float23"}}, "dtype 'float23' is unknown; did you mean .*'float32'"),
        ({"groups": {"veiw"}}, "group of ops 'veiw' is unknown; did you mean .*'view'"),
        ({"inputs": {"plane"}}, "family of inputs 'plane' is unknown; did you mean .*'plain'"),
    ],
)
def test_an_unknown_choice_is_named_with_what_is_like_it(choice: dict[str, Any], error: str) -> None:
    with pytest.raises((UnknownOpError, ValueError), match=error):
        Profile(**choice)


def test_equal_profiles_are_one_whatever_sets_they_were_given() -> None:
    assert Profile(ops={"add", "mul"}) == Profile(ops=frozenset({"mul", "add"}))
    assert hash(Profile(ops={"add"}, groups=set(Group))) == hash(Profile(ops=frozenset({"add"})))


def _paths(profile: Profile, blocks: int = 2) -> Counter[str]:
    strategy = programs(profile)
    drawn = [program for block in range(blocks) for program in programs_of_block(strategy, 1, block)]
    return Counter(call.path for program in drawn for call in flat_calls(program.body))
