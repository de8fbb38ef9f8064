"""Helpers for backends that take more than one line."""

import importlib
from typing import Any

from aotcheck.backends.backend import Function

__all__ = ["aot_function_min_cut", "aotcheck_inductor"]


def aot_function_min_cut(fn: Function) -> Function:
    """torch's AOT autograd with its min-cut partition; a tuple comes back as one, which torch makes a list of."""
    from functorch.compile import aot_function, min_cut_rematerialization_partition, nop

    tuples: list[bool] = []

    def noted(*args: Any) -> Any:
        result = fn(*args)
        tuples.append(type(result) is tuple)
        return result

    made = aot_function(noted, nop, nop, partition_fn=min_cut_rematerialization_partition)

    def compiled(*args: Any) -> Any:
        result = made(*args)
        return tuple(result) if tuples and tuples[-1] and type(result) is list else result

    return compiled


def aotcheck_inductor(fn: Function) -> Function:
    """Our AOT autograd, its graphs compiled by Inductor."""
    from aotcheck._torch import inductor_compiler, inductor_decompositions

    compiled: Function = importlib.import_module("aotcheck").aot_function(
        fn, fw_compiler=inductor_compiler, bw_compiler=inductor_compiler, decompositions=inductor_decompositions()
    )
    return compiled
