"""The one record of what a traced call does: what its graph takes and gives, and the steps that follow it.

``Ref`` names a real tensor of the call; ``Step`` is one action of the epilogue, in order. The runtime turns steps into
straight-line Python.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from aotcheck.autograd.trace import Geometry, Value


@dataclasses.dataclass(frozen=True)
class Arg:
    """The call's flat argument ``index``."""

    index: int


@dataclasses.dataclass(frozen=True)
class BaseOf:
    """The tensor of which argument ``index`` was a view when the call began."""

    index: int


@dataclasses.dataclass(frozen=True)
class Result:
    """Output ``index`` of the compiled forward."""

    index: int


@dataclasses.dataclass(frozen=True)
class Local:
    """A tensor that an earlier step made."""

    index: int


@dataclasses.dataclass(frozen=True)
class Constant:
    """A returned object that is no tensor."""

    value: Any


Source = Arg | BaseOf
Ref = Arg | BaseOf | Result | Local


@dataclasses.dataclass(frozen=True)
class Root:
    """A tensor that is differentiated and whose value is an input of the graph.

    ``hidden``: the graph itself writes it, and neither autograd nor its version counter is to notice.
    """

    source: Source
    requires_grad: bool
    hidden: bool = False


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
    """A value that the forward returns; ``tensor`` is its replica, laid out as the caller must see."""

    value: Value
    role: Role
    geometry: Geometry
    differentiable: bool
    tensor: Tensor | None


@dataclasses.dataclass(frozen=True)
class Hold:
    """Keep hold of the storage of ``source`` before another step takes it away."""

    local: Local
    source: Ref


@dataclasses.dataclass(frozen=True)
class ResizeStorage:
    """Give the storage of ``source`` another size."""

    source: Source
    nbytes: int


@dataclasses.dataclass(frozen=True)
class WriteFlat:
    """Overwrite the whole storage of ``source``; no version counter moves."""

    source: Source
    dtype: torch.dtype
    result: Result


class Visibility(enum.Enum):
    """What autograd learns of a write."""

    DIFFERENTIABLE = "differentiable"  # the tensor's history is rebased on the graph's
    VERSION = "version"  # the version counter moves
    HISTORY = "history"  # the history alone: the data was written through the storage
    HIDDEN = "hidden"  # nothing, as with .data


@dataclasses.dataclass(frozen=True)
class Write:
    """Overwrite ``target``."""

    target: Source
    result: Result
    visibility: Visibility


@dataclasses.dataclass(frozen=True)
class BumpVersion:
    """Count a write that happened already."""

    target: Ref


@dataclasses.dataclass(frozen=True)
class Restride:
    """Change the geometry of ``target`` in place; under grad if autograd saw it."""

    target: Source
    geometry: Geometry
    under_grad: bool


@dataclasses.dataclass(frozen=True)
class PointAt:
    """``target`` moves to the storage of ``holder``, by set_ or (``through_data``) by ``.data =``.

    The offset counts from the storage's beginning, or from ``holder``'s own offset if ``relative``. Under grad, set_
    leaves a history that raises in the backward, as eager's does.
    """

    target: Arg
    holder: Local
    geometry: Geometry
    relative: bool
    through_data: bool
    under_grad: bool


@dataclasses.dataclass(frozen=True)
class Detach:
    """Cut ``target`` from its history in place; a leaf stops requiring grad."""

    target: Arg
    leaf: bool


class ReplayMode(enum.Enum):
    """The grad mode in which a view is made again."""

    AMBIENT = "ambient"
    GRAD = "grad"
    NO_GRAD = "no_grad"
    NO_GRAD_THEN_GRAD = "no_grad, then a view of that under grad"  # has a history, but one that ends short of the base


@dataclasses.dataclass(frozen=True)
class ReplayView:
    """Make a view of ``base`` again, as ``view_func`` did on the replicas."""

    local: Local
    base: Ref
    view_func: Callable[[Tensor], Tensor]
    mode: ReplayMode
    creation_meta: Any


@dataclasses.dataclass(frozen=True)
class WindowOn:
    """A tensor on the storage of ``holder``, unrelated to it in autograd; ``anchor`` is its offset in the trace."""

    local: Local
    holder: Ref
    geometry: Geometry
    anchor: int | None
    own_version: bool


@dataclasses.dataclass(frozen=True)
class RequireGradOfInteger:
    """Eager lets an integer or bool tensor require grad when written from one that does; no Function output can."""

    target: Ref


@dataclasses.dataclass(frozen=True)
class RequireGrad:
    """Make a leaf that requires grad, as a tensor made inside and returned is."""

    target: Ref


@dataclasses.dataclass(frozen=True)
class SetGradMode:
    """Leave grad mode as the function leaves it."""

    enabled: bool


Step = (
    Hold
    | ResizeStorage
    | WriteFlat
    | Write
    | BumpVersion
    | Restride
    | PointAt
    | Detach
    | ReplayView
    | WindowOn
    | RequireGrad
    | RequireGradOfInteger
    | SetGradMode
)


@dataclasses.dataclass(frozen=True)
class Record:
    """Everything the runtime and the partitioner need of one traced call.

    ``prepare`` are arguments that the function makes require grad; they do before results are attached to autograd.
    ``generators`` are the arguments that are random generators, inputs of the graph after all tensors.
    """

    roots: tuple[Root, ...]
    flats: tuple[FlatInput, ...]
    outputs: tuple[GraphOutput, ...]
    steps: tuple[Step, ...]
    returns: tuple[Ref | Constant, ...]
    written_placeholders: frozenset[Value]
    prepare: tuple[Arg, ...]
    entry_grad: bool
    differentiable: bool
    generators: tuple[int, ...] = ()


def renumbered(step: Step, place: Mapping[int, int]) -> Step:
    """``step`` with the results that it names found at their new places."""
    changes: dict[str, Any] = {
        f.name: Result(place[v.index])
        for f in dataclasses.fields(step)
        if isinstance(v := getattr(step, f.name), Result)
    }
    return dataclasses.replace(step, **changes) if changes else step
