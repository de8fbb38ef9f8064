"""Which calls share code."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import Tensor

from aotcheck.autograd2.api import aot_function


def times(k: int) -> Callable[[Tensor], Tensor]:
    namespace: dict[str, Callable[[Tensor], Tensor]] = {}
    exec(f"def f(x): return x * {k}", namespace)
    return namespace["f"]


def test_a_function_with_the_address_of_a_dead_one_is_another():
    compiled = aot_function(lambda x, f: f(x))
    for k in range(2, 30):
        f = times(k)
        assert compiled(torch.ones(2), f).tolist() == [k, k]
        del f
        gc.collect()
