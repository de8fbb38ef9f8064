"""What all tests share: the devices, one thread each, and a canary for global state."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator

import hypothesis
import pytest
import torch

from aotcheck.pytest_plugin import OPTIONS

torch.set_num_threads(1)

PROFILES = {"dev": 50, "ci": 300, "nightly": 5000}
"""Hypothesis profiles, with how many examples each gives a property."""

for _name, _examples in PROFILES.items():
    hypothesis.settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=_name == "ci",
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
    )


def pytest_configure(config: pytest.Config) -> None:
    """``HYPOTHESIS_PROFILE`` or ``--hypothesis-profile`` chooses a profile."""
    if not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile(
            os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
        )


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)],
)
def device(request: pytest.FixtureRequest) -> str:
    """Each device that behaviour must hold on; CUDA is skipped, and said so, where there is none."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return str(request.param)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options by short names, ``--backend`` for ``--aotcheck-backend``: here nobody else has them."""
    group = parser.getgroup("aotcheck")
    for option in OPTIONS:
        dest = f"aotcheck-{option.name}".replace("-", "_")
        same = f"short for --aotcheck-{option.name}"
        group.addoption(f"--{option.name}", dest=dest, type=option.type, default=option.default, help=same)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says once what was skipped for want of a device, where ``-rs`` would say it once per test."""
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "cuda" in report.keywords]
    if skipped:
        terminalreporter.write_line(f"cuda: {len(skipped)} tests skipped: no CUDA device on this machine")


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
