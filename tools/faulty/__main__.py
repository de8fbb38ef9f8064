"""``python -m tools.faulty [--examples 3000] [--seed 0] [--only NAME] [--write]``: how many programs to find each
fault."""

import argparse
import statistics
import sys
from pathlib import Path

import torch

from tools.faulty import FAULTS
from tools.faulty.search import Found, search

PAGE = Path(__file__).parents[2] / "docs" / "faulty.md"
HEAD = """# Faulty backends

Each of {count} backends (`tools/faulty`) runs functions as eager does, but for one planted fault. The table says which
program is the first that shows the fault: a number of {median} in the median, at most 300 for {within} of the faults.
Not found within {most} programs: {hidden}. The last column is the coarse key of the difference
([signatures.md](signatures.md)). `python -m tools.faulty --seed {seed} --write` wrote the page, on torch {torch}; the
programs are those of `aotcheck fuzz --seed {seed}`.

| fault | what is wrong | found by program | as |
| --- | --- | --- | --- |
"""


def page(found: list[Found], seed: int, most: int) -> str:
    """The page of figures; a fault that was not found among the ``most`` programs counts as found behind them."""
    by_name = {f.fault.name: f for f in found}
    numbers = [by_name[name].programs if name in by_name else most + 1 for name in FAULTS]
    rows = [
        f"| {name.replace('-', ' ')} | {fault.text} | "
        + (
            f"{by_name[name].programs} | {by_name[name].key.oracle}, {by_name[name].key.place} |"
            if name in by_name
            else "- | |"
        )
        for name, fault in FAULTS.items()
    ]
    head = HEAD.format(
        count=len(FAULTS),
        median=round(statistics.median(numbers)),
        within=sum(n <= 300 for n in numbers),
        hidden=len(FAULTS) - len(found),
        most=most,
        seed=seed,
        torch=torch.__version__,
    )
    return head + "\n".join(rows) + "\n"


def main() -> int:
    """Print each fault as it is found, and what was not."""
    parser = argparse.ArgumentParser(prog="python -m tools.faulty", description=__doc__)
    parser.add_argument("--examples", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=sorted(FAULTS), metavar="NAME")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    faults = [FAULTS[name] for name in options.only or FAULTS]
    found = []
    for each in search(faults, options.seed, options.examples):
        found.append(each)
        print(f"{each.programs:>6}  {each.fault.name:<50}  {each.key}", flush=True)
    hidden = [f for f in faults if f.name not in {each.fault.name for each in found}]
    for fault in hidden:
        print(f"{'-':>6}  {fault.name:<50}  not found: {fault.text}")
    print(f"{len(found)} of {len(faults)} found in {options.examples} programs")
    if options.write and not options.only:
        PAGE.write_text(page(found, options.seed, options.examples), encoding="utf-8")
    return 1 if hidden else 0


if __name__ == "__main__":
    sys.exit(main())
