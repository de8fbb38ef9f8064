"""The one record of what a traced call does: what its graph takes and gives, and the steps that follow it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

import torch
from torch import Tensor

from aotcheck.autograd.eager_graph.regions import Group
from aotcheck.autograd.ir.trace import Geometry, Value
from aotcheck.autograd.record.steps import Constant, Ref, Result, Source, Step, renumbered, renumbered_ref


@dataclasses.dataclass(frozen=True)
class Root:
    """A tensor that is differentiated and whose value is an input of the graph.

    ``is_leaf`` only says something of one that requires grad. ``hidden``: the graph itself writes it, and neither
    autograd nor its version counter is to notice. ``moves``: by the time that results are attached it may have another
    history than the one with which the call began, and gradients go by that. ``inference``: it is an inference tensor.
    """

    source: Source
    requires_grad: bool
    is_leaf: bool
    hidden: bool = False
    moves: bool = False
    inference: bool = False


@dataclasses.dataclass(frozen=True)
class FlatInput:
    """The whole storage of ``source`` as one dimension of ``dtype``: an input of the graph, never differentiated."""

    value: Value
    source: Source
    dtype: torch.dtype


class Role(enum.Enum):
    """Why the forward returns a value. The order is the order in the graph's outputs."""

    MUTATED_INPUT = 0
    USER_OUTPUT = 1
    INTERMEDIATE_BASE = 2


@dataclasses.dataclass(frozen=True)
class GraphOutput:
    """A value that the forward returns; ``tensor`` is its replica, laid out as the caller must see.

    A sparse tensor has no ``geometry``.
    """

    value: Value
    role: Role
    geometry: Geometry | None
    tensor: Tensor | None


@dataclasses.dataclass(frozen=True)
class Attached:
    """A tensor that gets the history of the replica ``tensor``: an output of the graph, or one that a step made.

    Note [Attached tensors]
    What autograd attaches a history to need not be what the graph computes. A window on memory that another tensor
    holds, a view that a custom Function returned, and a stand-in without memory whose history an argument takes over
    are made before the Functions are applied, and go through them beside the graph's own outputs.

    ``recorded`` is the geometry that the history is to record where that is not the tensor's own: see Note [What a
    history records].
    """

    ref: Ref
    tensor: Tensor
    device: torch.device
    recorded: Geometry | None = None


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A leaf that the function made, or made of an argument, and that results have gradients with respect to."""

    ref: Ref
    tensor: Tensor


@dataclasses.dataclass(frozen=True)
class Record:
    """Everything the runtime and the partitioner need of one traced call.

    ``before`` are the steps that come before results are attached to autograd, ``steps`` the others. ``attached`` are
    the tensors that get a history, in ``groups``. Gradients go to the roots and to ``leaves``, to ``views`` among the
    arguments as they were when the call began, and to ``cuts``. ``generators`` are the arguments that are random
    generators, inputs of the graph after all tensors. ``swapped`` are those that the function passed to swap_tensors,
    which looks at how many hold them. ``wrappers`` are the arguments that are wrappers: differentiated as roots are,
    but no inputs of the graph.
    """

    roots: tuple[Root, ...]
    leaves: tuple[Leaf, ...]
    flats: tuple[FlatInput, ...]
    outputs: tuple[GraphOutput, ...]
    attached: tuple[Attached, ...]
    groups: tuple[Group, ...]
    cuts: tuple[Leaf, ...]
    before: tuple[Step, ...]
    steps: tuple[Step, ...]
    returns: tuple[Ref | Constant, ...]
    written_placeholders: frozenset[Value]
    entry_grad: bool
    entry_inference: bool
    generators: tuple[int, ...] = ()
    swapped: tuple[int, ...] = ()
    wrappers: tuple[Root, ...] = ()
    views: tuple[Leaf, ...] = ()

    @property
    def differentiable(self) -> bool:
        """Whether any result has a history."""
        return bool(self.attached)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """Those before and those after."""
        return (*self.before, *self.steps)

    def renumber(self, place: Mapping[int, int]) -> Record:
        """The record with its graph outputs moved: ``place`` maps the old index of each that stays to the new one."""
        outputs = {place[k]: o for k, o in enumerate(self.outputs) if k in place}
        attached = [dataclasses.replace(a, ref=renumbered_ref(a.ref, place)) for a in self.attached]
        order = sorted(range(len(attached)), key=lambda k: _order(attached[k].ref, len(place)))
        moved = {old: new for new, old in enumerate(order)}
        groups = [dataclasses.replace(g, attached=tuple(sorted(moved[k] for k in g.attached))) for g in self.groups]
        return dataclasses.replace(
            self,
            outputs=tuple(outputs[k] for k in range(len(outputs))),
            attached=tuple(attached[k] for k in order),
            groups=tuple(groups),
            cuts=tuple(dataclasses.replace(x, ref=renumbered_ref(x.ref, place)) for x in self.cuts),
            leaves=tuple(dataclasses.replace(x, ref=renumbered_ref(x.ref, place)) for x in self.leaves),
            before=tuple(renumbered(s, place) for s in self.before),
            steps=tuple(renumbered(s, place) for s in self.steps),
            returns=tuple(r if isinstance(r, Constant) else renumbered_ref(r, place) for r in self.returns),
        )


def _order(ref: Ref, results: int) -> int:
    return ref.index if isinstance(ref, Result) else results
