"""Backwards that a backward calls, and what they bring to the leaves of the call.

Note [Backwards that a backward calls]
The backward of a custom Function may run code of the program's again and call a backward on that, as reentrant
checkpoints do. What that brings to parameters is accumulated there and then, whatever gradients the outer backward was
asked for. So it is no gradient that the Function of ours gives, but a change that it makes: each time it runs it
accumulates what its graph computed of that. In a trace the gradients of the replicas are set aside meanwhile, and given
back. Leaves of the program's own that nobody else has are its own business.

The ``.grad`` that a tensor of the call has when a backward runs is no input of that: a function whose backward reads or
writes it runs as it is.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.errors import RunsAsItIs, UnsupportedError
from aotcheck.autograd.replicas.kernel_state import KernelState, Watcher
from aotcheck.autograd.state.gradients import own_gradient, set_own_gradient
from aotcheck.autograd.tensors.subclasses import is_wrapper


@dataclasses.dataclass(frozen=True)
class Brought:
    """A ``gradient`` that backwards inside a backward brought to a target, and what it is ``read`` as.

    ``retained``: they keep the caller's graph behind that.
    """

    target: int
    gradient: Tensor
    read: Any
    retained: bool


class InnerBackwards(Watcher):
    """Entered around a traced backward: watches those that it calls.

    ``find_ends`` gives the leaves at which gradients of targets arrive, by place among the targets, ``stops`` say of
    edges at which it ends of which target they are; ``visible`` is what the caller has besides, ``there`` all that
    there was before the backward. What they bring is not noted where this is for ``gradients`` alone.
    """

    def __init__(
        self,
        kernels: KernelState,
        find_ends: Callable[[], Mapping[int, Tensor]],
        visible: Iterable[Tensor],
        there: Sequence[Tensor],
        stops: Mapping[tuple[Any, int], int],
        gradients: bool = False,
    ) -> None:
        self._kernels, self._find_ends = kernels, find_ends
        self._there, self._outer = there, kernels.inner
        self._visible = visible
        self._before: dict[int, tuple[Tensor, Tensor | None]] | None = None
        self._retained, self._gradients = False, gradients
        self._stops = stops
        self._stopped: dict[int, Tensor] = {}  # what came to targets at which the traced backward ends
        self._number: int | None = None  # of that backward

    @functools.cached_property
    def _ends(self) -> Mapping[int, Tensor]:
        return self._find_ends()

    @functools.cached_property
    def _shown(self) -> dict[int, Tensor]:
        """What the caller has, by id."""
        return {id(t): t for t in (*self._ends.values(), *self._visible)}

    def __enter__(self) -> InnerBackwards:
        self._kernels.inner = self
        return self

    def __exit__(self, *_: object) -> None:
        self._kernels.inner = self._outer
        for t, gradient in (self._before or {}).values():
            set_own_gradient(t, gradient)

    def on_backward(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """A backward is about to be called: if it is inside the one that is traced, set all gradients aside."""
        if self._gradients or func is not torch.autograd.backward or _torch.node_running() is None:
            return None
        if self._number is None:
            self._number = _torch.backward_number()
        given = {**dict(zip(("tensors", "grad_tensors", "retain_graph", "create_graph"), args, strict=False)), **kwargs}
        retained = given.get("retain_graph")
        self._retained |= bool(given.get("create_graph") if retained is None else retained)
        if self._before is None:
            leaves = {id(t): t for t in (*self._there, *self._shown.values()) if t.requires_grad and _torch.leafness(t)}
            self._before = {k: (t, own_gradient(t)) for k, t in leaves.items()}
            for t in leaves.values():
                set_own_gradient(t, None)
        return None

    def on_gradient(self, t: Tensor) -> None:
        """The backward reads or writes ``t.grad``.

        Raises:
            RunsAsItIs: the caller has ``t``.
        """
        if id(t) in self._shown:
            raise RunsAsItIs(
                "attribute of a tensor", "its backward reads or writes the gradient of a tensor of the call's"
            )

    def on_stop(self, node: Any, grads: Sequence[Tensor | None]) -> None:
        """A backward ends at ``node``: if it is one inside, it goes on from there when that runs."""
        if self._number is None or _torch.backward_number() == self._number:
            return
        for place, g in enumerate(grads):
            if g is None:
                continue
            target = self._stops.get((node, place))
            if target is None:
                raise UnsupportedError("backward inside", "one that a backward calls, to what it is cut off from")
            had = self._stopped.get(target)
            self._stopped[target] = g if had is None else had + g

    def brought(self, read: Callable[[Tensor], Any]) -> tuple[Brought, ...]:
        """What came to the targets so far.

        Raises:
            UnsupportedError: it cannot be brought there when the backward runs.
        """
        if self._before is None:
            return ()
        ends = {id(t): k for k, t in self._ends.items()}
        arrived = [*self._stopped.items()]
        for key, (t, _) in self._before.items():
            gradient = own_gradient(t) if key in self._shown else None
            if gradient is None:
                continue
            if key not in ends:
                raise UnsupportedError("backward inside", "one that a backward calls, to a result or a wrapper")
            arrived.append((ends[key], gradient))
        if any(is_wrapper(g) for _, g in arrived):
            raise UnsupportedError("backward inside", "one that a backward calls, to a result or a wrapper")
        if any(g.requires_grad for _, g in arrived):
            raise UnsupportedError("backward inside", "one that a backward calls, with create_graph")
        return tuple([Brought(k, g, read(g), self._retained) for k, g in arrived])
