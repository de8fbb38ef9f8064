"""One difference as a script of plain torch: the function, what a caller does with it, and what comes of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aotcheck.bug.backends import called
from aotcheck.bug.caller import SEED, Caller, Chunk
from aotcheck.bug.choices import Choices
from aotcheck.bug.looking import ways_of_looking
from aotcheck.bug.names import named_program
from aotcheck.bug.statements import CannotBeWrittenError, Spelling
from aotcheck.oracle import Difference, OracleKind
from aotcheck.program import Program

__all__ = ["NO_ERROR", "Script", "write"]

NO_ERROR = "no error"
"""What a script's function gives where an error is what differs, and there is none."""

_RAISES = (OracleKind.EXCEPTION, OracleKind.CRASH)


@dataclass(frozen=True)
class Script:
    """A script, and how it tells.

    Args:
        text: its source.
        identity: the same with eager in place of the backend, which must tell nothing.
        raises: it shows what the backend ends with by letting it through; else it compares two values.
        looks: the expression whose values it compares; empty where it compares what is raised.
    """

    text: str
    identity: str
    raises: bool
    looks: str = ""


def write(program: Program, difference: Difference, backend: str, device: torch.device, choices: Choices) -> Script:
    """The script that shows ``difference``, which ``program`` shows on ``backend``.

    Raises:
        CannotBeWrittenError: there is no such script; the message says why.
    """
    if difference.oracle in (OracleKind.TIMEOUT, OracleKind.MEMORY, OracleKind.POISONING):
        raise CannotBeWrittenError(f"a script cannot look at what it shows: {difference.oracle.value}")
    crash = difference.oracle is OracleKind.CRASH
    named = named_program(program)
    spelling = Spelling(named, choices)
    caller = Caller(named, spelling, choices, device, None if crash else difference.place)
    seen = caller.write()
    function = spelling.function()
    raises = crash or (difference.oracle is OracleKind.EXCEPTION and seen.raised is None)
    run = _body(caller, difference, raises)
    chosen = called(backend)
    if difference.oracle is OracleKind.EFFECTS:
        spelling.imports |= dict.fromkeys(("import contextlib", "import io"))
    compiled = choices.among("backend", chosen.ways)
    definitions = [line for made in spelling.definitions for line in ("", "", *made.splitlines())]
    first = [*_ordered((*spelling.imports, "import torch", *chosen.imports)), *definitions, "", "", *function, "", ""]
    run = ["def run(f):", *(f"    {line}" for line in run), "", ""]

    def source(expression: str) -> str:
        ending = _raising(expression, difference) if raises else _comparing(expression, backend)
        return "\n".join([*first, *run, *ending, ""])

    returned = [line.strip().removeprefix("return ") for line in run if "return " in line and "repr(error)" not in line]
    looks = returned[-1] if difference.oracle not in _RAISES else ""
    return Script(source(compiled), source("f"), raises, looks)


def _ordered(imports: Sequence[str]) -> list[str]:
    return sorted(dict.fromkeys(imports), key=lambda line: (line.startswith("from"), line))


def _body(caller: Caller, difference: Difference, raises: bool) -> list[str]:
    """What ``run`` does."""
    chunks = list(caller.chunks)
    if not caller.draws and difference.oracle is not OracleKind.RNG:
        chunks = [Chunk([line for line in c.lines if line != SEED], c.raises) for c in chunks]
    if difference.oracle is OracleKind.EXCEPTION and not raises:
        *before, last = chunks
        lines = [*_lines(before), *_caught(last.lines, "return repr(error)"), f'return "{NO_ERROR}"']
    elif difference.oracle is OracleKind.EFFECTS:
        *before, last = chunks
        within = [f"    {line}" for line in _lines([last])]
        lines = [*_lines(before), "with contextlib.redirect_stdout(io.StringIO()) as printed:", *within]
    else:
        lines = _lines(chunks)
    if difference.oracle not in _RAISES:
        ways = ways_of_looking(difference, caller.named, caller.hook)
        looks = [f"return {caller.choices.among('look', ways)}"]
        fails = {"refused", "asserted"} & {difference.eager, difference.compiled}
        lines += _caught(looks, "return repr(error)") if fails else looks
    return _unbound(lines)


def _lines(chunks: Sequence[Chunk]) -> list[str]:
    lines: list[str] = []
    for chunk in chunks:
        if chunk.raises and chunk.lines:
            lines += _caught(chunk.lines, "print(repr(error))")
        else:
            lines += chunk.lines
    return lines


def _caught(lines: Sequence[str], then: str) -> list[str]:
    """Lines that raise, and what is done then."""
    return ["try:", *(f"    {line}" for line in lines), "except Exception as error:", f"    {then}"]


_RESULT = re.compile(r"^(\s*)(out\d*|grads) = ")


def _unbound(lines: list[str]) -> list[str]:
    """The lines without names for results that nobody reads."""
    found: list[str] = []
    for k, line in enumerate(lines):
        bound = _RESULT.match(line)
        if bound and not _is_read(bound[2], lines[k + 1 :]):
            line = bound[1] + line[bound.end() :]
        found.append(line)
    return found


def _is_read(name: str, lines: Sequence[str]) -> bool:
    """Whether a name is read before it is bound again."""
    for line in lines:
        bound = _RESULT.match(line)
        if re.search(rf"\b{name}\b", line[bound.end() :] if bound else line):
            return True
        if bound and bound[2] == name:
            return False
    return False


_RAISED = re.compile(r"raises ([\w.]+)")


def _raising(compiled: str, difference: Difference) -> list[str]:
    """An exception is let through, or the process ends."""
    raised = _RAISED.match(difference.compiled)
    return ["run(f)  # eager: no error", f"run({compiled})  # {raised[1] if raised else difference.compiled}"]


def _comparing(compiled: str, backend: str) -> list[str]:
    """What eager and the backend give is printed and compared."""
    name = backend.rpartition(":")[2]
    width = max(len("eager"), len(name)) + 1
    return [
        "eager = run(f)",
        f"compiled = run({compiled})",
        f'print("{"eager:":<{width}}", eager)',
        f'print("{name + ":":<{width}}", compiled)',
        "assert eager == compiled",
    ]
