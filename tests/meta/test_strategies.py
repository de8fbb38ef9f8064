"""The stream of programs itself: hard enough, the same everywhere, reaching every op."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from aotcheck.program import (
    Block,
    Feature,
    GradMode,
    OpCall,
    Program,
    Ref,
    Statement,
    build_call,
    difficulty,
    emit,
    exact,
    flat_calls,
)
from aotcheck.program.ops.registry import Group, find, ops
from aotcheck.program.running.interpret import context_of
from aotcheck.program.running.memory import execute_definite, extent_in_bytes, tensors_of
from strategies import Profile, programs


@lru_cache(maxsize=4)
def _stream(count: int, number: int, profile: Profile | None = None) -> tuple[Program, ...]:
    drawn: list[Program] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(profile))
    def collect(program: Program) -> None:
        drawn.append(program)

    collect()
    return tuple(drawn)


FLOOR = {
    Feature.MUTATES_INPUT: 30,
    Feature.INPUTS_SHARE_STORAGE: 30,
    Feature.RETURNS_ALIAS: 30,
    Feature.SECOND_CALL: 20,
    Feature.SECOND_CALL_OTHER_KEY: 15,
    Feature.EAGER_REFUSES: 10,
    Feature.BACKWARD: 60,
    Feature.MANY_BACKWARDS: 50,
    Feature.DOUBLE_BACKWARD: 12,
    Feature.THIRD_DERIVATIVE: 1,
    Feature.RETURNED_GRADIENT: 20,
    Feature.CHOSEN_INPUTS: 10,
    Feature.ODD_COTANGENT: 25,
    Feature.WRITE_BEFORE_BACKWARD: 8,
    Feature.HOOK: 10,
    Feature.INTERLEAVED_CALLS: 3,
    Feature.CONTEXT_AROUND_CALL: 3,
    Feature.CONTEXT_AROUND_BACKWARD: 3,
}

RARER = {
    Feature.DATA_ASSIGNED: 3,
    Feature.SWAPPED: 1.5,
    Feature.STORAGE_RESIZED: 6,
    Feature.CUSTOM_FUNCTION: 6,
    Feature.CONTAINER_WRITTEN: 2,
    Feature.OUT_RESIZED: 3,
    Feature.INFERENCE_BLOCK: 3,
    Feature.INFERENCE_CALL: 2,
    Feature.INFERENCE_INPUT: 1,
    Feature.FREED_INPUT: 2,
    Feature.INPUTS_READ_BITS_OTHERWISE: 6,
    Feature.EXPANDED_INPUT: 3,
    Feature.PARAMETERS_OF_ONE_BUFFER: 5,
    Feature.FOREACH_TWICE: 1.5,
    Feature.FOREACH_ALIAS: 1,
    Feature.EXPANDED_WRITE: 1,
    Feature.DUPLICATE_INDICES: 1.5,
    Feature.BEYOND_THE_VIEW: 2,
    Feature.RETURNS_ONE_OBJECT_TWICE: 10,
    Feature.RETURNS_CONTAINER_OF_CALLER: 1.5,
    Feature.RETURNS_INFERENCE_TENSOR: 2,
    Feature.RETURNS_FREED: 0.8,
    Feature.COMPLEX_NUMBER: 4,
}
"""Least percentages of what happens to storages, aliases and containers: about half of what there is."""


def test_the_stream_has_its_fill_of_each_rarer_thing() -> None:
    stream = _stream(1200, 0)
    found = Counter(feature for p in stream for feature in difficulty(p))
    shares = {feature: 100 * found[feature] / len(stream) for feature in RARER}
    assert not {feature: share for feature, share in shares.items() if share < RARER[feature]}


def test_the_stream_is_hard_enough_and_reaches_every_op() -> None:
    stream = _stream(1200, 0)
    found = Counter(feature for p in stream for feature in difficulty(p))
    shares = {feature: 100 * found[feature] / len(stream) for feature in FLOOR}
    assert not {feature: share for feature, share in shares.items() if share < FLOOR[feature]}
    assert sum(p.statements for p in stream) / len(stream) >= 4
    assert sum(map(exact, stream)) / len(stream) >= 0.6, "bitwise comparison is the rule"
    assert len(set(stream)) / len(stream) > 0.95, "few repetitions"
    reached = Counter(c.path for p in stream for c in flat_calls(p.body))
    every = {op.path for op in ops() if op.weight}
    rare = every - {*reached}
    assert len(rare) <= len(every) / 10, rare
    alone = _stream(300, 0, Profile(ops=rare, inexact=100, random=100))
    never = rare - {call.path for p in alone for call in flat_calls(p.body)}
    assert len(never) <= 6, never


_DIGEST = """
import hashlib, sys
{imports}
from tests.meta.test_strategies import digest
sys.stdout.write(digest())
"""


def digest() -> str:
    """A digest of a short stream."""
    return hashlib.sha256("".join(map(emit, _stream(60, 7))).encode()).hexdigest()


@pytest.mark.by_day(1)
@pytest.mark.parametrize(
    "imports", ["", "import aotcheck.program.data.samples, json, tests.unit.program.test_hostile_files"]
)
def test_the_same_seed_gives_the_same_programs_in_any_process(imports: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", _DIGEST.format(imports=imports)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.stdout == digest(), done.stderr


def _execute(statement: Statement, env: dict[str, object]) -> None:
    """Run a statement, with ones in memory that nobody has written."""
    if isinstance(statement, Block):
        with context_of(statement.context):
            for inner in statement.body:
                _execute(inner, env)
    else:
        execute_definite(statement, env)


_MODES = {
    GradMode.ENABLED: torch.enable_grad,
    GradMode.NO_GRAD: torch.no_grad,
    GradMode.INFERENCE: torch.inference_mode,
}


def _runs(program: Program, index: int, copied: bool) -> list[bytes] | None:
    """What the first call's storages hold once statement ``index`` has run, perhaps with its operands copied."""
    built = build_call(program, 0)
    env = dict(zip(program.params, built.args, strict=True))
    torch.default_generator.manual_seed(0)
    with _MODES[program.calls[0].grad_mode]():
        for statement in program.body[:index]:
            _execute(statement, env)
        call = program.body[index]
        assert isinstance(call, OpCall)
        if not torch.is_tensor(env[call.args[0].name]):
            return None  # a list or a dict
        if copied:
            named = {f"copy{i}": a.name for i, a in enumerate(call.args[1:]) if isinstance(a, Ref)}
            with torch.no_grad():  # values alone count, and a bool tensor that has a history cannot be cloned with it
                env.update({copy: env[name].clone() for copy, name in named.items() if torch.is_tensor(env[name])})
            names = {name: copy for copy, name in named.items() if copy in env}
            rest = (Ref(names.get(a.name, a.name)) if isinstance(a, Ref) else a for a in call.args[1:])
            call = replace(call, args=(call.args[0], *rest))
        _execute(call, env)
    written = env[call.args[0].name]
    # What was made inside may lie on a larger storage, whose rest nobody filled (fold's).
    reached = [(t.untyped_storage(), extent_in_bytes(t)) for t in tensors_of(written)]
    reached += [(t.untyped_storage(), None) for t in tensors_of(list(built.named.values()))]
    return [bytes(store)[:end] for store, end in reached if store.nbytes()]


def test_no_write_depends_on_whether_its_operands_are_copies() -> None:
    """Else eager's result is an accident of the order in which a kernel goes through memory."""
    overlapping = 0
    for program in _stream(400, 3):
        if Feature.EAGER_REFUSES in difficulty(program):
            continue
        for index, call in enumerate(program.body):
            if not isinstance(call, OpCall) or not call.args or not isinstance(call.args[0], Ref):
                continue
            if find(call.path)[0].group not in (Group.INPLACE, Group.FILL, Group.SCATTER) or len(call.args) < 2:
                continue
            overlapping += call.args[0] in call.args[1:]
            assert _runs(program, index, copied=False) == _runs(program, index, copied=True), emit(program)
    assert overlapping >= 10, "the sample has too few writes with an operand that is written"
