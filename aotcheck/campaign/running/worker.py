"""What runs inside a worker process."""

import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from aotcheck.backends import EVERYTHING, Expectations, require_device, resolve
from aotcheck.campaign.record.journal import Journal, write_durably
from aotcheck.campaign.setup.generate import digest_of, load_strategy, programs_of_block, repeats_in
from aotcheck.oracle import CoarseKey, Difference, OracleKind, Outcome, Verdict, as_promised, check
from aotcheck.oracle.state import canary
from aotcheck.program import Program, difficulty, emit, parse, traits_of
from aotcheck.program.vocabulary.traits import bits_of
from aotcheck.workers import POISONED, in_this_process


@dataclass(frozen=True)
class Task:
    """A block, or what is left of it.

    Args:
        block: its number.
        skip: the programs of it that are done or have killed a worker.
        programs: how many of its programs to run.
        journal: the file to write to.
        findings: the folder for scripts.
        wanted: pairs of traits that the block aims at.
        expectations: what is not expected of the backend.
    """

    strategy: str
    backend: str
    device: str
    seed: int
    block: int
    skip: frozenset[int]
    programs: int
    journal: Path
    findings: Path
    wanted: tuple[tuple[str, str], ...] = ()
    expectations: Expectations = EVERYTHING


def run_task(task: Task) -> None:
    """Run the programs of a block, and record everything in the journal."""
    home = os.getcwd()
    journal = Journal(task.journal)
    try:
        journal.note("process", pid=os.getpid())
        backend, device = resolve(task.backend, task.expectations), require_device(task.device)
        strategy = load_strategy(task.strategy, task.wanted)
        backend.reset()  # imports what it needs, on no program's time
        began = time.monotonic()
        programs = programs_of_block(strategy, task.seed, task.block)[: task.programs]
        traits = [f"{bits_of(traits_of(program)):x}" for program in programs]
        repeated = repeats_in(programs)
        journal.note(
            "generated",
            programs=len(programs),
            seconds=time.monotonic() - began,
            traits=traits,
            repeated=sorted(repeated),
            digests=[digest_of(program) for program in programs],
        )
        for index, program in enumerate(programs):
            if index in task.skip or index in repeated:
                continue
            source = emit(program, header_of(task, index))
            journal.start(index, source)
            began = time.monotonic()
            try:
                verdict = in_this_process(check, program, backend, device)
            except BaseException as error:  # a bug of the oracle's, or an input that cannot be built
                path = task.findings / f"oracle-failed-{task.seed}-{task.block}-{index}.py"
                write_durably(path, source)
                traceback.print_exc()
                journal.note("failed", index=index, error=f"{type(error).__name__}: {error}"[:300], path=str(path))
                if canary(device):  # no later program of this process could be judged
                    journal.close()
                    os._exit(POISONED)
                continue
            finally:
                os.chdir(home)  # what is written has its place below it
            journal.note("finished", index=index, **_record(task, index, program, verdict, time.monotonic() - began))
            if verdict.poisoned:
                journal.close()
                os._exit(POISONED)
    finally:
        journal.close()


def header_of(task: Task, index: int) -> dict[str, object]:
    """The entries of a script's header that say where it comes from."""
    options = {"backend": task.backend, "device": task.device, "seed": task.seed, "strategy": task.strategy}
    return {
        "found": " ".join(["aotcheck fuzz", *(f"--{name} {value}" for name, value in options.items())]),
        "backend": task.backend,
        "block": task.block,
        "index": index,
        "torch": torch.__version__,
        **task.expectations.header(),
    }


def _record(task: Task, index: int, program: Program, verdict: Verdict, seconds: float) -> dict[str, Any]:
    path = ""
    if verdict.outcome is Outcome.DIFFERS:
        first = verdict.hard[0]
        header = {**header_of(task, index), "key": str(first.key), "difference": first.text}
        shown = up_to(as_promised(program, resolve(task.backend, task.expectations).promises)[0], first)
        path = str(write_finding(task.findings, task.seed, task.block, index, first.key, shown, header))
    differences = dict(verdict.shown)
    return {
        "outcome": verdict.outcome.value,
        "seconds": round(seconds, 5),
        "features": sorted(feature.name for feature in difficulty(program)),
        "hard": [asdict(key) for key in differences],
        "soft": [asdict(difference.key) for difference in verdict.soft],
        "refusals": list(verdict.refusals),
        "left_out": {promise.value: count for promise, count in verdict.left_out},
        "texts": list(differences.values()),
        "path": path,
        "fit": not verdict.poisoned,
        "eager_refuses": verdict.eager_refuses,
    }


def up_to(program: Program, difference: Difference) -> Program:
    """``program`` without the calls and steps after the one that shows ``difference``, since those are not judged.

    A backend without guards may differ in them.
    """
    if difference.oracle is OracleKind.POISONING:  # seen at the end, whichever call did it
        return program
    place = difference.place
    *earlier, last = program.calls[: place.call + 1]
    return replace(program, calls=(*earlier, replace(last, steps=last.steps[: place.steps])))


def write_finding(
    folder: Path, seed: int, block: int, index: int, key: CoarseKey, program: Program, header: Mapping[str, object]
) -> Path:
    """Write the script of a finding; it is on disk when this returns."""
    name = f"{key.oracle}-{''.join(c if c.isalnum() else '-' for c in key.place)}-{seed}-{block}-{index}.py"
    path = folder / name
    write_durably(path, emit(program, header))
    return path


def recheck(source: str, backend: str, device: str, wanted: CoarseKey) -> CoarseKey | None:
    """Run a script's program again, in this fresh process; the coarse key of its difference, if there is one: the
    wanted key if the program shows it, else the first."""
    parsed = parse(source, "finding")
    compiled = resolve(backend, Expectations.of_header(parsed.header))
    verdict = check(parsed.program, compiled, require_device(device))
    keys = [difference.key for difference in verdict.hard]
    return wanted if wanted in keys else keys[0] if keys else None
