"""A fast check for the usual call: plain tensors one by one, with the state around the function as it was.

``bind`` and its key tell everything of a call, and take longer than a small graph. Most calls are like the last one:
the same number of tensors, no other arguments, the same objects around the function. A compiled check of torch's tells
whether the tensors look alike; what it does not look at is asked in a line of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.frontend.bind import Bound
from aotcheck.autograd2.ir.tables import content_of, unchanged

__all__ = ["Fast", "fast_check"]

_PLAIN = (Tensor, torch.nn.Parameter)


@dataclass(frozen=True, eq=False)
class Fast:
    """A call that may be recognised without binding it.

    Args:
        around: the tensors that ``bind`` found around the function; those of the arguments come after them.
        count: how many arguments there are.
        check: whether arguments look as these do.
        tables: what was looked at around the function, each with what it held.
        modes: those in force.
        bound: what ``bind`` found, but for tensors: a call's arguments are not kept.
    """

    around: tuple[Tensor, ...]
    count: int
    check: Callable[..., bool]
    tables: tuple[tuple[Any, Any], ...]
    modes: tuple[Any, ...]
    bound: Bound

    def fits(self, args: tuple[Any, ...]) -> bool:
        """Whether a call with these arguments is like this one."""
        if len(args) != self.count or not self.check(*args) or self.modes != _modes():
            return False
        return all(unchanged(table, content) for table, content in self.tables)

    def tensors_of(self, args: tuple[Any, ...]) -> Sequence[Tensor]:
        """What ``bind`` would find."""
        return (*self.around, *args)


def fast_check(bound: Bound, args: tuple[Any, ...]) -> Fast | None:
    """The fast check for a call, if it is of the kind that has one."""
    tensors = tuple(t for _, t in bound.tensors)
    if not args or any(type(t) not in _PLAIN or t.layout is not torch.strided or t.is_inference() for t in tensors):
        return None
    own = tensors[len(tensors) - len(args) :]
    storages = {_torch.storage_address(_torch.storage_of(t)) for t in tensors}
    alike = len(own) == len(args) and all(a is b for a, b in zip(own, args, strict=True))
    if not alike or len(storages) < len(tensors) or any(_torch.base_of(t) is not None for t in tensors):
        return None
    guards = _torch.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    names = [f"a{k}" for k in range(len(args))]
    rest = [f"{n}.storage_offset() == {a.storage_offset()}" for n, a in zip(names, args, strict=True)]
    rest += [f"{n}{_torch.ITS_BASE} is None" for n in names]
    rest += [
        f"{n}.untyped_storage().nbytes() == {a.untyped_storage().nbytes()}" for n, a in zip(names, args, strict=True)
    ]
    rest += [f"{n}.is_leaf is {a.is_leaf}" for n, a in zip(names, args, strict=True) if a.requires_grad]
    others = [f"t{k}" for k in range(len(tensors) - len(args))]
    every = [*others, *names]
    if len(every) > 1:
        addresses = ", ".join(f"{n}{_torch.ITS_STORAGE}" for n in every)
        rest.append(f"len({{{addresses}}}) == {len(every)}")
    source = f"def check({', '.join(names)}):\n    return guards({', '.join(every)}) and {' and '.join(rest)}\n"
    scope: dict[str, Any] = {"guards": guards.check, **dict(zip(others, tensors, strict=False))}
    exec(compile(source, "<aotcheck check>", "exec"), scope)
    tables = tuple((table, content_of(table)) for table in bound.tables)
    without = Bound(containers=bound.containers, tables=bound.tables)
    return Fast(tensors[: len(tensors) - len(args)], len(args), scope["check"], tables, _modes(), without)


def _modes() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )
