"""Hypothesis strategies for tensor programs; builds on :mod:`aotcheck.program` alone."""

from dataclasses import replace

from hypothesis import strategies as st

from aotcheck.program import Program
from aotcheck.program.ops.registry import INSIDE, Group

from .profile import DTYPES, Family, Profile, Training, Usage, Writes
from .programs import programs
from .realistic import profile as _realistic
from .realistic import realistic
from .undrawn import undrawn

__all__ = [
    "FLOORS",
    "UNDRAWN",
    "Family",
    "Profile",
    "Training",
    "Usage",
    "Writes",
    "backwards",
    "functional_training",
    "inference",
    "local_writes",
    "mixed",
    "programs",
    "realistic",
    "settled",
    "storages",
]

_STORAGES = Profile(inside=0, wrappers=0)
_BACKWARDS = Profile(inside=80, wrappers=0, calls=100, trained_writes=30)
_MIXED = Profile(wrappers=100, inside=80, random=80, inexact=60, trained_writes=30)
_SETTLED = Profile(inside=0, wrappers=0, trained_later=0, alike=0)

_COMPUTATION = frozenset(Group) - {Group.FUNCTION, Group.SUBCLASS, Group.CONTAINER, *INSIDE}
_KERNELS = frozenset(
    {
        Group.POINTWISE,
        Group.COMPARE,
        Group.REDUCE,
        Group.MATMUL,
        Group.NN,
        Group.GATHER,
        Group.SORT,
        Group.JOIN,
        Group.CAST,
    }
)
_WRITES_OF_MEMORY = frozenset({Group.SET, Group.STORAGE})
_ARGUMENTS = frozenset(
    {
        Family.PLAIN,
        Family.NON_LEAF,
        Family.VIEWS,
        Family.ONE_STORAGE,
        Family.ODD_STRIDES,
        Family.TWICE,
        Family.EXPANDED,
        Family.COMPLEX_PAIR,
    }
)
_OF_VALUES = frozenset({"torch.bincount"})
"""Ops whose result has a size that depends on values."""
_ONE_CALL = Profile(
    refused=0,
    second_call=0,
    trained_later=0,
    inside=0,
    wrappers=0,
    blocks=0,
    other_modes=0,
    aliases=30,
    groups=_COMPUTATION,
    favoured=_KERNELS,
    inputs=_ARGUMENTS,
)
_INFERENCE = replace(
    _ONE_CALL,
    idioms=0,
    inexact=50,
    random=0,
    other_modes=40,
    writes=Writes.NOTHING,
    training=Training.NOTHING,
    dtypes=DTYPES - {"complex64", "complex128"},
    # `as_strided` reads memory that an engine is not given; lists of tensors are for optimizers.
    groups=_COMPUTATION - {Group.STRIDED_VIEW, Group.FOREACH},
    without_ops=_OF_VALUES | {"Tensor.data"},
)
_FUNCTIONAL_TRAINING = replace(
    _ONE_CALL,
    idioms=0,
    writes=Writes.NOTHING,
    training=Training.ONE_BACKWARD,
    # A graph of ATen ops cuts no history by `.data`, and draws a mask of dropout in another order if it has strides;
    # torch has no derivative for a `randint_like` that stays one op; `one_hot` looks at values.
    without_ops=_OF_VALUES | {"Tensor.data", "torch.randint_like", "torch.nn.functional.dropout", "one_hot"},
)
_LOCAL_WRITES = replace(
    _ONE_CALL,
    writes=Writes.LOCAL,
    training=Training.ONE_BACKWARD,
    groups=_COMPUTATION - _WRITES_OF_MEMORY,
    favoured=frozenset({Group.INPLACE, Group.FILL, Group.SCATTER, Group.METADATA, Group.FOREACH, Group.OUT}),
    without_ops=_OF_VALUES | {"Tensor.resize_"},
)
_LOCAL_WRITES_UNTRAINED = replace(_LOCAL_WRITES, training=Training.NOTHING)

UNDRAWN = {
    "programs": undrawn(Profile()),
    "storages": undrawn(_STORAGES),
    "backwards": undrawn(_BACKWARDS),
    "mixed": undrawn(_MIXED),
    "settled": undrawn(_SETTLED),
    "inference": undrawn(_INFERENCE),
    "functional_training": undrawn(_FUNCTIONAL_TRAINING),
    "realistic": undrawn(_realistic()),
    "local_writes": undrawn(_LOCAL_WRITES) & undrawn(_LOCAL_WRITES_UNTRAINED),
}
"""By strategy, the traits that it never draws: no campaign aims at them or counts them as missing."""

_FLOOR = {
    "MUTATES_INPUT": 0.30,
    "INPUTS_SHARE_STORAGE": 0.30,
    "RETURNS_ALIAS": 0.30,
    "SECOND_CALL_OTHER_KEY": 0.15,
    "EAGER_REFUSES": 0.10,
    "MANY_BACKWARDS": 0.50,
}
FLOORS = {"programs": _FLOOR, "mixed": _FLOOR}
"""By strategy, the least share of programs with each feature (:class:`aotcheck.program.Feature`): how hard it is to be.

Strategies that are not named want none.
"""


def storages(sizes: int = 0) -> st.SearchStrategy[Program]:
    """Every storage, every alias, every call: plain tensors, nothing of autograd or modules inside."""
    return programs(_STORAGES, sizes=sizes)


def backwards() -> st.SearchStrategy[Program]:
    """The whole backward, of plain tensors: mostly with autograd and modules inside, always with a plan around."""
    return programs(_BACKWARDS)


def mixed() -> st.SearchStrategy[Program]:
    """Wrapper subclasses in every program, mostly with random numbers, autocast and custom Functions."""
    return programs(_MIXED)


def settled() -> st.SearchStrategy[Program]:
    """The programs of a fixed stream that every test run repeats: without autograd, modules and wrappers inside.

    A test run must be silent; what campaigns draw beyond this still shows differences of our own (docs/limits.md).
    """
    return programs(_SETTLED)


def inference() -> st.SearchStrategy[Program]:
    """What an inference engine sees: one call of a function that writes nothing, on tensors that require no grad.

    Real numbers only, and none that are random.
    """
    return programs(_INFERENCE)


def functional_training() -> st.SearchStrategy[Program]:
    """One call of a function that writes nothing, and one backward of what it returned."""
    return programs(_FUNCTIONAL_TRAINING)


def local_writes() -> st.SearchStrategy[Program]:
    """One call of a function that writes tensors of its own, never an argument; in half of the programs a backward."""
    return st.one_of(programs(_LOCAL_WRITES), programs(_LOCAL_WRITES_UNTRAINED))
