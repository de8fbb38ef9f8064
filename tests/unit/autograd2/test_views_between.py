"""What random programs found of views of views, of versions counted apart, and of layouts that symbols hide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotcheck.autograd2 import UnsupportedError, aot_function, counters
from tests.unit.autograd2.agrees import agrees


def _written_first(x: Tensor) -> tuple[Tensor, Tensor]:
    x.zero_()
    view = x.t()
    return view, view.t()


def _written_afterwards(x: Tensor) -> tuple[Tensor, Tensor]:
    view = x.t()
    last = view.t()
    x.zero_()
    return view, last


@pytest.mark.parametrize("function", [_written_first, _written_afterwards])
@pytest.mark.parametrize("shape", [(), (0,), (3,)])
def test_hooks_on_a_view_of_which_a_view_is_returned(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """Eager makes a view again, once its base is written: past the view between."""
    calls = []
    for f in (function, aot_function(function)):
        view, last = f(torch.ones(shape, requires_grad=True).clone())
        assert view.grad_fn is not None  # before a hook: otherwise torch crashes (#196459)
        met: list[Tensor] = []
        view.register_hook(met.append)
        torch.autograd.backward((last,), (torch.ones(shape),))
        calls.append(len(met))
    assert calls[0] == calls[1]


def _kron_and_itself(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.kron(x, y), x


def _kron_with_itself(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.kron(x, x), torch.kron(y, x).sin()


def _kron_with_data(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.kron(x, y.data), x.data * y.t()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("write", [None, lambda x: x.mul_(2), lambda x: x.data.mul_(2), lambda x: x[0].zero_()])
@pytest.mark.parametrize("function", [_kron_and_itself, _kron_with_itself, _kron_with_data])
def test_a_later_write_to_an_argument_of_kron_is_read_and_not_noticed(
    function: Callable[..., Any], write: Callable[..., Any] | None, leaf: bool, dynamic: bool
) -> None:
    """Its kernel saves views that count versions apart, so eager reads what was written since."""
    found = []
    for f in (function, aot_function(function, dynamic=dynamic)):
        leaves = torch.arange(1.0, 7.0).view(2, 3).requires_grad_(), torch.full((3, 2), 0.5).requires_grad_()
        x, y = leaves if leaf else (t.clone() for t in leaves)
        results = f(x, y)
        if write is not None:
            with torch.no_grad():
                write(x)
        found.append(torch.autograd.grad([r.sum() for r in results], leaves, allow_unused=True))
    for g, expected in zip(*reversed(found), strict=True):
        assert g is expected or torch.equal(g, expected)


def _kron_beside(x: Tensor) -> tuple[Tensor, ...]:
    return torch.kron(x, x), x.sin()  # which saves ``x`` itself


def _kron_before_a_write(x: Tensor) -> tuple[Tensor, ...]:
    return torch.kron(x, x), x.data.mul_(2)


def _view_that_is_saved(x: Tensor) -> tuple[Tensor, ...]:
    view = torch.ops.aten._unsafe_view(x, (6,))
    return view * view, view


@pytest.mark.parametrize("function", [_kron_beside, _kron_before_a_write, _view_that_is_saved])
def test_arguments_of_which_some_writes_are_noticed_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError, match="several version counters"):
        aot_function(function)(torch.ones((2, 3), requires_grad=True))


def test_where_values_are_saved_in_place_of_memory_kron_is_refused() -> None:
    from functorch.compile import min_cut_rematerialization_partition

    compiled = aot_function(torch.kron, partition_fn=min_cut_rematerialization_partition)
    with pytest.raises(UnsupportedError, match="several version counters"):
        compiled(torch.ones(2, requires_grad=True), torch.ones(2))


def test_the_caller_sees_writes_by_another_argument_where_sizes_are_symbols() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y.as_strided((0, 0), (0, 0))
        return x.sin(), y

    gradients = []
    for f in (function, aot_function(function, dynamic=True)):
        memory = torch.zeros(2).untyped_storage()
        lying = torch.ops.aten.set_.source_Storage_storage_offset  # each tensor counts versions of its own
        x = lying(torch.empty(0), memory, 0, (2,)).requires_grad_()
        y = lying(torch.empty(0), memory, 0, ())
        result, _ = f(y=y, x=x)
        y.fill_(1)
        gradients.append(torch.autograd.grad(result.sum(), x)[0])
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dynamic", [False, True])
def test_strides_of_a_dimension_of_one_element_decide_those_of_a_product(dynamic: bool) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.einsum("ij,kj->ik", x, torch.ones((2, 0)))

    compiled = aot_function(function, dynamic=dynamic)
    for stride in ((1, 1), (1, 2), (1, 1)):
        x = torch.ones(3).as_strided((2, 1), stride)
        assert compiled(x).stride() == function(x).stride()


@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_of_a_sum_without_elements(dynamic: bool) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.tensor_split(x + y, 2)

    given = torch.tensor(0.0), torch.empty_strided((2, 0, 1), (1, 1, 1))
    found, expected = aot_function(function, dynamic=dynamic)(*given), function(*given)
    assert [(t.stride(), t.storage_offset()) for t in found] == [(t.stride(), t.storage_offset()) for t in expected]


def test_scatters_that_read_between_elements_are_refused() -> None:
    def function(x: Tensor) -> Tensor:
        x.zero_()
        return torch.as_strided_scatter(x, torch.ones(2), (2,), (1,))

    with pytest.raises(UnsupportedError, match="gaps"):
        aot_function(function)(torch.ones(3)[::2])


def test_a_tensor_detached_from_one_of_several_views() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        first, _ = x.unbind()
        alone = first.t().detach()
        alone.zero_()
        return alone, first

    with pytest.raises(UnsupportedError, match="one of several views"):
        aot_function(function)(torch.ones(2, requires_grad=True))


def test_an_argument_that_keeps_its_gradient_and_is_reshaped_in_place() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.t_()

    x = torch.ones(2, 3, requires_grad=True).clone()
    x.retain_grad()
    with pytest.raises(UnsupportedError, match="reshaped in place"):
        aot_function(function)(x)


def test_a_view_that_comes_to_require_grad_and_is_written_then() -> None:
    def function(x: Tensor) -> Tensor:
        view = x.t()
        x.requires_grad_()
        with torch.inference_mode():
            x.zero_()
        return view

    with pytest.raises(UnsupportedError, match="detached or written since"):
        aot_function(function)(torch.zeros(2, 2).t())


def test_one_of_several_views_whose_version_counts_a_reshape() -> None:
    def function(x: Tensor) -> Tensor:
        first, _ = x.split(1)
        first.detach().t_()
        return first

    with pytest.raises(UnsupportedError, match="what was reshaped since"):
        aot_function(function)(torch.ones(2, 2, requires_grad=True).clone())


def test_two_lazily_negated_arguments_are_written() -> None:
    def function(x: Tensor, y: Tensor) -> None:
        x.mul_(2)
        y.add_(3)

    found = []
    for f in (function, aot_function(function)):
        given = [torch.tensor([1 + 2j, 3 - 1j]).conj().imag for _ in range(2)]
        f(*given)
        found.append([t.tolist() for t in given])
    assert found[0] == found[1]


@pytest.mark.parametrize("gradients", [False, True])
def test_a_tensor_twice_in_a_list_that_is_written(gradients: bool) -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        torch._foreach_neg_([y, y])
        torch._foreach_mul_([y, y, y], 2.0)
        return y

    found = []
    for f in (function, aot_function(function)):
        x = torch.arange(3.0, requires_grad=gradients)
        result = f(x)
        found.append([result.detach(), *(torch.autograd.grad(result.sum(), x) if gradients else ())])
    assert all(map(torch.equal, *found))


def test_parts_of_an_argument_in_a_list_that_is_written() -> None:
    def function(x: Tensor) -> Tensor:
        torch._foreach_mul_([x[:1], x[2:]], 3.0)
        return x.sin()

    found = []
    for f in (function, aot_function(function)):
        leaf = torch.arange(3.0, requires_grad=True)
        x = leaf.clone()
        found.append([f(x).detach(), x.detach(), torch.autograd.grad((x * f(leaf.clone())).sum(), leaf)[0]])
    assert all(map(torch.equal, *found))


def _with_its_base(x: Tensor) -> Tensor:
    y = x * 2
    torch._foreach_mul_([y, y[1:]], 3.0)
    return y


def _overlapping(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    first, last = y[:2], y[1:]
    torch._foreach_exp_([first, last])
    return last.sin(), y


@pytest.mark.parametrize("function", [_with_its_base, _overlapping])
def test_views_that_overlap_in_a_list_that_is_written(function: Callable[..., Any]) -> None:
    agrees(function, lambda: (torch.arange(3.0, requires_grad=True),))


def test_a_view_that_keeps_the_history_of_before_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        view = y[1:]
        torch._foreach_mul_([view, y], 3.0)  # after which the view has the history of the first write alone
        return view

    with pytest.raises(UnsupportedError, match="written in a list"):
        aot_function(function)(torch.ones(3, requires_grad=True))


def test_a_part_is_used_after_all_parts_were_written_in_a_list() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        first, second = y[:2], y[2:]
        torch._foreach_exp_([first, second])  # its backward reads the parts, as the result holds them
        return first, first.sum()

    with pytest.raises(UnsupportedError, match="a result that was saved"):
        aot_function(function)(torch.ones(3, requires_grad=True))


def test_a_lazily_conjugated_argument_is_written() -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(2j)
        return x.sum()

    found = []
    for f in (function, aot_function(function)):
        leaf = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
        x = leaf.clone().conj()
        f(x).abs().backward()
        found.append([x.detach().resolve_conj(), leaf.grad])
    assert all(map(torch.equal, *found))


def test_a_write_that_its_backward_cannot_make_raises_there() -> None:
    def function(x: Tensor) -> Tensor:
        return x.expand(2, 3).sum()

    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient.mul_(2)

    def written(x: Tensor) -> Tensor:
        return function(Writes.apply(x).sum(0, keepdim=True))

    for f in (written, aot_function(written)):
        result = f(torch.ones(4, 3, requires_grad=True))
        with pytest.raises(RuntimeError, match="single memory location"):
            result.backward()


def test_a_window_of_a_detached_part_reaches_beyond_it() -> None:
    def function(x: Tensor) -> Tensor:
        part = x.clone()[0]
        window = part.detach().as_strided((2,), (1,))
        part.zero_()
        return window

    x = torch.tensor([1.0, 2.0])
    assert torch.equal(aot_function(function)(x), function(x))


def test_data_assigned_to_a_leaf_that_is_a_view_of_what_is_written_then() -> None:
    def function(x: Tensor, leaf: Tensor) -> Tensor:
        leaf.data = x
        view = leaf.t()
        x.zero_()
        return view

    x = torch.ones(2, 2)
    with pytest.raises(UnsupportedError, match="one that is a view"):
        aot_function(function)(x, x.t().requires_grad_())


def test_a_view_of_a_leaf_that_is_reshaped_to_itself() -> None:
    """Autograd makes the view again by ``as_strided``, since the version of the leaf counts the reshape."""

    def function(x: Tensor) -> Tensor:
        view = x.t()
        with torch.no_grad():
            x.t_()
        return view

    with pytest.raises(UnsupportedError, match="what was reshaped since"):
        aot_function(function)(torch.ones((), requires_grad=True))


def test_a_leaf_that_is_set_to_itself() -> None:
    def function(x: Tensor) -> Any:
        parts = torch.unsafe_chunk(x, 1)
        with torch.no_grad():
            torch.ops.aten.set_.source_Tensor(x, x)
        return parts

    with pytest.raises(UnsupportedError, match="storage of a tensor with a history"):
        aot_function(function)(torch.ones(1, requires_grad=True))


@pytest.mark.parametrize("times", [1, 3])
def test_a_hook_of_a_parameter_to_which_a_backward_does_not_come(times: int) -> None:
    """As of the second head of a model whose first head alone is trained; hooks clip gradients."""

    def heads(x: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        trunk = x.sin()
        return trunk * first, trunk * second

    found = []
    for f in (heads, aot_function(heads)):
        first, second = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        calls: list[Tensor] = []
        for _ in range(2):
            second.register_hook(lambda gradient, calls=calls: calls.append(gradient.clamp(-0.5, 0.5)) or calls[-1])
        for _ in range(times):
            f(torch.tensor([0.5, 1.0]), first, second)[0].sum().backward()
        before = len(calls), second.grad
        results = f(torch.tensor([0.5, 1.0]), first, second)
        (results[0] + results[1]).sum().backward()
        found.append((before, len(calls), first.grad, second.grad))
    (eager, ours) = found
    assert eager[:2] == ours[:2] == ((0, None), 2)
    assert torch.equal(eager[2], ours[2])
    assert torch.equal(eager[3], ours[3])


def test_the_absolute_value_of_complex_numbers_in_place_is_an_error() -> None:
    in_lists = aot_function(lambda x: torch._foreach_abs_([x]))
    for f in (Tensor.abs_, aot_function(lambda x: x.abs_()), in_lists):
        with pytest.raises(RuntimeError, match="not supported for complex"):
            f(torch.ones(2, dtype=torch.complex64))
    x = torch.ones(2, dtype=torch.complex64)
    assert torch.equal(aot_function(lambda x: x.logical_not_())(x.clone()), x.logical_not_())


def test_a_view_whose_alias_is_reshaped_gets_another_grad_fn_and_is_refused() -> None:
    def function(base: Tensor, view: Tensor) -> tuple[Tensor, Tensor]:
        used = view * 2  # leads to the grad_fn that the view has till the reshape
        base.detach().t_()
        return used, view

    base = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(UnsupportedError, match="an alias of its base was reshaped"):
        aot_function(function)(base, base[1:])


@pytest.mark.parametrize("written", [("e",), ("z", "e"), ("e", "y"), ("v", "e"), ("e", "e", "v"), ("f", "v", "e")])
@pytest.mark.parametrize("inside", [True, False], ids=["made inside", "of the caller"])
def test_views_without_elements_are_written_in_a_list(written: tuple[str, ...], inside: bool) -> None:
    def function(given: Any) -> Any:
        y = given * 2 if inside else given
        named = {"y": y, "v": y[1:], "e": y[:0], "f": y[3:], "z": given * 3}
        torch._foreach_mul_([named[name] for name in written], 2.0)
        return y * 3, y[1:]

    def inputs() -> tuple[Any, ...]:
        return (torch.arange(3.0, requires_grad=True) * 1,)

    if len({*written} - {"z"}) == 1:
        agrees(function, inputs)
    else:
        with pytest.raises(UnsupportedError, match="without elements is in a list"):
            aot_function(function)(*inputs())


@pytest.mark.parametrize("written", [False, True])
def test_parts_of_an_unsafe_split_in_inference_mode(written: bool) -> None:
    def function(x: Any) -> Any:
        x.add_(1)
        with torch.inference_mode():
            first, second = torch.unsafe_split(x, 2)
            return first, second * 2

    agrees(function, lambda: (torch.arange(4.0) + written,))


OF_THEMSELVES = {
    "a mask": lambda x: (m := x > 1).index_put_((m,), torch.tensor(False)),
    "a mask by brackets": lambda x: (m := (x > 1).view(2, 2), m.t().__setitem__(m.t(), False))[0],
    "a mask and its transpose": lambda x: (m := (x > 1).view(2, 2), m.t().__setitem__(m, False))[0],
    "a mask and several values": lambda x: (m := x > 1).index_put_((m,), x[2:] > 1),
    "a mask, accumulated": lambda x: (m := x > 1).index_put_((m,), torch.tensor(False), accumulate=True),
    "scatter": lambda x: x.scatter_(0, torch.tensor([0, 1, 2, 3]), x),
    "scatter_add of a part": lambda x: x[:3].scatter_add_(0, torch.tensor([0, 1, 2]), x[1:]),
    "scatter of nothing": lambda x: (y := x[:0]).scatter_(0, torch.tensor([], dtype=torch.long), y),
    "index_copy": lambda x: x.index_copy_(0, torch.tensor([0, 1, 2, 3]), x),
    "index_copy of nothing": lambda x: (y := x.view(4, 1)[:, :0]).index_copy_(0, torch.tensor([0, 0, 1, 2]), y),
    "masked_scatter of nothing": lambda x: (y := x[:0]).masked_scatter_(y > 0, y),
}


@pytest.mark.parametrize("function", [pytest.param(f, id=name) for name, f in OF_THEMSELVES.items()])
def test_what_is_written_by_what_it_holds(function: Any) -> None:
    agrees(function, lambda: (torch.arange(4.0),))


@pytest.mark.parametrize("bits", [Tensor.conj, torch._neg_view])
def test_an_unsafe_split_of_lazy_bits_is_no_view(bits: Callable[[Tensor], Tensor]) -> None:
    """Eager splits a copy without these bits, of which autograd knows nothing."""

    def part(x: Tensor) -> Tensor:
        return torch.unsafe_split(bits(x), 1)[1]

    def hidden(x: Tensor) -> Tensor:
        (whole,) = torch.unsafe_split(bits(x), 2)
        with torch.no_grad():
            return whole[0:]

    for function in (part, hidden):
        agrees(function, lambda: (torch.ones(2, dtype=torch.complex64, requires_grad=True),))


def test_a_view_argument_that_a_call_in_inference_mode_writes_was_made_outside_of_it() -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(0.5)
        x.retain_grad()
        return x

    view = torch.ones(2, requires_grad=True).clone().as_strided((2,), (1,))
    with torch.inference_mode(), pytest.raises(UnsupportedError, match="retain_grad"):
        aot_function(function)(view)


@pytest.mark.parametrize("shape", [(2, 1, 2), (1, 1, 2), (1, 2, 1)])
@pytest.mark.parametrize("dims", [(0,), (0, 1), (0, 1, 2)])
def test_strides_of_dimensions_of_one_element_of_what_a_real_fft_gives(shape: Any, dims: Any) -> None:
    """They say in which order a later op lays out its result."""
    agrees(lambda x: torch.fft.rfftn(x, dim=dims), lambda: (torch.ones(shape),))
    agrees(lambda x: torch.fft.rfftn(x, dim=dims), lambda: (torch.ones(4, 2, 2).as_strided(shape, (1, 2, 2)),))


@pytest.mark.parametrize("value", [complex(2, 0), complex(0, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("in_place", [False, True])
def test_what_only_a_meta_kernel_refuses_is_asked_of_eager(value: complex, dtype: torch.dtype, in_place: bool) -> None:
    """As that of ``masked_fill``, which takes no complex number that is a real one."""

    def function(x: Tensor, mask: Tensor) -> Tensor:
        return x.masked_fill_(mask, value) if in_place else torch.masked_fill(x, mask, value)

    def run(f: Callable[..., Any]) -> Any:
        try:
            return f(torch.zeros(3, dtype=dtype), torch.tensor([True, False, True])).tolist()
        except RuntimeError as error:
            return str(error)

    before = counters().refused
    assert run(aot_function(function)) == run(function)
    assert counters().refused == before


def test_a_tensor_given_for_a_result_may_overlap_itself_if_it_gets_another_shape() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.cumsum(x, 0, out=y.detach())

    found = []
    before = counters().refused
    for f in (function, aot_function(function)):
        memory = torch.zeros(2)
        found.append(f(torch.ones(3, 2), memory.expand(4, 2)))
        found.append(memory)
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])
    assert counters().refused == before
