"""The effect of a difference on a user's program, the gravest first."""

from enum import IntEnum

from aotcheck.campaign.findings.titles import Seen
from aotcheck.oracle import CoarseKey, OracleKind, Role

__all__ = ["Impact", "impact_of"]


class Impact(IntEnum):
    """The effect of a difference on a program, the gravest first."""

    WRONG = 0
    """Outputs or gradients are silently wrong."""
    CRASH = 1
    """The process dies, hangs, takes all memory, or cannot run other programs afterwards."""
    LOST = 2
    """After the step an input, a generator, global state or a hook is not as in eager."""
    RAISES = 3
    """An error is raised where eager raises none or another one."""
    PERMITS = 4
    """No error is raised where eager raises one."""
    SHARING = 5
    """Tensors share memory, or are one object, and do not in eager, or the other way round: later writes go wrong."""
    METADATA = 6
    """Any other observable fact of a tensor."""

    @property
    def words(self) -> str:
        """The name in reports."""
        return _WORDS[self]


_WORDS = {
    Impact.WRONG: "silently wrong",
    Impact.CRASH: "crash or hang",
    Impact.LOST: "lost mutation",
    Impact.RAISES: "raises",
    Impact.PERMITS: "does not raise",
    Impact.SHARING: "aliasing",
    Impact.METADATA: "metadata",
}

_DEADLY = {OracleKind.CRASH, OracleKind.TIMEOUT, OracleKind.MEMORY, OracleKind.POISONING}
_EFFECTS = {OracleKind.EFFECTS, OracleKind.GLOBAL_STATE, OracleKind.RNG, OracleKind.STORAGE_SIZE}
_RESULTS = {
    OracleKind.VALUES,
    OracleKind.GRADIENT_NONE,
    OracleKind.STRUCTURE,
    OracleKind.CONSTANT,
    OracleKind.SHAPE,
    OracleKind.DTYPE,
}
_GEOMETRY = {OracleKind.STRIDE, OracleKind.STORAGE_OFFSET}


def impact_of(key: CoarseKey) -> Impact:
    """The impact of a difference under ``key``."""
    kind, seen = OracleKind(key.oracle), Seen.of(key)
    # Where both raise there is no output: what differs is a container among the arguments.
    of_input = seen.thing == Role.INPUT.value or (seen.both_raise and seen.thing == Role.OUTPUT.value)
    if kind in _DEADLY:
        return Impact.CRASH
    if kind is OracleKind.EXCEPTION:
        return Impact.PERMITS if key.error.startswith("missing ") else Impact.RAISES
    if kind in _RESULTS:
        return Impact.LOST if of_input else Impact.WRONG
    if kind in _EFFECTS or kind is OracleKind.HOOK or (kind in _GEOMETRY and of_input):
        return Impact.LOST
    return Impact.SHARING if kind in (OracleKind.IDENTITY, OracleKind.ALIASING) else Impact.METADATA
