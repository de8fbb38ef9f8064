"""What a call brings, beyond arguments: defaults, arguments of partials, slots, sets, the order of a dict."""

import functools
from typing import Any

import torch

from aotcheck.autograd2.api import aot_function


class Slotted:
    """Keeps a tensor and a number in slots."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.last, self.count = torch.ones(3), 0


def test_what_is_read_at_every_call_and_assigned_by_every_call() -> None:
    slotted, order, seen = Slotted(), {"a": 1.0, "b": 2.0}, set()
    weight = torch.full((3,), 2.0, requires_grad=True)

    def f(factor: torch.Tensor, x: torch.Tensor, by: float = 1.0) -> Any:
        slotted.count, slotted.last = slotted.count + 1, slotted.last * x
        seen.add(next(iter(order)))
        order["a"] = order.pop("a")
        return factor * x * by * len(seen) * slotted.count

    compiled, x = aot_function(functools.partial(f, weight)), torch.arange(3.0)
    assert torch.equal(compiled(x), weight * x)
    assert (slotted.count, list(order), seen) == (1, ["b", "a"], {"a"})
    f.__defaults__ = (3.0,)
    compiled(x).sum().backward()
    assert torch.equal(weight.grad, 12 * x)
    assert (slotted.count, list(order), seen) == (2, ["b", "a"], {"a", "b"})
    assert torch.equal(slotted.last, x * x)
