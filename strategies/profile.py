"""A profile: the sizes and shares of a stream of programs, and which features are drawn at all."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from aotcheck.program.ops.registry import Group

from .names import one_of, paths_named

__all__ = ["DTYPES", "Family", "Profile", "Training", "Usage", "Writes"]

DTYPES = frozenset(
    {"float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "uint8", "bool"}
)
"""The dtypes that programs are drawn of."""


class Writes(Enum):
    """What a function may write: data, metadata and storages of tensors, and what containers hold."""

    NOTHING = auto()
    LOCAL = auto()  # tensors that the function made, never an argument or a view of one
    ANYTHING = auto()


class Training(Enum):
    """What is trained."""

    NOTHING = auto()  # nothing requires grad
    ONE_BACKWARD = auto()  # one backward of what the call returned, and nothing else that a caller could do
    ANYTHING = auto()


class Family(StrEnum):
    """A kind of arguments, related to each other or not; what each is: :mod:`strategies.inputs`."""

    PLAIN = auto()
    NON_LEAF = auto()
    VIEWS = auto()
    VIEW_THAT_REQUIRES_GRAD = auto()
    ONE_STORAGE = auto()
    ODD_STRIDES = auto()
    TWICE = auto()
    DETACHED = auto()
    DTYPES = auto()
    COMPLEX_PAIR = auto()
    EXPANDED = auto()
    LEAF_AND_VIEW = auto()
    FLAT = auto()
    FREED = auto()
    INFERENCE = auto()
    FROM_FUNCTION = auto()
    WRAPPER = auto()


Shares = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Usage:
    """How often what occurs in programs that people write: names and shares, the most frequent first.

    Attributes:
        ops: by path; a path that the grammar lacks is not drawn.
        dtypes: of arguments.
        layouts: of arguments.
        ranks: how many dimensions tensors have.
        idioms: what :class:`strategies.practice.Practice` does, each in so many of 10,000 programs.
    """

    ops: Shares
    dtypes: Shares
    layouts: Shares
    ranks: Shares
    idioms: Shares


@dataclass(frozen=True)
class Profile:
    """How programs are drawn; percentages of programs.

    Attributes:
        statements: most statements in a body, before the ones that index tensors need.
        idioms: how many of the statements are the first of several that belong together.
        refused: how many are to hold a statement that eager refuses.
        inexact: how many may use ops that round.
        random: how many may draw random numbers.
        second_call: how many make a second call.
        third_call: of those, how many make a third.
        calls: of differentiable calls, how many have a plan of several backwards or of higher derivatives.
        alike: of those, how many have arguments of the first call's geometry.
        inside: how many may tell autograd something while they run (gradients, hooks, checkpoints, autocast) and call
            modules.
        wrappers: how many may hold tensors of wrapper subclasses.
        written_inputs: of backwards with respect to inputs that the call has written, how many stay so.
        trained_later: of further calls of programs whose first call trains nothing, how many train something.
        trained_writes: of a caller's writes to results and arguments, how many are with what has a gradient of its own.
        interleaved: of further calls, how many come before backwards of the call before.
        transforms: of programs that may hold what ``inside`` says, of how many a call is to be under a transform of
            ``torch.func``.
        blocks: of statements, how many open a ``with`` block; 0: there is no block in any program.
        other_modes: how many calls are made under ``no_grad`` or in inference mode.
        aliases: how many may return an argument or a view of one.
        writes: what the function may write.
        training: what is trained.
        ops: the ops that a body is drawn of, by path (``torch.add``) or by name (``add``, all that are called so);
            None for every op. Constants that such an op needs (index tensors, masks, weights of ones) are made by
            ``torch.tensor``, ``torch.ge`` and ``torch.ones`` all the same, unless ``without_ops`` names those. Without
            ``getitem`` no argument is a list, a tuple or a dict.
        without_ops: ops that are left out, named in the same way.
        groups: the groups of ops (``aotcheck.program.ops.registry.Group``) that a body is drawn of. Without CONTAINER
            no list or dict of the caller's is written, nor returned as it is.
        favoured: those of them that are drawn three times as often as they would be.
        inputs: the families of arguments.
        dtypes: the dtypes of arguments and of all that a body makes of them.
        usage: how often what is drawn, in place of all shares above but ``statements``; None for those.

    Raises:
        UnknownOpError: no op is called so; the message has those with a similar name.
        ValueError: a group, a family or a dtype is unknown.
    """

    statements: int = 9
    idioms: int = 12
    refused: int = 12
    inexact: int = 30
    random: int = 30
    second_call: int = 34
    third_call: int = 15
    calls: int = 94
    trained_later: int = 60
    interleaved: int = 30
    alike: int = 50
    inside: int = 40
    wrappers: int = 70
    written_inputs: int = 50
    trained_writes: int = 0
    transforms: int = 12
    blocks: int = 5
    other_modes: int = 7
    aliases: int = 100
    writes: Writes = Writes.ANYTHING
    training: Training = Training.ANYTHING
    ops: AbstractSet[str] | None = None
    without_ops: AbstractSet[str] = frozenset()
    groups: AbstractSet[Group] = frozenset(Group)
    favoured: AbstractSet[Group] = frozenset()
    inputs: AbstractSet[Family] = frozenset(Family)
    dtypes: AbstractSet[str] = DTYPES
    usage: Usage | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in (*(self.ops or ()), *self.without_ops):
            paths_named(name)
        kept = {
            "ops": None if self.ops is None else frozenset(self.ops),
            "without_ops": frozenset(self.without_ops),
            "groups": frozenset(one_of(group, tuple(Group), "group of ops") for group in self.groups),
            "favoured": frozenset(one_of(group, tuple(Group), "group of ops") for group in self.favoured),
            "inputs": frozenset(one_of(family, tuple(Family), "family of inputs") for family in self.inputs),
            "dtypes": frozenset(one_of(d, tuple(DTYPES), "dtype") for d in self.dtypes),
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)  # frozen, so that a profile can be hashed whatever sets it was given
