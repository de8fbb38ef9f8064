"""Private names of torch that may be missing: looked up here, missed when somebody uses one, not before.

The suite imports ``aotcheck._torch`` for a few names, and fuzzes other backends on a torch that lacks others. Our own
AOT autograd needs all of them, so it asks ``require_all`` when it is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

import torch

_missing: list[str] = []


class MissingNameError(ImportError):
    """This torch lacks a private name that our own AOT autograd uses."""


class Missing:
    """Stands for a name that is missing; whatever is done with it raises."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise error_about([self._path])

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python looks, as for a protocol
            raise AttributeError(name)
        raise error_about([self._path])


def private(path: str) -> Any:
    """What torch has at the dotted ``path``, such as ``torch._C._set_grad_enabled``; if nothing, a ``Missing``."""
    found: Any = torch
    reached = "torch"
    for name in path.split(".")[1:]:
        reached = f"{reached}.{name}"
        try:
            found = getattr(found, name)
        except AttributeError:
            try:
                found = import_module(reached)
            except ImportError:
                _missing.append(reached)
                return Missing(reached)
    return found


def note_missing(error: Exception) -> None:
    """Remember that a module of ``aotcheck._torch`` could not be imported, for ``require_all``."""
    _missing.append(str(error))


def error_about(names: list[str]) -> MissingNameError:
    """What to raise about missing names: which, of which torch, and what to do."""
    return MissingNameError(
        f"torch {torch.__version__} lacks private names that aotcheck's own AOT autograd uses: {', '.join(names)}. "
        "It runs on torch 2.11 to 2.15: install one of these (pip install 'torch==2.15.*'), or fuzz another backend, "
        "which needs none of them. A newer torch needs a change in aotcheck/_torch: please report it"
    )


def require_all() -> None:
    """Raise if anything was missing.

    Raises:
        MissingNameError: with all the names.
    """
    if _missing:
        raise error_about(list(dict.fromkeys(_missing)))
