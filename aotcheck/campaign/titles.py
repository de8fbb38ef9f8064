"""A finding in plain words: one line that somebody who knows torch, and not this suite, understands.

What goes in is what a finding is told by: the first difference, its coarse key, and the program that shows it. The
title names the ops of the program and what is wrong with what they give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotcheck.campaign.oddity import oddity_of
from aotcheck.oracle import CoarseKey, Deviation, OracleKind, Phase, Role
from aotcheck.program import GradMode, Inputs, OpCall, Program, flat_calls, references
from aotcheck.program.model import Around
from aotcheck.program.ops import Group, UnknownOpError, find

__all__ = ["Seen", "blamed", "named", "title"]

MOST_NAMED = 3
"""As many ops are named in a title; of more, the last and how many there are."""

_NAMES = {
    "getitem": "indexing",
    "setitem": "item assignment",
    "Tensor.data=": "assigning Tensor.data",
    "Tensor.untyped_storage().resize_": "resizing an untyped storage",
    "Inside.checkpointed": "torch.utils.checkpoint",
    "Inside.doubles": "a backward inside",
    "Inside.negates_after": "a backward inside",
    "wrapped.inner": "reading a tensor out of a wrapper",
}
"""How ops are called whose path is not how a person writes them."""

_SIDES = re.compile(r": eager (?P<eager>.*), compiled (?P<compiled>.*)$", re.DOTALL)
_SHORT = 40
"""So many characters of a fact may stand in a title."""


_OF_CALLS = frozenset({OracleKind.EXCEPTION.value, OracleKind.PERMISSIVE.value})
"""Oracles that look at a call as a whole; the thing in their places is its phase."""


@dataclass(frozen=True)
class Seen:
    """Where a coarse key was seen, taken apart.

    Args:
        thing: the role, or ``output-input vs none`` where two tensors are compared.
        after: the phase after which; FORWARD for the call itself.
        both_raise: the step raises in both runs: what differs is what the failure left behind.
        later: it takes a second call.
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
    def is_gradient(self) -> bool:
        """Whether a gradient was looked at, accumulated or returned."""
        return self.thing in (Role.GRADIENT.value, Role.RESULT.value)


def title(finding_text: str, key: CoarseKey, program: Program) -> str:
    """One line in plain words: ``a gradient of torch.cumsum is silently wrong``.

    Args:
        finding_text: the difference for people, as :attr:`aotcheck.oracle.Difference.text` or the header of a finding
            has it; facts in it that are short are said.
        key: the coarse key of it.
        program: what shows it.
    """
    seen, ops = Seen.of(key), named(program)
    sides = _SIDES.search(finding_text)
    eager, compiled = (sides["eager"], sides["compiled"]) if sides else ("", "")
    kind = OracleKind(key.oracle)
    if kind is OracleKind.EXCEPTION:
        return f"{_raised(key, seen, ops, eager)}{conditions(program)}"
    said = _shared(kind, seen, ops) if " vs " in seen.thing else _wrong(kind, key, seen, ops, _facts(eager, compiled))
    where = ", although it raises as in eager" if seen.both_raise else ""
    return f"{said}{where}{_when(seen)}{conditions(program)}"


def named(program: Program) -> str:
    """The ops of a program as a title names them: all if they are few, else the oddest and how many others; and
    whether they meet a tensor subclass."""
    calls = _telling(program)
    names = list(dict.fromkeys(map(_name, calls)))
    if not names:
        return "a function that only returns its arguments"
    if len(names) > MOST_NAMED:
        oddest = max(reversed(calls), key=lambda call: oddity_of(call.path))
        said = f"{_name(oddest)} among {len(names)} ops"
    else:
        said = " followed by ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
    return f"{said}{_on(program)}"


def _on(program: Program) -> str:
    """The tensor subclass that a call is given, if it is."""
    built = [call.inputs.derived for call in program.calls if call.inputs is not None]
    paths = [made.path for derived in built for made in flat_calls(derived) if made.path.startswith("wrapped.")]
    if not paths:
        return ""
    return " on a jagged tensor" if "wrapped.jagged" in paths else " on a tensor subclass"


