"""Logs by stage, and graphs as text. ``AOTCHECK_LOGS=forward,guards`` prints these stages of each compilation.

Each stage has a logger of its own, ``aotcheck.forward`` and so on, which other handlers may be given.
"""

from __future__ import annotations

import linecache
import logging
import os
import re
import warnings
from collections.abc import Callable

from torch import fx

STAGES = ("joint", "forward", "backward", "guards", "recompiles")
"""What can be shown: graphs; what a call must be like to use the code; in what a call differs from the last kind."""

_ROOT = logging.getLogger("aotcheck")


def show(names: str) -> None:
    """Print these stages from now on, ``names`` with commas between. Warns of what is no stage."""
    wanted = [n.strip() for n in names.split(",") if n.strip()]
    for name in wanted:
        if name not in STAGES:
            warnings.warn(f"AOTCHECK_LOGS: {name!r} is no stage; there are {', '.join(STAGES)}", stacklevel=2)
        else:
            _ROOT.getChild(name).setLevel(logging.INFO)
    if wanted and not _ROOT.handlers:
        _ROOT.addHandler(logging.StreamHandler())


def log(stage: str, text: Callable[[], str]) -> None:
    """Print a stage, if that is wanted; only then is the text made."""
    logger = _ROOT.getChild(stage)
    if logger.isEnabledFor(logging.INFO):
        logger.info("# %s\n%s", stage, text().rstrip())


def python_of(module: fx.GraphModule, name: str) -> str:
    """The graph as a function of its inputs and of ``self``, which has its constants, under the user's lines."""
    where = {n.name: n.meta.get("stack_trace", "") for n in module.graph.nodes}
    lines, last = [], ""
    for line in module.graph.python_code("self").src.strip().splitlines():
        line = re.sub(r";(  \w+ =)*  ?(\w+ = )+None$", "", line)
        said = where.get(line.split("=")[0].split(":")[0].strip(), "")
        if said and said != last:
            lines.append(f"    # {_of_user(said)}")
            last = said
        lines.append(line.replace("def forward(", f"def {name}(").rstrip())
    return "\n".join(line for line in lines if line) + "\n"


def _of_user(said: str) -> str:
    found = re.search(r'File "(.*)", line (\d+), in (.*)', said)
    if found is None:
        return said.strip()
    file, line, function = found.groups()
    code = linecache.getline(file, int(line)).strip()
    return f"{file.rpartition('/')[2]}:{line} in {function}" + (f": {code}" if code else "")


show(os.environ.get("AOTCHECK_LOGS", ""))
