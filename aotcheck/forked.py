"""Imported by the server that worker processes are forked from, before any other module.

A worker reads what it is to do from the process that asked for it. Where that process has ended meanwhile, by Ctrl-C
while a pool starts, the worker fails before it has begun. Nobody is left to be told, so nothing is printed on the
user's terminal.
"""

import sys
from types import TracebackType

_NOBODY_LEFT = (FileNotFoundError, EOFError, ConnectionError)
"""What reading from a pool that is gone raises."""


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, _NOBODY_LEFT):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _hook
