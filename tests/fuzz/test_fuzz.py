"""Random programs agree with eager: the bounded campaign that every test run makes.

``pytest tests/fuzz -n auto --fuzz-time 10m --backend inductor`` goes on. Programs run inside the test process, so a
crash is xdist's to report; what was running is then in the folder of findings, as ``in-flight-*.py``.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aotcheck.backends import require_device, resolve
from aotcheck.campaign.generate import load_strategy, programs_of_block
from aotcheck.campaign.worker import script_backend, up_to, write_finding
from aotcheck.oracle import Outcome, check
from aotcheck.program import emit
from aotcheck.pytest_plugin import STRATEGY, FuzzOptions

TIMEOUT = 60


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def raise_timeout(*_: object) -> None:
        raise TimeoutError(f"a program took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def quiet() -> Iterator[None]:
    """torch's compilers log a page for each program, which pytest would show with a failure."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)


@pytest.mark.usefixtures("quiet")
def test_random_programs_agree_with_eager(
    fuzz_blocks: Iterator[tuple[int, int]], fuzz_options: FuzzOptions, record_property: pytest.RecordProperty
) -> None:
    options = fuzz_options
    backend, device, strategy = resolve(options.backend), require_device(options.device), load_strategy(STRATEGY)
    findings = options.folder / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    in_flight = options.folder / f"in-flight-{os.getpid()}.py"
    failures: list[str] = []
    programs = refused = 0
    for block, wanted in fuzz_blocks:
        for index, program in enumerate(programs_of_block(strategy, options.seed, block)[:wanted]):
            header: dict[str, object] = {"format": 1, "backend": options.backend, "block": block, "index": index}
            in_flight.write_text(emit(program, header, script_backend(options.backend)))
            with _alarm(TIMEOUT):
                verdict = check(program, backend, device)
            programs += 1
            refused += verdict.outcome is Outcome.REFUSED
            if verdict.outcome is Outcome.DIFFERS:
                key, shown = verdict.hard[0].key, up_to(program, verdict.hard[0])
                found = {**header, "key": str(key), "difference": verdict.hard[0].text}
                path = write_finding(findings, options.seed, block, index, key, shown, found, options.backend)
                failures.append(f"{key}: {verdict.hard[0].text}\n    {path}")
    in_flight.unlink(missing_ok=True)
    record_property("programs", programs)
    record_property("refused", refused)
    assert not failures, f"{len(failures)} of {programs} programs differ\n" + "\n".join(failures)
