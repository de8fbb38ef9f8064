"""Writes the report in Markdown that a user posts to the backend's issue tracker."""

import platform
import re
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile

import torch

from aotcheck.bug.backends import called
from aotcheck.bug.make import Bug
from aotcheck.bug.script import NO_ERROR
from aotcheck.oracle import Difference, OracleKind, Phase, Role

__all__ = ["document"]

_FOUND = "Found by {}: random programs are run eagerly and compiled, and what differs is reduced by a machine."

_MOST = 400
"""So many characters of a value are shown."""


def document(bug: Bug, title: str, backend: str, device: str, *, issue: str = "", source: str = "") -> str:
    """The report of a bug that shows something.

    Args:
        bug: what was found out; it shows at least one difference.
        title: one line in plain words.
        backend: as ``resolve`` takes it.
        device: where it ran.
        issue: the link of a report that there is already; empty for none.
        source: the program file's text, for a bug without a script.
    """
    how, difference = called(backend), bug.differences[0]
    parts = [f"# {backend.rpartition(':')[2]}: {title}", _seen(bug, backend), _expected(difference, how.title)]
    if issue:
        parts.append(f"Known as {issue}: the script below may help there.")
    if bug.script:
        needs = f", which needs {how.needs} beside torch" if how.needs else ""
        parts += ["## To reproduce", f"A script{needs}:" if needs else "", _block(bug.script, "python")]
        parts += ["It prints", _block(bug.fresh.output if bug.fresh else "")]
        if difference.oracle is not OracleKind.CRASH:
            parts += ["and exits with status 1."]
        parts += [bug.control]
    else:
        parts += ["## To reproduce", f"There is no script of plain torch for it: {bug.reason}."]
        parts += ["`aotcheck replay` runs this program file:", _block(source, "python")] if source else []
    if bug.blame:
        parts += ["## Where it comes from", bug.blame]
    if bug.beside:
        told = [
            f"`{called(name).title}` {'shows it too' if shows else 'does not show it'}" for name, shows in bug.beside
        ]
        parts.append(f"The same script: {', '.join(told)}.")
    if others := list(dict.fromkeys(_what(d) for d in bug.differences[1:] if d.key != difference.key)):
        parts.append(f"What differs besides: {', '.join(others)}.")
    parts += ["## Versions", _versions(backend, device)]
    return "\n\n".join(filter(None, parts)) + "\n"


_STEPS = {
    Phase.FORWARD: "the {nth}call of `f`",
    Phase.BACKWARD: "the backward of the {nth}call",
    Phase.GRAD: "`torch.autograd.grad`",
    Phase.DOUBLE_BACKWARD: "the backward of gradients",
    Phase.DOUBLE_GRAD: "`torch.autograd.grad` of gradients",
    Phase.PROBE: "a write to a tensor after the {nth}call",
    Phase.HOOK: "registering a hook",
}
_THINGS = {
    Role.INPUT: "an input",
    Role.OUTPUT: "an output",
    Role.GRADIENT: "a gradient",
    Role.RESULT: "a gradient",
    Role.HOOK: "a hook",
    Role.CALL: "a step",
    Role.PROCESS: "the process",
}
_FACTS = {
    OracleKind.VALUES: "values",
    OracleKind.HOOK: "number of calls",
    OracleKind.EFFECTS: "what is printed",
    OracleKind.ALIASING: "memory",
    OracleKind.POISONING: "later computations",
    OracleKind.RNG: "state of the random number generator",
    OracleKind.GRADIENT_NONE: "presence",
    OracleKind.LEAFNESS: "`is_leaf`",
    OracleKind.GRAD_FN: "presence of a `grad_fn`",
    OracleKind.REQUIRES_GRAD: "`requires_grad`",
}

_LIMITS = re.compile(r"not (?:yet )?(?:handle|implement|support)|does not yet|unsupported(?! operand)", re.I)
_ORDINALS = {1: "second", 2: "third", 3: "fourth"}


