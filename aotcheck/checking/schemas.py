"""Finds custom ops with wrong schemas: ops that write an argument, or return its memory, and do not declare it.

A compiler relies on schemas. If a schema is wrong, a difference is the op's fault, so the report names the op.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

from aotcheck._torch import TorchDispatchMode, pytree, schema_of, storage_key
from aotcheck.checking.subject import Subject
from aotcheck.checking.variations import Variation

__all__ = ["schema_lies"]

_OF_TORCH = ("aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "inductor", "higher_order")


def schema_lies(subject: Subject, variation: Variation, device: torch.device) -> tuple[str, ...]:
    """What custom ops do in a call of a function in eager that their schemas deny, a sentence each.

    Args:
        subject: the function.
        variation: how its arguments are made.
        device: where they are.
    """
    with _Schemas() as seen, suppress(Exception):  # the comparison tells what eager raises
        subject.function(*subject.build(variation, 0, device).args)
    return tuple(seen.lies)


class _Schemas(TorchDispatchMode):
    """Compares what each custom op does with its schema."""

    def __init__(self) -> None:
        super().__init__()
        self.lies: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op, and look at its arguments before and after."""
        kwargs = kwargs or {}
        if func.namespace in _OF_TORCH:
            return func(*args, **kwargs)
        before = [(name, declared, t, t.detach().clone()) for name, declared, t in _arguments(func, args, kwargs)]
        try:
            results = func(*args, **kwargs)
        except RuntimeError as error:
            if "may not alias any inputs" in str(error):  # torch's own words, of ops made by torch.library.custom_op
                self.lies[f"the schema of {func} lies: a result is an alias of an argument, and torch raises"] = None
            raise
        returned = {storage_key(t) for t in pytree.tree_leaves(results) if _plain(t)}
        fresh = all(result.alias_info is None for result in schema_of(func).returns)
        for name, declared, t, copy in before:
            if declared is None and not _same(t, copy):
                self.lies[f"the schema of {func} lies: it writes its argument '{name}', which it does not declare"] = (
                    None
                )
            if declared is None and fresh and storage_key(t) in returned:
                self.lies[f"the schema of {func} lies: a result is an alias of '{name}', which it does not declare"] = (
                    None
                )
        return results


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any, torch.Tensor]]:
    """The tensors that an op is given, each with its argument's name and what the schema says of aliases."""
    for position, argument in enumerate(schema_of(func).arguments):
        given = args[position] if position < len(args) else kwargs.get(argument.name)
        for t in pytree.tree_leaves(given):
            if _plain(t):
                yield argument.name, argument.alias_info, t


def _plain(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided


def _same(t: torch.Tensor, copy: torch.Tensor) -> bool:
    """Whether a tensor holds what it held; NaN is NaN."""
    now = t.detach()
    return now.shape == copy.shape and bool(((now == copy) | ((now != now) & (copy != copy))).all())
