"""What nodes of autograd saved for their backward: packed by whose hooks, and who asks for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
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


@contextlib.contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """The default saved-tensor hooks of this thread are not in force inside."""
    taken = []
    while (hooks := top_hooks(True)) is not None:
        taken.append(hooks)
        _pop_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(taken):
            _push_hooks(pack, unpack)


class _Wrapped:
    """Hooks that what runs on some threads enters, wrapped; the class they are of is changed only meanwhile."""

    def __init__(self) -> None:
        self._wrappers: dict[int, Wrapper] = {}
        self._own = SavedTensorsHooks.__enter__
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def by(self, wrapper: Wrapper) -> Iterator[None]:
        """Those entered inside on this thread are wrapped by ``wrapper``."""
        thread = threading.get_ident()
        with self._lock:
            before = self._wrappers.get(thread)
            self._wrappers[thread] = wrapper
            self._changes()
        try:
            yield
        finally:
            with self._lock:
                del self._wrappers[thread]
                if before is not None:
                    self._wrappers[thread] = before
                self._changes()

    def _changes(self) -> None:
        own, wrappers = self._own, self._wrappers

        def enter(hooks: Any) -> None:
            wrapper = wrappers.get(threading.get_ident())
            if wrapper is None:
                own(hooks)
            else:
                _push_hooks(*wrapper(hooks.pack_hook, hooks.unpack_hook))

        if not wrappers:
            SavedTensorsHooks.__enter__ = own
        elif SavedTensorsHooks.__enter__ is own:
            SavedTensorsHooks.__enter__ = enter


_wrapped = _Wrapped()


def wrapping_saved_tensor_hooks(wrapper: Wrapper) -> contextlib.AbstractContextManager[None]:
    """On this thread, saved-tensor hooks entered inside are those that ``wrapper`` makes of them."""
    return _wrapped.by(wrapper)


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
