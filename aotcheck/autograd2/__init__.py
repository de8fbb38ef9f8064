"""The second compiler: an AOT autograd of our own, small and with a place for each thing."""

from aotcheck.autograd2.api import (
    CompiledModule,
    aot_function,
    aot_module,
    aot_module_simplified,
    compiled_function,
    compiled_module,
    make_boxed_compiler,
    make_boxed_func,
)
from aotcheck.autograd2.config import Config, Counters, OnUnsupported, config, counters, patch_config
from aotcheck.autograd2.errors import NotFunctionalError, SchemaError, UnsupportedError
from aotcheck.autograd2.explain import Explanation, explain
from aotcheck.autograd2.partition import default_partition
from aotcheck.autograd2.runtime.compile import assert_functional, nop

__all__ = [
    "CompiledModule", "Config", "Counters", "Explanation", "NotFunctionalError", "OnUnsupported", "SchemaError",
    "UnsupportedError", "aot_function", "aot_module", "aot_module_simplified", "assert_functional",
    "compiled_function", "compiled_module", "config", "counters", "default_partition", "explain",
    "make_boxed_compiler", "make_boxed_func", "nop", "patch_config",
]  # fmt: skip
