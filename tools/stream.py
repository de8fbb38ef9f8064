"""What a stream of programs is made of: statements by group and by op, features of whole programs.

Run as ``python -m tools.stream [--examples 2000] [--seed 7] [--ops]``.
"""

from __future__ import annotations

import argparse
from collections import Counter

from aotcheck.campaign.generate import load_strategy, programs_of_block
from aotcheck.campaign.settings import BLOCK_SIZE
from aotcheck.program import Program, difficulty, flat_calls
from aotcheck.program.ops import find


def stream(examples: int, seed: int) -> list[Program]:
    """The programs that a campaign with this seed runs."""
    strategy = load_strategy("strategies:programs")
    blocks = range(-(-examples // BLOCK_SIZE))
    return [program for block in blocks for program in programs_of_block(strategy, seed, block)][:examples]


def table(title: str, programs: Counter[str], statements: Counter[str], total: int) -> str:
    """One line per kind, the most frequent first: how often it is drawn, and in how many programs."""
    width = max(map(len, programs), default=10)
    lines = [f"{title:<{width}}  statements  programs"]
    for name, count in programs.most_common():
        lines.append(f"{name:<{width}}  {statements[name] or '':>10}  {count:>8}  {100 * count / total:5.1f}%")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ops", action="store_true", help="also by op")
    options = parser.parse_args()
    programs = stream(options.examples, options.seed)
    counts: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for kind in ("group", "op", "feature"):
        counts[kind] = Counter(), Counter()
    for program in programs:
        paths = [call.path for call in flat_calls(program.body)]
        named = {"group": [find(path)[0].group.value for path in paths], "op": paths}
        for kind, names in named.items():
            counts[kind][0].update(set(names))
            counts[kind][1].update(names)
        counts["feature"][0].update(feature.value for feature in difficulty(program))
    for kind, (in_programs, in_statements) in counts.items():
        if kind != "op" or options.ops:
            print(table(kind, in_programs, in_statements, len(programs)), end="\n\n")


if __name__ == "__main__":
    main()
