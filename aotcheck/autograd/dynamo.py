"""``torch.compile(fn, backend="aotcheck")`` and ``"aotcheck_inductor"``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aotcheck import _torch
from aotcheck.autograd.config import OnUnsupported
from aotcheck.autograd.function import CompiledFunction
from aotcheck.autograd.graphs.compile_graph import Compilers

_OPTIONS = ("bw_compiler", "decompositions", "fw_compiler", "inference_compiler")


def aotcheck(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    **named: Any,
) -> Callable[..., Any]:
    """The Dynamo backend: the graph that Dynamo found, through our AOT autograd, its graphs interpreted.

    ``options`` (those of ``torch.compile``, or given by name): ``fw_compiler``, ``bw_compiler``,
    ``inference_compiler``, ``decompositions``. Each call is specialized on its own key, which covers what Dynamo does
    not guard: which inputs overlap, and where. Raises ValueError for options and modes that there are not.
    """
    if mode is not None:
        raise ValueError(f"backend aotcheck has no modes, so no {mode!r}")
    given = {**(options or {}), **named}
    wrong = sorted(set(given) - set(_OPTIONS))
    if wrong:
        raise ValueError(f"unknown option {wrong[0]!r} for backend aotcheck; known: {', '.join(_OPTIONS)}")
    fw = given.get("fw_compiler")
    compilers = Compilers(
        fw, given.get("bw_compiler") or fw, given.get("inference_compiler") or fw, given.get("decompositions")
    )
    return _behind_dynamo(module, compilers)


def aotcheck_inductor(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The same with Inductor behind it, whose ``options`` and modes are those of ``torch.compile``'s own backend."""
    compiler = functools.partial(_torch.inductor_compiler, config=_torch.inductor_config(options, mode))
    return _behind_dynamo(module, Compilers(compiler, compiler, compiler, _torch.inductor_decompositions()))


def _behind_dynamo(module: torch.fx.GraphModule, compilers: Compilers) -> CompiledFunction:
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
    """Put ``.data =`` back where Dynamo has its op, or before torch 2.15 ``set_`` and then makes the version one less.

    No op of the graph tells the last, so that each call would count ``set_`` as a write; and what the op returns is
    memory of its second argument, which its schema does not say.
    """
    assigning = [n for n in part.graph.nodes if _torch.assigns_data(n.target)]
    lowering = [n for n in part.graph.nodes if _torch.lowers_version(n.target)]
    for node in lowering:
        (assigned,) = node.args
        assigning.append(assigned)
        node.replace_all_uses_with(assigned)
        part.graph.erase_node(node)
    for node in assigning:
        node.target = data_assigned
    if assigning:
        part.recompile()
