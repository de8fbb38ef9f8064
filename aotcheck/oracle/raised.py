"""An exception as the oracle remembers it: data, without the frames that would keep tensors alive."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotcheck._torch import unwrap_dynamo

_HEAD = 90
_NORMALIZED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "H"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "'X'"),
    (re.compile(r"\b(?:primals|tangents|arg\d*|arg|getitem|view|clone|add|mul)_\d+\b"), "V"),
    (re.compile(r"[\[(][\d\s,.\-]*[\])]"), "[N]"),
    (re.compile(r"-?\d+(?:\.\d+)?"), "N"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True)
class Raised:
    """An exception that left a call.

    Args:
        type: its class, qualified where it is not a builtin; wrappers of Dynamo's are taken off.
        message: its message, cut to a few lines.
        refusal: the reason, where it is ``aotcheck.UnsupportedError``.
    """

    type: str
    message: str
    refusal: str = ""

    @property
    def key(self) -> str:
        """Type and normalized head of the message: numbers, shapes, addresses and quoted names replaced."""
        return f"{self.type}: {normalized(self.message)}" if self.message else self.type

    def __str__(self) -> str:
        first = next(iter(self.message.splitlines()), "")
        return f"raises {self.type}({first[:200]!r})"


def normalized(message: str) -> str:
    """The head of ``message`` without what differs from program to program."""
    head = next((line.strip() for line in message.splitlines() if line.strip()), "")
    for pattern, replacement in _NORMALIZED:
        head = pattern.sub(replacement, head)
    return head[:_HEAD].rstrip()


def raised(error: BaseException) -> Raised:
    """Remember ``error``."""
    inner = unwrap_dynamo(error)
    kind = type(inner)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(inner)
    except Exception:  # an exception whose own __str__ fails must not take the oracle down
        message = ""
    return Raised(name, "\n".join(message.splitlines()[:6])[:1000], _refusal(inner))


def _refusal(error: BaseException) -> str:
    if any(
        base.__name__ == "UnsupportedError" and base.__module__.startswith("aotcheck") for base in type(error).__mro__
    ):
        return str(getattr(error, "reason", "")) or "unspecified"
    return ""
