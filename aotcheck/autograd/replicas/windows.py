"""Windows on memory that ops give and that autograd, or the op's schema, does not call views."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.ir.trace import Geometry, geometry_of
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.tensors.memory import flat_view, flat_write
from aotcheck.autograd.tensors.subclasses import holds_ragged_size, ragged_size, with_ragged_size


class Derivation(NamedTuple):
    """How a tensor that shares memory with ``source`` was made: ``op`` gave it, as ``result`` so many if of several.

    ``geometry`` is where it lay, ``version`` its version, and the same of ``source``; ``base_version`` that of what
    ``source`` is a view of; ``grad`` the grad mode, ``inference`` whether inference mode was on, ``time`` the moment.
    """

    tensor: Tensor
    geometry: Geometry
    version: int
    source: Tensor
    source_version: int
    source_geometry: Geometry
    base_version: int
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: int | None
    grad: bool
    inference: bool
    time: int

    @property
    def intact(self) -> bool:
        """Whether neither was written since, so that the op repeated now gives the same history."""
        return _torch.version_of(self.source) == self.source_version and _torch.version_of(self.tensor) == 0

    @property
    def source_stays(self) -> bool:
        """Whether the source still lies where it lay."""
        return geometry_of(self.source) == self.source_geometry

    @property
    def current(self) -> bool:
        """Whether the memory was not written since, as far as versions tell: autograd keeps the history it has."""
        return _torch.version_of(self.tensor) == self.version

    def after_swap(self, a: Tensor, b: Tensor) -> Derivation:
        """The same derivation once the objects ``a`` and ``b`` have exchanged the tensors that they are."""
        other = {id(a): b, id(b): a}
        tensor, source = other.get(id(self.tensor), self.tensor), other.get(id(self.source), self.source)
        return self._replace(tensor=tensor, source=source)

    @property
    def replay(self) -> Replay:
        """The op again, on another source."""
        quick = self.op
        if type(self.source) is Replica:  # a wrapper's class may tell one way to call an op from another
            quick = _torch.quick_op(quick, (self.source, *self.args), self.kwargs, Replica)
        elif holds_ragged_size(self.args) or holds_ragged_size(self.kwargs):
            quick = functools.partial(_with_its_ragged_size, self.op)
        return Replay(self.op, self.args, self.kwargs, self.result, quick)

    def with_others(self, tensors: Iterable[Tensor], notes: Mapping[int, Derivation]) -> bool:
        """Whether of ``tensors``, of which ``notes`` say how they were made, another was made by the same call."""
        if self.result is None:
            return False
        made = [note for t in tensors if (note := notes.get(id(t))) is not None and note.time == self.time]
        return any(note.result != self.result for note in made)


def _with_its_ragged_size(op: Any, source: Tensor, *args: Any, **kwargs: Any) -> Any:
    """``op`` on ``source``, ragged sizes being its own: another tensor's, of which they tell, would not fit it."""
    size = ragged_size(source)
    return op(source, *with_ragged_size(args, size), **with_ragged_size(kwargs, size))


@dataclasses.dataclass(frozen=True)
class Replay:
    """Makes a window again on another source; ``quick`` calls ``op``."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: int | None
    quick: Any

    def __call__(self, source: Tensor) -> Tensor:
        """The window on ``source``."""
        out = self.all(source)
        made: Tensor = out if self.result is None else out[self.result]
        return made

    def all(self, source: Tensor) -> Any:
        """All that the op gives."""
        return self.quick(source, *self.args, **self.kwargs)


@dataclasses.dataclass(frozen=True)
class ReplayAmong:
    """Makes a window again, on another source and of what else it was made of; other tensors stand as they are.

    ``places`` are those of the others among the arguments after the source; keywords come after these.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    places: tuple[int, ...]

    @classmethod
    def of(cls, made: Derivation) -> tuple[ReplayAmong, list[Tensor]]:
        """The op again, and which tensors of the call it takes beside its source."""
        given = [*made.args, *made.kwargs.values()]
        places = [k for k, a in enumerate(given) if isinstance(a, Replica)]
        return cls(made.op, made.args, made.kwargs, tuple(places)), [given[k] for k in places]

    def __call__(self, source: Tensor, *others: Tensor) -> Tensor:
        """The window on ``source``."""
        given = [*self.args, *self.kwargs.values()]
        for k, other in zip(self.places, others, strict=True):
            given[k] = other
        n = len(self.args)
        made: Tensor = self.op(source, *given[:n], **dict(zip(self.kwargs, given[n:], strict=True)))
        return made


# ops that are done on a copy of what is conjugated or negated lazily, which is then copied back
COPYING = frozenset({torch.ops.aten.squeeze_.dim, torch.ops.aten.squeeze_.dims})


