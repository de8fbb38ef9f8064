"""The steps of an epilogue, in terms of the tensors of a call: straight-line Python in the runtime.

``Ref`` names a real tensor of the call; ``Step`` is one action.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import torch
from torch import Tensor

from aotcheck.autograd.ir.trace import Geometry
from aotcheck.autograd.replicas.hooks import HookKind
from aotcheck.autograd.state.global_state import BackwardMode
from aotcheck.autograd.tensors.subclasses import Outer, Wrapping


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
class Hold:
    """Keep hold of the storage of ``source`` before another step takes it away."""

    local: Local
    source: Ref


@dataclasses.dataclass(frozen=True)
class HoldAccumulator:
    """Keep hold of what gradients of the leaf ``source`` arrive at until the call is over.

    Where it has to be made it takes gradients of the shape of ``recorded``, whatever the leaf's is now: see Note [What
    a history records]. It is made in any case if ``anew``, as it is once ``set_`` was called.
    """

    local: Local
    source: Ref
    recorded: Geometry
    anew: bool


@dataclasses.dataclass(frozen=True)
class ResizeStorage:
    """Give the storage of ``source`` another size."""

    source: Ref
    nbytes: int


@dataclasses.dataclass(frozen=True)
class WriteFlat:
    """Overwrite the whole storage of ``source``; no version counter moves."""

    source: Source
    dtype: torch.dtype
    result: Result


class Visibility(enum.Enum):
    """What autograd learns of a write."""

    VERSION = "version"  # the version counter moves
    HIDDEN = "hidden"  # nothing, as with .data


@dataclasses.dataclass(frozen=True)
class Write:
    """Overwrite ``target``."""

    target: Ref
    result: Result
    visibility: Visibility


@dataclasses.dataclass(frozen=True)
class NoteVersion:
    """Remember, under the name of ``local``, where the version counter of ``target`` stands."""

    local: Local
    target: Ref


@dataclasses.dataclass(frozen=True)
class NoteNodes:
    """Remember, under the name of ``local``, which number autograd gives to the next node."""

    local: Local


@dataclasses.dataclass(frozen=True)
class OrderNodes:
    """The nodes made ``since`` that ``made`` have for a history exchange their numbers, to have them in this order.

    It is the nodes from the one on that is so many ``behind`` the last.
    """

    since: Local
    made: tuple[Ref, ...]
    behind: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class BumpVersion:
    """Count a write that happened already."""

    target: Ref


@dataclasses.dataclass(frozen=True)
class StandIn:
    """A tensor like ``geometry`` without memory of its own: only its history is wanted."""

    local: Local
    geometry: Geometry
    device: torch.device


@dataclasses.dataclass(frozen=True)
class Bridge:
    """A tensor without memory in the place of ``source`` in autograd's graph, as that is now.

    ``recorded`` is how ``source`` lies when gradients first arrive at it in eager, where that is otherwise.
    """

    local: Local
    source: Arg | Local
    recorded: Geometry | None = None


@dataclasses.dataclass(frozen=True)
class Attach:
    """Attach the tensors of ``group`` to autograd."""

    group: int


@dataclasses.dataclass(frozen=True)
class TakeHistory:
    """``target`` gets the history of ``source``; its data is left alone. Not ``counted``: its version stays."""

    target: Source
    source: Result | Local
    counted: bool = True


@dataclasses.dataclass(frozen=True)
class TakeHistoryOfSet:
    """``target``, which was moved by ``set_``, gets the history of that, which has no derivative.

    It also leads to ``sources``, those with a history of what it was set to, in order. Not ``counted``: the version
    stays. ``recorded`` is how it lay then: see Note [What a history records].
    """

    target: Source
    sources: tuple[Ref, ...]
    counted: bool
    recorded: Geometry


@dataclasses.dataclass(frozen=True)
class RenewHistory:
    """Autograd looks for the history of the view ``target``, as it does when a program first uses a written one."""

    target: Ref


@dataclasses.dataclass(frozen=True)
class GiveHistory:
    """``target``, new and without a history, gets that of ``source``."""

    target: Local
    source: Local


@dataclasses.dataclass(frozen=True)
class Restride:
    """Change the geometry of ``target`` in place, which autograd does not see. Not ``counted``: the version stays."""

    target: Ref
    geometry: Geometry
    counted: bool = True


@dataclasses.dataclass(frozen=True)
class Reshape:
    """Change the geometry of the view ``target`` in place by the op that did, so that its history shows it."""

    target: Ref
    change: Callable[[Tensor], None]


class Way(enum.Enum):
    """How a tensor comes to lie on another storage."""

    SET = "set_"
    SET_UNTOLD = "set_ in inference mode"  # what gradients a leaf takes then stays as it was
    DATA = ".data ="


@dataclasses.dataclass(frozen=True)
class PointAt:
    """``target`` moves to the storage of ``holder``; no history is left.

    The offset counts from the storage's beginning, or from ``holder``'s own offset if ``relative``. By ``.data =`` it
    may become an ``inference`` tensor, or cease to be one.
    """

    target: Ref
    holder: Ref
    geometry: Geometry
    relative: bool
    way: Way
    inference: bool


@dataclasses.dataclass(frozen=True)
class Detach:
    """Cut ``target`` from its history in place; a leaf stops requiring grad."""

    target: Ref
    leaf: bool


@dataclasses.dataclass(frozen=True)
class BackwardOnward:
    """A backward that the function called goes on, from arguments that are no leaves, in the caller's graph.

    It brings ``gradients`` to ``targets``. Not ``retained``: it frees what it uses there. Those that
    are ``free`` a leaf may take over. ``kinds`` says which are inference tensors, of those that are no wrappers.
    It runs in the ``mode`` in which the function called it.
    """

    targets: tuple[Source, ...]
    gradients: tuple[Ref, ...]
    retained: bool
    free: tuple[bool, ...]
    kinds: tuple[bool | None, ...]
    mode: BackwardMode


@dataclasses.dataclass(frozen=True)
class CheckCallerGraph:
    """Let the original run if the graph behind ``targets`` objects to what is ``written``, so many times each, before a
    backward goes on there.
    """

    targets: tuple[Source, ...]
    written: tuple[tuple[Source, int], ...]


class ReplayMode(enum.Enum):
    """The mode in which a view is made again; ``OUTSIDE`` is outside the inference mode of the call."""

    AMBIENT = "ambient"
    GRAD = "grad"
    NO_GRAD = "no_grad"
    INFERENCE = "inference"
    OUTSIDE_WITH_GRAD = "outside, grad"
    OUTSIDE_WITHOUT_GRAD = "outside, no_grad"


@dataclasses.dataclass(frozen=True)
class ReplayView:
    """Make a view of ``base`` again, as ``view_func`` did on the replicas.

    If ``outdated``, autograd takes it for made before a write, which some views do not survive; with a ``version``, for
    made when the counter of ``base`` stood there, or ``later`` by so many writes. ``others`` are what ``view_func``
    takes beside the base.
    """

    local: Local
    base: Ref
    view_func: Callable[..., Tensor]
    mode: ReplayMode
    outdated: bool = False
    version: Local | None = None
    later: int = 0
    others: tuple[Ref, ...] = ()


@dataclasses.dataclass(frozen=True)
class PickView:
    """One of the ``several`` views that a step made by one op: in autograd's graph they share a node."""

    local: Local
    several: Local
    index: int


