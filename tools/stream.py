"""What a stream of programs is made of: statements by group and by op, features of whole programs, and what of them the
compiler is not asked to do.

Run as ``python -m tools.stream [--strategy strategies:programs] [--examples 2000] [--seed 7] [--ops]``.
"""

import argparse
import warnings
from collections import Counter
from collections.abc import MutableMapping
from typing import Any

import torch

from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.campaign.setup.settings import BLOCK_SIZE
from aotcheck.program import Context, Feature, OpCall, Program, build_call, difficulty, evaluate, flat_calls
from aotcheck.program.ops.registry import Group, find
from aotcheck.program.running.build import around
from aotcheck.program.running.interpret import run_body
from aotcheck.program.vocabulary.noticed import contexts

CPU = torch.device("cpu")
_BY_PATH = {
    "torch.utils.swap_tensors": "swap_tensors",
    "Control.cond_on_data": "a branch on data",
    "Control.sparsely": "sparse tensors",
    "Control.subclassed": "a subclass without __tensor_flatten__",
}


def refused(program: Program) -> set[str]:
    """What of the list of refusals in the contract a program's first call does, as far as a run of eager shows it."""
    found = {_BY_PATH[call.path] for call in flat_calls(program.body) if call.path in _BY_PATH}
    if Context.INFERENCE in contexts(program):
        found.add("inference mode entered inside")
    if {Feature.FOREACH_TWICE, Feature.FOREACH_ALIAS, Feature.EXPANDED_WRITE} & set(difficulty(program)):
        found.add("a write to memory that is written twice")

    def before(call: OpCall, env: MutableMapping[str, Any]) -> None:
        target = evaluate(call.args[0], env) if call.args else None
        if not isinstance(target, torch.Tensor):
            return
        has_history = target.grad_fn is not None
        if call.path in ("Tensor.set_", "Tensor.data=") and has_history:
            found.add("set_ or .data = of a tensor that has a grad_fn")
        if find(call.path)[0].group is Group.METADATA and target._is_view() and has_history:
            found.add("an in-place reshape of a view that has a grad_fn")

    built = build_call(program, 0)
    try:
        with around(program.calls[0], CPU), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_body(program.body, dict(zip(program.params, built.args, strict=True)), before)
    except Exception:  # what eager refuses
        pass
    return found


def stream(strategy_name: str, examples: int, seed: int) -> list[Program]:
    """The programs that a campaign with this seed runs."""
    strategy = load_strategy(strategy_name)
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
    parser.add_argument("--strategy", default="strategies:programs")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ops", action="store_true", help="also by op")
    options = parser.parse_args()
    programs = stream(options.strategy, options.examples, options.seed)
    counts: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for kind in ("group", "op", "feature", "not asked of the compiler"):
        counts[kind] = Counter(), Counter()
    for program in programs:
        paths = [call.path for call in flat_calls(program.body)]
        named = {"group": [find(path)[0].group.value for path in paths], "op": paths}
        for kind, names in named.items():
            counts[kind][0].update(set(names))
            counts[kind][1].update(names)
        counts["feature"][0].update(feature.name.lower() for feature in difficulty(program))
        not_asked = refused(program)
        counts["not asked of the compiler"][0].update(not_asked | ({"any of these"} if not_asked else set()))
    for kind, (in_programs, in_statements) in counts.items():
        if kind != "op" or options.ops:
            print(table(kind, in_programs, in_statements, len(programs)), end="\n\n")


if __name__ == "__main__":
    main()
