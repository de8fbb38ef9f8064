"""Settings of the compiler, what it did so far, and logs by stage.

``AOTCHECK_LOGS=forward,guards`` prints these stages of each compilation. Each stage has a logger of its own,
``aotcheck.forward`` and so on, which other handlers may be given.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import linecache
import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from torch import fx


class OnUnsupported(enum.Enum):
    """What a call does when the function is refused."""

    RAISE = "raise"
    EAGER = "eager"


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Args:
        on_unsupported: for a function that is refused, by its value as well; None lets the entry point decide.
        cache_size: specializations kept per compiled function; the oldest goes first.
        recompile_warning: warn once when a function has been specialized this often; 0 for never.
        debug: check each graph when it is made, and users' ops against their schemas when graphs run.
    """

    on_unsupported: OnUnsupported | None = None
    cache_size: int = 64
    recompile_warning: int = 8
    debug: bool = False

    def __post_init__(self) -> None:
        if self.on_unsupported is not None:
            object.__setattr__(self, "on_unsupported", OnUnsupported(self.on_unsupported))
        for name, least in (("cache_size", 1), ("recompile_warning", 0)):
            number = getattr(self, name)
            if not isinstance(number, int) or number < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {number!r}")


_DEFAULT = Config()
_current: ContextVar[Config] = ContextVar("aotcheck_config2", default=_DEFAULT)


def config() -> Config:
    """The configuration in force here."""
    return _current.get()


@contextlib.contextmanager
def patch_config(**changes: Any) -> Iterator[Config]:
    """The configuration with ``changes`` applied, for the block. An unknown field raises TypeError."""
    token = _current.set(dataclasses.replace(_current.get(), **changes))
    try:
        yield _current.get()
    finally:
        _current.reset(token)


compiling = threading.RLock()
"""Held while something is traced or compiled."""


def prune(kept: dict[Any, Any]) -> None:
    """Keep no more entries than ``cache_size``."""
    while len(kept) > config().cache_size:
        del kept[next(iter(kept))]


@dataclasses.dataclass(frozen=True)
class Counters:
    """What was done in this process.

    Args:
        compiled: specializations that were made.
        refused: calls that were refused, by reason.
        eager_after_user_error: calls that ran eagerly because the function raised an error of its own.
        static: specializations for fixed sizes in place of symbols, by reason.
        eager: calls that ran the original as it is, by what was at work around them.
        late: backwards that were traced when they were first asked for, as for some of the results.
    """

    compiled: int = 0
    refused: Mapping[str, int] = dataclasses.field(default_factory=dict)
    eager_after_user_error: int = 0
    static: Mapping[str, int] = dataclasses.field(default_factory=dict)
    eager: Mapping[str, int] = dataclasses.field(default_factory=dict)
    late: int = 0


_lock = threading.Lock()
_so_far = Counters()


def counters() -> Counters:
    """The counts so far."""
    return _so_far


def count(what: str, reason: str = "") -> None:
    """One more of what a field of the counters counts, for the reason if it does so by reason."""
    global _so_far
    with _lock:
        before = getattr(_so_far, what)
        after: Any = MappingProxyType({**before, reason: before.get(reason, 0) + 1}) if reason else before + 1
        _so_far = dataclasses.replace(_so_far, **{what: after})


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
    if (found := re.search(r'File "(.*)", line (\d+), in (.*)', said)) is None:
        return said.strip()
    file, line, function = found.groups()
    code = linecache.getline(file, int(line)).strip()
    return f"{file.rpartition('/')[2]}:{line} in {function}" + (f": {code}" if code else "")


show(os.environ.get("AOTCHECK_LOGS", ""))
