"""All checks that need a GPU in one short run: the CUDA tests, and random programs on our compiler and on torch's.

Run as ``python -m tools.gpu_check --device cuda --out DIR``. It is made for a machine that is lent for minutes and has
no network: it ends within seven minutes, and what a step has shown is in DIR before the next one begins. DIR holds few
files: ``summary.md``, ``steps.jsonl``, and ``findings.tar.gz`` with logs and scripts. With ``--device cpu`` and a small
``--scale`` it takes a minute. See docs/gpu.md.
"""

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import aotcheck.zoo.models  # noqa: F401  # they register themselves
from aotcheck.zoo import models_named

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 400.0
"""Seconds for all steps; what is left to seven minutes is for starting and packing."""


@dataclass(frozen=True)
class Step:
    """Something to run.

    Args:
        name: of its row in the table, and of its files.
        share: of the time that is left, in comparison with the shares of the steps after it.
        amount: how many programs; of the tests, which part of their files in percent; of the zoo, at most how many
            models.
        backend: what the programs or models run on; empty for the tests.
        ours: whether what it finds is wrong of ours. What it finds on torch's compilers is told and fails nothing.
    """

    name: str
    share: float
    amount: int
    backend: str = ""
    ours: bool = True

    @property
    def of_the_zoo(self) -> bool:
        """Whether it runs the zoo's models, not programs or tests."""
        return self.name.startswith("zoo")


STEPS = (
    Step("zoo", 2, 200, "aotcheck"),
    Step("aotcheck", 3, 2000, "aotcheck"),
    Step("tests", 5, 100),
    Step("zoo_second", 2, 200, "aotcheck_second"),
    Step("aotcheck_second", 2, 2000, "aotcheck_second"),
    Step("aot_eager", 2, 300, "aot_eager", ours=False),
    Step("inductor", 4, 100, "inductor", ours=False),
)


@dataclass(frozen=True)
class Shown:
    """What a step showed: how much it judged of how much, what differs or fails, why it ended before, its seconds."""

    name: str
    judged: int
    asked: str
    found: tuple[str, ...]
    ours: bool
    ended: str
    seconds: float


def scaled(step: Step, scale: float) -> Step:
    """The same step with so much less to do, but something."""
    return Step(step.name, step.share, max(1, math.ceil(step.amount * scale)), step.backend, step.ours)


def command_of(step: Step, device: str, jobs: int, seconds: float, work: Path) -> list[str]:
    """The command line of a step that may take so many ``seconds``."""
    if step.of_the_zoo:
        names = [model.name for model in models_named(())][: step.amount]
        options = ["--device", device, "--jobs", str(jobs), "--timeout", f"{max(5, int(seconds) // 2)}s", "--json"]
        options += ["--models", ",".join(names)]
        return [sys.executable, "-W", "ignore", "-m", "aotcheck.cli", "zoo", "--backend", step.backend, *options]
    if step.backend:
        options = ["--device", device, "--examples", str(step.amount), "--time", f"{max(5, int(seconds))}s"]
        options += ["--jobs", str(jobs), "--no-minimize"]
        fuzz = ["aotcheck.cli", "fuzz", "--backend", step.backend, "--strategy", "strategies:programs"]
        return [sys.executable, "-W", "ignore", "-m", *fuzz, *options, "--out", str(work / step.name)]
    files = sorted((ROOT / "tests" / "behaviour").rglob("test_*.py"))
    chosen = files[: math.ceil(len(files) * step.amount / 100)]
    names = [str(file.relative_to(ROOT)) for file in chosen]
    options = ["-v", "-p", "no:cacheprovider", "-n", str(jobs), "-m", "cuda" if device == "cuda" else "not cuda"]
    return [sys.executable, "-m", "pytest", *options, *names]


def run(step: Step, device: str, jobs: int, seconds: float, work: Path) -> Shown:
    """Run a step; what it left is read whether it came to its end or was killed."""
    log, began = work / f"{step.name}.log", time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    # A campaign stops by itself when its time is over, and then tells of what it found.
    limit = seconds + (20 if step.backend else 0)
    with log.open("w", encoding="utf-8") as out:
        command = command_of(step, device, jobs, seconds, work)
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = log.read_text(encoding="utf-8", errors="replace")
    if step.of_the_zoo:
        judged, found = read_zoo(text)
    else:
        judged, found = read_fuzz(work / step.name / "run.jsonl") if step.backend else read_tests(text)
    ended = ended_as(step, code, judged, text)
    asked = f"{step.amount} programs" if step.backend else f"the tests of {step.amount}% of the files"
    asked = "every model" if step.of_the_zoo else asked
    return Shown(step.name, judged, asked, found, step.ours, ended, round(time.monotonic() - began, 1))


def ended_as(step: Step, code: int | None, judged: int, text: str) -> str:
    """Why a step ended before it had done all; empty where it did all."""
    if code is None:
        return "its time was over"
    if code not in (0, 1) or not judged:
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing was printed")
        return f"exit code {code}: {last}"
    done = re.search(r"^done: ", text, re.MULTILINE)  # programs that are equal are judged once
    return "its time was over" if step.backend and not step.of_the_zoo and not done else ""


