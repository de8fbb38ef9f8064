"""The title of a finding: one short line for somebody who knows torch and not this suite.

It is made from the first difference, its coarse key, and the program that shows it. The title says what goes wrong with
which op, and in parentheses what else is unusual, as far as there is space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aotcheck.campaign.findings.oddity import oddity_of
from aotcheck.oracle import CoarseKey, Deviation, OracleKind, Phase, Role
from aotcheck.program import GradMode, Inputs, OpCall, Program, flat_calls, references
from aotcheck.program.data.model import Around
from aotcheck.program.ops.registry import Group, UnknownOpError, find
from aotcheck.program.running.harness import TRANSFORMS

__all__ = ["MOST_WORDS", "Seen", "conditions", "title"]

MOST_WORDS = 12
"""The most words of a title."""

_MOST_NAMED = 3
"""The most ops that a title names; of more ops, it names the last one and the oddest others."""

_PREFIXES = re.compile(r"^(torch\.nn\.functional\.|torch\.ops\.|torch\.|Tensor\.)")
_NAMES = {
    "getitem": "indexing",
    "setitem": "item assignment",
    "Tensor.untyped_storage().resize_": "storage resize_",
    "Inside.checkpointed": "checkpoint",
    "Inside.doubles": "inner backward",
    "Inside.negates_after": "inner backward",
    "wrapped.inner": "inner tensor",
}
"""Names for ops whose path is not what a person writes."""

_FORMS = {"Module": "module", "Transform": "in torch.func", "Optimizer": "optimizer"}
"""The same for classes of structured forms."""

_SIDES = re.compile(r": eager (?P<eager>.*), compiled (?P<compiled>.*)$", re.DOTALL)
_FACT = re.compile(r"[\w.(), -]{1,20}")
"""A fact that is short enough for a title."""


_OF_CALLS = frozenset({OracleKind.EXCEPTION.value, OracleKind.PERMISSIVE.value})
"""Oracles that judge a whole call; in their places the phase is the thing."""


@dataclass(frozen=True)
class Seen:
    """The parts of a coarse key's place.

    Args:
        thing: the role, or ``output-input vs none`` if two tensors are compared.
        after: the phase of the step; FORWARD for the call itself.
        both_raise: the step raises in both runs, and the states after the error differ.
        later: the difference shows only in a second call.
    """

    thing: str
    after: Phase = Phase.FORWARD
    both_raise: bool = False
    later: bool = False

    @classmethod
    def of(cls, key: CoarseKey) -> Seen:
        """The place of ``key``, which :attr:`aotcheck.oracle.Place.klass` has put together."""
        head, *flags = key.place.split(", ")
        thing, _, after = head.partition(" after ")
        if key.oracle in _OF_CALLS:
            after = thing
        phases = [phase for phase in Phase if phase.value == after]
        return cls(thing, phases[0] if phases else Phase.FORWARD, "both raise" in flags, "later call" in flags)

    @property
    def is_double(self) -> bool:
        """Whether gradients of gradients were computed."""
        return self.after in (Phase.DOUBLE_BACKWARD, Phase.DOUBLE_GRAD)


def title(finding_text: str, key: CoarseKey, program: Program) -> str:
    """One line in plain words: ``gradient of cumsum is silently wrong``.

    Args:
        finding_text: the difference as text, as in :attr:`aotcheck.oracle.Difference.text` or the header of a finding;
            the title has short facts of it.
        key: the coarse key of the difference.
        program: the program that shows the difference.
    """
    seen, sides = Seen.of(key), _SIDES.search(finding_text)
    eager, compiled = (sides["eager"], sides["compiled"]) if sides else ("", "")
    for most in range(_MOST_NAMED, 0, -1):
        said = _symptom(key, seen, _named(program, most), eager, compiled)
        if len(said.split()) <= MOST_WORDS:
            break
    of_one = OracleKind(key.oracle) not in (*_WHOLE, *_OF_MORE) and " vs " not in seen.thing
    facts = of_one and _FACT.fullmatch(eager) and _FACT.fullmatch(compiled)
    besides = [f"{compiled} instead of {eager}".replace("refused", "error")] if facts else []
    besides += ["second call"] if seen.later else []
    besides += ["both raise"] if seen.both_raise else []
    besides += ["after a write"] if seen.after is Phase.PROBE and key.oracle not in _OF_CALLS else []
    kept: list[str] = []
    for one in (*besides, *conditions(program)):
        if len(" ".join([said, *kept, one]).split()) <= MOST_WORDS:
            kept.append(one)
    return f"{said} ({', '.join(kept)})" if kept else said


def _named(program: Program, most: int) -> str:
    """The last op of a program and the oddest others, in order."""
    calls = {_name(call): call for call in _telling(program)}
    if not calls:
        return "identity function"
    *before, last = calls
    odd = sorted(before, key=lambda name: -oddity_of(calls[name].path))[: most - 1]
    if most == 1:
        last = max(reversed(calls), key=lambda name: oddity_of(calls[name].path))
    named = [name for name in before if name in odd]
    return " then ".join([", ".join(named), last] if named else [last])


def conditions(program: Program) -> Iterator[str]:
    """What is unusual about the calls of a program and their arguments."""
    given = [call.inputs for call in program.calls if call.inputs is not None]
    paths = [made.path for inputs in given for made in flat_calls(inputs.derived) if made.path.startswith("wrapped.")]
    if paths:
        yield "jagged tensor" if "wrapped.jagged" in paths else "tensor subclass"
    yield from [text for text in map(_sharing, given) if text][:1]
    yield from dict.fromkeys(_MODES[call.grad_mode] for call in program.calls if call.grad_mode in _MODES)
    if any(Around.AUTOCAST in call.around for call in program.calls):
        yield "autocast"
    yield from dict.fromkeys(one.value for call in program.calls for one in call.around if one.value in TRANSFORMS)


_MODES = {GradMode.NO_GRAD: "no_grad", GradMode.INFERENCE: "inference_mode"}


def _sharing(inputs: Inputs) -> str:
    passed = [name for arg in inputs.args for name in references(arg)]
    if len(passed) > len(set(passed)):
        return "same tensor twice"
    tensors = [t for t in inputs.tensors if t.name in passed]
    groups = [[t.dtype for t in tensors if t.storage == s.name] for s in inputs.storages]
    shared = [dtypes for dtypes in groups if len(dtypes) > 1]
    if not shared:
        return ""
    return f"arguments share memory{' as two dtypes' if any(len(set(d)) > 1 for d in shared) else ''}"


def _telling(program: Program) -> tuple[OpCall, ...]:
    """The calls without those that only make a number or a copy for others, if any is left; those that build the inputs
    only where the function makes none."""
    built = [call.inputs.derived for call in program.calls if call.inputs is not None]
    calls = tuple(flat_calls(program.body)) or tuple(call for derived in built for call in flat_calls(derived))
    return tuple(call for call in calls if not _is_plain(call)) or calls


def _is_plain(call: OpCall) -> bool:
    try:
        return call.path == "Tensor.clone" or all(op.group is Group.FACTORY for op in find(call.path))
    except UnknownOpError:
        return False


def _name(call: OpCall) -> str:
    path = call.path
    if path in _NAMES:
        return _NAMES[path]
    root, _, form = path.partition(".")
    if root in _FORMS:
        return f"{form.replace('_', ' ')} {_FORMS[root]}"
    if path.endswith("="):
        return f"assignment to .{path.rpartition('.')[2].removesuffix('=')}"
    if path.endswith(".apply"):
        return "custom autograd.Function"
    if path.startswith("wrapped."):
        return "tensor subclass"
    written = any(keyword == "out" for keyword, _ in call.kwargs)
    return f"{_PREFIXES.sub('', path)}{'(out=)' if written else ''}"


def _raised(key: CoarseKey, seen: Seen, ops: str, eager: str) -> str:
    kind = key.error.removeprefix("missing ").partition(":")[0].rpartition(".")[2] or "an error"
    what = {Phase.FORWARD: ops, Phase.PROBE: f"write after {ops}", Phase.HOOK: f"hook registration after {ops}"}.get(
        seen.after, f"{'double ' * seen.is_double}backward of {ops}"
    )
    if key.error.startswith("missing "):
        return f"{what} does not raise {kind}, eager does"
    if other := re.match(r"raises ([\w.]+)\(", eager):
        other_kind = other[1].rpartition(".")[2]
        return (
            f"{what} raises {'wrong ' * (other_kind == kind)}{kind}{f' instead of {other_kind}' * (other_kind != kind)}"
        )
    return f"{what} raises {kind}, eager does not"


_WHOLE = {
    OracleKind.CRASH: "{ops} kills the process: {error}",
    OracleKind.TIMEOUT: "{ops} does not end",
    OracleKind.MEMORY: "{ops} takes all memory",
    OracleKind.POISONING: "{ops} breaks later programs in the process",
    OracleKind.GLOBAL_STATE: "{ops} leaves wrong global state: {error}",
    OracleKind.RNG: "{ops} leaves wrong random number generator state",
    OracleKind.EFFECTS: "{ops} prints other lines than eager",
}
"""Titles that do not name the thing that was compared."""

_FACTS = {
    OracleKind.STRUCTURE: "container type",
    OracleKind.TYPE: "class",
    OracleKind.METADATA: "subclass metadata",
    OracleKind.STRIDE: "strides",
    OracleKind.REQUIRES_GRAD: "requires_grad",
    OracleKind.LEAFNESS: "is_leaf",
    OracleKind.GRAD_FN: "grad_fn",
    OracleKind.CONJ: "conjugate bit",
    OracleKind.NEG: "negative bit",
    OracleKind.INFERENCE: "is_inference",
}
"""Which fact of a tensor is wrong, for oracles whose name does not say it."""

_OF_MORE = {OracleKind.EXCEPTION, OracleKind.HOOK, OracleKind.VALUES, OracleKind.GRADIENT_NONE}
_DEVIATIONS = {
    Deviation.PLAIN.value: "is silently wrong",
    Deviation.ROUNDING.value: "is less exact than eager's",
    Deviation.NOT_FINITE.value: "has wrong NaN or infinity",
    Deviation.NARROWED.value: "is silently cut to narrower dtype",
}


def _symptom(key: CoarseKey, seen: Seen, ops: str, eager: str, compiled: str) -> str:
    """What goes wrong with ``ops``."""
    kind = OracleKind(key.oracle)
    if kind is OracleKind.EXCEPTION:
        return _raised(key, seen, ops, eager)
    if kind in _WHOLE:
        return _WHOLE[kind].format(ops=ops, error=key.error).removesuffix(": ")
    if kind is OracleKind.HOOK or seen.thing == Role.HOOK.value:
        wrong = "runs wrong number of times" if kind is OracleKind.HOOK else "gets wrong gradient"
        return f"gradient hook around {ops} {wrong}"
    if " vs " in seen.thing:
        return _shared(kind, seen, ops)
    if kind is OracleKind.VALUES and seen.thing == Role.INPUT.value and not key.deviation:
        return f"input mutation by {ops} is lost or wrong"
    subject = f"{'input' if seen.thing == Role.INPUT.value else 'output'} of {ops}"
    if seen.thing in (Role.GRADIENT.value, Role.RESULT.value):
        subject = f"{'second derivative' if seen.is_double else 'gradient'} of {ops}"
    match kind:
        case OracleKind.VALUES:
            return f"{subject} {_DEVIATIONS.get(key.deviation, _DEVIATIONS[''])}"
        case OracleKind.GRADIENT_NONE:
            return f"{subject} is {'missing' if compiled == 'None' else 'there, eager gives None'}"
        case _:
            return f"{subject} has wrong {_FACTS.get(kind, kind.value.replace('-', ' '))}"


def _shared(kind: OracleKind, seen: Seen, ops: str) -> str:
    """Two tensors that are one object, or share memory, in one run and not in the other."""
    expected, _, actual = seen.thing.partition(" vs ")
    pair = (actual if expected == "none" else expected).removeprefix("another ")
    here, _, other = pair.partition("-")
    subject, there = f"{here} of {ops}", f"another {other}" if here == other else f"an {other}"
    verb, base = ("is", "be") if kind is OracleKind.IDENTITY else ("aliases", "alias")
    if "none" not in (expected, actual):
        return f"{subject} {verb} the wrong tensor"
    if expected == "none":
        return f"{subject} wrongly {verb} {there}"
    return f"{subject} {'is not' if base == 'be' else 'does not alias'} {there}"
