"""An exception as data, without the frames, which would keep tensors alive."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aotcheck._torch import unwrap_dynamo

_HEAD = 120
_CUT = " ..."
_OPEN = re.compile(r"[\[(][^\])]*$")
"""An open bracket at the end of a message that was cut inside sizes."""
_SHORTEST_SENTENCE = 20
_MOST_CAUSES = 16
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Escape sequences: colours, and titles or links."""

_NORMALIZED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "H"),
    (re.compile(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*`"), "'X'"),
    (re.compile(r"(?<![\w/])(?:[A-Za-z]:)?(?:/[\w.+@~-]+){2,}/?"), "P"),
    (re.compile(r"(?<![\w%])%\w+"), "V"),
    # Nodes of a graph: numbered names, and any name where a message says that it is one.
    (re.compile(r"\b[a-z]\w*?_(?:\d+|N)\b"), "V"),
    (re.compile(r"\bNode \w+ (?=was |is |has )"), "Node V "),
    (re.compile(r"\bExpected \w+ (?=to be a tensor\b)"), "Expected V "),
    (re.compile(r"\bn=\w+, n\.args\[(?:\d+|N)\]=\w+"), "n=V, n.args[N]=V"),
    (re.compile(r"\{V(?:, V)*\}"), "{V}"),
    # What Python shows of an object whose fields are those of the program.
    (re.compile(r"\b(\w+)\(\w+=(?:True|False|None)\b.*"), r"\1(...)"),
    # What one check says of whichever op or dtype it meets.
    (re.compile(r"\baten::\w+(?:\.\w+)?"), "aten::X"),
    (re.compile(r"\bOutput \d+ of \w+ is a view"), "Output N of X is a view"),
    (re.compile(r"\bFunction \w+Backward\d* returned"), "Function X returned"),
    (re.compile(r"\bWhile executing \w+,"), "While executing X,"),
    (re.compile(r"\btorch\.\w+Tensor\b"), "torch.Tensor"),
    (re.compile(r": \[(?:torch\.Tensor|CPU\w+Type|CUDA\w+Type) .*"), ""),
    (re.compile(r"^unsupported operation: "), ""),
    (re.compile(r"\bC(?:PU|UDA)\w+Type\{[^}]*\}"), "T"),
    (re.compile(r"\b(?:u?int|float|complex|bfloat)\d+\b"), "T"),
    (re.compile(r"\b(?:Complex)?(?:Byte|Char|Short|Int|Long|Half|Float|Double|BFloat(?:16|N)|Bool)\b"), "T"),
    (re.compile(r"(?<![\w.])(?:(?:\d+|N)\*)?[sju](?:\d+|N)\b"), "N"),  # a symbolic size
    (re.compile(r"\[[\dN\s,.\-]*\]|\([\dN\s,.\-]*[\dN][\dN\s,.\-]*\)|(?<=\s)\(\)"), "[N]"),
    (re.compile(r"-?\d+(?:\.\d+)?"), "N"),
    (re.compile(r"\s+"), " "),
)

_LOCATION = re.compile(r"\.\w+:\d+:$")
"""The end of a line that says where an error was noticed: a file, and a line in it."""

_WORDS = re.compile(r"[A-Za-z]{2,}\W+[A-Za-z]{2,}")
"""Two words: the message of an error says something, unlike the ``'X'`` of a ``KeyError``."""


@dataclass(frozen=True)
class Raised:
    """An exception that left a call.

    Args:
        type: its class, qualified if it is not a builtin; of an exception that Dynamo wraps, the inner one's.
        message: its message, cut to a few lines.
        refusal: the reason, if it is an ``aotcheck.UnsupportedError``.
        classes: the names of its class and base classes, and of those of its causes, each bare and qualified.
        cause: the key of the exception that it was raised from, if that says more.
    """

    type: str
    message: str
    refusal: str = ""
    classes: frozenset[str] = frozenset()
    cause: str = ""

    @property
    def key(self) -> str:
        """Type and normalized head of the message, or those of the cause: numbers, shapes, op names and quoted names
        replaced."""
        return self.cause or _key(self.type, self.message)

    def __str__(self) -> str:
        first = next(iter(self.message.splitlines()), "")
        return f"raises {self.type}({first[:200]!r}){f' from {self.cause}' if self.cause else ''}"


def normalized(message: str) -> str:
    """The first sentence of ``message`` without what differs between programs, cut between words if it is long.

    Later sentences give advice or name a tensor. Lines before the first sentence that only name a place in some source
    are left out.
    """
    lines = list(filter(None, map(str.strip, message.splitlines())))
    head = _alike(next((line for line in lines if not _LOCATION.search(line)), lines[0] if lines else ""))
    end = head.find(". ", _SHORTEST_SENTENCE)
    head = head[:end] if end >= 0 else head.rstrip(".")
    return head if len(head) <= _HEAD else head[:_HEAD].rsplit(" ", 1)[0] + _CUT


def same_key(one: str, other: str) -> bool:
    """True if two coarse keys, given as text, are the same.

    Either may be old (from a file's header), so both are normalized by today's rules first. Of a message that was cut,
    the part that is left must be the same.
    """
    if one == other:
        return True
    one, other = (_alike(words.removeprefix("(").removesuffix(")")) for words in (one, other))
    if not one.endswith(_CUT) and not other.endswith(_CUT):
        return one == other
    length = min(len(_OPEN.sub("", words.removesuffix(_CUT))) for words in (one, other) if words.endswith(_CUT))
    return one[:length] == other[:length]


def _alike(words: str) -> str:
    """``words`` without what differs from program to program; applied twice, it changes nothing more."""
    for pattern, replacement in _NORMALIZED:
        words = pattern.sub(replacement, words)
    return words


def raised(error: BaseException) -> Raised:
    """``error`` as data."""
    inner = unwrap_dynamo(error)
    kind, message = _type(inner), _message(inner)
    return Raised(kind, message, _refusal(inner), frozenset(_classes(inner)), _cause(inner))


def _classes(error: BaseException) -> Iterator[str]:
    """The names of the classes of an error, and of those that it was raised from, each bare and qualified."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        for kind in type(cause).__mro__:
            yield kind.__qualname__
            yield f"{kind.__module__}.{kind.__qualname__}"
        cause = cause.__cause__


def _key(kind: str, message: str) -> str:
    said = normalized(message)
    return f"{kind}: {said}" if said else kind


def _cause(error: BaseException) -> str:
    """The key of the innermost exception with words in its message from which ``error`` was raised; empty for none.

    Exporters and compilers raise one error for whatever failed, ``from`` the one that says what did. An exception that
    was merely being handled (``__context__``) counts only where the message quotes it: code that tries one way after
    the other leaves others there.
    """
    chain: list[BaseException] = []
    inner: BaseException | None = error
    while inner is not None and inner not in chain and len(chain) < _MOST_CAUSES:
        chain.append(inner)
        cause = inner.__cause__ or _quoted(inner)
        inner = None if cause is None else unwrap_dynamo(cause)
    for cause in reversed(chain[1:]):
        message = _message(cause)
        said = normalized(message)
        if _WORDS.search(said) and said != normalized(_message(error)):
            return _key(_type(cause), message)
    return ""


def _quoted(error: BaseException) -> BaseException | None:
    """The exception that was being handled when ``error`` was raised, if the message of ``error`` holds its message."""
    handled = None if error.__suppress_context__ else error.__context__
    said = "" if handled is None else _message(handled)
    return handled if said and said in _message(error) else None


def _type(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    """The first lines of the message, without the colours of a terminal."""
    try:
        message = _TERMINAL.sub("", str(error))
    except Exception:  # an exception whose own __str__ fails must not take the oracle down
        message = ""
    return "\n".join(map(_printable, message.splitlines()[:6]))[:1000]


def _printable(line: str) -> str:
    """``line`` as it may stand in any report: what no terminal, XML or UTF-8 takes is written out."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)


def _refusal(error: BaseException) -> str:
    if any(
        base.__name__ == "UnsupportedError" and base.__module__.startswith("aotcheck") for base in type(error).__mro__
    ):
        return str(getattr(error, "reason", "")) or "unspecified"
    return ""
