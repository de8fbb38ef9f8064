"""What is written of a Function that attaches tensors to autograd: what it saves, keeps, watches and leads to."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from aotcheck.autograd.ir.trace import Geometry
from aotcheck.autograd.record.steps import Arg, Ref, Visibility

# Where the context of a Function keeps what it was called with besides results and what is saved.
CONTEXTS, HANDLES, WATCHED, HELD, LIVE, VIEWS = (f"ctx.kept[{k}]" for k in range(1, 7))
WATCHED_PLACE = 3


class Keeper(enum.Enum):
    """Where a backward finds something that counts versions."""

    SAVED = "among what is saved"
    WATCHED = "among what it checks itself"
    TANGENT = "among its tangents"
    RESULT = "among its results"


@dataclasses.dataclass(frozen=True)
class Counter:
    """What a backward has at ``index`` there."""

    keeper: Keeper
    index: int


@dataclasses.dataclass(frozen=True)
class Guard:
    """``watched`` must not be written before a backward from output ``place`` of the component.

    Eager has saved its memory. A call finds it by a ``Ref``, a backward whose results are attached by a ``Counter``.
    ``ragged``: what eager saved may be a ragged tensor, of which it says otherwise that it was written.
    """

    watched: Ref | Counter
    place: int
    ragged: bool = True


class HoldsArguments(Protocol):
    """The arguments of a call that a Function's contexts hold: see Note [Arguments held] and ``HeldArguments``."""

    @property
    def places(self) -> Mapping[Arg, tuple[int, frozenset[Any]]]:
        """Where among what is saved, and for which nodes."""

    @property
    def own(self) -> tuple[frozenset[Any], ...]:
        """Of these nodes those that gave the results."""

    @property
    def behind(self) -> tuple[frozenset[Any], ...]:
        """Of these nodes those behind the results."""

    @property
    def others(self) -> tuple[frozenset[Any], ...]:
        """The nodes of that kind that backwards come by, of each Function before."""


class FindsBackwards(Protocol):
    """What finds the backwards of a stage."""

    @property
    def asks_leaves(self) -> bool:
        """Whether the engine did not say of a leaf whether it comes there."""

    @property
    def find(self) -> Callable[..., Callable[..., Any]]:
        """See ``Backwards.backward_for``."""

    @property
    def arguments(self) -> HoldsArguments:
        """What its contexts hold."""

    def partly(self, ctx: Any, begins: Sequence[Any]) -> Any:
        """See ``Finder``."""


@dataclasses.dataclass(frozen=True)
class Function:
    """What attaches a stage's tensors: ``apply`` of an autograd Function, and what finds backwards for it.

    ``selective``: after its targets it takes ``backward.beyond``, by which it tells whether a backward leaves anything
    out.
    """

    apply: Callable[..., Any]
    finder: FindsBackwards
    selective: bool = False


@dataclasses.dataclass(frozen=True)
class Freed:
    """What the op itself that gave a result keeps in eager, which a backward that ends there looks at and frees.

    ``objection`` is what its backward raises because that was written inside already, ``saved`` and ``watched`` are
    where a Function has what must not have been written since, among what it saves and what it watches. ``behind`` are
    the Function's results whose backward comes by that op, if that are not all.
    """

    objection: str | None
    saved: tuple[int, ...] = ()
    watched: tuple[int, ...] = ()
    behind: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Shared:
    """The tensors of a Function whose backward frees what that of another one needs: see Note [Shared nodes].

    ``shown`` are those whose own backward needs it too, so that it raises once it is freed; of ``hidden`` it is freed
    by no backward of the other: see Note [Views that end].
    """

    shown: tuple[int, ...]
    hidden: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Nodes that a Function runs, and that in eager would run once for all gradients that a backward brings.

    See Note [Functions for all gradients]. ``nodes`` are numbers that the Function at ``context`` gives them, one of
    those before, or None: itself. They are run for gradients of the results ``places``.
    """

    context: int | None
    nodes: tuple[int, ...]
    places: tuple[int, ...]


class Told:
    """What Functions of one call tell each other: see Note [Zeros that arrive].

    It stands in their contexts after those of the stages before.
    """

    zeros: tuple[int, tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Window:
    """Memory that a backward reads as it is then, and writes: ``geometry`` on the storage of ``holder``.

    ``anchor`` is as for WindowOn. Eager saves the ``argument``, if one is given, and goes where it lies by then.
    """

    holder: Ref
    geometry: Geometry
    anchor: int | None
    argument: Arg | None = None


@dataclasses.dataclass(frozen=True)
class HowSaved:
    """How what the forward gives for the backwards becomes what is saved, by place among that.

    ``moved`` has its version counter moved by the epilogue. What is ``in_memory`` lies in an argument's memory once
    that is written, and is saved as a window on it (see Note [Saved memory]). ``by_views`` are arguments of which eager
    saves views alone. ``relaid`` are outputs whose layout is set right, and which.
    """

    moved: frozenset[int]
    in_memory: Mapping[int, Window]
    by_views: frozenset[int]
    relaid: Mapping[int, int]


@dataclasses.dataclass(frozen=True)
class BackwardWrite:
    """Overwrite ``target``, an expression in the backward, with its graph's result ``result``."""

    target: str
    result: int
    visibility: Visibility


