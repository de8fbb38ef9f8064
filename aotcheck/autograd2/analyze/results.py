"""The graph's results, and how the tensors that a call gives are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.graph import Node
from aotcheck.autograd2.ir.meta import Geometry, geometry_of
from aotcheck.autograd2.ir.signature import Alias, Fresh, Given, Made, Step
from aotcheck.autograd2.ir.size import same
from aotcheck.autograd2.trace.gate import Event, refuse
from aotcheck.autograd2.trace.replica import Replica, ViewStep, state_of
from aotcheck.autograd2.trace.run import Traced
from aotcheck.autograd2.trace.view import StorageState

__all__ = ["Result", "Results", "requires_grad"]

_DETACHES = (torch.ops.aten.detach.default,)


@dataclass(frozen=True, eq=False)
class Result:
    """One result of the forward graph.

    Args:
        node: what the graph computes.
        geometry: how eager's tensor lies.
        tensor: the replica whose history it gets; None if autograd does not know it.
        was_written: whether it was written after it was made, so that the graph may give it other strides than eager.
    """

    node: Node
    geometry: Geometry
    tensor: Tensor | None
    was_written: bool


def requires_grad(t: Tensor) -> bool:
    """Whether ``t`` requires grad. Refused where eager cannot say, of a no_grad view of what was written since."""
    try:
        return bool(t.requires_grad and (t.grad_fn is not None or t.is_leaf))
    except (RuntimeError, IndexError):
        refuse(Event.NO_GRAD_VIEW)


@dataclass
class Results:
    """Collects graph results, and how tensors are made."""

    traced: Traced
    results: list[Result] = field(default_factory=list)
    made: list[Given | Fresh | Alias] = field(default_factory=list)
    _position: dict[Tensor, int] = field(default_factory=dict)
    _roots: dict[int, tuple[Tensor | None, int]] = field(default_factory=dict)

    def add(self, node: Node, geometry: Geometry, tensor: Tensor | None = None, was_written: bool = False) -> int:
        """One more result of the graph."""
        self.results.append(Result(node, geometry, tensor, was_written))
        return len(self.results) - 1

    def make_all(self, tensors: Sequence[Tensor]) -> None:
        """Plan how these are made. Tensors on one storage that is no input's are made of one result."""
        plain = self._only_detached([t for t in tensors if self.traced.input_of(t) is None])
        for t in tensors:
            self.make(t, plain)

    def make(self, t: Tensor, plain: frozenset[int] = frozenset()) -> int:
        """The position among ``made`` of a tensor that a call gives.

        Args:
            plain: addresses of storages of which every tensor that is given comes after a detach.
        """
        known = self._position.get(t)
        if known is None:
            self.made.append(self._how(t, plain))
            known = self._position[t] = len(self.made) - 1
        return known

    def _how(self, t: Tensor, plain: frozenset[int]) -> Given | Fresh | Alias:
        given = self.traced.input_of(t)
        if given is not None:
            return Given(given)
        if type(t) is not Replica:
            refuse(Event.CAPTURED, "a result is no tensor of the trace")
        if t.is_inference() != torch.is_inference_mode_enabled() and not t.is_inference():
            refuse(Event.INFERENCE)
        needs = requires_grad(t)
        if needs and t.is_leaf:
            refuse(Event.LEAF)
        state = self.traced.tracer.table.state(t)
        address = _torch.storage_address(state.storage)
        chain, root = self._chain(t, stop_at_detach=address in plain)
        given = self.traced.input_of(root)
        if given is not None:
            if _requires_after(root, chain) != needs:
                refuse(Event.HISTORY, "a view of an argument that was detached or written since")
            _check_windows(chain, needs, state)
            if _lost_memory(t, state):
                if needs:
                    refuse(Event.HISTORY, "a view of an argument whose storage ends before it")
                assert state.source is not None
                return Alias(Given(state.source), geometry=geometry_of(t))
            return Alias(Given(given), _steps(chain))
        if state.is_input:
            if needs:
                refuse(Event.HISTORY, "a tensor on the storage of an argument")
            assert state.source is not None
            return Alias(Given(state.source), geometry=geometry_of(t))
        return self._of_own_storage(t, needs, state, chain, root)

    def _of_own_storage(
        self, t: Tensor, needs: bool, state: StorageState, chain: list[ViewStep], root: Tensor
    ) -> Given | Fresh | Alias:
        table = self.traced.tracer.table
        address = _torch.storage_address(state.storage)
        known = self._roots.get(address)
        if known is None:
            differentiable = requires_grad(root)
            if differentiable and root.is_leaf:
                refuse(Event.LEAF)
            g, of = geometry_of(root), root if differentiable else None
            if differentiable or same(g.offset, 0):
                known = (root, self.add(table.read(root), g, of, state.version > 0))
            else:  # what it was a view of lies elsewhere now
                whole = table.flat(state)
                known = (None, self.add(table.read_view(whole), whole.geometry))
            self._roots[address] = known
        first, index = known
        if first is not root:
            if needs or requires_grad(root):
                refuse(Event.HISTORY, "two tensors on one storage, of which neither is a view of the other")
            return Alias(Fresh(index), geometry=geometry_of(t), shift=self.results[index].geometry.offset)
        if not chain:
            return Fresh(index)
        if _requires_after(root, chain) != needs:
            refuse(Event.HISTORY, "a view that was detached, or whose base was written since")
        _check_windows(chain, needs, state)
        base = self._position.get(root)
        return Alias(Fresh(index) if base is None else Made(base), _steps(chain))

    def _chain(self, t: Tensor, stop_at_detach: bool = False) -> tuple[list[ViewStep], Tensor]:
        """The steps by which ``t`` was made, the first one first, and what it was made of."""
        steps: list[ViewStep] = []
        spelled = self.traced.tracer.table.spelled
        while True:
            state = state_of(t)
            step = state.step
            if step is None or state.moved or geometry_of(t) != spelled(step.geometry):
                break
            source = step.source
            same = _torch.storage_address(_torch.storage_of(source)) == _torch.storage_address(_torch.storage_of(t))
            if not same or geometry_of(source) != spelled(step.source_geometry):
                break
            if step.op in _DETACHES and (stop_at_detach or t.requires_grad):
                break  # what was detached, and has got a history of its own since, is made as a root is
            steps.insert(0, step)
            t = source
        return steps, t

    def _only_detached(self, tensors: Sequence[Tensor]) -> frozenset[int]:
        """Addresses of the storages of which all these tensors come after a detach: autograd need not know the base."""
        detached: dict[int, bool] = {}
        for t in tensors:
            if type(t) is not Replica:
                continue
            chain, _ = self._chain(t)
            address = _torch.storage_address(_torch.storage_of(t))
            detached[address] = detached.get(address, True) and any(s.op in _DETACHES for s in chain)
        return frozenset(address for address, every in detached.items() if every)

    def anchor(self, state: StorageState) -> Given | Fresh:
        """A tensor that lies on a storage, whatever its geometry."""
        if state.is_input:
            assert state.source is not None
            return Given(state.source)
        address = _torch.storage_address(state.storage)
        if address not in self._roots:
            view = state.roots[0]
            index = self.add(self.traced.tracer.table.read_view(view), view.geometry)
            self._roots[address] = (None, index)
        return Fresh(self._roots[address][1])


def _lost_memory(t: Tensor, state: StorageState) -> bool:
    """Whether the storage of ``t`` was made so small that it ends before the tensor does."""
    g, size = geometry_of(t), state.nbytes
    reached = g.end * g.dtype.itemsize
    return type(reached) is int and type(size) is int and reached > size and not g.is_empty


def _check_windows(chain: Sequence[ViewStep], needs: bool, state: StorageState) -> None:
    """Refuse what replay cannot make: autograd takes a view of a written base for ``as_strided`` of the whole base."""
    if needs and state.version and any(s.op is torch.ops.aten.as_strided.default for s in chain[1:]):
        refuse(Event.HISTORY, "as_strided of a view whose base was written since")


def _steps(chain: Sequence[ViewStep]) -> tuple[Step, ...]:
    return tuple(s.how for s in chain)


def _requires_after(root: Tensor, chain: Sequence[ViewStep]) -> bool:
    """Whether the view that the chain makes of ``root`` requires grad."""
    needs = requires_grad(root)
    for step in chain:
        needs = needs and step.how.grad and step.op not in _DETACHES
    return needs
