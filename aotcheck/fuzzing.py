"""Random programs agree with eager, as a test: ``pytest --pyargs aotcheck.fuzzing --aotcheck-backend mine:compile``.

A project may also have a file of its own for it::

    from aotcheck.fuzzing import test_random_programs_agree_with_eager

``-n auto`` shares the programs out to workers, ``--aotcheck-fuzz-time 10m`` goes on for so long. Programs run inside
the test process, so a crash is xdist's to report; what was running is then in the folder of findings, as
``in-flight-*.py``.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aotcheck.backends import require_device, resolve
from aotcheck.campaign.running.worker import up_to, write_finding
from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.checking.quiet import quiet
from aotcheck.oracle import Outcome, check
from aotcheck.program import emit
from aotcheck.pytest_plugin import FuzzOptions

__all__ = ["test_random_programs_agree_with_eager"]

TIMEOUT = 60
"""Seconds that a program may take."""


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


@quiet()
def test_random_programs_agree_with_eager(
    fuzz_blocks: Iterator[tuple[int, int]], fuzz_options: FuzzOptions, record_property: Callable[[str, object], None]
) -> None:
    """The campaign, or a worker's share of it; fails with a line and a script for each program that differs."""
    __tracebackhide__ = True
    options = fuzz_options
    backend, device = resolve(options.backend), require_device(options.device)
    strategy = load_strategy(options.strategy)
    findings = options.folder / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    in_flight = options.folder / f"in-flight-{os.getpid()}.py"
    failures: list[str] = []
    programs = refused = 0
    for block, wanted in fuzz_blocks:
        for index, program in enumerate(programs_of_block(strategy, options.seed, block)[:wanted]):
            header: dict[str, object] = {"backend": options.backend, "block": block, "index": index}
            in_flight.write_text(emit(program, header))
            with _alarm(TIMEOUT):
                verdict = check(program, backend, device)
            programs += 1
            refused += verdict.outcome is Outcome.REFUSED
            if verdict.outcome is Outcome.DIFFERS:
                key, shown = verdict.hard[0].key, up_to(program, verdict.hard[0])
                found = {**header, "key": str(key), "difference": verdict.hard[0].text}
                path = write_finding(findings, options.seed, block, index, key, shown, found)
                failures.append(f"{key}: {verdict.hard[0].text}\n    {path}")
    in_flight.unlink(missing_ok=True)
    record_property("programs", programs)
    record_property("refused", refused)
    if failures:
        raise AssertionError(f"{len(failures)} of {programs} programs differ\n" + "\n".join(failures))
