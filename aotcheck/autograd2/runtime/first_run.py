"""What no result needs runs until it has not raised once: in eager it may raise each time.

So what an op says of the kinds of its operands is found; what it says of values in a later call is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotcheck.autograd2.ir.fx import symbols_of
from aotcheck.autograd2.ir.graph import CONSTANT, Node, ancestors
from aotcheck.autograd2.partition.default import Partition
from aotcheck.autograd2.runtime.code import function_of


def unused(recorded: Sequence[Node], part: Partition, known: Sequence[str]) -> list[Node]:
    """Of what was recorded forward what no graph runs, with what it needs; but for views and ops not of torch's.

    Nor what needs the values of other symbols than the ``known`` ones.
    """
    runs = {*part.forward.nodes, *(n for graph in part.backwards for n in graph.nodes)}
    of_others: set[Node] = set()
    dead = []
    for n in recorded:
        unknown = getattr(n.op, "namespace", "aten") != "aten" or not set(known).issuperset(symbols_of([n]))
        if unknown or not of_others.isdisjoint(n.inputs()):
            of_others.add(n)  # it may do what must not be done twice
        elif n not in runs and n.op != CONSTANT and n.memory is None:
            dead.append(n)
    needed = ancestors(dead)
    return [n for n in recorded if n in needed]


def run_once(
    call: Callable[..., Any], inputs: Sequence[Node | str], nodes: Sequence[Node], draws: Sequence[Any], more: int
) -> None:
    """Have ``call`` run ``nodes`` first until they raise nothing; its graph does not take the last ``more`` inputs."""
    names = call.__globals__
    graph, first = names["forward"], function_of(inputs, nodes, (), {})
    forward = (lambda *given: graph(*given[:-more])) if more else graph

    def both(*given: Any) -> Any:
        states = [g.get_state() for g in draws]
        try:
            first(*given)
        finally:
            for g, state in zip(draws, states, strict=True):
                g.set_state(state)
        names["forward"] = forward
        return forward(*given)

    names["forward"] = both
