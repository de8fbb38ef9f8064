"""Dynamo and Inductor, imported only where they are used: that takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

DYNAMO = "torch._dynamo"
"""Dynamo's module."""

USED_BY_BACKENDS = ("torch._dynamo.debug_utils", "torch._inductor.compiler_bisector", "torch._inductor.fx_utils")
"""Modules that torch's backends import when they are first used."""


def dynamo_is_imported() -> bool:
    """Whether anybody has imported Dynamo."""
    return DYNAMO in sys.modules


def unwrap_dynamo(error: BaseException) -> BaseException:
    """The user's error inside the wrappers that Dynamo puts around it; ``error`` itself where there is none."""
    exc = sys.modules.get("torch._dynamo.exc")
    found: BaseException = error
    while exc is not None and isinstance(found, exc.TorchDynamoException):
        inner = getattr(found, "inner_exception", None) or found.__cause__ or found.__context__
        if not isinstance(inner, BaseException):
            break
        found = inner
    return found


def inductor_compiler(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """What Inductor makes of a functional graph of ATen ops, without torch's AOT autograd in between."""
    from torch._inductor.compile_fx import compile_fx_inner

    compiled: Callable[..., Any] = compile_fx_inner(module, examples)
    return compiled


def inductor_decompositions() -> dict[Any, Any]:
    """The decompositions that Inductor expects to have been made."""
    from torch._inductor.decomposition import select_decomp_table

    table: dict[Any, Any] = select_decomp_table()
    return table
