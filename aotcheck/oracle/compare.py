"""The oracles: each is a small function that takes two observations and yields their differences."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from aotcheck.backends import Backend, Promise
from aotcheck.oracle.execute import Observation, identity, role_of
from aotcheck.oracle.kinds import Difference, OracleKind, Phase, Place, Role, Severity
from aotcheck.oracle.leniency import is_soft, soft_kinds
from aotcheck.oracle.raised import Raised
from aotcheck.oracle.snapshot import GradientFacts, TensorFacts
from aotcheck.oracle.values import FUZZED, Agreement, Tolerance, compare_values, same_bits
from aotcheck.program.running import harness

HARD, SOFT = Severity.HARD, Severity.SOFT

FREED_TWICE = "backward through the graph a second time"
ADDS_TO_NOTHING = "ZeroTensors are immutable"
SAVED_WRITTEN = ("modified by an inplace operation", "another view of its base has been modified inplace")
"""What eager says where a tensor that it saved was written, or what that is a view of."""
STRICT = Backend("any", identity)
"""A backend that promises everything."""


@dataclass(frozen=True)
class Pair:
    """One step of a program, observed in eager and on the compiled path.

    Args:
        eager: eager's observation, the specification.
        compiled: the observation to judge.
        fills: eager's with undefined memory filled in several ways; none if the program leaves no memory undefined.
        reference: eager's of the program widened to float64; None for exact programs.
        exact: whether values must be equal.
        backend: the compiled path's backend, which says what it does not promise.
        kept: eager's where autograd keeps copies of what it saves, so that no later write is an error; None if nobody
            asked, or if that run did not make this step.
        tolerance: how far values may differ in programs that are not exact.
    """

    eager: Observation
    compiled: Observation
    fills: tuple[Observation, ...] = ()
    reference: Observation | None = None
    exact: bool = True
    backend: Backend = STRICT
    kept: Observation | None = None
    tolerance: Tolerance = FUZZED

    def place(self, role: Role, name: str = "", relation: str = "") -> Place:
        """The place ``name`` in this step."""
        failed = self.eager.raised is not None and self.compiled.raised is not None and role is not Role.CALL
        eager = self.eager
        return Place(role, name, eager.call, eager.phase, relation, failed, eager.nth, eager.steps)


Oracle = Callable[[Pair], Iterator[Difference]]


def exceptions(pair: Pair) -> Iterator[Difference]:
    """Either both raise the same type or neither raises.

    If a probe raises in eager and not on the compiled path, the difference is soft: the path is more permissive. So it
    is for a backward after one for some inputs: what eager has freed by then is no promise. So it is
    where eager finds that the caller wrote a tensor it saved, if the path shows what eager shows that saves copies:
    then it does not need what was written. So it is where torch fails to add to a gradient that it keeps as a zero
    without memory, as of ``sgn``: the first backward left it in ``.grad``, the second cannot write it.
    """
    eager, compiled = pair.eager.raised, pair.compiled.raised
    if (eager and eager.type) == (compiled and compiled.type):
        return
    place = pair.place(Role.CALL)
    described = str(eager or "raises nothing"), str(compiled or "raises nothing")
    if compiled is None:
        assert eager is not None
        if pair.eager.phase is Phase.PROBE:
            yield Difference(OracleKind.PERMISSIVE, SOFT, place, *described, f"eager {eager.type}")
        else:
            unneeded = pair.kept is not None and finds_a_write(eager) and _agrees(pair, pair.kept)
            after_a_part = pair.eager.partly and FREED_TWICE in eager.message
            severity = SOFT if unneeded or after_a_part or ADDS_TO_NOTHING in eager.message else HARD
            yield Difference(OracleKind.EXCEPTION, severity, place, *described, f"missing {eager.key}")
    else:
        yield Difference(OracleKind.EXCEPTION, HARD, place, *described, compiled.key)


def finds_a_write(raised: Raised) -> bool:
    """Whether a backward raised this as what it needs was written."""
    return any(said in raised.message for said in SAVED_WRITTEN)


def _agrees(pair: Pair, eager: Observation) -> bool:
    """Whether the compiled path's step is right by another observation of eager's."""
    alone = replace(pair, eager=eager, kept=None, reference=None)
    return all(difference.severity is SOFT for difference in compare(alone))


def global_states(pair: Pair) -> Iterator[Difference]:
    """The step leaves modes and switches as eager does."""
    eager, compiled = set(pair.eager.changes), set(pair.compiled.changes)
    if eager != compiled:
        names = ", ".join(sorted(change.split(":")[0] for change in eager ^ compiled))
        before, after = ("; ".join(sorted(c)) or "changes nothing" for c in (eager, compiled))
        yield Difference(OracleKind.GLOBAL_STATE, HARD, pair.place(Role.PROCESS), before, after, names)


def structures(pair: Pair) -> Iterator[Difference]:
    """The result has the same pytree, containers are those of the arguments where eager's are, arguments that are
    containers hold the same, and the leaves that are no tensors are the same."""
    place = pair.place(Role.OUTPUT)
    eager, compiled = pair.eager.structure, pair.compiled.structure
    if eager != compiled:
        only_containers = harness.contents(eager) == harness.contents(compiled)
        severity = SOFT if only_containers and Promise.CONTAINERS not in pair.backend.promises else HARD
        yield Difference(OracleKind.STRUCTURE, severity, place, eager, compiled)
    if len(pair.eager.constants) != len(pair.compiled.constants):
        return
    for (name, expected), (_, actual) in zip(pair.eager.constants, pair.compiled.constants, strict=True):
        if expected != actual:
            yield Difference(OracleKind.CONSTANT, HARD, pair.place(Role.OUTPUT, name), expected, actual)


def _tensor_pairs(pair: Pair) -> Iterator[tuple[TensorFacts, TensorFacts]]:
    eager, compiled = pair.eager.snapshot.tensors, pair.compiled.snapshot.tensors
    if len(eager) == len(compiled):
        yield from zip(eager, compiled, strict=True)
    elif pair.eager.structure == pair.compiled.structure:  # a wrapper that is none, or that holds something else
        found = {t.name: t for t in compiled}
        yield from ((t, found[t.name]) for t in eager if t.name in found)


@dataclass(frozen=True)
class Fact:
    """An oracle that compares one fact of each tensor."""

    kind: OracleKind
    get: Callable[[TensorFacts], object]
    severity: Severity = HARD
    roles: frozenset[Role] = frozenset({Role.INPUT, Role.OUTPUT})

    def __call__(self, pair: Pair) -> Iterator[Difference]:
        """The tensors on which the two runs differ."""
        for eager, compiled in _tensor_pairs(pair):
            if eager.role in self.roles:
                expected, actual = self.get(eager), self.get(compiled)
                if expected != actual and expected != "asserted":
                    place = pair.place(eager.role, eager.name)
                    yield Difference(self.kind, self.severity, place, str(expected), str(actual))


FACTS = (
    Fact(OracleKind.TYPE, lambda t: t.type),
    Fact(OracleKind.METADATA, lambda t: t.metadata),
    Fact(OracleKind.DTYPE, lambda t: t.dtype),
    Fact(OracleKind.DEVICE, lambda t: t.device),
    Fact(OracleKind.SHAPE, lambda t: t.shape),
    Fact(OracleKind.STORAGE_OFFSET, lambda t: t.offset),
    Fact(OracleKind.STORAGE_SIZE, lambda t: t.nbytes, roles=frozenset({Role.INPUT})),
    Fact(OracleKind.STORAGE_SIZE, lambda t: t.nbytes, SOFT, roles=frozenset({Role.OUTPUT})),
    Fact(OracleKind.STRIDE, lambda t: t.addressing),
    Fact(OracleKind.REQUIRES_GRAD, lambda t: t.requires_grad),
    Fact(OracleKind.LEAFNESS, lambda t: t.is_leaf),
    Fact(OracleKind.GRAD_FN, lambda t: t.grad_fn),
    Fact(OracleKind.CONJ, lambda t: t.conj),
    Fact(OracleKind.NEG, lambda t: t.neg),
    Fact(OracleKind.INFERENCE, lambda t: t.inference),
    Fact(OracleKind.SIZE_ONE_STRIDE, lambda t: t.stride if t.addressing else (t.stride, t.shape), SOFT),
    Fact(OracleKind.VERSION, lambda t: t.version, SOFT),
    Fact(OracleKind.IS_VIEW, lambda t: t.is_view, SOFT),
)


def _relation(here: str, eager: str, compiled: str) -> str:
    """Who shares with whom in each run, by class: ``output-input vs none``."""

    def one(other: str) -> str:
        return "none" if other == here else f"{role_of(here).value}-{role_of(other).value}"

    expected, actual = one(eager), one(compiled)
    return f"{expected} vs {'another ' if expected == actual else ''}{actual}"


@dataclass(frozen=True)
class Sharing:
    """An oracle that compares which tensors are the same object, or share a storage."""

    kind: OracleKind
    get: Callable[[TensorFacts], str]
    what: str

    def __call__(self, pair: Pair) -> Iterator[Difference]:
        """The tensors on which the two runs differ."""
        for eager, compiled in _tensor_pairs(pair):
            both = expected, actual = self.get(eager), self.get(compiled)
            if expected != actual:
                place = pair.place(eager.role, eager.name, _relation(eager.name, expected, actual))
                text = (f"{self.what} {'nothing before it' if other == eager.name else other}" for other in both)
                yield Difference(self.kind, HARD, place, next(text), next(text))


IDENTITY = Sharing(OracleKind.IDENTITY, lambda t: t.identity, "is the same object as")
ALIASING = Sharing(OracleKind.ALIASING, lambda t: t.storage, "shares storage with")


def gradient_presence(pair: Pair) -> Iterator[Difference]:
    """A gradient exists iff eager has one (None is not zero), with its type, dtype and shape; it has a history iff
    eager's has."""
    for eager, compiled in _gradient_pairs(pair):
        place = pair.place(eager.role, eager.name)
        if (eager.value is None) != (compiled.value is None):
            one, other = ("None" if g.value is None else f"{g.dtype} of shape {g.shape}" for g in (eager, compiled))
            yield Difference(OracleKind.GRADIENT_NONE, HARD, place, one, other)
            continue
        for kind, get in _GRADIENT_FACTS:
            if get(eager) != get(compiled):
                severity = SOFT if kind is OracleKind.GRADIENT_STRIDE else HARD
                yield Difference(kind, severity, place, str(get(eager)), str(get(compiled)))


