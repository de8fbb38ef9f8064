"""The module that ``module:attribute`` names, where the module may be one of our strategies.

Our strategies lie in the folder ``strategies`` of this repository and are installed as ``aotcheck_strategies``, since a
project of a user's may have a ``strategies.py`` of its own. ``strategies:programs`` names the user's ``programs`` where
the user's module has one, and ours otherwise. ``aotcheck_strategies:programs`` always names ours.
"""

import importlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

__all__ = ["INSTALLED", "find_modules_here", "module_of"]

FOLDER = "strategies"
"""What our strategies are called in this repository, and for short."""

INSTALLED = "aotcheck_strategies"
"""What they are called where they are installed."""


def find_modules_here() -> None:
    """Let modules of the working directory be imported, where a backend or strategies of the user's may lie.

    They come last: what is imported elsewhere by the same name is still that. A script has its own folder in their
    place, and the command ``pytest`` has none.
    """
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)


def module_of(spec: str) -> ModuleType:
    """The module of ``module:attribute``.

    Raises:
        ImportError: there is no such module; and whatever else a module raises that is imported.
    """
    module, _, attribute = spec.partition(":")
    first, dot, rest = module.partition(".")
    if first == INSTALLED:
        return importlib.import_module(f"{_ours()}{dot}{rest}")
    if first != FOLDER:
        return importlib.import_module(module)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the user's module is there and lacks another one
        return importlib.import_module(f"{_ours()}{dot}{rest}")
    if not hasattr(found, attribute) and find_spec(INSTALLED) is not None:
        ours = importlib.import_module(f"{INSTALLED}{dot}{rest}")
        return ours if hasattr(ours, attribute) else found
    return found


def _ours() -> str:
    """The name that our strategies are imported by: that of the folder where it lies beside this package."""
    beside = Path(__file__).resolve().parents[1] / FOLDER / "__init__.py"
    found = find_spec(FOLDER)
    same = found is not None and found.origin is not None and Path(found.origin).resolve() == beside
    return FOLDER if same and not (beside.parents[1] / INSTALLED).exists() else INSTALLED
