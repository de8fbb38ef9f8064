"""The stream of programs itself: hard enough, the same everywhere, reaching every op."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from aotcheck.program import Feature, Program, difficulty, emit, exact, flat_calls
from aotcheck.program.ops import ops
from strategies import programs


@lru_cache(maxsize=4)
def _stream(count: int, number: int) -> tuple[Program, ...]:
    drawn: list[Program] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
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
    Feature.BACKWARD: 40,
}


def test_the_stream_is_hard_enough_and_reaches_every_op() -> None:
    stream = _stream(1200, 0)
    found = Counter(feature for p in stream for feature in difficulty(p))
    shares = {feature: 100 * found[feature] / len(stream) for feature in FLOOR}
    assert not {feature: share for feature, share in shares.items() if share < FLOOR[feature]}
    assert sum(p.statements for p in stream) / len(stream) >= 4
    assert sum(map(exact, stream)) / len(stream) >= 0.6, "bitwise comparison is the rule"
    assert len(set(stream)) / len(stream) > 0.95, "few repetitions"
    reached = Counter(c.path for p in stream for c in flat_calls(p.body))
    never = sorted({op.path for op in ops() if op.weight and not reached[op.path]})
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


@pytest.mark.parametrize(
    "imports", ["", "import aotcheck.program.samples, json, tests.unit.program.test_hostile_files"]
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
