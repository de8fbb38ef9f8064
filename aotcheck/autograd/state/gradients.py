"""The ``.grad`` of the call's tensors: read, written and accumulated into inside.

Note [Gradients of arguments]
A function that reads or writes ``x.grad``, or calls ``.backward()`` so that a gradient arrives there, takes the
gradients of its arguments as further arguments, after all others: one for each argument, None where there is none, so
that the key tells. The replicas have them for their own, autograd accumulates as it does for real, and what a replica's
``.grad`` is in the end, if it is another object than before, becomes a result that the call assigns. The first trace
that meets such a use begins anew with them. An argument that a custom Function marks as written has none from then
on, which needs no knowing whether it had one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import RetraceWithGradients, UnsupportedError

_descriptor: Any = Tensor.grad
own_gradient: Callable[[Tensor], Tensor | None] = _descriptor.__get__
set_own_gradient: Callable[[Tensor, Tensor | None], None] = _descriptor.__set__
_LEADS = "through an argument that is no leaf to another argument"
GRADIENT_ACCESS = frozenset({own_gradient, set_own_gradient, _descriptor.__delete__})


def gradients_of(flat: Sequence[Any]) -> list[Tensor | None]:
    """The gradient that each of the call's arguments has."""
    return [_torch.held_gradient(a) if isinstance(a, Tensor) else None for a in flat]


class Gradients:
    """The gradients of one trace's arguments; ``lifted`` where they are arguments themselves, from ``first`` on."""

    def __init__(self, arguments: Sequence[Any], replicas: Sequence[Any], first: int | None) -> None:
        self.lifted = first is not None
        count = len(arguments) if first is None else first
        tensors = [k for k in range(count) if isinstance(arguments[k], Tensor)]
        self._tensors: dict[int, Tensor] = {id(replicas[k]): replicas[k] for k in tensors}
        if self.lifted:
            for k in tensors:
                set_own_gradient(replicas[k], replicas[count + k])
        self.others: dict[int, Tensor] = {}  # by id, what else the function asked for a gradient
        self._used: set[int] = set()  # ids of those of its arguments that it asked for theirs
        self._left: dict[int, Tensor] = {}  # those that gradients come to in the caller's graph
        self._dropped: set[int] = set()  # ids of those that have lost theirs by being marked as written
        # Replicas come without.
        self._before = {key: _torch.held_gradient(t) if self.lifted else None for key, t in self._tensors.items()}

    def note(self, t: Tensor) -> None:
        """The function reads or writes ``t.grad``."""
        self._used.add(id(t))
        if id(t) in self._left:
            raise UnsupportedError("backward inside", _LEADS)
        if id(t) not in self._tensors:
            self.others[id(t)] = t
        elif not self.lifted:
            raise RetraceWithGradients

    def drop(self, t: Tensor) -> None:
        """A custom Function marks ``t`` as written."""
        if id(t) in self._tensors:
            self._dropped.add(id(t))

    def leave(self, tensors: Sequence[Tensor]) -> None:
        """A backward that the function called brings gradients to ``tensors`` in the caller's graph.

        Raises:
            UnsupportedError: the function uses them, or registered hooks there, or changed what gradients may come.
        """
        for t in tensors:
            kernels = getattr(t, "kernels", None)
            if kernels is None or id(t) in self._used or any(h.replica is t for h in kernels.hooks):
                raise UnsupportedError("backward inside", _LEADS)
            if any(id(t) in known for known in (kernels.moved, kernels.detached, kernels.required)):
                raise UnsupportedError("backward inside", _LEADS)
            self._left[id(t)] = t

    def changes(
        self, roots: Sequence[Tensor], outputs: Sequence[Any], nothing_written: bool = False
    ) -> list[tuple[Tensor, Tensor | None]]:
        """The arguments and results that have another gradient than before, with that gradient.

        Where ``nothing_written`` a result with a history has had that always, so no backward has brought it any.
        """
        known = [(t, _torch.held_gradient(t), self._before[key]) for key, t in self._tensors.items()]
        changed = [(t, now) for t, now, before in known if now is not before]
        if changed:
            if any(id(t) in self._left for t, _ in changed):
                raise UnsupportedError("backward inside", _LEADS)
            if not self.lifted:
                raise RetraceWithGradients
        if self._dropped:
            told = {id(t) for t, _ in changed}
            changed += [(t, now) for t, now, _ in known if id(t) in self._dropped - told]
        others = [r for r in roots if id(r) not in self._tensors]
        if others and any(_torch.held_gradient(r) is not None for r in others):
            raise UnsupportedError("backward inside", "through an argument that is no leaf")
        seen = set(self._tensors)
        asked = not nothing_written or bool(self._used)
        for o in outputs:
            if isinstance(o, Tensor) and id(o) not in seen:
                seen.add(id(o))
                if not asked and not _torch.leafness(o) and not o.retains_grad:
                    continue
                if (now := _torch.held_gradient(o)) is not None:
                    changed.append((o, now))
        return changed
