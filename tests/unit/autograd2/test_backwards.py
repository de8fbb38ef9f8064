"""Backwards of parts: of some results, of some inputs, from results to others, of one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotcheck.autograd2.api import aot_function
from aotcheck.autograd2.config import counters, patch_config
from aotcheck.autograd2.errors import UnsupportedError


def _chain(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    h = x * y
    return h, h.sin() * y + x, h.view(-1) * 2


def _cell(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    i, o = (x * y).sin().chunk(2)
    c = i.sigmoid() * i
    return o * c.tanh(), c


def _written(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x.mul_(y)
    return x, x.exp() + y


def _same(function: Callable[..., Any], act: Callable[..., Any]) -> None:
    found = []
    for f in (function, aot_function(function)):
        root, y = torch.arange(4.0).requires_grad_(), (torch.arange(4.0) + 1).requires_grad_()
        try:
            found.append((act(f(root * 1, y), root, y), root.grad, y.grad))
        except RuntimeError as error:
            found.append((len(str(error)), root.grad, y.grad))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("function", [_chain, _cell, _written])
def test_a_result_is_differentiated_by_another(function: Callable[..., Any]) -> None:
    roots = {_chain: (1, 0), _cell: (0, 1), _written: (1, 0)}[function]
    _same(function, lambda r, x, y: torch.autograd.grad(r[roots[0]].sum(), [r[roots[1]], y]))


@pytest.mark.parametrize("function", [_chain, _cell, _written])
@pytest.mark.parametrize("keeps", [True, False])
def test_backwards_of_one_result_after_the_other(function: Callable[..., Any], keeps: bool) -> None:
    for order in ([0, 1], [1, 0], [1, 1]):
        _same(function, lambda r, x, y, order=order: [r[k].sum().backward(retain_graph=keeps) for k in order])


def test_what_a_gradient_alone_leaves_is_there_for_another() -> None:
    _same(
        lambda x, y: x * x + y * y,
        lambda r, x, y: [torch.autograd.grad(r.sum(), [y]), torch.autograd.grad(r.sum(), [x])],
    )


def test_a_backward_under_autocast() -> None:
    def act(r: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.autograd.grad(r.sum(), y)[0]

    _same(lambda x, y: x.view(2, 2) @ y.view(2, 2) / 3, act)


def test_a_result_of_an_argument_before_and_after_it_is_written() -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        before = x * y
        y = y * x
        x.mul_(y)
        return before + x, y, x.sin(), before.exp()

    _same(f, lambda r, x, y: sum(t.sum() for t in r).backward())
    _same(f, lambda r, x, y: torch.autograd.grad(r[0].sum(), [x, y, r[1]]))


def test_backwards_that_are_made_late_are_counted_held_in_number_and_checked_for_sizes() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [(h := x.exp()).sin(), h.cos()]

    def asks(graph: Any, examples: Any) -> Any:
        assert examples[-1].shape[0] > 5 or len(examples) > 1
        return graph

    compiled = aot_function(f, bw_compiler=asks, dynamic=True)
    before = counters().late
    with patch_config(cache_size=2):
        for n, sizes_fit in ((4, True), (5, True), (7, False)):
            x = torch.randn(n, requires_grad=True)
            for results in ([0], [1], [0, 1], [0]):
                ys = compiled(x)
                given = [[t[k] for k in results] for t in (ys, f(x))]
                tangents = [torch.ones(n) for _ in results]
                if sizes_fit:
                    found, expected = (torch.autograd.grad(ts, x, tangents) for ts in given)
                    assert torch.equal(found[0], expected[0])
                else:
                    with pytest.raises(UnsupportedError, match="other sizes"):
                        torch.autograd.grad(given[0], x, tangents)
    assert counters().late - before == 3 + 2 + 2


def test_results_that_keep_nothing_and_alone_lead_to_an_input_share_a_node() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x * 2, x.sum() - 1, y.sin(), y * 3]

    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    compiled = aot_function(f)
    for _ in range(2):
        ours, eager = compiled(x, y), f(x, y)
        assert ours[0].grad_fn is ours[1].grad_fn and ours[2].grad_fn is not ours[3].grad_fn
        for part in ([0], [1, 2], [2, 3], [0, 1, 3]):
            found, expected = (
                torch.autograd.grad(sum(r[k].sum() for k in part), (x, y), retain_graph=True, allow_unused=True)
                for r in (ours, eager)
            )
            assert all(a is b is None or torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        torch.autograd.grad(ours[0].sum(), x)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(ours[0].sum(), x)
        torch.autograd.grad(ours[1], x)


def test_a_backward_of_empty_tensors_to_which_no_tangent_comes() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        first, second = torch._foreach_mul([x, y], 2)
        return first, second

    for f in (function, aot_function(function)):
        x = torch.ones(0, requires_grad=True)
        (gradient,) = torch.autograd.grad(f(x)[0], x, torch.ones(0))
        assert gradient.shape == (0,)


def test_gradients_of_a_written_complex_argument_stay() -> None:
    compiled, x = aot_function(lambda x: x.mul_(2)), torch.ones(2, dtype=torch.complex64, requires_grad=True).clone()
    x.grad = torch.ones_like(x.detach())
    assert compiled(x) is x and x.grad is not None


def test_a_gradient_that_eager_cannot_write_is_none_that_can_be_written() -> None:
    x = torch.ones(2, requires_grad=True)
    aot_function(torch.sgn)(x).sum().backward()
    assert x.grad is not None and x.grad._is_zerotensor()


@pytest.mark.parametrize("write", [lambda x, y: x.mul_(x), lambda x, y: x.floor_divide_(y)])
def test_a_backward_for_the_written_argument_alone_raises_as_eagers(write: Callable[..., Any]) -> None:
    _same(write, lambda r, x, y: r.sum().backward(inputs=[r]))


def test_the_caller_may_write_what_only_the_backward_of_another_result_needs() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(y)
        return x.clone(), x.relu_()

    _same(function, lambda r, x, y: (r[1].detach().zero_(), r[0].sum().backward())[1])


class _KeepsMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x > 1)
        return x.clamp(min=1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


def test_the_caller_may_write_an_argument_of_which_only_another_tensor_was_saved() -> None:
    root = torch.arange(4.0, requires_grad=True)
    x = root * 1
    y = aot_function(_KeepsMask.apply)(x)
    x.detach().zero_()
    y.sum().backward()
    assert root.grad is not None and root.grad.tolist() == [0, 0, 1, 1]


def test_a_view_of_a_view_made_before_a_write_does_not_come_by_the_argument() -> None:
    def function(x: Tensor) -> Tensor:
        view = x.t()
        x.zero_()
        return view.t()

    for f in (function, aot_function(function)):
        base = torch.ones(2, 3, requires_grad=True).clone()
        part = base.t()
        found = torch.autograd.grad(f(part).sum(), [base, part], allow_unused=True)
        assert [g is None for g in found] == [False, True]


@pytest.mark.parametrize("view", [torch.t, lambda x: x.unsqueeze(0)])
def test_a_write_without_elements_gives_a_view_the_history_of_eagers(view: Callable[..., Any]) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        result = y.sin()
        with torch.no_grad():
            x.zero_()
        return result

    for f in (function, aot_function(function)):
        base = torch.ones(0, requires_grad=True).clone()
        part = view(base)
        f(base, part).sum().backward(inputs=[part])
        assert part.grad is None


def _inside_inference(x: Tensor) -> Any:
    y = x.sin()
    with torch.inference_mode():
        return torch.autograd.grad(y, x)


def _unrecorded_view(x: Tensor) -> Any:
    leaf = torch.ones(2, 3, requires_grad=True)
    with torch.no_grad():
        leaf.t_()
        part = leaf[0]
    return leaf * x, part


def _told_after_a_view(x: Tensor) -> Any:
    base = x.detach()
    view = base.t()
    base.requires_grad_()
    return view.t(), base


@pytest.mark.parametrize("function", [_inside_inference, _unrecorded_view, _told_after_a_view])
def test_what_is_refused_of_leaves_and_inference_mode(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"inference mode|history not of a view|requires_grad changed"):
        aot_function(function)(torch.ones((), requires_grad=True))


def test_an_argument_that_was_given_a_hook_is_refused_where_a_backward_inside_passes_it() -> None:
    compiled = aot_function(lambda x, y: torch.autograd.grad((x * y).sum(), x)[0] * y)
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    assert compiled(x, y).tolist() == [1, 1]
    x.register_hook(lambda gradient: gradient * 2)
    with pytest.raises(UnsupportedError, match="an argument has hooks"):
        compiled(x, y)


def test_a_write_of_a_part_can_be_gone_back_through_once() -> None:
    def function(x: Tensor) -> Tensor:
        x[1:] = x[:1]
        return x

    for f in (function, aot_function(function)):
        x = torch.arange(2.0, requires_grad=True) * 1
        result = f(x)
        result.sum().backward()
        with pytest.raises(RuntimeError, match="a second time"):
            result.sum().backward(inputs=[x])


@pytest.mark.parametrize("size", [0, 3])
def test_a_later_backward_computes_its_own_floats(size: int) -> None:
    def function(x: Tensor) -> Any:
        return torch.var_mean(x, 1)

    found = []
    for f in (function, aot_function(function, dynamic=True)):
        x = torch.arange(2.0 * size).view(size, 2).requires_grad_()
        variance, mean = f(x * x)
        found.append(torch.autograd.grad(variance.sum(), x, retain_graph=True)[0])
        found.append(torch.autograd.grad((variance + mean).sum(), x)[0])
    torch.testing.assert_close(found[2:], found[:2])


class _AsksForNothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        assert ctx.saved_tensors == ()
        return gradient


def test_a_custom_function_that_asks_for_saved_tensors_runs_once() -> None:
    for f in (_AsksForNothing.apply, aot_function(_AsksForNothing.apply)):
        result = f(torch.ones(2, requires_grad=True))
        result.sum().backward()
        with pytest.raises(RuntimeError, match="a second time"):
            result.sum().backward()


@pytest.mark.parametrize("shape", [(), (2,), (0,)])
@pytest.mark.parametrize("used", ["before", "after", "before and after"])
def test_uses_of_a_view_before_it_is_written_unseen_are_not_uses_of_what_it_is_then(shape: Any, used: str) -> None:
    def function(x: Tensor) -> Tensor:
        before = x * 2 if "before" in used else 0
        x.detach().zero_()
        return before + x * 3 if "after" in used else before

    found = []
    for f in (function, aot_function(function)):
        leaf = torch.ones(shape, requires_grad=True)
        view = leaf.view(shape)
        grads = torch.autograd.grad(f(view).sum(), [leaf, view], allow_unused=True)
        found.append([g if g is None else g.tolist() for g in grads])
    assert found[0] == found[1]


def test_a_gradient_inside_to_what_the_function_made_of_related_arguments() -> None:
    def function(x: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
        y = part * 3
        (gradient,) = torch.autograd.grad((y * y).sum(), y, retain_graph=True)
        return gradient, y + x.sum()

    found = []
    for f in (function, aot_function(function)):
        x = torch.arange(3.0, requires_grad=True)
        first, second = f(x, x[1:])
        found.append((first.detach().tolist(), torch.autograd.grad(second.sum(), x)[0].tolist()))
    assert found[0] == found[1]


@pytest.mark.skipif(
    torch.__version__ < "2.12",
    reason="before, a custom Function gives what it saved all at once: such a backward raises (docs/decisions.md)",
)
@pytest.mark.parametrize("of", [torch.softmax, torch.cumsum])
def test_a_result_whose_backward_needs_itself_beside_one_whose_operand_was_written(of: Callable[..., Any]) -> None:
    def function(labels: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y = of(x, -1).exp()
        return y[:1], labels.minimum(y) * 2

    found = []
    for f in (function, aot_function(function)):
        labels, x = torch.tensor([1.0, 2.0]), torch.tensor([-2.0, 0.0], requires_grad=True)
        first, second = f(labels, x)
        labels.add_(1)
        found.append(torch.autograd.grad(first.sum(), x, retain_graph=True)[0].tolist())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(second.sum(), x, retain_graph=True)
        with torch.no_grad():
            first.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(first.sum(), x)
    assert found[0] == found[1]


def test_a_backward_of_empty_halves_whose_trace_autocast_stops_is_refused() -> None:
    """Eager fills a tensor; traced, torch's formula joins parts by ``cat`` instead, which autocast refuses."""
    x = torch.ones(0, 0, dtype=torch.float16, requires_grad=True)
    y = aot_function(torch.linalg.matrix_exp)(x)
    with torch.autocast("cpu"), pytest.raises(UnsupportedError, match="autocast inside a kernel"):
        torch.autograd.grad(y, x, torch.ones_like(y))


