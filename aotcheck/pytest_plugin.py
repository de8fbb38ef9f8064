"""The pytest plugin: options for fuzzing, Hypothesis profiles, and blocks shared out to xdist's workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import HealthCheck

if TYPE_CHECKING:
    from aotcheck.checking import Report
    from aotcheck.checking.subject import Given

EXAMPLES = 300
STRATEGY = "strategies:settled"

PROFILES = {"dev": 50, "ci": 300, "nightly": 5000}
"""Hypothesis profiles, with how many examples each gives a property."""


@dataclass(frozen=True)
class FuzzOptions:
    """What the command line asks of ``tests/fuzz``.

    Args:
        backend: the backend to test.
        device: the device to test on.
        seed: decides the programs.
        examples: how many programs, over all of xdist's workers.
        seconds: how long all workers together go on instead, if given.
        folder: where findings are written.
    """

    backend: str
    device: str
    seed: int
    examples: int
    seconds: float | None
    folder: Path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the fuzzer. Plain names where pytest and its plugins leave them free."""
    group = parser.getgroup("aotcheck", "aotcheck: fuzzing of PyTorch compilers")
    group.addoption("--backend", default="aotcheck", help="backend to fuzz: a name or module:callable")
    group.addoption("--device", default="cpu", help="device to fuzz on")
    group.addoption("--fuzz-examples", type=int, default=EXAMPLES, help="programs in all (default: %(default)s)")
    group.addoption("--fuzz-time", default=None, help="go on for so long instead: 90s, 10m, 2h")
    group.addoption("--fuzz-seed", type=int, default=0, help="decides the programs (default: %(default)s)")
    group.addoption("--fuzz-out", default="reports/pytest", help="where findings go (default: %(default)s)")


def pytest_configure(config: pytest.Config) -> None:
    """Register the Hypothesis profiles; ``HYPOTHESIS_PROFILE`` or ``--hypothesis-profile`` chooses."""
    for name, examples in PROFILES.items():
        hypothesis.settings.register_profile(
            name,
            max_examples=examples,
            deadline=None,
            derandomize=name == "ci",
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
    if not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile(
            os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per block, or with ``--fuzz-time`` one test per worker."""
    if "fuzz_blocks" not in metafunc.fixturenames:
        return
    from aotcheck.campaign.settings import BLOCK_SIZE

    config = metafunc.config
    if config.getoption("--fuzz-time") is not None:
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        ids = [f"share-{i + 1}-of-{workers}" for i in range(workers)]
        metafunc.parametrize("fuzz_blocks", [None] * workers, ids=ids, indirect=True)
    else:
        wanted = max(config.getoption("--fuzz-examples"), 1)
        blocks = range(-(-wanted // BLOCK_SIZE))
        budgets = [(i, min(BLOCK_SIZE, wanted - i * BLOCK_SIZE)) for i in blocks]
        metafunc.parametrize("fuzz_blocks", budgets, ids=[f"block-{i}" for i in blocks], indirect=True)


@pytest.fixture
def fuzz_blocks(
    request: pytest.FixtureRequest, fuzz_options: FuzzOptions, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, int]]:
    """The blocks of a test, each with how many of its programs are wanted.

    With ``--fuzz-time`` they are taken, one at a time, from all that there are, by whichever of xdist's workers is
    free, until the time of all of them is up: it begins with the first.
    """
    from aotcheck.campaign.claims import Claims
    from aotcheck.campaign.settings import BLOCK_SIZE

    if fuzz_options.seconds is None:
        return iter([request.param])
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent  # a worker's own folder is in it
    claims = Claims(shared / f"aotcheck-claims-{fuzz_options.seed}", fuzz_options.seconds)
    return ((block, BLOCK_SIZE) for block in claims.blocks())


@pytest.fixture(scope="session")
def fuzz_options(pytestconfig: pytest.Config) -> FuzzOptions:
    """The fuzzer's options; skips where the device is not there, fails in one line on anything else that is wrong."""
    from aotcheck.backends import BackendError, DeviceUnavailableError, require_device, resolve
    from aotcheck.cli import seconds

    options = pytestconfig.getoption
    duration = options("--fuzz-time")
    limit, absent, wrong = None, "", ""
    try:
        require_device(options("--device"))
        resolve(options("--backend"))
        limit = seconds(duration) if duration is not None else None
        Path(options("--fuzz-out")).mkdir(parents=True, exist_ok=True)
    except DeviceUnavailableError as error:
        absent = str(error)
    except BackendError as error:
        wrong = str(error)
    except OSError as error:
        wrong = f"--fuzz-out: cannot write to '{options('--fuzz-out')}': {error.strerror}"
    except ValueError:
        wrong = f"--fuzz-time: '{duration}' is not a duration; write 90, 90s, 10m or 2h"
    if absent:
        pytest.skip(absent)
    if wrong:  # outside of the handlers, whose errors pytest would show too
        pytest.fail(wrong, pytrace=False)
    return FuzzOptions(
        backend=options("--backend"),
        device=options("--device"),
        seed=options("--fuzz-seed"),
        examples=options("--fuzz-examples"),
        seconds=limit,
        folder=Path(options("--fuzz-out")),
    )


@pytest.fixture
def check_compiled(pytestconfig: pytest.Config) -> Callable[..., Report]:
    """:func:`aotcheck.check` on ``--backend`` and ``--device``, unless told otherwise; raises what differs."""

    def checked(function: Callable[..., Any], make_inputs: Given, **options: Any) -> Report:
        from aotcheck.checking import check

        chosen = {name: pytestconfig.getoption(f"--{name}") for name in ("backend", "device")}
        report = check(function, make_inputs, **{**chosen, **options})
        report.raise_for_differences()
        return report

    return checked
