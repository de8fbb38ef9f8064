"""Whether a script shows its difference: in a worker process while ways of writing it are tried, in a fresh one at
last."""

import contextlib
import io
import linecache
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from aotcheck.bug.script import NO_ERROR as NOTHING
from aotcheck.bug.script import Script
from aotcheck.oracle import same_key
from aotcheck.oracle.raised import Raised, raised
from aotcheck.workers import end_group

__all__ = ["AGREE", "NO_ERROR", "Fresh", "raising_lines", "run_fresh", "shows"]

AGREE = "eager and the backend agree in it"
NO_ERROR = "it ends without an error"


def shows(script: Script, error: str) -> str:
    """Run a script in this process, which is of no use afterwards; why it does not show its difference, or nothing.

    Args:
        script: it.
        error: where an exception differs, its key.
    """
    ended, _ = _executed(script.identity)
    if ended is not None:
        return f"with eager in place of the backend it ends with {ended}"
    ended, scope = _executed(script.text)
    if script.raises:
        if ended is None:
            return NO_ERROR
        return "" if same_key(ended.key, error) else f"it {ended}"
    if ended is not None and not ("compiled" in scope and ended.type == "AssertionError"):
        return f"it {ended}"
    if ended is None:
        return AGREE
    wrong = error and (scope["compiled"] == NOTHING) != error.startswith("missing ")
    return f"the backend gives {scope['compiled']!s:.200} in it" if wrong else ""


def raising_lines(script: Script) -> frozenset[int]:
    """The lines of ``f`` at which eager raises."""
    lines = set[int]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_NAME):
            return None
        if event == "exception" and frame.f_code.co_name == "f":
            lines.add(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _executed(script.identity)
    finally:
        sys.settrace(before)
    return frozenset(lines)


_NAME = "<script "


def _executed(text: str) -> tuple[Raised | None, dict[str, Any]]:
    scope: dict[str, Any] = {"__name__": "__main__"}
    name = f"{_NAME}{hash(text):x}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            exec(compile(text, name, "exec"), scope)
        except BaseException as error:  # whatever it is, it is told
            return raised(error), scope
    return None, scope


@dataclass(frozen=True)
class Fresh:
    """What came of ``python script.py``.

    Args:
        status: the exit status; None if it did not end in time.
        output: what it printed, and the end of its traceback.
        error: the exception at the end of that, with its whole message.
    """

    status: int | None
    output: str
    error: str = ""


def run_fresh(text: str, seconds: float) -> Fresh:
    """Run a script as its reader will."""
    with tempfile.TemporaryDirectory(prefix="aotcheck-bug-") as folder:
        path = Path(folder) / "bug.py"
        path.write_text(text, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            printed, complained = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end_group(process.pid)
            process.communicate()
            return Fresh(None, f"did not end in {seconds:g} s")
    told, error = _last(complained.replace(f"{folder}/", ""))
    return Fresh(process.returncode, "\n".join([*printed.splitlines(), *told, *error]), "\n".join(error))


_FRAME = re.compile(r'  File "(?:.*/site-packages/|.*/lib/(?=python3))?(.+)", line (\d+), in (.+)')
_FRAMES = 7
"""So many of the innermost frames of a traceback are shown."""


def _last(complained: str) -> tuple[list[str], list[str]]:
    """The end of a script's traceback: the line of the script that came last and the innermost frames of torch or a
    backend; and the exception with its whole message."""
    lines = complained.splitlines()
    starts = [k for k, line in enumerate(lines) if line.startswith("Traceback ")]
    after = lines[starts[-1] + 1 :] if starts else lines
    said = next((k for k, line in enumerate(after) if line.strip() and not line.startswith(" ")), len(after))
    frames = [(k, match) for k, line in enumerate(after[:said]) if (match := _FRAME.fullmatch(line))]
    own = [k for k, match in frames if match[1] == "bug.py"]
    told, left = [], -1
    if len(own) < len(frames):  # else the script itself has raised it
        for n, (k, match) in enumerate(frames):
            if k in own[-1:] or n >= len(frames) - _FRAMES:
                told += ["  ..."] * (n > left + 1) + [f'  File "{match[1]}", line {match[2]}, in {match[3]}']
                told += [line for line in after[k + 1 : k + 2] if line.startswith("    ")]
                left = n
    return told, after[said:]
