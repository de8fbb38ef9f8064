"""What is checked on each torch, in pieces that are run and remembered one by one.

A piece is a command of its own in the environment of that torch. What it printed is read into a ``Result``: how much
was judged, what is wrong of ours, and what differs for another reason, with that reason.
"""

import functools
import hashlib
import json
import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tools.versions import known

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
WITH_BEHAVIOUR = ("2.11.0", "2.15.0")
"""The first and the last: there the behaviour tests run too."""

PROGRAMS_OF_A_PIECE, FILES_OF_A_PIECE, TEST_FILES_OF_A_PIECE = 100, 60, 10


class Check(Enum):
    """What is run. The values are what ``--checks`` takes."""

    PROGRAMS = "programs"
    MIXED = "mixed"
    CORPUS = "corpus"
    BEHAVIOUR = "behaviour"


@dataclass(frozen=True)
class Piece:
    """Part of a check on one torch: programs of one seed, or some files."""

    version: str
    check: Check
    number: int
    programs: int = 0
    files: tuple[Path, ...] = ()

    @property
    def key(self) -> str:
        """What it is remembered by, beside the state of the sources."""
        amount = self.programs or ",".join(path.name for path in self.files)
        return f"{self.version} {self.check.value} {self.number} {amount}"


@dataclass(frozen=True)
class Result:
    """What a piece showed.

    Args:
        judged: how many programs, files or tests.
        wrong: what is wrong of ours, a line each.
        others: what differs for a reason that is not ours, with the reason, a line each.
        broken: why the piece did not run to its end; empty where it did.
        seconds: how long it took.
    """

    judged: int
    wrong: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    broken: str = ""
    seconds: float = field(default=0.0, compare=False)


def pieces(versions: tuple[str, ...], checks: tuple[Check, ...], programs: int) -> Iterator[Piece]:
    """All there is to do: first what is quick, on every torch."""
    corpus = sorted((ROOT / "corpus").glob("*.py"))
    tests = sorted((ROOT / "tests" / "behaviour").rglob("test_*.py"))
    for check in checks:
        for version in versions:
            match check:
                case Check.PROGRAMS | Check.MIXED:
                    for k, start in enumerate(range(0, programs, PROGRAMS_OF_A_PIECE)):
                        yield Piece(version, check, k, min(PROGRAMS_OF_A_PIECE, programs - start))
                case Check.CORPUS:
                    for k, start in enumerate(range(0, len(corpus), FILES_OF_A_PIECE)):
                        yield Piece(version, check, k, files=tuple(corpus[start : start + FILES_OF_A_PIECE]))
                case Check.BEHAVIOUR if version in WITH_BEHAVIOUR:
                    for k, start in enumerate(range(0, len(tests), TEST_FILES_OF_A_PIECE)):
                        yield Piece(version, check, k, files=tuple(tests[start : start + TEST_FILES_OF_A_PIECE]))
                case _:
                    pass