@dataclasses.dataclass(frozen=True)
class BackwardReshape:
    """Change the geometry of the argument that the context holds at ``place``; it must be ``before``."""

    place: int
    before: Geometry
    after: Geometry


@dataclasses.dataclass(frozen=True)
class Bringing:
    """Bring the graph's result ``result`` to what the context has a handle of, that with this number.

    ``retained``: what lies behind that is not freed. See Note [Backwards that a backward calls].
    """

    handle: int
    result: int
    retained: bool


@dataclasses.dataclass(frozen=True)
class Attachment:
    """A Function that attaches results to autograd.

    It says which of the attached tensors those are, which saved values it keeps, and to which roots and leaves
    gradients go. ``held`` are arguments that gradients of wrappers hold too, ``own`` the outputs (counted among its
    own) that it keeps a place of, ``views`` those that it notes: see Note [Results of their own gradients]. For
    ``selective`` see Function. Whether the saved values ``unwatched`` were written since is nobody's business.
    Backwards ask of the targets ``cover``, by place, whether they come there. For ``entered`` see Note [Histories from
    before a call], for the saved values ``loose`` and for ``holders`` Note [Arguments held].
    """

    outputs: tuple[int, ...]
    saved: tuple[int, ...]
    targets: tuple[int, ...]
    guards: tuple[Guard, ...] = ()
    held: tuple[Arg, ...] = ()
    windows: tuple[Window, ...] = ()
    reshaped: tuple[Ref, ...] = ()
    own: tuple[int, ...] = ()
    selective: bool = False
    unwatched: frozenset[int] = frozenset()
    views: tuple[Ref, ...] = ()
    cover: tuple[int, ...] = ()
    entered: tuple[int, ...] = ()
    loose: frozenset[int] = frozenset()
    holders: tuple[Arg, ...] = ()

    def held_targets(self) -> tuple[int, ...]:
        """Those whose handles its context keeps."""
        return (*self.targets, *self.entered)


@dataclasses.dataclass(frozen=True)
class Application:
    """A Function that attaches results of a backward.

    Which results, what it saves (as source), its targets, whether it needs the contexts of the backwards it is for (see
    Note [Shared nodes]), the arguments that gradients of wrappers hold (as source), ``own``, ``guards`` and ``entered``
    as for Attachment, and of several results those that eager's nodes gave ``alone``. ``holders`` are places of what
    the context of the backward has saved and by which it holds arguments that this Function is to hold.
    """

    function: Function
    results: tuple[int, ...]
    saved: tuple[str, ...]
    targets: tuple[int, ...]
    contexts: bool
    held: tuple[str, ...] = ()
    own: tuple[int, ...] = ()
    guards: tuple[Guard, ...] = ()
    alone: tuple[int, ...] = ()
    entered: tuple[int, ...] = ()
    holders: tuple[int, ...] = ()


def kept_source(
    finder: str,
    contexts: str,
    handles: Sequence[str],
    watched: str,
    held: Sequence[str],
    live: Sequence[str],
    views: str = "()",
) -> str:
    """The source of the tuple that contexts keep."""
    lists = [", ".join((*items, "")) if items else "" for items in (handles, held, live)]
    return f"({finder}, {contexts}, ({lists[0]}), {watched}, ({lists[1]}), ({lists[2]}), {views})"
