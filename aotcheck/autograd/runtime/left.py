"""What a backward that was asked for some gradients leaves for others: see Note [Gradients asked for]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from aotcheck import _torch

_FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Specify retain_graph=True if you need to backward through the graph a second time"
)


class _Saved:
    """Saved tensors, that raise when they are read after they were written, as autograd's own do."""

    __slots__ = ("_entries",)

    def __init__(self, ctx: Any) -> None:
        self._entries = [_taken_over(s) for s in _torch.saved_of(ctx)]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self._entries)))

    def __getitem__(self, k: int) -> Tensor:
        t, version, error = self._entries[k]
        if t is None:
            raise RuntimeError(error)
        now = _torch.version_of(t)
        if now != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{t.type()} {list(t.shape)}] is at version {now}; expected version {version} instead"
            )
        return t


def _taken_over(saved: Any) -> tuple[Tensor | None, int, str]:
    try:
        t = saved.unpack().detach()  # counts versions with what is saved; no circle by a result's history
    except RuntimeError as error:  # written since: no reason to raise before it is needed
        return None, 0, str(error)
    return t, _torch.version_of(t), ""


class Left:
    """Stands for the context of a Function of which autograd has freed everything, and eager some nodes only.

    ``freed`` are those, by number.
    """

    def __init__(self, ctx: Any) -> None:
        self.kept = ctx.kept
        self.next_functions = ctx.next_functions
        self.own = getattr(ctx, "own", {})
        self.freed: set[int] = set()
        self._saved: _Saved | None = _Saved(ctx)

    @property
    def saved_tensors(self) -> _Saved:
        """What the Function saved.

        Raises:
            RuntimeError: no backward needs it any more.
        """
        if self._saved is None:
            raise RuntimeError(_FREED)
        return self._saved

    def let_go(self) -> None:
        """No backward needs it any more."""
        self._saved = None

    def check(self, node: int) -> None:
        """Raise as eager does where a backward comes by this node for the second time."""
        if node in self.freed:
            raise RuntimeError(_FREED)


def left_of(ctx: Any) -> Left | None:
    """What is left of ``ctx``; None where nothing was freed yet, or everything."""
    return getattr(ctx, "left", None)


def can_be_left(ctx: Any) -> bool:
    """Whether what ``ctx`` saved can be taken over: it is still there, and no hooks of the caller's packed it.

    To call those is not for us.
    """
    try:
        return not any(_torch.is_packed(s) for s in _torch.saved_of(ctx))
    except RuntimeError:
        return False
