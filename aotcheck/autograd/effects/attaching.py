"""The order in which results are attached to autograd, group by group, and arguments take over histories.

What a group hangs on, its cuts, is made and has its history before: see Note [Cuts].
"""

from __future__ import annotations

import abc
import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.eager_graph.components import reached_leaves
from aotcheck.autograd.eager_graph.functions import function_heads
from aotcheck.autograd.eager_graph.regions import Cut, Group, divide, find_cuts
from aotcheck.autograd.eager_graph.shared import complex_heads, overtaken_heads, shared_heads, sum_heads
from aotcheck.autograd.effects.draft import Draft
from aotcheck.autograd.errors import UnsupportedError
from aotcheck.autograd.ir.places import Move
from aotcheck.autograd.ir.sparse_geometry import is_sparse
from aotcheck.autograd.ir.trace import geometry_of
from aotcheck.autograd.record.record import Leaf
from aotcheck.autograd.record.steps import Arg, Attach, Ref, RenewHistory, Step
from aotcheck.autograd.replicas.replicas import past
from aotcheck.autograd.tensors.subclasses import is_wrapper
from aotcheck.autograd.tracing.traced_inputs import TracedArgument

if TYPE_CHECKING:
    from aotcheck.autograd.effects.capture import Capture


class Attaching(Draft, abc.ABC):
    """The groups of what is attached, and the histories that arguments are still to take over."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(capture)
        self.groups: list[Group] = []
        self.cuts: list[Cut] = []
        self.pending: dict[int, list[Step]] = {}  # id of an argument's replica -> how it takes its history
        # by id of what an argument was before it was reshaped, having been written: the argument's replica
        self.takers: dict[int, Tensor] = {}
        self._owner: dict[int, int] = {}  # id of an attached replica -> its group
        self._standing: set[int] = set()  # ids of what only stands for a shared part
        self._not_joined: set[int] = set()  # and of what does so for second derivatives as well
        self._done: set[int] = set()  # groups that are attached

    @abc.abstractmethod
    def name(self, t: Tensor) -> Ref:
        """Where the epilogue has the real tensor for ``t``; the first time this adds the steps that make it."""

    def group(self, survivors: Sequence[Tensor], together: bool) -> None:
        """Divide what is attached into groups: see Note [Cuts]."""
        tensors = [a.tensor for a in self.attached]
        ends = self.capture.ends
        if together or not tensors:
            self.groups = [Group(tuple(range(len(tensors))))] if tensors else []
        else:
            standing = [k for k, t in enumerate(tensors) if id(t) in self._standing and id(t) not in self._not_joined]
            self.groups, self.cuts = divide(tensors, find_cuts(tensors, survivors, ends), ends, standing)
        for number, group in enumerate(self.groups):
            self._owner.update({id(tensors[k]): number for k in group.attached})

    def stand_for_shared(self, survivors: Sequence[Tensor]) -> list[Tensor]:
        """Tensors at which what several results share is cut off: see Note [Shared parts]."""
        tensors = [a.tensor for a in self.attached]
        if self.capture.together or any(is_wrapper(t) or is_sparse(t) for t in tensors):
            return []
        ends = self.capture.ends
        functions: list[Tensor] = []
        if self.capture.apart:
            functions = [self._head(edge) for edge in function_heads(tensors, ends, self.capture.apart)]
            self._not_joined.update(map(id, functions))
            tensors = [a.tensor for a in self.attached]
        stop = ends | {c.edge.node for c in find_cuts(tensors, [*survivors, *functions], ends)}
        found = [self._head(edge) for edge in shared_heads(tensors, stop)]
        found += [t for t in functions if all(t is not x for x in found)]
        if any(r.replica.dtype.is_complex for r in self.capture.differentiated):
            apart = [self._head(e) for e in complex_heads(tensors, stop)]
            beyond = stop | {_torch.grad_fn_of(t) for t in [*found, *apart]}
            apart += [self._head(e) for e in overtaken_heads([a.tensor for a in self.attached], beyond, ends)]
            self._not_joined.update(map(id, apart))
            found += apart
        attached = [a.tensor for a in self.attached]
        found += [self._head(edge) for edge in sum_heads(attached, stop | {_torch.grad_fn_of(t) for t in found})]
        heads = {_torch.grad_fn_of(t) for t in found}
        # With what stands for one result of an op others that are attached are cuts, be it by a view of them alone.
        return found + [t for t in attached if _torch.grad_fn_of(t) in heads and all(t is not x for x in found)]

    def _head(self, edge: GradientEdge) -> Tensor:
        """What is attached at which gradients arrive at ``edge``, or now stands for it."""
        attached = [a.tensor for a in self.attached]
        known = (t for t in attached if _torch.grad_fn_of(t) is edge.node and t.output_nr == edge.output_nr)
        head = next(known, None)
        if head is None:
            head = past(edge, attached[0].device, self.kernels)
            self.names[id(head)] = self.stand_in(head)
            self._standing.add(id(head))
        return head

    @property
    def attaches_late(self) -> bool:
        """Whether some results are attached after something befell arguments."""
        return self.begins_any_late or any(group.cuts for group in self.groups)

    def _is_ready(self, number: int) -> bool:
        """Whether all leaves that the group leads to require grad by now: see Note [Late leaves]."""
        waiting = self._late.keys() - self._begun
        if not waiting:
            return True
        tensors = [self.attached[k].tensor for k in self.groups[number].attached]
        roots = {id(r.replica) for r in self.roots if r.requires_grad and not r.has_history}
        return not (reached_leaves(tensors).keys() & waiting - roots)

    def attach_all(self) -> None:
        """Attach what is left."""
        for number in range(len(self.groups)):
            self._attach_group(number)

    def _attach_group(self, number: int) -> None:
        if number not in self._done:
            if not self._is_ready(number):
                raise UnsupportedError("leaf made inside", "what leads to it is needed before it begins")
            self._done.add(number)
            for k in self.groups[number].cuts:
                self._settle_base(self.cuts[k].tensor)
                self.name(self.cuts[k].tensor)
                self.settle(self.cuts[k].tensor)
                if id(self.cuts[k].tensor) in self.takers:
                    self.settle(self.takers[id(self.cuts[k].tensor)])
            self.steps.append(Attach(number))

    def attach_now(self, t: Tensor) -> None:
        """Attach ``t``, or what it takes its history from, if that is to be attached."""
        number = self._group_of(t)
        if number is not None:
            self._attach_group(number)

    def _group_of(self, t: Tensor) -> int | None:
        """The group that gives ``t`` its history, be it as what it was before it was reshaped."""
        number = self._owner.get(id(t))
        if number is None and self.takers:
            before = (self._owner.get(key) for key, taker in self.takers.items() if taker is t)
            number = next((k for k in before if k is not None), None)
        return number

    def cut_targets(self) -> tuple[Leaf, ...]:
        """The cuts under the names that they have."""
        return tuple(Leaf(self.names[id(c.tensor)], c.tensor) for c in self.cuts)

    def attach_what_leads_to(self, t: Tensor, dtypes: Collection[torch.dtype] | None = None) -> None:
        """Attach the groups that lead to the leaf ``t``, which is about to require grad no more.

        Or to have another dtype, whereby gradients of what it was, of these ``dtypes``, arrive elsewhere.
        """
        for number, group in enumerate(self.groups):
            found = reached_leaves([self.attached[k].tensor for k in group.attached]).get(id(t), ())
            arriving = [_torch.gradient_dtype(x.node, 0) for x in found]
            if (arriving if dtypes is None else any(d in dtypes for d in arriving)) and self._is_ready(number):
                self._attach_group(number)

    def is_attached(self, t: Tensor) -> bool:
        """Whether the history of ``t`` is given to it by now."""
        number = self._group_of(t)
        return number is not None and Attach(number) in self.steps

    def attach_before(self, t: Tensor) -> None:
        """Attach the groups that come before that of ``t``, for backwards to come by in the program's order."""
        for number in range(self._group_of(t) or 0):
            if self._is_ready(number) and not self._hangs_on_moved(number, t):
                self._attach_group(number)

    def _hangs_on_moved(self, number: int, t: Tensor) -> bool:
        """Whether the group hangs on a view of ``t`` that is made where that comes to lie, with the history it gets."""
        moved = max([x.time for x in self.kernels.left.get(id(t), ())], default=math.inf)
        for k in self.groups[number].cuts:
            cut = self.cuts[k].tensor
            owner = self._owner.get(id(cut))
            notes = self.tracer.views, self.tracer.unsafe_views
            views = [known.get(id(x)) for x in self.chain(cut) for known in notes]
            if any(made is not None and made.source is t and made.time > moved for made in views):
                return True
            if owner is not None and owner != number and self._hangs_on_moved(owner, t):
                return True
        return False

    def settle_in_turn(self, t: Tensor) -> None:
        """The same as ``settle``, after what comes before."""
        self.attach_before(t)
        self.settle(t)

    def settle(self, t: Tensor) -> None:
        """``t``, which has a name, gets its history now if it has not got it yet."""
        self.attach_now(t)
        for before, taker in self.takers.items():
            if taker is t and before in self._owner:  # what it takes over is attached in its place
                self._attach_group(self._owner[before])
        self._settle_base(t)
        steps = self.pending.pop(id(t), ())
        self.steps += steps
        if steps:
            self.steps += [RenewHistory(Arg(a.index)) for _, a in self.rewritten_views(t) if self._stays(a)]

    def settle_before_base(self, t: Tensor) -> None:
        """The same for a view whose history is one that its base had before it got the history it has."""
        self.attach_now(t)
        self.steps += self.pending.pop(id(t), ())

    def _settle_base(self, t: Tensor) -> None:
        base = _torch.base_of(t)
        if base is not None and id(base) in self.pending:
            self.settle(base)

    def rewritten_views(self, base: Tensor) -> list[tuple[int, TracedArgument]]:
        """The arguments that are views of ``base`` and have the history of a write to it, by when they looked for it.

        Not those that looked for it after ``base`` went elsewhere: they will do so again. Nor those that do so when
        the caller asks.
        """
        moved = self.kernels.moved_before.get(id(base), math.inf)
        return [(number, a) for number, a in self._rewritten(base) if number < moved]

    def rewritten_later(self) -> list[tuple[int, TracedArgument]]:
        """The arguments that are views and looked for the history of a write after their base went elsewhere."""
        moved = self.kernels.moved_before
        bases = {id(b): b for a in self.arguments if (b := _torch.base_of(a.replica)) is not None} if moved else {}
        found = [(moved[key], self._rewritten(b)) for key, b in bases.items() if key in moved]
        return [(number, a) for went, views in found for number, a in views if number >= went]

    def _rewritten(self, base: Tensor) -> list[tuple[int, TracedArgument]]:
        views = [a for a in self.arguments if _torch.base_of(a.replica) is base and a.replica is not base]
        views = [a for a in views if id(a.replica) not in self.capture.waiting]
        found = [(node, a) for a in views if (node := self.node_before_changes(a.replica)) not in (None, a.grad_fn)]
        numbered = [(_torch.sequence_number(node), a) for node, a in found]
        return sorted([(number, a) for number, a in numbered if self._is_there(a, number)], key=lambda x: x[0])

    def _stays(self, a: TracedArgument) -> bool:
        return geometry_of(a.replica) == a.geometry and self.table.state(a.replica) is a.state

    def _is_there(self, a: TracedArgument, number: int) -> bool:
        """Whether ``a`` lies, when autograd makes the node of this ``number``, as when it came or where it ends.

        Else it goes to where that was, and looks for its history there.
        """
        left = self.kernels.left.get(id(a.replica), ())
        before = sum(x.node <= number for x in left)
        if 0 < before < len(left) and left[before - 1].move is Move.DATA and left[before].geometry != a.geometry:
            return False
        return self._stays(a) or before in (0, len(left))