@dataclasses.dataclass(frozen=True)
class WindowOn:
    """A tensor on the storage of ``holder``, unrelated to it in autograd; ``anchor`` is its offset in the trace.

    ``inference`` says whether it is an inference tensor; None: as the holder is.
    """

    local: Local
    holder: Ref
    geometry: Geometry
    anchor: int | None
    own_version: bool
    inference: bool | None = None


@dataclasses.dataclass(frozen=True)
class RequireGradOfInteger:
    """Eager lets an integer or bool tensor require grad when written from one that does; no Function output can."""

    target: Ref


@dataclasses.dataclass(frozen=True)
class SetCreationMeta:
    """Make eager treat writes to the view ``target`` as it treats those to the view that it stands for."""

    target: Ref
    creation_meta: Any


@dataclasses.dataclass(frozen=True)
class RequireGrad:
    """Make a leaf that requires grad, as a tensor made inside and returned is; ``inference``: an inference tensor."""

    target: Ref
    inference: bool = False


@dataclasses.dataclass(frozen=True)
class MakeInference:
    """``target``, a result of the graph, becomes an inference tensor, or (not ``wanted``) one that is none.

    ``alias``: it is made outside inference mode from an inference tensor, and so counts its versions.
    """

    target: Result
    wanted: bool
    alias: bool = False


@dataclasses.dataclass(frozen=True)
class CountWith:
    """``target``, a result of the graph, counts its versions with ``other`` from now on."""

    target: Result
    other: Ref


@dataclasses.dataclass(frozen=True)
class RetainGrad:
    """Let ``target``, no leaf, keep its gradient."""

    target: Ref