def _seen(bug: Bug, backend: str) -> str:
    """What differs, in a sentence or two; of what the script shows, in its words."""
    difference, how = bug.differences[0], called(backend).title
    place = difference.place
    eager, compiled = difference.eager, difference.compiled
    values = _printed(bug, backend)
    step = _STEPS[place.phase].format(nth="" if not place.call else f"{_ORDINALS.get(place.call, 'later')} ")
    if difference.oracle in (OracleKind.CRASH, OracleKind.TIMEOUT):
        return f"The program {eager} in eager; with `{how}` its process is {compiled.removeprefix('was ')}."
    if difference.oracle is OracleKind.EXCEPTION:
        if values is not None:  # whole messages
            eager, compiled = (f"raises {value}" if value != NO_ERROR else "raises nothing" for value in values)
        elif bug.script and bug.fresh is not None:
            compiled = f"raises {' '.join(takewhile(str.strip, bug.fresh.error.splitlines()))}"
        said = f"In {step}, eager {_raised(eager)}, and `{how}` {_raised(compiled)}."
        limit = _LIMITS.search(compiled)
        return f"{said} The message says that this is not supported, so it may be a known limit." if limit else said
    both = ", where both raise" if place.failed else ""
    if bug.looks and values is not None:
        first, second = map(_short, values)
        return f"After {step}{both}, `{bug.looks}` gives `{first}` in eager and `{second}` with `{how}`."
    return f"{_what(difference).capitalize()} after {step}{both}: `{eager}` in eager, `{compiled}` with `{how}`."


def _what(difference: Difference) -> str:
    """What differs, in words that say no name."""
    if difference.oracle is OracleKind.EXCEPTION:
        return "whether an error is raised, or which"
    fact = _FACTS.get(difference.oracle, difference.oracle.value.replace("-", " "))
    return f"the {fact} of {_THINGS[difference.place.role]}"


def _expected(difference: Difference, how: str) -> str:
    """What the backend should do."""
    if difference.oracle in (OracleKind.CRASH, OracleKind.TIMEOUT):
        return f"Expected: with `{how}` it ends as in eager."
    if difference.oracle is OracleKind.EXCEPTION:
        if difference.eager == "raises nothing":
            return f"Expected: `{how}` raises no error, as in eager."
        return "Expected: both raise the same error, or neither does, should eager's error itself be wrong."
    return f"Expected: `{how}` gives what eager gives."


def _printed(bug: Bug, backend: str) -> tuple[str, str] | None:
    """The two values that the script has printed."""
    lines = bug.fresh.output.splitlines() if bug.fresh is not None else []
    found = [
        next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), None)
        for name in ("eager", backend.rpartition(":")[2])
    ]
    return None if None in found else (str(found[0]), str(found[1]))


def _raised(text: str) -> str:
    """``raises `KeyError('x')```."""
    verb, _, what = text.replace("`", "'").partition(" ")
    return "raises nothing" if what == "nothing" else f"{verb} `{what}`"


def _short(text: str) -> str:
    line = " ".join(text.replace("`", "'").split())
    return line if len(line) <= _MOST else f"{line[:_MOST]} ..."


def _block(text: str, language: str = "") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _versions(backend: str, device: str) -> str:
    found = [f"torch {torch.__version__}"]
    found += [said] if (said := _installed(called(backend).needs)) else []
    found += [f"Python {platform.python_version()}", platform.platform(terse=True), platform.machine()]
    if device != "cpu":
        found.append(torch.cuda.get_device_name(device))
    return f"{', '.join(found)}; device {device}. {_FOUND.format(_installed('aotcheck') or 'aotcheck')}"


def _installed(package: str) -> str:
    """A package and its version; empty where it is not installed, or not a package of its own."""
    try:
        return f"{package} {version(package)}" if package else ""
    except PackageNotFoundError:
        return ""
