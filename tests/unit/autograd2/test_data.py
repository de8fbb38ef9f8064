"""Sizes that data decide: what was asked of a value once has the same size when it is asked again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from aotcheck.autograd2 import aot_function, counters
from aotcheck.autograd2.errors import UnsupportedError
from tests.unit.autograd2.agrees import agrees


def counted_up(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    y[mask] += x.sum()
    return y


def written(x: Tensor, mask: Tensor) -> Tensor:
    y = x * 1
    y[mask] = x[0, 0].sin()
    return y


def multiplied(x: Tensor, mask: Tensor) -> Tensor:
    return x[mask] * x.cos()[mask]


def selected(x: Tensor, mask: Tensor) -> Tensor:
    return torch.masked_select(x, mask) * torch.masked_select(x.exp(), mask)


def of_a_mask_that_changes(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    before = x.detach()[mask]
    mask.logical_not_()
    return before, x[mask]


@pytest.mark.parametrize("f", [counted_up, written, multiplied, selected, of_a_mask_that_changes])
@pytest.mark.parametrize("seed", range(3))
def test_masks_forward_and_in_the_backward(f: Callable[..., object], seed: int) -> None:
    def inputs() -> tuple[Tensor, Tensor]:
        torch.manual_seed(seed)
        return torch.randn(3, 4, requires_grad=True), torch.rand(3, 4) > 0.5

    agrees(f, inputs)


def means_of_kinds(x: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
    kind, place, count = torch.unique(kinds, return_inverse=True, return_counts=True)
    return x.new_zeros(kind.shape).index_add(0, place, x) / count, kind


def repeated(x: Tensor, kinds: Tensor) -> Tensor:
    return x.repeat_interleave(kinds + 1).sin() * x.detach().max().item()


def counted(x: Tensor, kinds: Tensor) -> tuple[object, ...]:
    weights = torch.bincount(kinds, weights=x.detach(), minlength=5)
    return x * 2, weights, torch.unique_consecutive(kinds), x.detach().mean().item()


def columns(x: Tensor, kinds: Tensor) -> tuple[object, ...]:
    table = torch.stack([kinds, kinds.flip(0)])
    return torch.unique(table, dim=1), *torch.unique_consecutive(table, dim=1, return_counts=True), x.cos()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows, count", [(2, 2), (3, 3), (2, 3), (3, 1)])
def test_values_say_how_often_a_mask_is_true(dynamic: bool, rows: int, count: int) -> None:
    def function(x: Tensor, mask: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 1
        y[mask] = values
        return y.cos(), torch.index_put(x, (mask,), values)[mask]

    compiled = aot_function(function, dynamic=dynamic)
    compiled(torch.ones(4, 5), torch.arange(4) < 2, torch.ones(2, 5, requires_grad=True))
    leaves = {f: (torch.ones(4, 5, requires_grad=True), torch.ones(count, 5, requires_grad=True)) for f in (0, 1)}
    if count not in (1, rows):
        with pytest.raises((RuntimeError, IndexError), match="shape mismatch"):
            compiled(leaves[0][0], torch.arange(4) < rows, leaves[0][1])
        return
    for f, (x, values) in zip((function, compiled), leaves.values(), strict=True):
        sum(y.sum() for y in f(x, torch.arange(4) < rows, values)).backward()
    for expected, found in zip(*leaves.values(), strict=True):
        assert expected.grad is not None and torch.equal(expected.grad, found.grad)


@pytest.mark.parametrize("f", [means_of_kinds, repeated, counted, columns])
def test_values_and_how_often_each_is_there(f: Callable[..., object]) -> None:
    compiled = aot_function(f)
    for seed, n in enumerate((5, 5, 7, 9)):
        torch.manual_seed(seed)
        x, kinds = torch.randn(n), torch.randint(0, 4, (n,))
        ours, eagers = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, expected = compiled(ours, kinds), f(eagers, kinds)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        for results in (found, expected):
            differentiable = [t for t in pytree.tree_leaves(results) if isinstance(t, Tensor) and t.requires_grad]
            torch.autograd.backward([t.sum() for t in differentiable])
        torch.testing.assert_close(ours.grad, eagers.grad, rtol=0, atol=0)
    assert len(compiled.aotcheck.specializations()) == 2


def losses(x: Tensor, kinds: Tensor) -> Tensor:
    lengths = torch.tensor([3, 3])
    losses = torch.nn.functional.ctc_loss(x.log_softmax(-1), kinds[kinds > 0].view(2, 2), lengths, lengths - 1)
    return losses * torch.linalg.lstsq(x[0], x[1]).solution.sum()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiler_is_told_what_each_node_gives(dynamic: bool) -> None:
    found: list[tuple[object, object]] = []

    def compiler(module: fx.GraphModule, _: object) -> Callable[..., object]:
        class Compared(fx.Interpreter):
            def run_node(self, n: fx.Node) -> object:
                real, told = super().run_node(n), n.meta.get("val")
                called = n.op == "call_function" and "ctc" not in str(
                    n.args
                )  # docs/decisions.md says why not of ctc_loss
                if isinstance(real, Tensor) and called:
                    assert isinstance(told, Tensor), n
                    sizes = [
                        m if isinstance(n, torch.SymInt) else n for n, m in zip(told.shape, real.shape, strict=True)
                    ]
                    found.append(((told.dtype, sizes), (real.dtype, [*real.shape])))
                return real

        return lambda *args: Compared(module).run(*args)

    x, kinds = torch.randn(3, 2, 5, requires_grad=True), torch.tensor([1, 2, 0, 3, 4])
    aot_function(losses, compiler, dynamic=dynamic)(x, kinds).backward()
    assert len(found) > 20
    assert [told for told, _ in found] == [real for _, real in found]


def by_a_number(x: Tensor, t: Tensor) -> Tensor:
    t += 1
    rest = 5 - 2 * t * 0.9**t
    return x * 2 * t.item() if rest > 3 else x + rest


def by_a_view(x: Tensor, t: Tensor) -> Tensor:
    before, t = t.item(), t.view(1)[0]
    t.mul_(0.5)
    return x * before if before != 1 else x.sin() * before


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize(("f", "kinds"), [(by_a_number, 6), (by_a_view, 5)])
def test_a_branch_on_a_number_that_a_tensor_holds_is_guarded(f, kinds, dynamic) -> None:
    compiled, before = aot_function(f, dynamic=dynamic), counters().compiled
    for value in (0.0, 1.0, -0.0, 7.0, 2.5, 1.0, float("inf"), float("nan"), float("-inf"), 9.0):
        seen = []
        for run in (f, compiled):
            x, t = torch.arange(3.0, requires_grad=True), torch.tensor(value)
            y = run(x, t)
            y.sum().backward()
            seen.append((y.detach(), x.grad, t))
        assert repr(seen[0]) == repr(seen[1]), value
    assert counters().compiled - before <= kinds


STEPS = {"ASGD": 2, "RAdam": 3, "Adam": 2, "AdamW": 2, "Adamax": 2, "SGD": 1, "Rprop": 2, "Adadelta": 2}


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_training_steps_of_optimizers(name: str, foreach: bool) -> None:
    models = [torch.nn.Linear(3, 2) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [getattr(torch.optim, name)(m.parameters(), foreach=foreach) for m in models]

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    compiled = aot_function(lambda x: step(models[1], optimizers[1], x))
    before = counters()
    for _ in range(8):
        x = torch.randn(4, 3)
        torch.testing.assert_close(compiled(x), step(models[0], optimizers[0], x), rtol=0, atol=0)
        parameters = [[*m.parameters()] for m in models]
        torch.testing.assert_close(*parameters, rtol=0, atol=0)  # corrections of a bias are Python's numbers
    assert counters().compiled - before.compiled == STEPS[name]
    assert counters().refused == before.refused


def test_a_step_of_nadam_is_refused_as_numbers_of_several_operations_decide_it() -> None:
    x = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.NAdam([x])

    def step() -> None:
        x.sum().backward()
        optimizer.step()

    compiled = aot_function(step)
    with pytest.raises(UnsupportedError, match="a number that data decide"):
        for _ in range(2):
            compiled()


def test_is_compiling_is_as_before_after_a_trace() -> None:
    before = torch.compiler.is_compiling
    seen = []
    aot_function(lambda x: (seen.append(torch.compiler.is_compiling()), x + 1)[1])(torch.ones(2))
    assert seen == [True]
    assert torch.compiler.is_compiling is before
    assert not torch.compiler.is_compiling()


@pytest.mark.parametrize("f", [lambda x, t: x / float(t), lambda x, t: x * int(t), lambda x, t: x * [1, 2, 3][t]])
def test_a_tensor_as_a_python_number_is_refused_as_each_value_would_be_compiled(f) -> None:
    compiled = aot_function(f)
    with pytest.raises(UnsupportedError, match="data-dependent"):
        compiled(torch.ones(2), torch.tensor(1))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m, y, w: (x[m] * w).log_softmax(-1) * y,
        lambda x, m, y, w: torch.nn.functional.layer_norm(x[m], (3,), w) * y,
        lambda x, m, y, w: (x * w)[: m.sum()] + y,
        lambda x, m, y, w: (x * w)[m].expand(3, 3),
        lambda x, m, y, w: torch.where(y > 0, (x * w)[: m.sum()], y),
    ],
)
def test_a_size_that_data_decide_is_one_and_is_broadcast(function):
    """The trace takes it for that of the other operand; where it is not, the original runs."""
    compiled = aot_function(function)
    x, y = torch.arange(15.0).view(5, 3) / 7, torch.ones(3, 3)
    for count in (1, 3, 1):
        found = []
        for f in (function, compiled):
            w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
            result = f(x, torch.arange(5) < count, y, w)
            found.append((result.detach(), *torch.autograd.grad((result * result).sum(), w)))
        for expected, given in zip(*found, strict=True):
            torch.testing.assert_close(given, expected)
