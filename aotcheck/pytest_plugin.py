"""The pytest plugin: options for fuzzing, and blocks shared out to xdist's workers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aotcheck.checking import Report
    from aotcheck.checking.subject import Given

EXAMPLES = 300
STRATEGY = "strategies:settled"


@dataclass(frozen=True)
class Option:
    """An option of the command line.

    Args:
        name: what it is called, behind ``--aotcheck-``.
        help: what it says, for ``pytest --help``.
        default: its value where it is not given.
        type: what its text is converted to.
    """

    name: str
    help: str
    default: object
    type: Callable[[str], object] = str


OPTIONS = (
    Option("backend", "backend to fuzz: a name or module:callable (default: %(default)s)", "aotcheck"),
    Option("device", "device to fuzz on (default: %(default)s)", "cpu"),
    Option("fuzz-examples", "programs in all (default: %(default)s)", EXAMPLES, int),
    Option("fuzz-time", "go on for so long instead: 90s, 10m, 2h", None),
    Option("fuzz-seed", "decides the programs (default: %(default)s)", 0, int),
    Option("fuzz-out", "where findings go (default: %(default)s)", "reports/pytest"),
    Option("fuzz-strategy", "what draws programs, as module:attribute (default: %(default)s)", STRATEGY),
)


@dataclass(frozen=True)
class FuzzOptions:
    """What the command line asks of :mod:`aotcheck.fuzzing`.

    Args:
        backend: the backend to test.
        device: the device to test on.
        seed: decides the programs.
        examples: how many programs, over all of xdist's workers.
        seconds: how long all workers together go on instead, if given.
        folder: where findings are written.
        strategy: ``module:attribute`` of what draws the programs.
    """

    backend: str
    device: str
    seed: int
    examples: int
    seconds: float | None
    folder: Path
    strategy: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the fuzzer, all with our name in front: other plugins and conftests have options too."""
    group = parser.getgroup("aotcheck", "aotcheck: fuzzing of PyTorch compilers")
    for option in OPTIONS:
        group.addoption(f"--aotcheck-{option.name}", type=option.type, default=option.default, help=option.help)


def _option(config: pytest.Config, name: str) -> Any:
    """What the command line says of an option of ours."""
    return config.getoption(f"--aotcheck-{name}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per block, or with ``--aotcheck-fuzz-time`` one test per worker."""
    if "fuzz_blocks" not in metafunc.fixturenames:
        return
    from aotcheck.campaign.setup.settings import BLOCK_SIZE

    config = metafunc.config
    if _option(config, "fuzz-time") is not None:
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        ids = [f"share-{i + 1}-of-{workers}" for i in range(workers)]
        metafunc.parametrize("fuzz_blocks", [None] * workers, ids=ids, indirect=True)
    else:
        wanted = max(_option(config, "fuzz-examples"), 1)
        blocks = range(-(-wanted // BLOCK_SIZE))
        budgets = [(i, min(BLOCK_SIZE, wanted - i * BLOCK_SIZE)) for i in blocks]
        metafunc.parametrize("fuzz_blocks", budgets, ids=[f"block-{i}" for i in blocks], indirect=True)


@pytest.fixture
def fuzz_blocks(
    request: pytest.FixtureRequest, fuzz_options: FuzzOptions, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, int]]:
    """The blocks of a test, each with how many of its programs are wanted.

    With ``--aotcheck-fuzz-time`` they are taken, one at a time, from all that there are, by whichever of xdist's
    workers is free, until the time of all of them is up: it begins with the first.
    """
    from aotcheck.campaign.running.claims import Claims
    from aotcheck.campaign.setup.settings import BLOCK_SIZE

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
    from aotcheck.named import find_modules_here

    find_modules_here()
    options = functools.partial(_option, pytestconfig)
    duration = options("fuzz-time")
    limit, absent, wrong = None, "", ""
    try:
        require_device(options("device"))
        resolve(options("backend"))
        limit = seconds(duration) if duration is not None else None
        Path(options("fuzz-out")).mkdir(parents=True, exist_ok=True)
    except DeviceUnavailableError as error:
        absent = str(error)
    except BackendError as error:
        wrong = str(error)
    except OSError as error:
        wrong = f"--aotcheck-fuzz-out: cannot write to '{options('fuzz-out')}': {error.strerror}"
    except ValueError:
        wrong = f"--aotcheck-fuzz-time: '{duration}' is not a duration; write 90, 90s, 10m or 2h"
    if absent:
        pytest.skip(absent)
    if wrong:  # outside of the handlers, whose errors pytest would show too
        pytest.fail(wrong, pytrace=False)
    return FuzzOptions(
        backend=options("backend"),
        device=options("device"),
        seed=options("fuzz-seed"),
        examples=options("fuzz-examples"),
        seconds=limit,
        folder=Path(options("fuzz-out")),
        strategy=options("fuzz-strategy"),
    )


@pytest.fixture
def check_compiled(pytestconfig: pytest.Config) -> Callable[..., Report]:
    """:func:`aotcheck.check` on the plugin's backend and device, unless told otherwise; raises what differs."""

    def checked(function: Callable[..., Any], make_inputs: Given, **options: Any) -> Report:
        __tracebackhide__ = True  # pytest then ends at the line of the user's test
        from aotcheck.backends import BackendError
        from aotcheck.checking import DifferenceError, check
        from aotcheck.named import find_modules_here

        find_modules_here()
        chosen = {name: _option(pytestconfig, name) for name in ("backend", "device")}
        wrong = ""
        try:
            report = check(function, make_inputs, **{**chosen, **options})
        except (BackendError, KeyError) as error:
            wrong = str(error.args[0])
        if wrong:  # outside of the handler, whose error pytest would show too
            raise DifferenceError(f"nothing was checked: {wrong}")
        if not report.agrees:
            raise DifferenceError(report.short)
        return report

    return checked
