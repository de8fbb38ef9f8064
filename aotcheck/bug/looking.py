"""What the script looks at: one difference as an expression whose value eager and the backend disagree on."""

import re
from collections.abc import Callable, Mapping

from aotcheck.bug.statements import CannotBeWrittenError
from aotcheck.oracle import Difference, OracleKind
from aotcheck.oracle.kinds import Role
from aotcheck.program.called.objects import OBJECTS

__all__ = ["ways_of_looking"]

_FACTS: Mapping[OracleKind, str] = {
    OracleKind.TYPE: "type({}).__name__",
    OracleKind.METADATA: "{}.__tensor_flatten__()[1]",
    OracleKind.DTYPE: "{}.dtype",
    OracleKind.DEVICE: "{}.device",
    OracleKind.SHAPE: "{}.shape",
    OracleKind.STORAGE_OFFSET: "{}.storage_offset()",
    OracleKind.STORAGE_SIZE: "{}.untyped_storage().nbytes()",
    OracleKind.STRIDE: "{}.stride()",
    OracleKind.REQUIRES_GRAD: "{}.requires_grad",
    OracleKind.LEAFNESS: "{}.is_leaf",
    OracleKind.GRAD_FN: "{}.grad_fn is None",
    OracleKind.CONJ: "{}.is_conj()",
    OracleKind.NEG: "{}.is_neg()",
    OracleKind.INFERENCE: "{}.is_inference()",
    OracleKind.GRADIENT_NONE: "{} is None",
    OracleKind.CONSTANT: "{}",
}
"""What is compared of a tensor, as its users ask for it."""

_STATES: Mapping[str, str] = {
    "grad_mode": "torch.is_grad_enabled()",
    "inference_mode": "torch.is_inference_mode_enabled()",
    "autocast": 'torch.is_autocast_enabled("cpu")',
    "deterministic": "torch.are_deterministic_algorithms_enabled()",
    "default_dtype": "torch.get_default_dtype()",
    "anomaly": "torch.is_anomaly_enabled()",
}


def ways_of_looking(difference: Difference, named: Callable[[str], str], hook: Callable[[str], str]) -> list[str]:
    """Expressions that show a difference, what reads best first.

    Args:
        difference: anything but an exception.
        named: how the script calls what the oracle names.
        hook: how it calls the list of what a hook was called with.

    Raises:
        CannotBeWrittenError: this is nothing that an expression shows.
    """
    kind, place = difference.oracle, difference.place
    if kind in (OracleKind.IDENTITY, OracleKind.ALIASING):
        this, other = named(place.name), named(_other(difference))
        if kind is OracleKind.IDENTITY:
            return [f"{this} is {other}"]
        pointers = (f"{one}.untyped_storage().data_ptr()" for one in (this, other))
        return [" == ".join(pointers)]
    if kind is OracleKind.VALUES:
        shown = named(place.name)
        ways = [f"{shown}.tolist()"]
        return [*ways, f"{shown}.untyped_storage().tolist()"] if place.role is Role.INPUT else ways
    if kind is OracleKind.HOOK:
        return [f"len({hook(place.name)})"]
    if kind is OracleKind.EFFECTS:
        return ["printed.getvalue().splitlines()"]
    if kind is OracleKind.RNG:
        return ["torch.rand(1).item()"]
    if kind is OracleKind.STRUCTURE:
        out = named("output")
        return _of_objects(difference, named) or [f"type({out}).__name__", f"[type(t).__name__ for t in {out}]"]
    if kind is OracleKind.GLOBAL_STATE and difference.error in _STATES:
        return [_STATES[difference.error]]
    if kind in _FACTS:
        return [_FACTS[kind].format(named(place.name))]
    raise CannotBeWrittenError(f"no expression of a caller's shows a difference of {kind.value}")


def _of_objects(difference: Difference, named: Callable[[str], str]) -> list[str]:
    """What an object among the arguments holds that differs, if one does."""
    given = (text.partition("; given tuple(")[2] for text in (difference.eager, difference.compiled))
    for nth, (one, other) in enumerate(zip(*map(_split, given), strict=False)):
        if one != other and one.startswith(tuple(OBJECTS)):
            number = one.rpartition(", ")[2] != other.rpartition(", ")[2]
            return [f"{named(f'argument[{nth}]')}.{'scale' if number else 'hidden.tolist()'}"]
    return []


def _split(given: str) -> list[str]:
    """What stands between the commas of a structure that are in no inner one."""
    parts, depth = [""], 0
    for character in given:
        depth += (character in "([") - (character in ")]")
        parts = [*parts, ""] if character == "," and not depth else [*parts[:-1], parts[-1] + character]
    return [part.strip() for part in parts]


def _other(difference: Difference) -> str:
    """With which tensor one of the two runs has something in common, and the other has not."""
    for text in (difference.eager, difference.compiled):
        found = re.fullmatch(r"(?:is the same object as|shares storage with) (.+)", text)
        if found and found[1] != "nothing before it":
            return found[1]
    raise CannotBeWrittenError("neither run shares anything")
