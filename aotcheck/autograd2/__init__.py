"""The second compiler: an AOT autograd of our own, small and with a place for each thing."""

from aotcheck.autograd2.api import aot_function, aot_module, compiled_function, compiled_module
from aotcheck.autograd2.config import Config, Counters, config, counters, patch_config
from aotcheck.autograd2.errors import InternalError, UnsupportedError
from aotcheck.autograd2.explain import Explanation, explain
from aotcheck.autograd2.runtime.compile import nop

__all__ = [
    "Config",
    "Counters",
    "Explanation",
    "InternalError",
    "UnsupportedError",
    "aot_function",
    "aot_module",
    "compiled_function",
    "compiled_module",
    "config",
    "counters",
    "explain",
    "nop",
    "patch_config",
]