def read_zoo(log: str) -> tuple[int, tuple[str, ...]]:
    """How many models a run judged, and which differ or fail, from what ``--json`` printed."""
    try:
        results = json.loads(log[log.index("{\n") :])["models"]
    except ValueError:
        return 0, ()
    wrong = [r for r in results if r["outcome"] in ("differs", "error")]
    return len(results), tuple(f"{r['model']}: {r['outcome']}: {r['reason']}" for r in wrong)


def read_fuzz(events: Path) -> tuple[int, tuple[str, ...]]:
    """How many programs a campaign judged, and which differ."""
    judged, found = 0, []
    for line in events.read_text(encoding="utf-8").splitlines() if events.exists() else ():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue  # it was killed as it wrote
        if event["event"] == "ProgramChecked":
            judged += 1
            if event["outcome"] == "differs":
                found.append(f"block {event['block']}, program {event['index']}: {' · '.join(event['texts'])}")
        elif event["event"] == "FindingWritten" and "crash" in str(event.get("key", "")).lower():
            found.append(f"{Path(event['path']).name}: the process died")
    return judged, tuple(found)


_TESTED = re.compile(r"^(?:\[gw\d+\] )?\[ *\d+%\] (PASSED|FAILED|ERROR) (\S+)|^(\S+::\S.*?) (PASSED|FAILED|ERROR)\b")


def read_tests(log: str) -> tuple[int, tuple[str, ...]]:
    """How many tests ran, and which failed, from what ``pytest -v`` printed, be it cut off."""
    judged, failed = 0, []
    for line in log.splitlines():
        match = _TESTED.match(line)
        if match is None:
            continue
        judged += 1
        if (match[1] or match[4]) != "PASSED":
            failed.append(match[2] or match[3])
    return judged, tuple(failed)


def table(shown: Sequence[Shown], steps: Sequence[Step], head: str) -> str:
    """The summary as Markdown: a row for each step, then what was found."""
    lines = [head, "", "| step | judged | of | found | ended | seconds |", "| --- | --- | --- | --- | --- | --- |"]
    by_name = {s.name: s for s in shown}
    for step in steps:
        s = by_name.get(step.name)
        cells = ("", "", "", "not yet", "") if s is None else _cells(s)
        lines.append(f"| {step.name} | {' | '.join(cells)} |")
    for s in shown:
        if s.found:
            lines += ["", f"## {s.name}: {'wrong of ours' if s.ours else 'found in torch'}", ""]
            lines += [f"- {text}" for text in s.found]
    return "\n".join(lines) + "\n"


def _cells(s: Shown) -> tuple[str, str, str, str, str]:
    return str(s.judged), s.asked, str(len(s.found)), s.ended or "done", str(s.seconds)


def exit_code(shown: Sequence[Shown]) -> int:
    """1: something is wrong of ours. 3: a step could not be run. A step whose time was over is neither."""
    if any(s.found and s.ours for s in shown):
        return 1
    return 3 if any(not s.judged or s.ended.startswith("exit code") for s in shown) else 0


def pack(work: Path, target: Path) -> None:
    """Logs, events and scripts of all steps so far, in one file: machines that are lent hand back but a few."""
    partial = target.with_suffix(".partial")
    with tarfile.open(partial, "w:gz") as archive:
        for path in sorted(work.rglob("*")):
            if path.is_file() and path.suffix in (".log", ".py", ".jsonl", ".txt"):
                archive.add(path, path.relative_to(work))
    partial.replace(target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps, each as long as its share of the time allows."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the table and the findings")
    parser.add_argument("--work", type=Path, default=ROOT / "reports" / "gpu_check", help="a folder for the runs")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--scale", type=float, default=1.0, help="do so much of everything (default: 1)")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for all steps (default: %(default)s)")
    parser.add_argument("--steps", default=",".join(s.name for s in STEPS), help="only these, by comma")
    options = parser.parse_args(arguments)
    names = options.steps.split(",")
    if unknown := [name for name in names if name not in {s.name for s in STEPS}]:
        parser.error(f"unknown step '{unknown[0]}': choose from {', '.join(s.name for s in STEPS)}")
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print(f"gpu_check: torch {torch.__version__} finds no CUDA device here", file=sys.stderr)
        return 3
    began = time.monotonic()
    work = options.work / time.strftime("%Y%m%d-%H%M%S")
    for folder in (work, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    head = f"# aotcheck on {device}, torch {torch.__version__}, Python {sys.version.split()[0]}"
    steps, shown = [scaled(s, options.scale) for s in STEPS if s.name in names], list[Shown]()
    for k, step in enumerate(steps):
        left = options.budget - (time.monotonic() - began)
        seconds = left * step.share / sum(s.share for s in steps[k:])
        shown.append(run(step, options.device, options.jobs, max(seconds, 5.0), work))
        with (options.out / "steps.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(shown[-1])) + "\n")
        (options.out / "summary.md").write_text(table(shown, steps, head), encoding="utf-8")
        pack(work, options.out / "findings.tar.gz")
    print(table(shown, steps, head))
    return exit_code(shown)


if __name__ == "__main__":
    sys.exit(main())
