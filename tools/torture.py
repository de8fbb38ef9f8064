"""A campaign whose workers and supervisor are killed at random, and what the campaign finds nevertheless.

Run as ``python -m tools.torture``: 5,000 programs, some of which crash, hang or come out wrong by plan, on a backend
that does nothing else. Every few seconds a worker gets SIGKILL, twice the supervisor does, and the run is resumed. At
the end every planted finding must have been told of exactly once, as what it is, and nothing else. With ``--seconds``
it stops after so long, and goes on when it is run again.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from aotcheck.campaign.record.events import FindingWritten, ProgramChecked
from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.campaign.setup.settings import BLOCK_SIZE
from aotcheck.program import Call, Inputs, Literal, OpCall, Program
from aotcheck.report.jsonl import load_events

STRATEGY = "tests.meta.small:drawn"
BACKEND = "tests.meta.treacherous:compiled"
SEED = 5


@dataclass(frozen=True)
class Outcome:
    """What came of it: what was planted, what was told of, and how much was killed."""

    planted: Counter[tuple[int, int, str]]
    told: Counter[tuple[int, int, str]]
    programs: Counter[tuple[int, int]]
    wanted: int
    workers_killed: int
    supervisors_killed: int
    seconds: float

    @property
    def wrong(self) -> list[str]:
        """What should not be, in words."""
        found = [f"planted and not told of: {at}" for at in self.planted - self.told]
        found += [f"told of {count + 1} times: {at}" for at, count in (self.told - self.planted).items()]
        found += [f"program {at} judged {count} times" for at, count in self.programs.items() if count > 1]
        if len(self.programs) != self.wanted:
            found.append(f"{len(self.programs)} programs judged of {self.wanted}")
        return found


def planted(programs: int) -> Iterator[tuple[int, int, str]]:
    """Where the programs are that are to be found, and as what."""
    from tests.meta.treacherous import fate

    strategy = load_strategy(STRATEGY)
    for number in range(programs):
        block, index = divmod(number, BLOCK_SIZE)
        if not index:
            drawn = programs_of_block(strategy, SEED, block)
        match drawn[index]:
            case Program(body=(OpCall(args=(_, Literal(int() as factor))),), calls=(Call(inputs=Inputs() as inputs),)):
                kind = fate(inputs.storages[0].numel, factor)
                if kind:
                    yield block, index, kind


@dataclass
class Kills:
    """How much was killed so far, kept beside the run."""

    workers: int = 0
    supervisors: int = 0
    seconds: float = 0.0


def torture(
    folder: Path, programs: int, every: float, supervisors: int, chance: random.Random, limit: float = float("inf")
) -> Outcome | None:
    """Run a campaign to its end, killing what can be killed: a worker every ``every`` seconds or so, the supervisor
    ``supervisors`` times, evenly. None where ``limit`` seconds were not enough: call it again to go on."""
    began = time.monotonic()
    note = folder / "kills.json"
    kills = Kills(**json.loads(note.read_text())) if note.exists() else Kills()
    before = kills.seconds
    first = ["--strategy", STRATEGY, "--backend", BACKEND, "--seed", str(SEED), "--examples", str(programs)]
    arguments = ["--resume", str(folder)] if note.exists() else [*first, "--timeout", "2", "--out", str(folder)]
    finished = False
    while not finished:
        process = _start([*arguments, "--jobs", "2", "--no-minimize", "--no-scripts"])
        arguments = ["--resume", str(folder)]
        due = time.monotonic() + chance.uniform(0.5, 2 * every)
        while process.poll() is None:
            time.sleep(0.1)
            spent = time.monotonic() - began
            at = (kills.supervisors + 1) * programs / (supervisors + 1)
            if spent > limit or (kills.supervisors < supervisors and _judged(folder) >= at):
                process.kill()
                process.wait()
                kills.supervisors += 1
                break
            if time.monotonic() > due:
                due = time.monotonic() + chance.uniform(0.5, 2 * every)
                victims = _workers(process.pid)
                kills.workers += _kill(chance.choice(victims)) if victims else 0
        else:
            finished = True
        kills.seconds = before + time.monotonic() - began
        note.write_text(json.dumps(asdict(kills)))
        if not finished and spent > limit:
            return None
    told: Counter[tuple[int, int, str]] = Counter()
    seen: Counter[tuple[int, int]] = Counter()
    for event in load_events(folder / "run.jsonl"):
        match event:
            case FindingWritten(block=block, index=index, key=key):
                told[block, index, key.oracle] += 1
            case ProgramChecked(block=block, index=index):
                seen[block, index] += 1
            case _:
                pass
    return Outcome(Counter(planted(programs)), told, seen, programs, kills.workers, kills.supervisors, kills.seconds)


def _start(arguments: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
    command = [sys.executable, "-m", "aotcheck.cli", "fuzz", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def _judged(folder: Path) -> int:
    try:
        return (folder / "run.jsonl").read_bytes().count(b'"event": "ProgramChecked"')
    except OSError:
        return 0


def _workers(supervisor: int) -> list[int]:
    """The processes that run programs: children of the server that the supervisor started."""
    parents = dict(_parents())
    servers = [pid for pid, parent in parents.items() if parent == supervisor]
    return [pid for pid, parent in parents.items() if parent in servers]


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue


def _kill(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def main() -> None:
    """Torture a campaign and say what came of it; exits 1 if anything is missing or too much."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture", description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between kills of a worker, about")
    parser.add_argument("--supervisors", type=int, default=2, help="how often the supervisor is killed")
    parser.add_argument("--out", type=Path, default=Path("reports/torture"), help="the run's folder")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long; run again to go on")
    options = parser.parse_args()
    chance = random.Random(time.time())
    found = torture(options.out, options.programs, options.every, options.supervisors, chance, options.seconds)
    if found is None:
        print(f"not finished: {_judged(options.out)} of {options.programs} programs; run it again to go on")
        sys.exit(3)
    kinds = Counter(kind for _, _, kind in found.planted.elements())
    print(f"{options.programs} programs, planted: {', '.join(f'{n} {kind}' for kind, n in kinds.items())}")
    print(f"killed: {found.workers_killed} workers, the supervisor {found.supervisors_killed} times")
    print(f"told of: {found.told.total()} findings in {found.seconds:.0f} s; wrong: {len(found.wrong)}")
    for line in found.wrong:
        print(f"    {line}")
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
