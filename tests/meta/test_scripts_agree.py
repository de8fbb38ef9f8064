"""What a script shows when it is run is what the oracles show: same step, same kinds, same things, causes first."""

from __future__ import annotations

import functools
import multiprocessing
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
import torch

from aotcheck._torch import unwrap_dynamo
from aotcheck.backends import Backend, resolve
from aotcheck.campaign.generate import load_strategy, programs_of_block
from aotcheck.oracle import OracleKind, Outcome, as_promised, check
from aotcheck.oracle.state import canary
from aotcheck.program import Program, both_ways, emit, exact, parse
from tests.meta import planted
from tests.meta.test_oracles_fire import PLANTS, Plant, clean_process

__all__ = ["clean_process"]  # the fixture takes off what a fault leaves behind

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
NOT_IN_SCRIPTS = {OracleKind.POISONING}
"""Seen by the campaign alone: a script's process ends with it."""

NEED_PRIVATE_NAMES = {"leaks a dispatch mode", "leaks a dispatch key", "leaks hooks", "poisons the process"}
"""What is left behind can be seen under private names of torch only, which a script does without."""


def shown_by_script(program: Program, backend: Backend, name: str = "planted") -> list[tuple[str, str]]:
    """The kinds and places that the script's own harness finds, in its order."""
    scope: dict[str, Any] = {"__name__": "script"}
    exec(compile(emit(program), "<script>", "exec"), scope)
    backend.reset()
    where, found = scope["first_differences"](
        scope["f"], scope["CALLS"], backend.compile, exact(program), "cpu", name == "aot_function"
    )
    return [(kind, f"{thing} after {where}") for kind, thing, _, _ in found]


def shown_by_oracles(program: Program, backend: Backend) -> list[tuple[str, str]]:
    verdict = check(program, backend, CPU)
    return [(d.oracle.value, str(d.place)) for d in verdict.hard if d.oracle not in NOT_IN_SCRIPTS]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name.replace(" ", "-"))
def test_a_planted_fault_is_shown_by_the_script_as_by_the_oracles(plant: Plant) -> None:
    if plant.name in NEED_PRIVATE_NAMES:
        pytest.skip("seen under private names of torch only")
    backend = Backend("planted", plant.fault)
    oracles, script = shown_by_oracles(plant.program, backend), shown_by_script(plant.program, backend)
    assert set(script) == set(oracles)
    assert script[:1] == oracles[:1]


@functools.lru_cache(maxsize=1)
def _programs() -> tuple[Program, ...]:
    strategy = load_strategy("strategies:programs")
    return tuple(p for block in (100, 101, 102) for p in programs_of_block(strategy, 5, block))


class Elsewhere:
    """Runs functions in a process of their own, and in another one once torch has left that unfit for the next."""

    def __init__(self) -> None:
        self.pool = self.new()

    def new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def run(self, function: Callable[..., tuple[Any, bool]], *args: object) -> Any:
        """None where torch crashes, which nobody can show from inside."""
        try:
            result, unfit = self.pool.submit(function, *args).result()
        except BrokenProcessPool:
            result, unfit = None, True
        if unfit:
            self.pool.shutdown()
            self.pool = self.new()
        return result


def by_oracles(name: str, source: str) -> tuple[list[tuple[str, str]] | None, bool]:
    """What the oracles show, None if nothing, and whether this process is unfit now."""
    warnings.simplefilter("ignore")
    verdict = check(parse(source).program, resolve(name), CPU)
    keys = [(d.oracle.value, str(d.place)) for d in verdict.hard if d.oracle not in NOT_IN_SCRIPTS]
    return keys if verdict.outcome is Outcome.DIFFERS else None, verdict.poisoned


def by_script(name: str, source: str) -> tuple[list[tuple[str, str]] | None, bool]:
    warnings.simplefilter("ignore")
    backend = resolve(name)
    judged, _ = as_promised(parse(source).program, backend.promises)
    try:
        return shown_by_script(judged, backend, name), bool(canary())
    except RuntimeError as error:
        if "INTERNAL ASSERT" not in str(error):
            raise
        return None, True  # no op of torch works in this process any more


@pytest.mark.parametrize("name", ["aot_function", "aot_eager"])
def test_random_findings_are_shown_by_scripts_as_by_the_oracles(name: str) -> None:
    findings, elsewhere = 0, Elsewhere()
    for source in map(emit, _programs()):
        oracles = elsewhere.run(by_oracles, name, source)
        if oracles is None:
            continue
        shown = elsewhere.run(by_script, name, source)
        if shown is not None:
            findings += 1
            assert shown[:1] == oracles[:1], source
    elsewhere.pool.shutdown()
    assert findings >= 5, "a sample without findings shows nothing"


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_the_identity_is_silent_in_scripts() -> None:
    backend = Backend("identity", planted.identity)
    for program in _programs():
        assert shown_by_script(program, backend) == [], emit(program)


def test_scripts_and_oracles_take_off_the_same_wrapping() -> None:
    compiled = torch.compile(lambda x: x.view(7, 5), backend="eager", dynamic=False)
    with pytest.raises(Exception, match="invalid for input of size 4") as caught:
        compiled(torch.ones(2, 2))
    assert type(caught.value) is not RuntimeError, "Dynamo wraps what the program raises"
    for unwrap in (both_ways.unwrapped, unwrap_dynamo):
        inner = unwrap(caught.value)
        assert type(inner) is RuntimeError
        assert str(inner).startswith("shape '[7, 5]' is invalid")
    alone = ValueError("the program's own")
    alone.__context__ = KeyError("handled before")
    assert both_ways.unwrapped(alone) is unwrap_dynamo(alone) is alone


def test_scripts_list_kinds_in_the_order_of_the_oracles() -> None:
    made_elsewhere = {*NOT_IN_SCRIPTS, OracleKind.CRASH, OracleKind.TIMEOUT, OracleKind.MEMORY}
    soft = set(list(OracleKind)[list(OracleKind).index(OracleKind.PERMISSIVE) :])
    assert [kind.value for kind in OracleKind if kind not in made_elsewhere | soft] == both_ways.KINDS
