"""Corpus files and other saved scripts: their headers, what they expect, and that they are kept canonical.

A header says of each backend, and of each version of torch, whether it agrees with eager::

    format = 2
    found = "aotcheck fuzz --backend aot_function --seed 0"
    issue = "https://github.com/pytorch/pytorch/issues/1"   # or "none found", or "ours"
    difference = "what the oracle said"
    note = "what a user sees, or the cause"       # only where the file's name and the difference do not say so
    alone = ["aot_eager"]        # only where a backend leaves a process that is of no use afterwards
    keys.aot_function = "(values, output)"        # the coarse key on each backend that differs, or once did
    expect.aot_function."2.13.0" = "differs"      # a known bug, there and in later versions until one is listed

A backend of ``JUDGED_ON`` of which a corpus file says nothing is expected to agree, with every version.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from aotcheck.backends import Backend, Expectations, resolve
from aotcheck.backends.expectations import HEADER
from aotcheck.campaign.findings.signature import skeleton
from aotcheck.program import ParsedFile, Program, ProgramSyntaxError, UnknownOpError, emit, parse_file

__all__ = [
    "JUDGED_ON",
    "Entry",
    "Expected",
    "backend_of",
    "canonical",
    "complaints",
    "duplicates",
    "entries",
    "entry_of",
    "refresh",
    "resolved",
    "with_key",
]

JUDGED_ON = ("aotcheck", "aot_function", "aot_eager")
"""The backends on which each corpus file is judged, whatever it says."""

ENTRIES = ("format", "found", "issue", "difference", "note", "alone", HEADER, "keys", "expect")
"""What the header of a corpus file holds, in this order."""

OPTIONAL = frozenset({"note", "alone", HEADER, "expect"})
"""Of these, what only some need."""

NO_ISSUE = ("none found", "not looked up", "ours")
"""What is said in place of a link: a search found no report, nobody has searched, or the bug was our own."""


class Expected(Enum):
    """What a backend is expected to do on a corpus file; the values are how headers say it."""

    AGREE = "agree"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Entry:
    """A corpus file, read.

    Args:
        path: it.
        program: its program.
        issue: where the bug is reported.
        keys: by backend, the coarse key in words.
        expect: by backend and version, what is expected.
        alone: the backends to judge it on in a process of its own, which is of no use afterwards.
    """

    path: Path
    program: Program
    issue: str
    keys: Mapping[str, str]
    expect: Mapping[str, Mapping[str, Expected]]
    alone: frozenset[str] = frozenset()

    def expected(self, backend: str, torch_version: str) -> Expected | None:
        """What is expected of ``backend`` under a version of torch; None if nothing is said.

        That version's entry goes first, then ``*``, then the newest entry that is older.
        """
        said = self.expect.get(backend, {})
        version = torch_version.partition("+")[0]
        if version in said or "*" in said:
            return said.get(version, said.get("*"))
        older = [known for known in said if _number(known) < _number(version)]
        return said[max(older, key=_number)] if older else None

    def signature(self, backend: str) -> tuple[str, str] | None:
        """The coarse key on ``backend``, in words, and the skeleton."""
        key = self.keys.get(backend)
        return None if key is None else (key, skeleton(self.program))


def _number(version: str) -> tuple[int, ...]:
    """A version as something to compare: ``2.14.0a0`` comes after ``2.13.1``."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def entry_of(path: Path, parsed: ParsedFile) -> Entry:
    """What a script's header expects. One that is no corpus file, having no ``issue``, expects nothing unsaid.

    Raises:
        ProgramSyntaxError: the header says something that no header says.
    """

    def wrong(what: str) -> ProgramSyntaxError:
        return ProgramSyntaxError(str(path), 2, what, "see corpus/README.md")

    header = parsed.header
    expect, keys = header.get("expect", {}), header.get("keys", {})
    alone = header.get("alone", [])
    if not isinstance(expect, dict) or not isinstance(keys, dict):
        raise wrong("expect and keys are tables")
    if not isinstance(alone, list):
        raise wrong("alone is a list of backends")
    found = {backend: {"*": Expected.AGREE} for backend in JUDGED_ON} if "issue" in header else {}
    for backend, said in expect.items():
        if not isinstance(said, dict):
            raise wrong(f"expect.{backend} is a table of versions")
        found[backend] = {}
        for version, word in said.items():
            if word not in [one.value for one in Expected] or not (version == "*" or _number(version)):
                raise wrong(f"expect.{backend} says {version!r} = {word!r}")
            found[backend][version] = Expected(word)
    named = {str(backend): str(key) for backend, key in keys.items()}
    return Entry(path, parsed.program, str(header.get("issue", "")), named, found, frozenset(map(str, alone)))