def conditions(program: Program) -> str:
    """What is out of the ordinary about the calls of a program and their arguments, as the end of a title: memory in
    common, one tensor passed twice, grad modes, autocast; empty for nothing."""
    given = [call.inputs for call in program.calls if call.inputs is not None]
    said = [text for text in map(_sharing, given) if text][:1]
    modes = list(dict.fromkeys(_MODES[call.grad_mode] for call in program.calls if call.grad_mode in _MODES))
    modes += ["autocast"] if any(Around.AUTOCAST in call.around for call in program.calls) else []
    if modes:
        first = program.calls[0].grad_mode
        differ = any(call.grad_mode is not first for call in program.calls)
        said.append(f"{'one call is' if differ else 'called'} under {' and '.join(modes)}")
    return f" ({'; '.join(said)})" if said else ""


_MODES = {GradMode.NO_GRAD: "no_grad", GradMode.INFERENCE: "inference_mode"}


def _sharing(inputs: Inputs) -> str:
    passed = [name for arg in inputs.args for name in references(arg)]
    if len(passed) > len(set(passed)):
        return "one tensor is passed twice"
    tensors = [t for t in inputs.tensors if t.name in passed]
    groups = [[t.dtype for t in tensors if t.storage == s.name] for s in inputs.storages]
    shared = [dtypes for dtypes in groups if len(dtypes) > 1]
    if not shared:
        return ""
    return f"two arguments{' of different dtypes' if any(len(set(d)) > 1 for d in shared) else ''} share memory"


def blamed(program: Program) -> tuple[OpCall, ...]:
    """The op calls of a program, those that build its inputs only where the function makes none."""
    calls = tuple(flat_calls(program.body))
    if calls:
        return calls
    built = [call.inputs.derived for call in program.calls if call.inputs is not None]
    return tuple(call for derived in built for call in flat_calls(derived))


def _telling(program: Program) -> tuple[OpCall, ...]:
    """The calls without those that only make a number or a copy for others, if any is left."""
    calls = blamed(program)
    telling = tuple(call for call in calls if not _is_plain(call))
    return telling or calls


def _is_plain(call: OpCall) -> bool:
    try:
        return call.path == "Tensor.clone" or all(op.group is Group.FACTORY for op in find(call.path))
    except UnknownOpError:
        return False


def _name(call: OpCall) -> str:
    path = call.path
    if path in _NAMES:
        return _NAMES[path]
    if path.startswith("Module."):
        return f"an nn.Module with {path.removeprefix('Module.')}"
    if path.endswith(".apply"):
        return "a custom autograd.Function"
    if path.startswith("wrapped."):
        return "a tensor subclass"
    written = any(keyword == "out" for keyword, _ in call.kwargs)
    return f"{path}(out=...)" if written else path


def _when(seen: Seen) -> str:
    probed = ", once the caller has written to a tensor" if seen.after is Phase.PROBE else ""
    return f"{probed}{', in a second call' if seen.later else ''}"


def _facts(eager: str, compiled: str) -> str:
    """``False, eager True``, where that is short."""
    if not eager or len(eager) > _SHORT or len(compiled) > _SHORT:
        return ""
    return f" ({compiled}, in eager {eager})"


# -- exceptions


def _raised(key: CoarseKey, seen: Seen, ops: str, eager: str) -> str:
    missing = key.error.startswith("missing ")
    kind = key.error.removeprefix("missing ").partition(":")[0].rpartition(".")[2] or "an error"
    what, eagers = _raising(seen, ops)
    tail = ", in a second call" if seen.later else ""
    if missing:
        return f"{what} does not raise {kind}, {eagers} does{tail}"
    if other := re.match(r"raises ([\w.]+)\(", eager):
        other_kind = other[1].rpartition(".")[2]
        return f"{what} raises {kind} where {eagers} raises {'another' if other_kind == kind else other_kind}{tail}"
    return f"{what} raises {kind}, {eagers} does not{tail}"


def _raising(seen: Seen, ops: str) -> tuple[str, str]:
    """What raises, and how eager's is called beside it."""
    match seen.after:
        case Phase.FORWARD:
            return ops, "eager"
        case Phase.PROBE:
            return f"a later write to what {ops} gave", "eager's"
        case Phase.DOUBLE_BACKWARD | Phase.DOUBLE_GRAD:
            return f"the double backward of {ops}", "eager's"
        case Phase.HOOK:
            return f"registering a hook after {ops}", "in eager it"
        case _:
            return f"the backward of {ops}", "eager's"


# -- what is wrong

