"""``torch.compile(fn, backend="aotcheck")``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aotcheck import _torch
from aotcheck.autograd.config import OnUnsupported
from aotcheck.autograd.function import CompiledFunction
from aotcheck.autograd.graphs.compile_graph import Compilers


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
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            _checkpoint_as_eager(part)
            _assign_data_as_eager(part)
    return CompiledFunction(module, compilers, OnUnsupported.EAGER)


def checkpointed(body: torch.fx.GraphModule, *args: Any, **options: Any) -> Any:
    """``body`` recomputed in the backward, with the random numbers of the forward if the caller wants those.

    Dynamo's own op leaves them to a compiler that gives each random op a seed; run as it is, it draws others.
    """
    context_fn = body.meta.get("_checkpoint_context_fn")
    if context_fn is not None:
        options["context_fn"] = context_fn
    return checkpoint(body, *args, **{**options, "use_reentrant": False})


def data_assigned(t: Tensor, data: Tensor) -> Tensor:
    """``t``, after ``t.data = data``."""
    t.data = data
    return t


def _checkpoint_as_eager(part: torch.fx.GraphModule) -> None:
    """Let ``part`` recompute as eager does, wherever it does."""
    nodes = [n for n in part.graph.nodes if n.target is _torch.TAG_ACTIVATION_CHECKPOINT]
    for node in nodes:
        node.target = checkpointed
    if nodes:
        part.recompile()


def _assign_data_as_eager(part: torch.fx.GraphModule) -> None:
    """Put ``.data =`` back where Dynamo has ``set_`` and then makes the version one less.

    No op of the graph tells the second, so that each call would count the first as a write.
    """
    nodes = [n for n in part.graph.nodes if _torch.lowers_version(n.target)]
    for node in nodes:
        (assigned,) = node.args
        assigned.target = data_assigned
        node.replace_all_uses_with(assigned)
        part.graph.erase_node(node)
    if nodes:
        part.recompile()
