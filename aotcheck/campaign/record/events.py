"""What happens in a campaign, as data.

The engine makes one stream of events. The live display, the writer of run.jsonl and the summary consume it, and the
engine does not know them (the design is schemathesis's).
"""

from dataclasses import dataclass, field
from enum import Enum

from aotcheck.backends import EVERYTHING, Expectations
from aotcheck.oracle import CoarseKey


class Ending(Enum):
    """Why a campaign ended."""

    DONE = "done"
    TIME = "time is up"
    INTERRUPTED = "interrupted"
    INFRASTRUCTURE = "infrastructure failed"


class Reproduced(Enum):
    """The result of judging a finding again, in another process."""

    SAME = "same"
    OTHER = "another difference"
    GONE = "flaky"
    DIED = "died"


@dataclass(frozen=True)
class RunStarted:
    """The first event of a run."""

    backend: str
    device: str
    seed: int
    examples: int | None
    seconds: float | None
    jobs: int
    block_size: int
    strategy: str
    versions: dict[str, str]
    time: str
    timeout: float = 60.0
    memory: int = 6 * 2**30
    floors: dict[str, float] = field(default_factory=dict)
    expectations: Expectations = EVERYTHING
    baselines: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunResumed:
    """An interrupted run goes on: ``programs`` of its programs are done already."""

    programs: int
    time: str


@dataclass(frozen=True)
class BlockGenerated:
    """A worker has drawn the programs of a block. ``traits`` are those of each, as the bits of a number in hexadecimal
    (``vocabulary/traits.py``). Those in ``repeated`` equal an earlier one of the block and are not run; programs
    with equal ``digests`` are equal."""

    block: int
    programs: int
    seconds: float
    traits: tuple[str, ...] = ()
    repeated: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgramChecked:
    """A program has been judged. ``hard`` and ``soft`` are coarse keys; ``path`` is its script, where it differs.

    ``fit`` says whether canary and global state were as before after the program; None if the process died.
    ``eager_refuses``: the function raises in eager, in a call that the backend ran too.
    """

    block: int
    index: int
    outcome: str
    seconds: float
    features: tuple[str, ...] = ()
    hard: tuple[CoarseKey, ...] = ()
    soft: tuple[CoarseKey, ...] = ()
    refusals: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    path: str = ""
    fit: bool | None = None
    eager_refuses: bool = False


@dataclass(frozen=True)
class FindingWritten:
    """A finding is on disk, as a script at ``path``."""

    block: int
    index: int
    key: CoarseKey
    text: str
    path: str


@dataclass(frozen=True)
class FindingShared:
    """A program differs on the backend as it does on ``baselines``: no finding (``running/baseline.py``). Its
    script is at ``path``."""

    block: int
    index: int
    key: CoarseKey
    text: str
    path: str
    baselines: tuple[str, ...]


@dataclass(frozen=True)
class FindingRechecked:
    """The oracles have judged a finding again, in another process, since its script does not show the difference."""

    path: str
    key: CoarseKey
    reproduced: Reproduced


class Shown(Enum):
    """What a finding's script showed when it ran by itself, as a user runs it."""

    YES = "shows it"
    OTHER = "shows another difference"
    NOTHING = "shows nothing"
    FAILED = "fails"


@dataclass(frozen=True)
class ScriptRun:
    """The first script of a coarse key has run by itself. ``exit_code`` None: it was stopped when its time was up."""

    path: str
    key: CoarseKey
    exit_code: int | None
    shown: Shown


@dataclass(frozen=True)
class FindingSigned:
    """A finding has been minimized and has its signature.

    Args:
        path: the finding's script.
        key: the coarse key of the minimized program; with ``skeleton`` and ``stage`` it is the signature.
        skeleton: the skeleton of the minimized program, or the reason why it could not be minimized.
        stage: the stage of our own AOT autograd, or the layer of torch's compilers, that is to blame; empty for a
            backend without stages.
        minimized: the minimized program's script, one for each signature.
        statements: how many statements it has.
        finished: whether it is minimal; False if time was up.
        known: the corpus file that has the bug; empty for a new one.
        seconds: how long minimizing took.
        cause: its cause (:func:`aotcheck.campaign.findings.signature.cause`).
        shown: the coarse key of the minimized program, if ``key`` is that of its root; None if they are the same.
        text: the difference that the minimized program shows, as text.
    """

    path: str
    key: CoarseKey
    skeleton: str
    stage: str
    minimized: str
    statements: int
    finished: bool
    known: str
    seconds: float
    cause: str = ""
    shown: CoarseKey | None = None
    text: str = ""


@dataclass(frozen=True)
class FindingExplained:
    """A finding that is not minimized is counted under an earlier signature, whose ops it has. ``shown_by`` is the
    file of the program with that signature."""

    path: str
    key: CoarseKey
    skeleton: str
    stage: str
    known: str = ""
    shown_by: str = ""


@dataclass(frozen=True)
class FindingFlaky:
    """A finding shows no difference in a fresh process; ``text`` says what it did there.

    If a program killed one worker and not the next, ``how`` says how that worker ended, and ``log`` is the file with
    the worker's output, if there is any. Such a finding is not minimized.
    """

    path: str
    key: CoarseKey
    text: str
    how: str = ""
    log: str = ""


@dataclass(frozen=True)
class WorkerDied:
    """A worker has died; another one runs the rest of its block. ``index`` is the program that was running, if any."""

    block: int
    index: int | None
    how: str


@dataclass(frozen=True)
class ProgramFailed:
    """The oracle itself failed on a program: a bug of ours. The script is at ``path``."""

    block: int
    index: int
    error: str
    path: str


@dataclass(frozen=True)
class BugReported:
    """The report of a signature has been written, or could not be written.

    Args:
        minimized: the minimized program of the signature.
        path: the report; empty if the program showed no difference.
        script: whether a script of plain torch shows the difference.
        reason: why there is no script, or no report.
    """

    minimized: str
    path: str
    script: bool
    reason: str = ""


@dataclass(frozen=True)
class BlockFailed:
    """A block cannot be run; neither a program nor a backend is to blame."""

    block: int
    error: str


@dataclass(frozen=True)
class PairsCounted:
    """How many programs of the run had each pair of traits; one event at the end.

    Args:
        traits: their names, ``facet:name``.
        exercised: by row ``i`` and column ``j < i``, how many programs had both traits.
        observed: of those, how many were judged to the end: neither refused by the backend nor unstable in eager.
        excluded: places of pairs that cannot meet, and why.
        pairs_exercised: how many pairs some program had.
        pairs_observed: how many were observed.
        pairs_possible: how many there are.
        triples_exercised: how many sets of three traits some program had.
        programs: how many programs were counted.
        triples_observed: how many sets of three were observed.
    """

    traits: tuple[str, ...]
    exercised: tuple[tuple[int, ...], ...]
    observed: tuple[tuple[int, ...], ...]
    excluded: tuple[tuple[int, int, str], ...]
    pairs_exercised: int
    pairs_observed: int
    pairs_possible: int
    triples_exercised: int
    programs: int
    triples_observed: int = 0


@dataclass(frozen=True)
class RunFinished:
    """The last event of a run."""

    ending: Ending
    seconds: float


Event = (
    RunStarted
    | RunResumed
    | BlockGenerated
    | ProgramChecked
    | FindingWritten
    | FindingShared
    | FindingRechecked
    | ScriptRun
    | FindingSigned
    | FindingExplained
    | FindingFlaky
    | BugReported
    | WorkerDied
    | ProgramFailed
    | BlockFailed
    | PairsCounted
    | RunFinished
)