_GRADIENT_FACTS: Sequence[tuple[OracleKind, Callable[[GradientFacts], object]]] = (
    (OracleKind.TYPE, lambda g: g.type),
    (OracleKind.METADATA, lambda g: g.metadata),
    (OracleKind.DTYPE, lambda g: g.dtype),
    (OracleKind.SHAPE, lambda g: g.shape),
    (OracleKind.REQUIRES_GRAD, lambda g: g.requires_grad),
    (OracleKind.GRADIENT_STRIDE, lambda g: g.stride),
)


def hooks(pair: Pair) -> Iterator[Difference]:
    """Each hook is called as often as eager calls it; with None, for no gradient, it may be called less often.

    Torch calls the hooks of all results of an op whose backward runs, which pytorch issue 11751 calls a bug.
    """
    compiled = dict(pair.compiled.firings)
    for (name, count), given in zip(pair.eager.firings, pair.eager.given, strict=True):
        if not given <= compiled.get(name, count) <= count:
            place = pair.place(Role.HOOK, name)
            yield Difference(OracleKind.HOOK, HARD, place, f"called {count} times", f"{compiled[name]} times")


def effects(pair: Pair) -> Iterator[Difference]:
    """The lines that eager prints are printed, in the same order."""
    eager, compiled = pair.eager.printed, pair.compiled.printed
    if pair.eager.phase.differentiates and pair.eager.raised:
        return  # how far a backward came before it raised is an order that nobody promises
    if eager != compiled:
        one, other = (f"prints {'; '.join(map(repr, lines)) or 'nothing'}" for lines in (eager, compiled))
        yield Difference(OracleKind.EFFECTS, HARD, pair.place(Role.PROCESS), one, other)