def _removed(r: Any, hook: Callable[[Tensor], Any]) -> None:
    r[0].register_hook(hook).remove()
    r[0].register_hook(hook)


def _after_a_write_to_a_view(r: Any, hook: Callable[[Tensor], Any]) -> None:
    r[0][0].mul_(5)
    r[0].register_hook(hook)


def _before_and_after_a_write(r: Any, hook: Callable[[Tensor], Any]) -> None:
    r[0].register_hook(hook)
    r[0].mul_(5)
    r[0].register_hook(hook)


def _of_a_leaf(r: Any, hook: Callable[[Tensor], Any]) -> None:
    r[0].detach_().requires_grad_().register_hook(hook)


@pytest.mark.parametrize("register", [_removed, _after_a_write_to_a_view, _before_and_after_a_write, _of_a_leaf])
@pytest.mark.parametrize("roots", [(0,), (1,), (0, 1)])
def test_the_first_hook_of_a_result(register: Callable[..., Any], roots: tuple[int, ...]) -> None:
    def act(r: Any, x: Tensor, y: Tensor) -> list[Tensor]:
        seen: list[Tensor] = []
        register(r, lambda g: seen.append(g))
        sum(r[k].sum() * (k + 2) for k in roots).backward()
        return seen

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        h = x * y
        return h * 2, h * 3

    _same(function, act)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("later", [lambda x, y: None, lambda x, y: x.data.mul_(2), lambda x, y: y.mul_(2)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x.pow(2), y.fill_(3))[0],
        lambda x, y: (x.pow(2) * y.sin(), y.mul_(3))[0],
        lambda x, y: (x * 2 * y, y.mul_(3))[0],
    ],
)
def test_of_arguments_that_count_apart_on_one_memory_the_one_is_saved_that_eager_saves(
    function: Any, later: Any, swapped: bool, dynamic: bool
) -> None:
    def given(a: Tensor, b: Tensor) -> Any:
        return function(b, a) if swapped else function(a, b)

    found = []
    for f in (given, aot_function(given, dynamic=dynamic)):
        x = torch.arange(1.0, 5.0, requires_grad=True)
        y = x.data
        try:
            result = f(y, x) if swapped else f(x, y)
        except UnsupportedError as error:
            assert swapped and error.reason == "saved memory with several version counters"  # the graph takes the other
            return
        with torch.no_grad():
            later(x, y)
        try:
            found.append([result.tolist(), torch.autograd.grad(result.sum(), x)[0].tolist()])
        except RuntimeError as error:
            found.append([type(error).__name__])
    assert found[0] == found[1]
