"""What nodes of autograd saved for their backward: packed by whose hooks, and who asks for it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.utils.checkpoint
from torch import Tensor

from aotcheck._torch.backward import backward_keeps_graph
from aotcheck._torch.names import private
from aotcheck._torch.versions import set_version, version_groups, version_of

SavedTensor: Any = private("torch._C._autograd.SavedTensor")
top_hooks: Callable[[bool], Any] = private("torch._C._autograd._top_saved_tensors_default_hooks")
SavedTensorsHooks: Any = torch.autograd.graph.saved_tensors_hooks
Wrapper = Callable[[Callable[[Tensor], Any], Callable[[Any], Tensor]], tuple[Callable[..., Any], Callable[..., Any]]]
_push_hooks = private("torch._C._autograd._push_saved_tensors_default_hooks")
_clear = private("torch._C._FunctionBase.maybe_clear_saved_tensors")
_pop_hooks = private("torch._C._autograd._pop_saved_tensors_default_hooks")


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
    if _UNPACKS_ALONE:
        return tuple([saved[k].unpack() for k in which])
    if all(is_packed(saved[k]) for k in which):
        return tuple([unpacking(saved[k])() for k in which])
    return _unpack_all_for(ctx, saved, which)


_UNPACKS_ALONE = hasattr(SavedTensor, "unpack")  # from torch 2.12 on
_ALL: Any = vars(torch._C._FunctionBase)["saved_tensors"].__get__
_WRITTEN = re.compile(r"is at version (\d+); expected version (\d+)")


def _unpack_all_for(ctx: Any, saved: Sequence[Any], which: Sequence[int]) -> tuple[Tensor, ...]:
    """What ``unpack_some`` does where a torch unpacks all saved tensors of a node together.

    It then raises if any of them was written since. While it looks, the version counters of those that are not among
    ``which`` stand where they stood when these were saved. That place is known from what torch raises about them.
    """
    needed = [saved[k].data for k in which if not is_packed(saved[k])]
    others = [s.data for k, s in enumerate(saved) if k not in which and not is_packed(s)]
    groups = version_groups([*needed, *others])[len(needed) :]
    counters = {_FIRST + g: t for g, t in zip(groups, others, strict=True) if g >= len(needed) and version_of(t) >= 0}
    before = {number: version_of(t) for number, t in counters.items()}
    try:
        for number, t in counters.items():
            set_version(t, number)
        while True:
            try:
                unpacked = _ALL(ctx)
                return tuple([unpacked[k] for k in which])
            except RuntimeError as error:
                met = _WRITTEN.search(str(error))
                if met is None or int(met[1]) not in counters:
                    raise
                set_version(counters[int(met[1])], int(met[2]))
    finally:
        for number, t in counters.items():
            set_version(t, before[number])


_FIRST = 1 << 30
"""Versions from here on stand for a tensor that was told of it."""


def unpack(saved: Any) -> Tensor:
    """The tensor that was saved.

    Raises:
        RuntimeError: it was written since. torch 2.11 has nothing that tells so of one saved tensor alone.
    """
    return cast("Tensor", saved.unpack() if _UNPACKS_ALONE else saved.data)


def saved_for_checkpoint(x: Any) -> tuple[Tensor, ...]:
    """What a checkpoint of torch before 2.13 was given, if ``x`` is how it holds that: as saved by a Function.

    Later ones hold a SavedTensor of each.

    Raises:
        RuntimeError: one of these was written since.
    """
    if not isinstance(x, Tensor) or _SAVES_INPUTS is None:
        return ()
    node = x.grad_fn
    return _ALL(node)[1:] if getattr(node, "_forward_cls", None) is _SAVES_INPUTS else ()


_SAVES_INPUTS: Any = getattr(torch.utils.checkpoint, "_NoopSaveInputs", None)


def saved_of(node: Any) -> Sequence[Any]:
    """What the node of an autograd Function saved, as it is saved."""
    return cast("Sequence[Any]", node._raw_saved_tensors)


def clear_saved(node: Any) -> None:
    """The node of an autograd Function lets go of what it saved, if the backward that is running keeps no graph."""
    _clear(node)


def check_saved(ctx: Any) -> None:
    """Raise if a backward has freed what the autograd Function of ``ctx`` saved, whose backward ``noting_freed`` knows.

    Before torch 2.13 a context does not keep its node. That frees what was saved when no tensor leads to it any more,
    which is no backward: then this raises only if there was one.
    """
    try:
        unpack_some(ctx, ())
    except RuntimeError:
        if _KEEPS_NODE or _has_node(ctx) or getattr(ctx, "freed", False):
            raise


def noting_freed(backward: Callable[..., Any]) -> Callable[..., Any]:
    """``backward`` of an autograd Function, which notes for ``check_saved`` that autograd frees what was saved."""
    if _KEEPS_NODE:
        return backward

    def run(ctx: Any, *gradients: Any) -> Any:
        found = backward(ctx, *gradients)
        if not backward_keeps_graph():
            ctx.freed = True
        return found

    return run


def _has_node(ctx: Any) -> bool:
    """Whether autograd still has the node of this context."""
    try:
        ctx.name()
    except RuntimeError:
        return False
    return True


_KEEPS_NODE = _has_node(torch.autograd.function.BackwardCFunction())  # from torch 2.13 on


def is_packed(saved: Any) -> bool:
    """Whether hooks packed what is saved."""
    return saved.unpack_hook is not None


def unpacking(saved: Any) -> Callable[[], Tensor]:
    """What unpacks what hooks packed, whatever becomes of ``saved``."""
    hook, data = saved.unpack_hook, saved.data
    return lambda: cast("Tensor", hook(data))
