"""``torch.compile(fn, backend="aotcheck")``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotcheck.autograd.compile_graph import Compilers
from aotcheck.autograd.config import OnUnsupported
from aotcheck.autograd.function import CompiledFunction


def aotcheck(module: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The Dynamo backend: the graph that Dynamo found, through our AOT autograd, its graphs interpreted.

    ``options``: ``fw_compiler``, ``bw_compiler``, ``inference_compiler``, ``decompositions``. Each call is specialized
    on its own key, which covers what Dynamo does not guard: which inputs overlap, and where.
    """
    known = {"fw_compiler", "bw_compiler", "inference_compiler", "decompositions"}
    wrong = sorted(set(options) - known)
    if wrong:
        raise ValueError(f"unknown option {wrong[0]!r} for backend aotcheck; known: {', '.join(sorted(known))}")
    fw = options.get("fw_compiler")
    compilers = Compilers(
        fw, options.get("bw_compiler") or fw, options.get("inference_compiler") or fw, options.get("decompositions")
    )
    return CompiledFunction(module, compilers, OnUnsupported.EAGER)
