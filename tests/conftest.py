"""What all tests share: the devices, one thread each, and a canary for global state."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import random
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import torch

from aotcheck.pytest_plugin import OPTIONS
from tests.behaviour import compilers
from tests.behaviour.ledger import Keeper

torch.set_num_threads(1)

PROFILES = {"dev": 50, "ci": 300, "nightly": 5000}
"""Hypothesis profiles, with how many examples each gives a property."""

MOST_CASES = 16
"""So many cases of one behaviour test run by day, drawn by its name; the others are marked nightly.

Of a test elsewhere all cases run by day, unless it says by the marker ``by_day`` how many do.
"""

for _name, _examples in PROFILES.items():
    hypothesis.settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=_name == "ci",
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
    )


def pytest_configure(config: pytest.Config) -> None:
    """``HYPOTHESIS_PROFILE`` or ``--hypothesis-profile`` chooses a profile, ``--compiler`` a compiler."""
    compilers.aotcheck.choose(config.getoption("compiler"))
    if config.getoption("compiler") in compilers.KEPT:
        config.pluginmanager.register(Keeper(config.getoption("record_refusals")))
    if not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile(
            os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
        )


CUDA = [pytest.param("cuda", marks=pytest.mark.cuda)] if torch.cuda.is_available() else []


@pytest.fixture(params=["cpu", *CUDA])
def device(request: pytest.FixtureRequest) -> str:
    """Each device that behaviour must hold on."""
    return str(request.param)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options by short names, ``--backend`` for ``--aotcheck-backend``: here nobody else has them."""
    group = parser.getgroup("aotcheck")
    for option in OPTIONS:
        dest = f"aotcheck-{option.name}".replace("-", "_")
        same = f"short for --aotcheck-{option.name}"
        group.addoption(f"--{option.name}", dest=dest, type=option.type, default=option.default, help=same)
    group.addoption(
        "--compiler", default="first", help="which one the behaviour tests check: see tests/behaviour/compilers.py"
    )
    group.addoption("--record-refusals", metavar="FILE", help="write what that compiler refuses; nothing refused fails")
    group.addoption("--every-case", action="store_true", help="run the cases too that are marked nightly")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves all but some cases of a test that has many to the night, unless the command line names tests."""
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("by_day")
        if mark or item.nodeid.startswith("tests/behaviour/"):
            most = mark.args[0] if mark else MOST_CASES
            cases.setdefault((item.nodeid.split("[")[0], most), []).append(item)
    nightly = {
        item
        for (test, most), same in cases.items()
        if len(same) > most
        for item in set(same).difference(random.Random(test).sample(same, most))
    }
    for item in nightly:
        item.add_marker("nightly")
    if not config.getoption("every_case") and not any("::" in argument for argument in config.args):
        config.hook.pytest_deselected(items=list(nightly))
        items[:] = [item for item in items if item not in nightly]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Hides from the garbage collector what is there before the first test: torch, and an item for each case.

    Tests collect garbage to see what is freed; to look at all of that takes 0.6 s each time, and 0.04 s so.
    """
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives each process neighbouring tests, which share what their module computes once, and lets it steal the rest.

    The default of ``pytest -n auto`` deals tests out one by one, so that each process computes all of that.
    """
    from xdist.scheduler import WorkStealingScheduling  # an extra: without it nobody calls this

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was not run."""
    if not torch.cuda.is_available():
        terminalreporter.write_line("cuda: no test ran on it: no CUDA device on this machine")


def _global_state() -> dict[str, object]:
    """What a call may never leave changed."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "autocast on cpu": torch.is_autocast_enabled("cpu"),
        "autocast on cuda": torch.is_autocast_enabled("cuda"),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "view replay": torch.autograd.is_view_replay_enabled(),
        "multithreading of autograd": torch.autograd.is_multithreading_enabled(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "threads": torch.get_num_threads(),
    }


@pytest.fixture(autouse=True)
def global_state_canary() -> Iterator[None]:
    """Fails the test that leaves global state changed, rather than the tests that then suffer from it."""
    before = _global_state()
    yield
    after = _global_state()
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, f"global state left changed (before, after): {changed}"
    assert torch.equal(torch.ones(2).add(1), torch.full((2,), 2.0)), "a plain eager computation no longer works"
