"""Names that a user may write in a profile: of ops, and of members of a closed set; an unknown one is an error."""

import difflib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from aotcheck.program.ops.registry import UnknownOpError, ops

__all__ = ["one_of", "paths_named"]

T = TypeVar("T", bound=str)
_SHOWN = 5
_ATEN = "torch.ops."


def paths_named(name: str) -> frozenset[str]:
    """The paths of the ops called ``name``: ``torch.add`` is called that, and ``add``.

    Raises:
        UnknownOpError: no op is called so.
    """
    paths = {op.path for op in ops()}
    if found := frozenset(path for path in paths if name in _names(path)):
        return found
    raise UnknownOpError(f"op '{name}' is not in the op table{_similar(name, (n for p in paths for n in _names(p)))}")


def one_of(value: str, known: Sequence[T], what: str) -> T:
    """The member of ``known`` that equals ``value``.

    Raises:
        ValueError: there is none.
    """
    for member in known:
        if member == value:
            return member
    raise ValueError(f"{what} '{value}' is unknown{_similar(value, known)}")


def _names(path: str) -> tuple[str, ...]:
    """What an op may be called, its path first."""
    parts = path.split(".")
    if path.startswith(_ATEN):  # torch.ops.aten.alias.default
        return path, path.removeprefix(_ATEN), parts[-2]
    if parts[-1] == "apply":  # SavesTensors.apply
        return path, parts[0]
    return path, parts[-1]


def _similar(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, sorted(set(known)), _SHOWN)
    return f"; did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
