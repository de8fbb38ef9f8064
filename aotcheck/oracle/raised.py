"""An exception as the oracle remembers it: data, without the frames that would keep tensors alive."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotcheck._torch import unwrap_dynamo

_HEAD = 120
_SHORTEST_SENTENCE = 20
_NORMALIZED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "H"),
    (re.compile(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*`"), "'X'"),
    (re.compile(r"\b(?:primals|tangents|arg\d*|arg|getitem|view|clone|add|mul)_\d+\b"), "V"),
    # What one check says of whichever op or dtype it meets.
    (re.compile(r"\baten::\w+(?:\.\w+)?"), "aten::X"),
    (re.compile(r"\bOutput \d+ of \w+ is a view"), "Output N of X is a view"),
    (re.compile(r"\bFunction \w+Backward\d* returned"), "Function X returned"),
    (re.compile(r"\bWhile executing \w+,"), "While executing X,"),
    (re.compile(r"\btorch\.\w+Tensor\b"), "torch.Tensor"),
    (re.compile(r": \[(?:torch\.Tensor|CPU\w+Type|CUDA\w+Type) .*"), ""),
    (re.compile(r"^unsupported operation: "), ""),
    (re.compile(r"\b(?:u?int|float|complex|bfloat)\d+\b"), "T"),
    (re.compile(r"\[[\d\s,.\-]*\]|\([\d\s,.\-]*\d[\d\s,.\-]*\)|(?<=\s)\(\)"), "[N]"),
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
        classes: the names of its class and of those above it, each bare and qualified.
    """

    type: str
    message: str
    refusal: str = ""
    classes: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """Type and normalized head of the message: numbers, shapes, op names and quoted names replaced."""
        return f"{self.type}: {normalized(self.message)}" if self.message else self.type

    def __str__(self) -> str:
        first = next(iter(self.message.splitlines()), "")
        return f"raises {self.type}({first[:200]!r})"


def normalized(message: str) -> str:
    """The first sentence of ``message`` without what differs from program to program, cut between words if it is long.

    What follows the first sentence is advice, or says which tensor it was.
    """
    head = next((line.strip() for line in message.splitlines() if line.strip()), "")
    for pattern, replacement in _NORMALIZED:
        head = pattern.sub(replacement, head)
    end = head.find(". ", _SHORTEST_SENTENCE)
    head = head[:end] if end >= 0 else head.rstrip(".")
    return head if len(head) <= _HEAD else head[:_HEAD].rsplit(" ", 1)[0] + " ..."


def raised(error: BaseException) -> Raised:
    """Remember ``error``."""
    inner = unwrap_dynamo(error)
    kind = type(inner)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(inner)
    except Exception:  # an exception whose own __str__ fails must not take the oracle down
        message = ""
    text = "\n".join(map(_printable, message.splitlines()[:6]))[:1000]
    classes = frozenset(n for c in kind.__mro__ for n in (c.__qualname__, f"{c.__module__}.{c.__qualname__}"))
    return Raised(name, text, _refusal(inner), classes)


def _printable(line: str) -> str:
    """``line`` as it may stand in any report: what no terminal, XML or UTF-8 takes is written out."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)


def _refusal(error: BaseException) -> str:
    if any(
        base.__name__ == "UnsupportedError" and base.__module__.startswith("aotcheck") for base in type(error).__mro__
    ):
        return str(getattr(error, "reason", "")) or "unspecified"
    return ""