@functools.cache
def state_of(check: Check) -> str:
    """What the result of a check depends on beside torch, as a digest: our sources, and the files that it reads."""
    read = {Check.CORPUS: ("corpus",), Check.BEHAVIOUR: ("tests/behaviour",)}.get(check, ())
    digest = hashlib.sha256(known.PATH.read_bytes() if check is Check.BEHAVIOUR else b"")
    for folder in ("aotcheck", "strategies", *read):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def run(piece: Piece, python: Path, jobs: int) -> Result:
    """Run a piece with the interpreter of an environment; the result without its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        match piece.check:
            case Check.PROGRAMS | Check.MIXED:
                return _fuzz(piece, python, jobs, Path(folder) / "run")
            case Check.CORPUS:
                return _replay(piece, python, jobs)
            case Check.BEHAVIOUR:
                return _test(piece, python, jobs, Path(folder) / "junit.xml")


def _call(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "400"}
    return subprocess.run(
        [str(python), "-W", "ignore", "-m", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _end_of(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return f"exit code {done.returncode}: {lines[-1] if lines else 'nothing was printed'}"


def _fuzz(piece: Piece, python: Path, jobs: int, folder: Path) -> Result:
    options = ["--strategy", f"strategies:{piece.check.value}", "--examples", str(piece.programs)]
    options += ["--seed", str(piece.number), "--jobs", str(jobs), "--out", str(folder), "--no-minimize"]
    done = _call(python, "aotcheck.cli", "fuzz", "--backend", "aotcheck", *options)
    return read_fuzz(folder / "run.jsonl", piece, done.returncode, _end_of(done))


def read_fuzz(events: Path, piece: Piece, code: int, end: str) -> Result:
    """The result of a campaign whose events are in the file ``events``, which ended with exit code ``code``."""
    judged, finished, wrong = 0, False, []
    for line in events.read_text(encoding="utf-8").splitlines() if events.exists() else ():
        event = json.loads(line)
        finished |= event["event"] == "RunFinished" and event.get("ending") == "done"
        if event["event"] == "ProgramChecked":
            judged += 1  # programs that equal one before are not judged again
            if event["outcome"] == "differs":
                where = f"{piece.check.value}, seed {piece.number}, block {event['block']}, program {event['index']}"
                wrong.append(f"{where}: {' · '.join(event['texts']) or event['hard']}")
    whole = finished and code in (0, 1)
    if code == 1 and not wrong:
        wrong.append(f"{piece.check.value}, seed {piece.number}: {end}")  # a worker that died, say
    return Result(judged, tuple(wrong), broken="" if whole else end)


_REPLAYED = re.compile(r"^(?P<path>.+\.py): aotcheck: (?P<status>\w+)(?: \((?P<text>.*)\))?$")


def _replay(piece: Piece, python: Path, jobs: int) -> Result:
    paths = [path.relative_to(ROOT).as_posix() for path in piece.files]
    options = ["--jobs", str(jobs), "--timeout", "120"]
    done = _call(python, "aotcheck.cli", "replay", *paths, "--backend", "aotcheck", *options)
    suspects = [match["path"] for match in _replayed(done.stdout) if match["status"] in ("new", "flaky")]
    eager: dict[str, str] = {}
    if suspects:
        again = _call(python, "aotcheck.cli", "replay", *suspects, "--backend", "eager", *options)
        for line in again.stdout.splitlines():
            path, _, said = line.partition(": eager: ")
            if said:
                eager[path] = said
    return read_replay(done.stdout, eager, len(piece.files), _end_of(done))


def _replayed(printed: str) -> list[re.Match[str]]:
    return [match for line in printed.splitlines() if (match := _REPLAYED.match(line))]


def read_replay(printed: str, eager: dict[str, str], files: int, end: str) -> Result:
    """The result of a replay on ``aotcheck``.

    Most files of the corpus pin what torch's compilers do; of ours nearly all expect that it agrees. A difference that
    nobody expects is ours, unless eager does not agree with itself either: a crash of eager, say. One that is expected
    and not there on this torch is a file that pins one torch version, which says nothing against us.

    Args:
        printed: what ``aotcheck replay`` printed.
        eager: what it printed of the suspects among the files on ``eager``, by file.
        files: how many files there were.
        end: how the command ended.
    """
    wrong, others = [], []
    matches = _replayed(printed)
    for match in matches:
        name, status, text = Path(match["path"]).name, match["status"], match["text"] or ""
        said = eager.get(match["path"], "agrees")
        if status in ("new", "flaky") and said.startswith("agrees"):
            wrong.append(f"corpus/{name}: {status} ({text})")
        elif status in ("new", "flaky"):
            others.append(f"corpus/{name}: eager against eager: {said}")
        elif status == "fixed":
            others.append(f"corpus/{name}: agrees here, and differs on the torch that the file was written for")
    return Result(len(matches), tuple(wrong), tuple(others), "" if len(matches) == files else end)


def _test(piece: Piece, python: Path, jobs: int, report: Path) -> Result:
    reasons = known.read_known()
    paths = [path.relative_to(ROOT).as_posix() for path in piece.files]
    options = ["-q", "--every-case", "-p", "no:cacheprovider", "-n", str(jobs), f"--junitxml={report}"]
    done = _call(python, "pytest", *options, *paths)
    return read_tests(report, piece.version, reasons, done.returncode, _end_of(done))


def read_tests(report: Path, version: str, reasons: tuple[known.Known, ...], code: int, end: str) -> Result:
    """The result of tests on a torch, from pytest's JUnit file.

    Those that were skipped, since there is no GPU, do not count. Those that failed for one of the known ``reasons`` are
    not wrong of ours.
    """
    if not report.exists():
        return Result(0, broken=end)
    judged = 0
    wrong: list[str] = []
    others: list[str] = []
    for case in ET.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        judged += 1
        failure = case.find("failure")
        failure = case.find("error") if failure is None else failure
        if failure is not None:
            test, message = f"{case.get('classname')}::{case.get('name')}", (failure.get("message") or "").splitlines()
            why = next((each.reason for each in reasons if each.explains(test, version)), "")
            (others if why else wrong).append(f"{test}: {why or (message[0] if message else 'failed')}")
    return Result(judged, tuple(wrong), tuple(others), "" if code in (0, 1) else end)