@dataclasses.dataclass(frozen=True)
class Reshaping:
    """A change of a tensor's geometry in place, under grad if ``grad``: what it was called with and what was before.

    ``time`` is the moment. Not ``counted``: it was below the class of a wrapper that holds the tensor.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    version: int
    geometry: Geometry
    grad: bool
    time: int
    counted: bool = True

    def repeat(self, t: Tensor) -> None:
        """The same change of another tensor."""
        _torch.grad_fn_of(t)  # lets autograd look for the history of a view; the op itself would miss it
        held = flat_view(t, torch.uint8).clone() if self.op in COPYING and (t.is_conj() or t.is_neg()) else None
        with torch.inference_mode(False), torch.enable_grad():
            self.op(t, *self.args, **self.kwargs)
        if held is not None:  # the memory is what it is by the end already
            flat_write(t, torch.uint8, held)

    def repeat_outside(self, t: Tensor) -> None:
        """The same change of another wrapper and its history; what it holds is left alone, its class is not asked."""
        _torch.grad_fn_of(t)
        with torch.enable_grad(), _torch.meta_kernels():
            self.op(t, *self.args, **self.kwargs)

    def repeat_unseen(self, t: Tensor) -> None:
        """The same change of another tensor, whose history does not show it."""
        version = _torch.version_of(t)
        with torch.no_grad():
            self.op(t, *self.args, **self.kwargs)
        if not self.counted and version >= 0:
            _torch.set_version(t, version)


@dataclasses.dataclass(frozen=True)
class ReplayReshaped:
    """Makes a window again on another source, and changes its geometry in place as it was changed."""

    replay: Replay
    changes: tuple[Reshaping, ...]

    def __call__(self, source: Tensor) -> Tensor:
        """The window on ``source``."""
        made = self.replay(source)
        for change in self.changes:
            change.repeat(made)
        return made


@dataclasses.dataclass(frozen=True)
class ReplayInTurn:
    """Makes a window again by way of those that it was made of, which nobody else needs."""

    replays: tuple[Replay, ...]

    def __call__(self, source: Tensor) -> Tensor:
        """The window on ``source``."""
        for replay in self.replays:
            source = replay(source)
        return source


def lasting(changes: Sequence[Reshaping], version: int) -> Sequence[Reshaping]:
    """The last of ``changes``, those that still make up the history of a view whose version is now ``version``.

    Autograd forgets a view's own history at each write to the memory and looks for one anew.
    """
    start = len(changes)
    while start and changes[start - 1].grad and changes[start - 1].version + 1 == version:
        start, version = start - 1, version - 1
    return changes[start:]


class OutOfBounds(RuntimeError):
    """A window would reach beyond ``storage``."""

    def __init__(self, message: str, storage: torch.UntypedStorage) -> None:
        super().__init__(message)
        self.storage = storage


def within_bounds(t: Tensor) -> bool:
    """Whether the storage of ``t`` holds all of it."""
    g = geometry_of(t)
    return 0 in g.shape or g.elements_reached * g.dtype.itemsize <= _torch.storage_of(t).nbytes()


def check_bounds(t: Tensor) -> None:
    """Real tensors may not reach beyond their storage; meta ones may."""
    if not within_bounds(t):
        raise out_of_bounds(geometry_of(t), _torch.storage_of(t))


def out_of_bounds(g: Geometry, storage: torch.UntypedStorage, named: bool = True) -> OutOfBounds:
    """What eager raises where a tensor is to lie as ``g`` on ``storage``, which does not hold it.

    Not ``named``: the op was not told these strides.
    """
    strides = list(g.stride) if named else []
    return OutOfBounds(
        f"setStorage: sizes {list(g.shape)}, strides {strides}, storage offset {g.offset}, and itemsize "
        f"{g.dtype.itemsize} requiring a storage size of {g.elements_reached * g.dtype.itemsize} are out of bounds for "
        f"storage of size {storage.nbytes()}",
        storage,
    )


def shares_storage(out: Any, source: Tensor) -> bool:
    """Whether an op gave a window on its argument although its schema does not say so."""
    first = (
        out
        if isinstance(out, Tensor)
        else next((o for o in out if isinstance(o, Tensor)), None)
        if isinstance(out, (list, tuple))
        else None
    )
    return first is not None and _torch.storage_address(_torch.storage_of(first)) == _torch.storage_address(
        _torch.storage_of(source)
    )


# These give a copy of the whole storage of their first argument, and in it a window like that argument, overwritten.
COPIES_STORAGE = frozenset(
    {
        torch.ops.aten.slice_scatter.default,
        torch.ops.aten.select_scatter.default,
        torch.ops.aten.diagonal_scatter.default,
        torch.ops.aten.as_strided_scatter.default,
    }
)


# These hide from autograd that their results are views, and do not where autograd is not there.
UNSAFE_VIEWS = frozenset({torch.ops.aten.unsafe_split.Tensor, torch.ops.aten.unsafe_split_with_sizes.default})


def copies_more_than_itself(source: Tensor) -> bool:
    """Whether such an op shows more of the storage of ``source`` than ``source`` does."""
    g = geometry_of(source)
    expanded = any(n > 1 and s == 0 for n, s in zip(g.shape, g.stride, strict=True))
    return not expanded and g.numel * g.dtype.itemsize != _torch.storage_of(source).nbytes()
