"""Hooks that the function registers on tensors, inputs, results and what lies between.

Note [Hooks registered inside]
A hook is Python that runs in the backward, so the trace must not swallow it: it is registered anew by each call, on the
real tensor that stands where the replica stood, and sees the real gradient. An intermediate tensor has no real
counterpart; where some result is computed from it a *stand-in* without memory becomes one, which is a cut (see Note
[Cuts]): gradients come by it. So it is for a tensor that got another history since: the hook is on what it was. While
the function itself runs, a backward that it calls runs the hooks on replicas; but if it goes on in the caller's graph
(see Note [Backwards inside]), and there comes to an argument by others too, the hooks on that are registered before.

A hook that uses tensors of the call has no meaning outside the trace: it is traced with the backward, on intermediate
tensors and results, and refused on arguments, whose whole gradient no trace knows.
"""

from __future__ import annotations

import enum
import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from aotcheck import _torch
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.tensors.captured import reachable
from aotcheck.autograd.tensors.subclasses import leaves_of

if TYPE_CHECKING:
    from aotcheck.autograd.replicas.kernel_state import KernelState


class HookKind(enum.Enum):
    """When a hook runs."""

    GRADIENT = "gradient"  # before the gradient of its tensor goes further
    ACCUMULATED = "accumulated"  # after the gradient of its leaf was accumulated


class NotedHook:
    """What is registered on a replica in place of the user's hook, which it runs while the function itself runs."""

    def __init__(self, replica: Tensor, kernels: KernelState, hook: Callable[[Tensor], Any], kind: HookKind) -> None:
        self.replica = replica
        self.kernels = kernels
        self.hook = hook
        self.kind = kind
        self.node: Any = None  # that the hook is on; None for a leaf
        self.place = 0  # and on which of the node's results
        self.time = kernels.now()
        self.traced = False
        self._table: Callable[[], OrderedDict[int, Any] | None] = lambda: None
        self._handle: Callable[[], RemovableHandle | None] = lambda: None
        self._id = -1

    @property
    def registered(self) -> Callable[[Tensor], Any]:
        """What to register: it does not keep the trace, which keeps the graph that the hook is in; see ``Disarmed``."""
        noted = weakref.ref(self)

        def run(t: Tensor) -> Any:
            kept = noted()
            return None if kept is None else kept(t)

        return run

    def __call__(self, t: Tensor) -> Any:
        """Run the hook, unless it will be registered on the real tensor, or where a backward ends that others go on."""
        if self.traced and self.node in self.kernels.stopped:
            return None
        if self.traced:
            return self.hook(t)
        if not self.kernels.function_runs or self.kernels.watcher.goes_on_at(self.replica, self.node):
            return None
        return self.hook(t)

    def installed(self, handle: RemovableHandle) -> RemovableHandle:
        """Note the handle that the user gets."""
        self._table, self._handle, self._id = handle.hooks_dict_ref, weakref.ref(handle), handle.id
        table = self._table()
        beside = next((h for h in self.kernels.hooks if h.in_table(table)), None)
        if beside is not None:  # the tensor may have another history by now, of which its hooks know nothing
            self.node, self.place = beside.node, beside.place
        else:
            self.node, self.place = _torch.grad_fn_of(self.replica), self.replica.output_nr
        self.kernels.hooks.append(self)
        return handle

    def in_table(self, table: OrderedDict[int, Any] | None) -> bool:
        """Whether it is, or was, one of the hooks in ``table``."""
        return table is not None and self._table() is table

    @property
    def in_force(self) -> bool:
        """Whether the function has not removed the hook again."""
        table = self._table()
        return table is not None and self._id in table

    @property
    def handle_kept(self) -> bool:
        """Whether somebody holds the handle still."""
        return self._handle() is not None

    @functools.cached_property
    def uses_the_trace(self) -> bool:
        """Whether the hook can reach tensors of the trace, or nodes of its graph."""
        return any(
            isinstance(x, torch.autograd.graph.Node)
            or (isinstance(x, Tensor) and any(getattr(y, "kernels", None) is self.kernels for y in leaves_of(x)))
            for x in reachable(self.hook)
        )


def hooks_in_force(hooks: Sequence[NotedHook]) -> list[NotedHook]:
    """Those of ``hooks`` that the function left behind.

    Raises:
        UnsupportedError: the handle of one was kept. A later call makes hooks of its own, and eager a handle for each.
    """
    left = [h for h in hooks if h.in_force]
    if any(h.handle_kept for h in left):
        raise UnsupportedError(
            "hook", "the handle of a hook registered inside is kept, and each call would need its own"
        )
    return left