def _gradient_pairs(pair: Pair) -> Iterator[tuple[GradientFacts, GradientFacts]]:
    if pair.eager.phase.differentiates and pair.eager.raised:
        return  # how far a backward came before it raised is an order that nobody promises
    compiled = {gradient.name: gradient for gradient in pair.compiled.snapshot.gradients}
    for eager in pair.eager.snapshot.gradients:
        if eager.name in compiled:  # else leafness or requires_grad differs, which has its own oracle
            yield eager, compiled[eager.name]


def _values_by_place(observation: Observation) -> dict[tuple[Role, str], torch.Tensor | None]:
    found: dict[tuple[Role, str], torch.Tensor | None] = {}
    for name, contents in observation.snapshot.storages:
        found[Role.INPUT, name] = contents
    for facts in observation.snapshot.tensors:
        if facts.role is Role.OUTPUT:
            found[facts.role, facts.name] = facts.value
    if observation.phase.differentiates and observation.raised:
        return found
    for gradient in observation.snapshot.gradients:
        found[gradient.role, gradient.name] = gradient.value
    return found


def _form(value: torch.Tensor) -> object:
    return value.shape, value.dtype, value.device


def _defined(eager: torch.Tensor, fills: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """Per element whether undefined memory, however it was filled, changes nothing; None for everywhere."""
    found = None
    for fill in fills:
        if fill is None or _form(fill) != _form(eager):
            return None
        same = same_bits(eager, fill)
        found = same if found is None else found & same
    return found


def _with_parts_defined(
    eager: torch.Tensor, compiled: torch.Tensor, defined: torch.Tensor | None
) -> torch.Tensor | None:
    """What is defined of a sum of complex gradients, or of its real part: not which parts are infinite or NaN of an
    element that is, in both runs.

    That says in which order torch summed, which is soft: ``a + b`` multiplies ``b`` by one, and the parts of an
    infinite ``b`` become NaN.
    """
    finite = eager.isfinite() | compiled.isfinite()
    return finite if defined is None else defined & finite


def values(pair: Pair) -> Iterator[Difference]:
    """Outputs, the whole contents of inputs' storages, and gradients: eager's values, where eager's are defined."""
    compiled_values = _values_by_place(pair.compiled)
    fills = [_values_by_place(fill) for fill in pair.fills]
    references = _values_by_place(pair.reference) if pair.reference else {}
    sums_parts = any(t.dtype.is_complex for t in pair.eager.snapshot.tensors)
    for (role, name), eager in _values_by_place(pair.eager).items():
        compiled = compiled_values.get((role, name))
        if eager is None or compiled is None or _form(eager) != _form(compiled):
            continue  # each of these has its own oracle
        is_gradient = role in (Role.GRADIENT, Role.RESULT)
        defined = _defined(eager, [fill.get((role, name)) for fill in fills])
        if is_gradient and sums_parts:
            defined = _with_parts_defined(eager, compiled, defined)
        found = compare_values(
            eager,
            compiled,
            defined=defined,
            reference=references.get((role, name)),
            exact=pair.exact,
            rtol=pair.backend.rtol,
            tolerance=pair.tolerance if is_gradient else replace(pair.tolerance, part=0.0),
        )
        if found.agreement is not Agreement.EQUAL:
            different = found.agreement is Agreement.DIFFERENT
            kind, severity = (OracleKind.VALUES, HARD) if different else (OracleKind.SIGNED_ZERO, SOFT)
            place = pair.place(role, name)
            yield Difference(kind, severity, place, found.eager, found.compiled, deviation=found.deviation)


def generators(pair: Pair) -> Iterator[Difference]:
    """As many random numbers are drawn as eager draws."""
    try:
        same = all(map(torch.equal, pair.eager.generators, pair.compiled.generators))
    except RuntimeError:  # what raised has left the process so that no op works: the canary says so
        return
    if not same:
        place = pair.place(Role.PROCESS)
        yield Difference(OracleKind.RNG, HARD, place, "leaves the generator in one state", "in another")


ORACLES: tuple[Oracle, ...] = (
    exceptions,
    global_states,
    structures,
    *FACTS,
    IDENTITY,
    ALIASING,
    gradient_presence,
    hooks,
    effects,
    values,
    generators,
)
"""Every oracle; meta tests show that each fires."""

_ORDER = {kind: i for i, kind in enumerate(OracleKind)}


def compare(pair: Pair) -> tuple[Difference, ...]:
    """All differences of one step, causes before consequences.

    If only one side raised, all else follows from that and is left out. What the backend does not promise is soft.
    """
    one_sided = (pair.eager.raised is None) != (pair.compiled.raised is None)
    oracles = (exceptions, global_states) if one_sided else ORACLES
    found = [difference for oracle in oracles for difference in oracle(pair)]
    if soft := soft_kinds(pair.backend):
        found = [replace(d, severity=SOFT) if is_soft(d.oracle, d.place.role, soft) else d for d in found]
    return tuple(sorted(found, key=lambda d: (d.severity is SOFT, _ORDER[d.oracle])))
