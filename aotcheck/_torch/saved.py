"""What nodes of autograd saved for their backward: packed by whose hooks, and who asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

SavedTensor: Any = torch._C._autograd.SavedTensor
top_hooks: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks
SavedTensorsHooks: Any = torch.autograd.graph.saved_tensors_hooks
Wrapper = Callable[[Callable[[Tensor], Any], Callable[[Any], Tensor]], tuple[Callable[..., Any], Callable[..., Any]]]
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


_own_enter = SavedTensorsHooks.__enter__
_wrappers: dict[int, Wrapper] = {}  # of threads


def _enter(hooks: Any) -> None:
    """What takes the place of the hooks' own when it is first asked for, and stays."""
    wrapper = _wrappers.get(threading.get_ident())
    if wrapper is None:
        _own_enter(hooks)
    else:
        _push_hooks(*wrapper(hooks.pack_hook, hooks.unpack_hook))


class WrappingSavedTensorHooks:
    """On this thread, saved-tensor hooks entered inside are those that ``wrapper`` makes of them."""

    __slots__ = ("_before", "_thread", "_wrapper")

    def __init__(self, wrapper: Wrapper) -> None:
        self._wrapper = wrapper

    def __enter__(self) -> None:
        if SavedTensorsHooks.__enter__ is not _enter:
            SavedTensorsHooks.__enter__ = _enter
        self._thread = threading.get_ident()
        self._before = _wrappers.get(self._thread)
        _wrappers[self._thread] = self._wrapper

    def __exit__(self, *exception: object) -> None:
        if self._before is None:
            del _wrappers[self._thread]
        else:
            _wrappers[self._thread] = self._before


def unpack_some(ctx: Any, which: Sequence[int]) -> tuple[Tensor, ...]:
    """Those of an autograd Function's saved tensors; the others may have been written since without harm."""
    if not isinstance(ctx, torch.autograd.function.BackwardCFunction):  # what compiled autograd has in its place
        return tuple([ctx.saved_tensors[k] for k in which])
    saved = ctx._raw_saved_tensors
    return tuple([saved[k].unpack() for k in which])


def saved_of(node: Any) -> Sequence[Any]:
    """What the node of an autograd Function saved, as it is saved."""
    return cast("Sequence[Any]", node._raw_saved_tensors)


def clear_saved(node: Any) -> None:
    """The node of an autograd Function lets go of what it saved, if the backward that is running keeps no graph.

    Where this torch has a way to do so; else it does with its graph.
    """
    clear = getattr(node, "maybe_clear_saved_tensors", None)
    if clear is not None:
        clear()


def is_packed(saved: Any) -> bool:
    """Whether hooks packed what is saved."""
    return saved.unpack_hook is not None


def unpacking(saved: Any) -> Callable[[], Tensor]:
    """What unpacks what hooks packed, whatever becomes of ``saved``."""
    hook, data = saved.unpack_hook, saved.data
    return lambda: cast("Tensor", hook(data))
