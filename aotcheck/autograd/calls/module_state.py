"""A module's state: read on every call, swapped for replicas while it is traced, assigned where the trace did.

Note [Attributes]
Parameters and buffers are known beforehand. Of what else a module has, tensors in attributes become part of its state
when a trace meets one, as something read or as something assigned (``self.last = h``), and the trace begins again. From
then on they are read and assigned on every call. What a module, or a forward hook, keeps in a list or a dictionary is
found when it is read, and put there as Note [Kept tensors] says. Other attributes are read by Note [Surroundings], and
assigned by the trace; by one that does not come to its end, not at all.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.escapes import Namespace, Unkept
from aotcheck.autograd.calls.kept import Item, Kept
from aotcheck.autograd.calls.places import Reached
from aotcheck.autograd.errors import RetraceWithAttributes
from aotcheck.autograd.tensors.captured import Path, locate

_Slot = tuple[dict[str, Any], str]
_SLOTS = ("_parameters", "_buffers")


class ModuleState:
    """A module's parameters, buffers and attributes that matter, deeply, in ``slots``."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._attributes: list[tuple[torch.nn.Module, str]] = []
        self.refresh()

    def refresh(self) -> None:
        """Find the slots anew, for modules whose structure has changed."""
        self.modules = list(self.module.modules())
        self.slots: list[_Slot] = []
        for m in self.modules:
            self.slots += [(owner, name) for owner in _torch.state_of(m) for name, t in owner.items() if t is not None]
        there = {id(m) for m in self.modules}
        self.slots += [(vars(m), name) for m, name in self._attributes if id(m) in there]

    def tensors(self) -> list[Any]:
        """What is in the slots now."""
        return [owner.get(name) for owner, name in self.slots]

    @property
    def is_lazy(self) -> bool:
        """Whether a parameter or buffer gets its shape only from the first call."""
        return any(torch.nn.parameter.is_lazy(t) for t in self.tensors())

    def adopt(self, tensor: Tensor) -> bool:
        """Let the attribute that is ``tensor`` be part of the state; whether there is one."""
        for m in self.modules:
            for name, value in vars(m).items():
                if value is tensor:
                    self._attributes.append((m, name))
                    self.refresh()
                    return True
        return False

    def locate(self, tensor: Tensor) -> Path | None:
        """How to read ``tensor``, which is no attribute but in one, or in a closure, again; None if it is nowhere."""
        return next((path for m in self.modules if (path := locate(m, tensor)) is not None), None)

    @contextlib.contextmanager
    def swapped(
        self, replicas: Sequence[Any], reassigned: list[tuple[int, Any]], kept: list[Kept], reached: Reached
    ) -> Iterator[None]:
        """The module runs on ``replicas`` inside; what it puts into slots goes to ``reassigned``: (slot, object).

        What it puts into lists and the like, or assigns with tensors in it, goes to ``kept``.

        Raises:
            RetraceWithAttributes: attributes that were no slots were assigned tensors; now they are slots.
            UnsupportedError: a tensor of the trace was put into a container otherwise than by setting or appending it.
        """
        slots, originals, before = self.slots, self.tensors(), _Before(self.modules, reached)
        own = {id(d) for m in self.modules for d in (vars(m), *vars(m).values())}
        try:
            with _swapped(slots, replicas):
                with Unkept(*_torch.forward_hooks_of(self.modules), kept=kept, reached=reached, but=own):
                    yield
                known = {(id(owner), name) for owner, name in slots}
                assigned = [(m, name) for m, name in before.assigned() if (id(vars(m)), name) not in known]
                if assigned:
                    self._attributes += assigned
                    raise RetraceWithAttributes
                pairs = zip(replicas, originals, strict=True)
                kept += before.take({id(r): t for r, t in pairs if isinstance(r, Tensor)}, known)
                for k, ((owner, name), replica) in enumerate(zip(slots, replicas, strict=True)):
                    if owner.get(name) is not replica:
                        reassigned.append((k, owner.get(name)))
        except BaseException:
            before.restore()
            raise

    def swapping(self, replicas: Sequence[Any]) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """What puts ``replicas`` into the slots that there are now, once more and for as long as it is entered."""
        return functools.partial(_swapped, self.slots, replicas)

    def swapping_too(
        self, swapping: Callable[[], contextlib.AbstractContextManager[None]], others: Mapping[int, Any]
    ) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """The same as ``swapping``, but that in some slots, by place, are ``others``."""
        slots = self.slots

        @contextlib.contextmanager
        def swapped() -> Iterator[None]:
            with swapping():
                for k, instead in others.items():
                    owner, name = slots[k]
                    owner[name] = instead
                yield

        return swapped

    def assign(self, slots: Sequence[int], tensors: Sequence[Any]) -> None:
        """Put the objects that the program left in these slots there."""
        for k, t in zip(slots, tensors, strict=True):
            owner, name = self.slots[k]
            owner[name] = t


class _Before:
    """What the attributes of modules are, and what containers among them hold, before a trace."""

    def __init__(self, modules: Sequence[torch.nn.Module], reached: Reached) -> None:
        self._attributes = [(m, Namespace(vars(m), reached)) for m in modules]

    def assigned(self) -> list[tuple[torch.nn.Module, str]]:
        """The attributes that are tensors now, and were not or were others."""
        return [
            (m, name)
            for m, was in self._attributes
            for name, value in vars(m).items()
            if isinstance(value, Tensor) and value is not was.before.get(name)
        ]

    def take(self, originals: Mapping[int, Any], slots: Collection[tuple[int, Any]]) -> list[Kept]:
        """Take away what has a tensor of the trace in it, and say what that was; ``slots`` are seen to otherwise.

        Those that stand for something of the module's own are exchanged for that: ``originals``, by id of what stood
        for them.
        """
        found: list[Kept] = []
        for m, was in self._attributes:
            for name, value in vars(m).items():
                if name in _SLOTS or isinstance(value, Tensor):
                    continue
                if type(value) is list:
                    value[:] = [originals.get(id(x), x) for x in value]
                elif type(value) is dict:
                    value.update({k: originals[id(x)] for k, x in value.items() if id(x) in originals})
            tensors = [name for name, value in vars(m).items() if isinstance(value, Tensor)]
            here = [
                kept
                for kept in was.kept(tensors)
                if not (isinstance(kept, Item) and (id(kept.container), kept.key) in slots)
            ]
            for kept in here:
                kept.take()
            found += here
        return found

    def restore(self) -> None:
        """Make everything what it was."""
        for _, was in self._attributes:
            was.restore()


@contextlib.contextmanager
def _swapped(slots: Sequence[_Slot], replicas: Sequence[Any]) -> Iterator[None]:
    there = [name in owner for owner, name in slots]
    originals = [owner.get(name) for owner, name in slots]
    for (owner, name), replica, was in zip(slots, replicas, there, strict=True):
        if was:
            owner[name] = replica
    try:
        yield
    finally:
        for (owner, name), original, was in zip(slots, originals, there, strict=True):
            if was:
                owner[name] = original
            else:
                owner.pop(name, None)