@dataclasses.dataclass(frozen=True)
class RegisterHook:
    """Register ``hook`` on ``target`` as the function did; ``given``: on an argument with the history it came with."""

    target: Ref
    hook: Callable[[Tensor], Any]
    kind: HookKind
    given: bool = False


@dataclasses.dataclass(frozen=True)
class SetGradient:
    """``target`` has the gradient ``source`` from now on; ``fits``: of its own shape and dtype."""

    target: Ref
    source: Ref | None
    fits: bool = True


@dataclasses.dataclass(frozen=True)
class Poison:
    """No gradient may be accumulated into ``target`` from now on, as after a swap of a leaf that was used before."""

    target: Arg


@dataclasses.dataclass(frozen=True)
class Swap:
    """The objects exchange the tensors that they are."""

    target: Arg
    other: Ref


@dataclasses.dataclass(frozen=True)
class Wrap:
    """Make a wrapper of the tensors ``inner``, without history."""

    local: Local
    wrapping: Wrapping
    inner: tuple[Ref, ...]


@dataclasses.dataclass(frozen=True)
class RestrideWrapper:
    """Change the geometry that the wrapper ``target`` claims to have; what it holds is left alone.

    Not ``counted``: its version stays.
    """

    target: Ref
    outer: Outer
    counted: bool = True


@dataclasses.dataclass(frozen=True)
class SetAttribute:
    """Assign to an attribute of the wrapper ``target``."""

    target: Ref
    name: str
    value: Ref | Constant


@dataclasses.dataclass(frozen=True)
class PickHeld:
    """What the wrapper ``source`` holds as its attribute ``name``."""

    local: Local
    source: Ref
    name: str


@dataclasses.dataclass(frozen=True)
class TakeOffsets:
    """Let the ragged ``target``, which has no history yet, be ragged by the tensor by which ``source`` is."""

    target: Ref
    source: Ref


@dataclasses.dataclass(frozen=True)
class FillCache:
    """Put ``value`` into the dictionary ``name`` of the wrapper ``target``, unless something is there as ``key``."""

    target: Ref
    name: str
    key: Any
    value: Ref


@dataclasses.dataclass(frozen=True)
class ShareCache:
    """Give the wrapper ``target`` the dictionary ``name`` of ``other``, to which comes what only its own has."""

    target: Ref
    name: str
    other: Ref


@dataclasses.dataclass(frozen=True)
class SetGradMode:
    """Leave grad mode as the function leaves it."""

    enabled: bool


Step = (
    Hold
    | HoldAccumulator
    | ResizeStorage
    | WriteFlat
    | Write
    | NoteVersion
    | NoteNodes
    | OrderNodes
    | BumpVersion
    | StandIn
    | Bridge
    | Attach
    | TakeHistory
    | GiveHistory
    | TakeHistoryOfSet
    | RenewHistory
    | Restride
    | Reshape
    | PointAt
    | Detach
    | CheckCallerGraph
    | BackwardOnward
    | ReplayView
    | PickView
    | WindowOn
    | SetCreationMeta
    | RequireGrad
    | RequireGradOfInteger
    | MakeInference
    | CountWith
    | RetainGrad
    | RegisterHook
    | SetGradient
    | Poison
    | Swap
    | Wrap
    | RestrideWrapper
    | SetAttribute
    | PickHeld
    | TakeOffsets
    | FillCache
    | ShareCache
    | SetGradMode
)


def counts_write(step: Step) -> TypeGuard[BumpVersion | Write]:
    """Whether ``step`` counts a write, be it only the counting."""
    return isinstance(step, BumpVersion) or (isinstance(step, Write) and step.visibility is Visibility.VERSION)


def renumbered_ref(ref: Ref, place: Mapping[int, int]) -> Ref:
    """``ref``, with the graph output that it may be at its new place."""
    return Result(place[ref.index]) if isinstance(ref, Result) else ref


def renumbered(step: Step, place: Mapping[int, int]) -> Step:
    """The same of all that ``step`` names."""
    changes: dict[str, Any] = {
        f.name: Result(place[v.index])
        for f in dataclasses.fields(step)
        if isinstance(v := getattr(step, f.name), Result)
    }
    if isinstance(step, BackwardOnward):
        changes["gradients"] = tuple([renumbered_ref(x, place) for x in step.gradients])
    if isinstance(step, OrderNodes):
        changes["made"] = tuple([renumbered_ref(x, place) for x in step.made])
    if isinstance(step, Wrap):
        changes["inner"] = tuple([renumbered_ref(x, place) for x in step.inner])
    if isinstance(step, ReplayView):
        changes["others"] = tuple([renumbered_ref(x, place) for x in step.others])
    return dataclasses.replace(step, **changes) if changes else step
