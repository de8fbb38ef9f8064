"""What a backward that was asked for some gradients leaves for others: see Note [Gradients asked for]."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.runtime.backward import FREED, written_since


class _Saved:
    """Saved tensors, that raise when they are read after they were written, as autograd's own do."""

    __slots__ = ("_packed", "_read")

    def __init__(self, ctx: Any) -> None:
        saved = _torch.saved_of(ctx)
        self._packed = frozenset(k for k, s in enumerate(saved) if _torch.is_packed(s))
        self._read = [_taken_over(ctx, saved, k) for k in range(len(saved))]

    def __len__(self) -> int:
        return len(self._read)

    def __iter__(self) -> Iterator[Tensor]:
        return (read() for read in self._read)

    def __getitem__(self, k: int) -> Tensor:
        return self._read[k]()

    def look_at(self, k: int) -> None:
        """Raise if that was written since; what the caller's hooks packed nobody writes."""
        if k not in self._packed:
            self._read[k]()


def _taken_over(ctx: Any, saved: Sequence[Any], k: int) -> Callable[[], Tensor]:
    if _torch.is_packed(saved[k]):
        return _torch.unpacking(saved[k])
    try:
        (found,) = _torch.unpack_some(ctx, (k,))
        t = found.detach()  # counts versions with what is saved; no circle by a result's history
    except RuntimeError as error:  # written since: no reason to raise before it is needed
        return functools.partial(_raise, str(error))
    return functools.partial(_unwritten, t, _torch.version_of(t))


def _raise(error: str) -> Any:
    raise RuntimeError(error)


def _unwritten(t: Tensor, version: int) -> Tensor:
    now = _torch.version_of(t)
    if now != version:
        raise RuntimeError(written_since(f"{t.type()} {list(t.shape)}", now, version))
    return t


class Left:
    """Stands for the context of a Function of which autograd has freed everything, and eager some nodes only.

    ``freed`` are those, by number.
    """

    def __init__(self, ctx: Any) -> None:
        self.kept = ctx.kept
        self.next_functions = ctx.next_functions
        self.own = getattr(ctx, "own", {})
        self.freed: set[int] = set()
        self.held = getattr(ctx, "held", {})
        self._saved: _Saved | None = _Saved(ctx)

    @property
    def saved_tensors(self) -> _Saved:
        """What the Function saved.

        Raises:
            RuntimeError: no backward needs it any more.
        """
        if self._saved is None:
            raise RuntimeError(FREED)
        return self._saved

    def let_go(self) -> None:
        """No backward needs it any more."""
        self._saved = None

    def look_at(self, which: Sequence[int]) -> None:
        """Raise if one of these saved tensors was written since."""
        saved = self.saved_tensors
        for k in which:
            saved.look_at(k)

    def check(self, node: int) -> None:
        """Raise as eager does where a backward comes by this node for the second time."""
        if node in self.freed:
            raise RuntimeError(FREED)


def left_of(ctx: Any) -> Left | None:
    """What is left of ``ctx``; None where nothing was freed yet, or everything."""
    return getattr(ctx, "left", None)


def take_over(ctx: Any) -> Left | None:
    """What ``ctx`` saved, for other backwards; None where it is freed already."""
    try:
        return Left(ctx)
    except RuntimeError:
        return None


def look_at(ctx: Any, which: Sequence[int]) -> None:
    """Raise if one of these saved tensors, or all, were freed, or one was written since."""
    if isinstance(ctx, Left):
        ctx.look_at(which)
    else:
        saved = _torch.saved_of(ctx)
        _torch.unpack_some(ctx, [k for k in which if not _torch.is_packed(saved[k])])