def entries(folder: Path) -> Iterator[Entry]:
    """The corpus files of a folder that can be read; :func:`complaints` says what is wrong with the others."""
    for path in sorted(folder.glob("*.py")):
        try:
            yield entry_of(path, parse_file(path))
        except (ProgramSyntaxError, UnknownOpError, OSError):
            continue


def backend_of(parsed: ParsedFile) -> str:
    """What a script compares eager with: what its header names, else the first backend that is expected to differ.

    A corpus file that nobody is expected to differ on is a bug of our own, fixed: ``aotcheck``.
    """
    if isinstance(named := parsed.header.get("backend"), str):
        return named
    expect = parsed.header.get("expect")
    for backend, said in expect.items() if isinstance(expect, dict) else ():
        if isinstance(said, dict) and Expected.DIFFERS.value in said.values():
            return str(backend)
    return "aotcheck"


def resolved(parsed: ParsedFile, backend: str | None = None) -> Backend:
    """The backend to judge a script on: ``backend``, or the one that its header stands for. What the header does not
    expect of that one is not expected.

    Raises:
        BackendError: there is no such backend, or the header expects something that nobody knows.
    """
    named = backend_of(parsed)
    known = backend in (None, named)
    return resolve(backend or named, Expectations.of_header(parsed.header) if known else None)


def canonical(path: Path) -> str:
    """The text that a saved script would have if it were written now.

    Raises:
        ProgramSyntaxError: it is not a program.
        OSError: it cannot be read.
    """
    parsed = parse_file(path)
    return emit(parsed.program, parsed.header)


def with_key(parsed: ParsedFile, backend: str, key: str) -> str:
    """The text of a saved script whose coarse key on ``backend`` is ``key``."""
    said = parsed.header.get("keys")
    keys = {**said, backend: key} if isinstance(said, dict) else {backend: key}
    return emit(parsed.program, {**parsed.header, "keys": keys})


def refresh(path: Path) -> bool:
    """Make a saved script canonical; whether it was not.

    Raises:
        ProgramSyntaxError: it is not a program.
        OSError: it cannot be read or written.
    """
    text = canonical(path)
    if path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8")
    return True


def complaints(path: Path) -> Iterator[str]:
    """What is wrong with a corpus file, a line for each; nothing of it is executed."""
    try:
        parsed = parse_file(path)
        entry = entry_of(path, parsed)
        if canonical(path) != path.read_text(encoding="utf-8"):
            yield f"{path}: not canonical; run aotcheck refresh {path}"
    except (ProgramSyntaxError, UnknownOpError) as error:
        text = " ".join(str(error).split())
        yield text if str(path) in text else f"{path}: {text}"
        return
    except OSError as error:
        yield f"{path}: cannot be read: {error.strerror}"
        return
    wanted = tuple(name for name in ENTRIES if name in parsed.header or name not in OPTIONAL)
    if tuple(parsed.header) != wanted:
        yield f"{path}: the header holds {', '.join(parsed.header)}; expected {', '.join(wanted)}"
    if entry.issue not in NO_ISSUE and not entry.issue.startswith("https://github.com/"):
        yield f"{path}: issue is neither a link nor one of {', '.join(NO_ISSUE)}"
    for backend, said in entry.expect.items():
        if Expected.DIFFERS in said.values() and backend not in entry.keys:
            yield f"{path}: expected to differ on {backend}, but keys does not say how"
    for backend in sorted(entry.alone - set(entry.keys)):
        yield f"{path}: to be judged alone on {backend}, but keys does not say how it differs there"


def duplicates(found: Iterable[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Entries that add nothing, each with the one before it that shows the same: the same program, or the same
    signature on every backend that it differs on."""
    programs: dict[Program, Entry] = {}
    signatures: dict[tuple[tuple[str, str], ...], Entry] = {}
    for entry in found:
        said = skeleton(entry.program)
        shown = tuple(sorted((f"{backend}: {key}", said) for backend, key in entry.keys.items()))
        before = programs.get(entry.program) or (signatures.get(shown) if shown else None)
        if before is not None:
            yield entry, before
            continue
        programs[entry.program] = entry
        signatures[shown] = entry
