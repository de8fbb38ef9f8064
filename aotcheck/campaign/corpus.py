"""Corpus files and other saved scripts, kept canonical: each carries a copy of the harness, which ages."""

from __future__ import annotations

from pathlib import Path

from aotcheck.program import ParsedFile, emit, parse_file


def backend_of(parsed: ParsedFile) -> str:
    """What a script compares eager with: what its header names, else the first backend that is expected to differ.

    A corpus file that nobody is expected to differ on is a bug of our own, fixed: ``aotcheck``.
    """
    if isinstance(named := parsed.header.get("backend"), str):
        return named
    expected = parsed.header.get("expect")
    known = [name for name, said in expected.items() if said == "differs"] if isinstance(expected, dict) else []
    return known[0] if known else "aotcheck"


def canonical(path: Path) -> str:
    """The text that a saved script would have if it were written now.

    Raises:
        ProgramSyntaxError: it is not a program.
        OSError: it cannot be read.
    """
    parsed = parse_file(path)
    return emit(parsed.program, parsed.header, backend_of(parsed))


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
