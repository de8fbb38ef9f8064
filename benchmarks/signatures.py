"""How well signatures tell bugs apart: writes docs/signatures.md.

Run as ``python -m benchmarks.signatures``. Each bug of ``tests/meta/bugs.py`` is planted, the first finding of each of
ten seeds is minimized, and the signatures are counted: those of one bug should be one, those of two bugs two. What is
measured goes to a file as it comes, so that a second run goes on where the first one was stopped.
"""

import argparse
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import torch

from aotcheck.backends import resolve
from aotcheck.campaign.findings.signature import skeleton
from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.cli import INSPECTION, STRATEGY
from aotcheck.minimize import DoesNotFailError, Limits, Reduction, Subject
from aotcheck.oracle import check
from aotcheck.program import Program

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "docs" / "signatures.md"
SEEDS = range(10)
MOST_BLOCKS = 40
"""How many blocks of 25 programs of a seed are searched for the first finding."""

HEAD = """\
# Signatures

A signature groups findings that probably have one cause. It has a coarse key, a skeleton and, for aotcheck's own AOT
autograd and torch's compilers, the stage to blame.

**The skeleton** is that of the first of these programs that shows a difference:

1. one op that the program calls, on plain operands, or else on the operands that the op has in the program;
2. the shortest beginning of the minimized program that already gives wrong values or aliasing;
3. the minimized program.

The first two count only if their difference may cause the program's difference. Rounding causes only rounding. A copy
in place of a view causes no wrong values where nothing is written. A skeleton has no numbers, sizes and dtypes.
Independent statements are in one fixed order, and parameters and tensors are numbered in the order of their use, so
neither order nor names tell two programs apart (`aotcheck/campaign/findings/canonical.py`).

**The coarse key** says which oracle saw the first difference, and where. For an exception the key has the type and
the first sentence of the message, without numbers, sizes, dtypes, paths, colours and names of nodes. If an exporter
or a compiler raises one error `from` another, the key has the innermost error with a message. For values the key says
in three cases how they differ: `rounding` (everywhere by a small part of eager's value), `infinite or NaN` (wherever
they differ, on one side), `narrowed` (integers that were cut to a narrower dtype).

Reports show signatures of one cause and one stage as one entry: the same statements on inputs that share memory in
the same way, called in the same way, whatever is returned, backpropagated or compared. The worst signature heads the
entry, and the entry lists the others under "also seen as". Two that raise different errors stay apart. So do programs
of only those ops that minimizing puts in place of any other (`clone`, `zero_`, `detach`, `t`, `sum`). Entries have
this order (`aotcheck/campaign/results/rank.py`): silently wrong, crash or hang, lost mutation, raises, does not
raise, aliasing, metadata; then by how unlikely people are to write such a program.

`python -m benchmarks.signatures` wrote this page, on torch {version}. It plants each bug of `tests/meta/bugs.py` in a
path that is otherwise right, and minimizes the first finding of each of ten seeds, within {programs} programs.

- Seeds that gave the most frequent signature of their bug: {same} of {runs}. Bugs for which at least 9 of 10 seeds
  did (or all but one, where fewer seeds find the bug): {stable} of {bugs}.
- Signatures that two bugs share: {shared}.

| bug | seeds that find it | with one signature | the signature |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Row:
    """What the first finding of a seed came to; ``key`` is empty where the seed does not find the bug."""

    bug: str
    seed: int
    key: str
    skeleton: str
    seconds: float


@lru_cache(maxsize=len(SEEDS))
def _drawn(seed: int) -> list[Program]:
    return []


def _programs(seed: int) -> Iterator[Program]:
    """The programs of a seed, drawn once."""
    drawn = _drawn(seed)
    strategy = load_strategy(STRATEGY)
    for block in range(MOST_BLOCKS):
        if len(drawn) <= 25 * block:
            drawn.extend(programs_of_block(strategy, seed, block))
        yield from drawn[25 * block : 25 * (block + 1)]


def measure(bug: str, seed: int) -> Row:
    """Find, minimize, sign."""
    name = f"tests.meta.bugs:{bug}"
    backend, device = resolve(name), torch.device("cpu")
    harmless = resolve("tests.meta.bugs:harmless")
    began = time.monotonic()
    for program in _programs(seed):
        if not check(program, backend, device).hard or check(program, harmless, device).hard:
            continue
        reduction = Reduction(program, Subject(name, "cpu", INSPECTION), Limits(), threading.Event(), to_root=True)
        try:
            for _ in reduction.steps():
                pass
        except DoesNotFailError:
            continue
        assert reduction.result is not None
        key = reduction.result.root_shows.key
        return Row(bug, seed, str(key), skeleton(reduction.result.root), round(time.monotonic() - began, 1))
    return Row(bug, seed, "", "", round(time.monotonic() - began, 1))


def page(rows: list[Row]) -> str:
    """What was measured, in words and as a table."""
    by_bug: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in rows:
        if row.key:
            by_bug[row.bug][row.key, row.skeleton] += 1
    owners: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for bug, found in by_bug.items():
        for signature in found:
            owners[signature].add(bug)
    most = {bug: found.most_common(1)[0] for bug, found in by_bug.items()}
    runs, same = sum(found.total() for found in by_bug.values()), sum(count for _, count in most.values())
    stable = sum(most[bug][1] >= found.total() - 1 for bug, found in by_bug.items())
    text = HEAD.format(
        version=torch.__version__,
        same=same,
        runs=runs,
        programs=25 * MOST_BLOCKS,
        stable=stable,
        bugs=len(by_bug),
        shared=sum(len(bugs) > 1 for bugs in owners.values()),
    )
    for bug, found in by_bug.items():
        (key, said), count = most[bug]
        text += f"| {bug} | {found.total()} | {count} | `{key} {said}` |\n".replace("|`", "")
    return text


def main() -> None:
    """Measure and write the page."""
    from tests.meta.bugs import BUGS, DEADLY

    parser = argparse.ArgumentParser(prog="python -m benchmarks.signatures", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("reports/signatures.jsonl"), help="what has been measured")
    parser.add_argument("--bugs", default="", help="only these, separated by commas; default: all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [Row(**json.loads(line)) for line in options.data.read_text().splitlines()] if options.data.exists() else []
    done = {(row.bug, row.seed) for row in rows}
    deadline = time.monotonic() + options.seconds
    wanted = options.bugs.split(",") if options.bugs else [bug for bug in BUGS if bug not in DEADLY]
    todo = ((bug, seed) for seed in SEEDS for bug in wanted if (bug, seed) not in done)
    for bug, seed in todo:
        if time.monotonic() > deadline:
            break
        row = measure(bug, seed)
        rows.append(row)
        with options.data.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print(f"{row.bug} {row.seed}: {row.key} {row.skeleton} ({row.seconds} s)", flush=True)
    options.output.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
