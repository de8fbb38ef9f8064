"""The compiler that the behaviour tests check: ``pytest --compiler NAME`` chooses it.

Tests write ``from tests.behaviour.compilers import aotcheck`` in place of ``import aotcheck``, and then as ever
``aotcheck.aot_function``: the name stands for the module of the chosen compiler.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

importlib.import_module("aotcheck.autograd")  # before a test binds the `apply` of a custom Function, see docs/limits.md

MODULES = {"first": "aotcheck", "refusing": "tests.behaviour.refusing"}
"""Compilers by name: modules with the entry points, ``counters``, ``patch_config`` and the errors of ``aotcheck``."""

BACKENDS = {"first": "aotcheck", "refusing": "aotcheck"}
"""What ``torch.compile`` calls them."""


@dataclass
class Chosen:
    """Stands for the module of the compiler that is chosen by ``name``."""

    name: str = "first"

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(MODULES[self.name]), name)


aotcheck = Chosen()


def backend() -> str:
    """The name of the chosen compiler for ``torch.compile``."""
    return BACKENDS[aotcheck.name]
