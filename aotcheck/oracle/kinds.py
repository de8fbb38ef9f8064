"""The vocabulary of differences: which oracle saw what, where, and how bad it is."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """Whether a difference is a finding."""

    HARD = "hard"
    SOFT = "soft"


class OracleKind(Enum):
    """The facts that are compared. A coarse key has the first in this order that differs: causes first."""

    EXCEPTION = "exception"
    POISONING = "poisoning"
    GLOBAL_STATE = "global-state"
    STRUCTURE = "structure"
    CONSTANT = "constant"
    TYPE = "type"
    METADATA = "metadata"
    DTYPE = "dtype"
    DEVICE = "device"
    SHAPE = "shape"
    GRADIENT_NONE = "gradient-none"
    HOOK = "hook"
    EFFECTS = "effects"
    IDENTITY = "identity"
    ALIASING = "aliasing"
    STORAGE_OFFSET = "storage-offset"
    STORAGE_SIZE = "storage-size"
    STRIDE = "stride"
    REQUIRES_GRAD = "requires-grad"
    LEAFNESS = "leafness"
    GRAD_FN = "grad-fn"
    CONJ = "conj"
    NEG = "neg"
    INFERENCE = "inference"
    VALUES = "values"
    RNG = "rng"
    # Soft only: they differ in many correct programs.
    PERMISSIVE = "permissive"
    SIZE_ONE_STRIDE = "size-one-stride"
    GRADIENT_STRIDE = "gradient-stride"
    SIGNED_ZERO = "signed-zero"
    VERSION = "version"
    IS_VIEW = "is-view"
    # Made by the supervisor, for what no oracle can see from inside the process.
    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY = "memory"


class Phase(Enum):
    """The kind of step after which something was observed."""

    FORWARD = "forward"
    BACKWARD = "backward"
    GRAD = "grad"
    DOUBLE_BACKWARD = "double backward"
    DOUBLE_GRAD = "double grad"
    PROBE = "probe"
    HOOK = "hook"

    @property
    def differentiates(self) -> bool:
        """True for every kind of backward."""
        return self not in (Phase.FORWARD, Phase.PROBE, Phase.HOOK)


class Role(Enum):
    """The kind of thing that was compared."""

    CALL = "call"
    INPUT = "input"
    OUTPUT = "output"
    GRADIENT = "gradient"
    RESULT = "result"
    HOOK = "hook"
    PROCESS = "process"


@dataclass(frozen=True)
class Place:
    """Where a difference was seen.

    Args:
        role: the kind of thing that was compared.
        name: the thing itself, ``x`` or ``output[1]``; empty for the call and the process.
        call: the number of the call, from 0.
        phase: the kind of step in that call.
        nth: the number of the step among those of its kind in the call, from 1.
        steps: how many steps of the call had run by then.
        relation: for oracles that compare pairs of tensors, the roles of both in both runs.
        failed: the step raised in both runs; the states after the error were compared.
    """

    role: Role
    name: str = ""
    call: int = 0
    phase: Phase = Phase.FORWARD
    relation: str = ""
    failed: bool = False
    nth: int = 1
    steps: int = 0

    @property
    def klass(self) -> str:
        """The place without its index, as a coarse key has it."""
        thing = self.relation or self.role.value
        when = "" if self.phase is Phase.FORWARD else f" after {self.phase.value}"
        if self.role is Role.CALL:
            thing, when = self.phase.value, ""
        return f"{thing}{when}{', both raise' if self.failed else ''}{', later call' if self.call else ''}"

    def __str__(self) -> str:
        step = f"{self.phase.value}{f' {self.nth}' if self.nth > 1 else ''}"
        return f"{self.name or self.role.value} after {step} of call {self.call + 1}"


class Deviation(Enum):
    """How the values of a difference deviate from eager's; different kinds have different causes."""

    PLAIN = ""
    """Any other deviation."""
    ROUNDING = "rounding"
    """Each element is within a small part of eager's."""
    NOT_FINITE = "infinite or NaN"
    """Each element that differs is infinite or NaN on one side at least."""
    NARROWED = "narrowed"
    """Integers that do not fit a narrower dtype are wrapped around or cut off."""


@dataclass(frozen=True)
class CoarseKey:
    """The key that two findings share if they probably have one cause.

    It is coarse enough to group findings, but not so coarse that one bug hides another, as in crash bucketing (Glerum
    et al., *Debugging in the (very) large*, SOSP 2009).
    """

    oracle: str
    place: str
    error: str = ""
    deviation: str = ""

    def __str__(self) -> str:
        return f"({', '.join(filter(None, (self.oracle, self.place, self.error, self.deviation)))})"


@dataclass(frozen=True)
class Difference:
    """One difference between eager and the compiled path.

    Args:
        oracle: which oracle saw it.
        severity: hard differences are findings, soft ones are reported apart.
        place: where it was seen.
        eager: eager's fact, as text.
        compiled: the compiled path's fact, as text.
        error: for exceptions, the type and the first sentence of the message, normalized; part of the key.
        deviation: for values, how they deviate from eager's; part of the key.
    """

    oracle: OracleKind
    severity: Severity
    place: Place
    eager: str
    compiled: str
    error: str = ""
    deviation: Deviation = Deviation.PLAIN

    @property
    def key(self) -> CoarseKey:
        """Oracle, class of place, error and class of deviation."""
        return CoarseKey(self.oracle.value, self.place.klass, self.error, self.deviation.value)

    @property
    def text(self) -> str:
        """One line for people."""
        return f"{self.oracle.value} of {self.place}: eager {self.eager}, compiled {self.compiled}"
