"""Which calls share code, and the modes in which it runs."""

import concurrent.futures
import gc
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from aotcheck.autograd2.api import aot_function
from aotcheck.autograd2.errors import UnsupportedError


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


def test_threads_that_call_at_once_share_one_compilation():
    graphs: list[object] = []

    def slow(module: fx.GraphModule, inputs: object) -> fx.GraphModule:
        graphs.append(module)
        time.sleep(0.05)
        return module

    compiled = aot_function(lambda x: x * 2, slow)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert [t.tolist() for t in pool.map(compiled, [torch.ones(1)] * 4)] == [[2.0]] * 4
    assert len(graphs) == 1


def test_a_part_of_the_function_without_autocast_stays_without():
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", enabled=False):
            exact = x @ x
        return exact, x @ x

    with torch.autocast("cpu", torch.bfloat16):
        exact, rounded = aot_function(both)(torch.full((2, 2), 1.001))
        wanted = both(torch.full((2, 2), 1.001))
    assert torch.equal(exact, wanted[0]) and torch.equal(rounded, wanted[1])
    assert (exact.dtype, rounded.dtype) == (torch.float32, torch.bfloat16)


def test_attributes_that_somebody_put_on_tensors_tell_calls_apart():
    weight = torch.ones(2)
    compiled = aot_function(lambda x: (x * getattr(weight, "scale", 1), hasattr(x, "mark"), getattr(x, "other", None)))
    for k in range(12):
        x = torch.ones(2)
        if k > 6:
            weight.scale = k // 4
        if k % 3 == 2:
            x.mark = torch.ones(2)
            with pytest.raises(UnsupportedError, match="attribute of a tensor"):
                compiled(x)
            x.mark = True
        assert compiled(x)[0].tolist() == [k // 4 if k > 6 else 1] * 2 and compiled(x)[1] is (k % 3 == 2)
    with pytest.raises(UnsupportedError, match="attribute of a tensor"):
        aot_function(lambda x: vars(x).update(mark=1))(weight)
    assert not hasattr(weight, "mark")
