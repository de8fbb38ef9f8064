"""Keeps commands alive when standard output cannot encode a character or nobody reads it any more."""

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Iterator

__all__ = ["tolerant_output"]

_PLAIN = {"·": "-", "…": "...", "━": "-", "╸": "-", "╺": "-", "─": "-", "→": "->", "•": "*"}


@contextlib.contextmanager
def tolerant_output() -> Iterator[None]:
    """Print in plain ASCII what the encoding lacks. A closed pipe ends the command, quietly, with exit code 3.

    Exit code 1 would say that there are findings.
    """
    codecs.register_error("aotcheck.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="aotcheck.plain")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, where it can be handled, and not when the interpreter ends
    except BrokenPipeError:
        _forget_output()
        sys.exit(3)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(c, "?") for c in error.object[error.start : error.end]), error.end


def _forget_output() -> None:
    """Let what is still buffered go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
