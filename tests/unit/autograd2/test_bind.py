"""What a call brings, beyond arguments: defaults, arguments of partials, slots, sets, the order of a dict."""

import functools
from typing import Any

import torch

from aotcheck.autograd2.api import aot_function, aot_module
from aotcheck.autograd2.config import counters


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


def test_a_container_in_several_places_stays_one() -> None:
    kept: dict[str, Any] = {}

    def f(x: torch.Tensor) -> Any:
        made = [x * 2]
        kept["last"], kept["both"] = made, (made, {"in": made})
        return made

    compiled = aot_function(f)
    for _ in range(2):
        made = compiled(torch.ones(2))
        assert made is kept["last"] is kept["both"][0] is kept["both"][1]["in"]


def test_a_partition_function_decides_what_is_saved() -> None:
    from functorch.compile import min_cut_rematerialization_partition

    asked = []

    def compiler(module: Any, _: Any) -> Any:
        asked.append([str(n.target) for n in module.graph.nodes])
        return module

    compiled = aot_function(
        lambda x, y: (x.exp().sin().cos(), (x * y).sin()), compiler, partition_fn=min_cut_rematerialization_partition
    )
    for which in ((0, 1), (1,)):
        leaves = [torch.arange(3.0, requires_grad=True) for _ in range(4)]
        results, wanted = compiled(*leaves[:2]), (leaves[2].exp().sin().cos(), (leaves[2] * leaves[3]).sin())
        torch.autograd.backward([results[k].sum() for k in which])
        torch.autograd.backward([wanted[k].sum() for k in which])
        assert torch.equal(leaves[0].grad, leaves[2].grad) and torch.equal(leaves[1].grad, leaves[3].grad)
    assert any("aten.exp.default" in ops for ops in asked[1:]), "computed again in a backward"


def test_a_network_of_cells_and_a_count_of_calls_compile_no_more_than_they_need() -> None:
    layer = torch.nn.LSTM(2, 2)

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls, self.last = layer, 0, None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = {"shape": tuple(x.shape)}
            return self.layer(x)[0] * self.calls

    net = Counting()
    compiled, before = aot_module(net), counters().compiled
    for k in range(1, 5):
        x = torch.randn(3, 1, 2)
        assert torch.equal(compiled(x), layer(x)[0] * k) and net.last == {"shape": (3, 1, 2)}
    assert counters().compiled - before <= 2


def test_a_variable_that_the_first_call_binds_is_bound() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        nonlocal last
        try:
            before = last
        except NameError:
            before = x
        last = x * 2
        return before + last

    if f is None:
        last = torch.ones(2)
    compiled, x = aot_function(f), torch.ones(2)
    assert [compiled(x).tolist() for _ in range(3)] == [[3.0, 3.0], [4.0, 4.0], [4.0, 4.0]]


def test_the_same_list_twice_is_no_two_lists() -> None:
    compiled = aot_function(lambda a, b: (a.append(a[0] * 2), len(b), a is b)[1:])
    for same in (True, True, True, False, True, False, False):
        a = [torch.ones(2)]
        assert compiled(a, a if same else [a[0]]) == ((2, True) if same else (1, False))
