"""No more ops than torch's graphs."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import functorch.compile
import pytest
import torch

from tests.behaviour.alias_free import ORDINARY, Ordinary
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import backward, check, differentiable
from tests.behaviour.inputs import given


def graphs(compile: Callable[..., Any], ordinary: Ordinary, device: str) -> dict[str, Counter[str]]:
    """How often each op occurs: inference, forward and backward."""
    found: dict[str, Counter[str]] = {}

    def compiler(direction: str) -> Callable[..., Any]:
        def keep(graph: torch.fx.GraphModule, examples: Any) -> Any:
            found[direction] = Counter(
                str(node.target) for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)
            )
            return graph

        return keep

    compiled = compile(ordinary.function, fw_compiler=compiler("forward"), bw_compiler=compiler("backward"))
    backward(differentiable(compiled(*ordinary.arguments(device))))
    with torch.no_grad():
        fresh = compile(ordinary.function, fw_compiler=aotcheck.nop, inference_compiler=compiler("inference"))
        fresh(*ordinary.arguments(device))
    return found


@pytest.mark.parametrize("ordinary", ORDINARY, ids=lambda ordinary: ordinary.name)
def test_graphs_are_no_larger_than_torchs(ordinary: Ordinary, device: str):
    ours = graphs(aotcheck.aot_function, ordinary, device)
    torchs = graphs(functorch.compile.aot_function, ordinary, device)
    for direction in ("inference", "forward", "backward"):
        assert set(ours[direction]) <= set(torchs[direction]), direction
        assert ours[direction].total() <= torchs[direction].total(), direction


@pytest.mark.parametrize("ordinary", ORDINARY, ids=lambda ordinary: ordinary.name)
def test_ordinary_programs_are_as_in_eager(ordinary: Ordinary, device: str):
    check(ordinary.function, lambda: given(*ordinary.arguments(device)), rtol=1e-6)
