"""What nodes of autograd saved for their backward: packed by whose hooks, and who asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

SavedTensor: Any = torch._C._autograd.SavedTensor
top_hooks: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks
_push_hooks = torch._C._autograd._push_saved_tensors_default_hooks
_pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks


def has_saved_tensor_hooks() -> bool:
    """Whether default saved-tensor hooks are active on this thread."""
    return top_hooks(True) is not None


class WithoutSavedTensorHooks:
    """The default saved-tensor hooks of this thread are not in force inside."""

    __slots__ = ("_taken",)

    def __enter__(self) -> None:
        self._taken: list[Any] = []
        while (hooks := top_hooks(True)) is not None:
            self._taken.append(hooks)
            _pop_hooks()

    def __exit__(self, *exception: object) -> None:
        for pack, unpack in reversed(self._taken):
            _push_hooks(pack, unpack)


def unpack_some(ctx: Any, which: Sequence[int]) -> tuple[Tensor, ...]:
    """Those of an autograd Function's saved tensors; the others may have been written since without harm."""
    if not isinstance(ctx, torch.autograd.function.BackwardCFunction):  # what compiled autograd has in its place
        return tuple([ctx.saved_tensors[k] for k in which])
    saved = ctx._raw_saved_tensors
    return tuple([saved[k].unpack() for k in which])


def saved_of(node: Any) -> Sequence[Any]:
    """What the node of an autograd Function saved, as it is saved."""
    return cast("Sequence[Any]", node._raw_saved_tensors)


def is_packed(saved: Any) -> bool:
    """Whether hooks packed what is saved."""
    return saved.unpack_hook is not None
