"""What a strategy's module says about it: floors and the inspection of what is minimized."""

import io
import sys

import pytest
from rich.console import Console

import strategies
from aotcheck.campaign import Settings, SettingsError, Tally
from aotcheck.campaign.record.events import ProgramChecked, RunStarted
from aotcheck.campaign.setup.declared import floors_by, inspection_by
from aotcheck.cli import INSPECTION, main
from aotcheck.minimize import load_inspection
from aotcheck.report.terminal import print_summary
from strategies.calls import Unsafe
from strategies.calls import inspect as our_inspection
from tests.meta.small import X, op, program
from tests.unit.campaign import declared

FOREIGN = "tests.unit.campaign.declared"


def shown(strategy: str) -> str:
    """The summary of a run of a strategy, of one program without any feature."""
    started = RunStarted(
        backend="eager",
        device="cpu",
        seed=0,
        examples=1,
        seconds=None,
        jobs=1,
        block_size=25,
        strategy=strategy,
        versions={},
        time="",
        floors=floors_by(strategy),
    )
    tally, console = Tally(), Console(file=io.StringIO(), width=400)
    tally.feed(started)
    tally.feed(ProgramChecked(0, 0, "agrees", 0.1))
    print_summary(tally, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", strategies.__all__)
def test_floors_are_shown_for_the_strategies_that_want_them(name: str) -> None:
    if name in ("programs", "mixed"):
        assert "mutates input 0% (floor 30%)" in shown(f"strategies:{name}")
    else:
        assert "floor" not in shown(f"strategies:{name}")


def test_a_strategy_of_somebody_else_has_the_floors_that_it_asks_for() -> None:
    assert "mutates input 0% (floor 25%)" in shown(f"{FOREIGN}:demanding")
    assert "floor" not in shown(f"{FOREIGN}:quiet")


def test_floors_of_what_is_no_feature_are_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "FLOORS", {"quiet": {"MUTATES": 0.5}})
    with pytest.raises(SettingsError, match=r"FLOORS of '.*' gives 'quiet' what is no feature: MUTATES"):
        floors_by(f"{FOREIGN}:quiet")


def test_what_a_foreign_strategy_draws_is_inspected_like_ours() -> None:
    assert inspection_by(f"{FOREIGN}:quiet", INSPECTION) == INSPECTION
    assert load_inspection(INSPECTION) is our_inspection
    with pytest.raises(Unsafe):
        our_inspection(program(op("v0", "torch.mul", X, 2**30)))  # would round, later on


@pytest.mark.parametrize("strategy", [f"{FOREIGN}:quiet", "strategies:inference"])
def test_fuzz_hands_the_inspection_to_the_campaign(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def campaign(settings: Settings, past: object) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(sys.modules["aotcheck.cli.fuzz"], "_fuzz", campaign)
    with pytest.raises(SystemExit):
        main(["fuzz", "--strategy", strategy, "--backend", "eager"], standalone_mode=False)
    assert [settings.inspection for settings in seen] == [INSPECTION]


@pytest.mark.parametrize(
    ("said", "inspection"),
    [(declared.inspect, f"{FOREIGN}:INSPECT"), (f"{FOREIGN}:inspect", f"{FOREIGN}:inspect"), (None, "")],
)
def test_a_module_names_its_own_inspection(said: object, inspection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "INSPECT", said, raising=False)
    assert inspection_by(f"{FOREIGN}:quiet", INSPECTION) == inspection
    found = load_inspection(inspection)
    if said is not None:
        with pytest.raises(ValueError):
            found(declared.UNINITIALIZED)


def test_an_inspection_that_is_none_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "INSPECT", 3, raising=False)
    with pytest.raises(SettingsError, match=r"INSPECT of '.*' is a int, not a function"):
        inspection_by(f"{FOREIGN}:quiet", INSPECTION)
