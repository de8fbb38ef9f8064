"""A report in Markdown, as it is posted to the tracker of whoever makes the backend."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from aotcheck.bug.backends import called
from aotcheck.bug.make import Bug
from aotcheck.oracle import Difference, OracleKind, Phase, Role

__all__ = ["document"]

_MOST = 400
"""So many characters of what a run gives are shown."""


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
    parts = [f"# {_heading(title)}", _seen(difference, how.title)]
    if issue:
        parts.append(f"Known as {issue}.")
    if bug.script:
        needs = f", which needs {how.needs} beside torch" if how.needs else ""
        parts += ["## To reproduce", f"A script{needs}:", _block(bug.script, "python")]
        parts += ["It prints", _block(bug.fresh.output if bug.fresh else "")]
        if difference.oracle is not OracleKind.CRASH:
            parts += ["and exits with status 1."]
    else:
        parts += ["## To reproduce", f"There is no script of plain torch for it: {bug.reason}."]
        parts += ["`aotcheck replay` runs this program file:", _block(source, "python")] if source else []
    if bug.blame:
        parts += ["## Where it comes from", bug.blame]
    if others := [d for d in bug.differences[1:] if d.key != difference.key]:
        parts += ["## What differs besides", "\n".join(f"- {_short(d.text)}" for d in others[:5])]
    parts += ["## Versions", _versions(backend, device)]
    return "\n\n".join(parts) + "\n"


_STEPS = {
    Phase.FORWARD: "the call of `f`",
    Phase.BACKWARD: "the backward",
    Phase.GRAD: "`torch.autograd.grad`",
    Phase.DOUBLE_BACKWARD: "the backward of gradients",
    Phase.DOUBLE_GRAD: "`torch.autograd.grad` of gradients",
    Phase.PROBE: "a write to a tensor after the call",
    Phase.HOOK: "registering a hook",
}
_THINGS = {
    Role.INPUT: "an input",
    Role.OUTPUT: "an output",
    Role.GRADIENT: "a gradient",
    Role.RESULT: "a gradient",
    Role.HOOK: "what a hook is called with",
    Role.PROCESS: "the process",
}
_FACTS = {
    OracleKind.VALUES: "values",
    OracleKind.RNG: "state of the random number generator",
    OracleKind.GRADIENT_NONE: "presence",
    OracleKind.LEAFNESS: "`is_leaf`",
    OracleKind.GRAD_FN: "presence of a `grad_fn`",
    OracleKind.REQUIRES_GRAD: "`requires_grad`",
}


def _seen(difference: Difference, how: str) -> str:
    """What differs, in a sentence."""
    place = difference.place
    eager, compiled = _short(difference.eager), _short(difference.compiled)
    when = f"{_STEPS[place.phase]}{', in a later call' if place.call else ''}"
    if difference.oracle in (OracleKind.CRASH, OracleKind.TIMEOUT):
        return f"The program {eager} in eager; with `{how}` its process is {compiled.removeprefix('was ')}."
    if difference.oracle is OracleKind.EXCEPTION:
        return f"In {when}, eager {_raised(eager)}, and `{how}` {_raised(compiled)}."
    fact = _FACTS.get(difference.oracle, difference.oracle.value.replace("-", " "))
    return f"The {fact} of {_THINGS[place.role]} after {when}: `{eager}` in eager, `{compiled}` with `{how}`."


def _raised(text: str) -> str:
    """``raises `KeyError('x')```."""
    verb, _, what = text.partition(" ")
    return "raises nothing" if what == "nothing" else f"{verb} `{what}`"


def _heading(title: str) -> str:
    """A title that begins with a capital, unless it begins with the name of an op."""
    first = title.partition(" ")[0]
    return title if "." in first else f"{title[:1].upper()}{title[1:]}"


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
    return f"{', '.join(found)}; device {device}. Found by {_installed('aotcheck') or 'aotcheck'}."


def _installed(package: str) -> str:
    """A package and its version; empty where it is not installed, or not a package of its own."""
    try:
        return f"{package} {version(package)}" if package else ""
    except PackageNotFoundError:
        return ""