_WHOLE = {
    OracleKind.CRASH: "{ops} kills the process{error}",
    OracleKind.TIMEOUT: "{ops} does not come to an end",
    OracleKind.MEMORY: "{ops} takes all memory",
    OracleKind.POISONING: "{ops} leaves the process so that later programs fail",
    OracleKind.GLOBAL_STATE: "{ops} leaves global state otherwise than eager{error}",
    OracleKind.RNG: "{ops} leaves the random number generator in another state than eager",
}
"""Titles that do not say what was looked at."""

_OF_ONE = {
    OracleKind.STRUCTURE: "comes in other containers than in eager",
    OracleKind.CONSTANT: "that is no tensor has another value",
    OracleKind.TYPE: "is of another class",
    OracleKind.METADATA: "is a wrapper with other metadata",
    OracleKind.DTYPE: "has another dtype",
    OracleKind.DEVICE: "is on another device",
    OracleKind.SHAPE: "has another shape",
    OracleKind.STORAGE_OFFSET: "has another storage offset",
    OracleKind.STORAGE_SIZE: "has a storage of another size",
    OracleKind.STRIDE: "has other strides",
    OracleKind.REQUIRES_GRAD: "has another requires_grad",
    OracleKind.LEAFNESS: "has another is_leaf",
    OracleKind.GRAD_FN: "has another grad_fn",
    OracleKind.CONJ: "has another conjugate bit",
    OracleKind.NEG: "has another negative bit",
    OracleKind.INFERENCE: "is an inference tensor in one of eager and compiled only",
    OracleKind.IDENTITY: "is another object",
    OracleKind.ALIASING: "shares memory with another tensor",
}

_DEVIATIONS = {
    Deviation.PLAIN.value: "is silently wrong",
    Deviation.ROUNDING.value: "is less exact than eager's",
    Deviation.NOT_FINITE.value: "is infinite or NaN where eager's is not, or the other way round",
    Deviation.NARROWED.value: "is silently cut to a narrower dtype",
}


def _wrong(kind: OracleKind, key: CoarseKey, seen: Seen, ops: str, facts: str) -> str:
    error = f" ({key.error})" if key.error else ""
    if kind in _WHOLE:
        return _WHOLE[kind].format(ops=ops, error=error)
    if kind is OracleKind.HOOK or seen.thing == Role.HOOK.value:
        wrong = "called another number of times than in eager" if kind is OracleKind.HOOK else "given a wrong gradient"
        return f"a gradient hook around {ops} is {wrong}"
    subject = _subject(seen, ops)
    match kind:
        case OracleKind.VALUES if seen.thing == Role.INPUT.value and not key.deviation:
            return f"what {ops} writes to an input is lost or wrong"
        case OracleKind.VALUES:
            return f"{subject} {_DEVIATIONS.get(key.deviation, _DEVIATIONS[''])}"
        case OracleKind.GRADIENT_NONE:
            return f"{subject} {'is missing' if facts.startswith(' (None,') else 'is there, in eager it is None'}"
        case _:
            return f"{subject} {_OF_ONE.get(kind, f'differs ({kind.value})')}{facts}"


def _subject(seen: Seen, ops: str) -> str:
    second = "second derivative" if seen.after in (Phase.DOUBLE_BACKWARD, Phase.DOUBLE_GRAD) else "gradient"
    if seen.is_gradient:
        return f"a {second} of {ops}"
    return f"an {'input' if seen.thing == Role.INPUT.value else 'output'} of {ops}"


# -- sharing

_ENDS = {"output": "an output of", "input": "an input of"}


def _shared(kind: OracleKind, seen: Seen, ops: str) -> str:
    """Two tensors that are one object, or share memory, in one run and not in the other."""
    expected, _, actual = seen.thing.partition(" vs ")
    pair = (actual if expected == "none" else expected).removeprefix("another ")
    here, _, other = pair.partition("-")
    subject = f"{_ENDS.get(here, 'a tensor of')} {ops}"
    is_, shares = kind is OracleKind.IDENTITY, "shares memory with"
    if "none" not in (expected, actual):
        return f"{subject} {'is the same object as' if is_ else shares} another tensor than in eager"
    there = f"another {other}" if here == other else f"an {other}"
    if expected == "none":
        return f"{subject} {'is' if is_ else shares} {there}, in eager it {'is' if is_ else 'does'} not"
    return f"{subject} {'is not' if is_ else 'shares no memory with'} {there}, in eager it {'is' if is_ else 'does'}"
