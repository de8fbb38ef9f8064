"""aotcheck: an AOT autograd of its own, and the property-based suite that proves it and anyone else's.

The names below are loaded when first used, so that importing a part of the package does not import all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotcheck.autograd.api import (
        aot_function,
        aot_module,
        aot_module_simplified,
        compiled_function,
        compiled_module,
        default_partition,
        make_boxed_compiler,
        make_boxed_func,
        nop,
    )
    from aotcheck.autograd.config import Config, OnUnsupported, config, patch_config
    from aotcheck.autograd.counters import Counters, counters
    from aotcheck.autograd.errors import InternalError, NotFunctionalError, UnsupportedError
    from aotcheck.autograd.graphs.graph import assert_functional
    from aotcheck.checking import check
    from aotcheck.program.ops.subclasses import register_subclass

__version__ = "0.1.0"

_HOMES = {
    "aotcheck.autograd.api": (
        "aot_function",
        "aot_module",
        "aot_module_simplified",
        "compiled_function",
        "compiled_module",
        "default_partition",
        "make_boxed_compiler",
        "make_boxed_func",
        "nop",
    ),
    "aotcheck.autograd.config": ("Config", "OnUnsupported", "config", "patch_config"),
    "aotcheck.autograd.counters": ("Counters", "counters"),
    "aotcheck.autograd.errors": ("InternalError", "NotFunctionalError", "SchemaError", "UnsupportedError"),
    "aotcheck.autograd.graphs.graph": ("assert_functional",),
    "aotcheck.checking": ("check",),
    "aotcheck.program.ops.subclasses": ("register_subclass",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Config",
    "Counters",
    "InternalError",
    "NotFunctionalError",
    "OnUnsupported",
    "SchemaError",
    "UnsupportedError",
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "assert_functional",
    "check",
    "compiled_function",
    "compiled_module",
    "config",
    "counters",
    "default_partition",
    "make_boxed_compiler",
    "make_boxed_func",
    "nop",
    "patch_config",
    "register_subclass",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'aotcheck' has no attribute {name!r}")
    return getattr(import_module(home), name)
