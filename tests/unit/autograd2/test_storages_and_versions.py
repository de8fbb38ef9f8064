"""What a call does to storages, versions and views of its arguments."""

import contextlib
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from aotcheck.autograd2.api import aot_function, aot_module
from aotcheck.autograd2.errors import UnsupportedError
from tests.unit.autograd2.agrees import agrees


def _two_views_of(size: int) -> Any:
    """A tensor with a grad_fn, a no_grad view of it, and a detached alias."""
    base = torch.arange(float(size), requires_grad=True) * 2
    with torch.no_grad():
        view = base[:2]
    return base, view, base.detach()


@pytest.mark.parametrize("written", [1, 2], ids=["the view", "the alias"])
def test_a_write_under_no_grad_is_counted_by_the_version_of_what_was_written(written: int) -> None:
    def function(*tensors: Any) -> Any:
        with torch.no_grad():
            tensors[written].mul_(3)
        return tensors[written].sum().detach()

    agrees(function, lambda: _two_views_of(3))


def test_a_view_whose_history_is_gone_is_refused_and_not_an_error_of_ours() -> None:
    _, view, alias = _two_views_of(3)
    alias.mul_(2)
    with pytest.raises(UnsupportedError, match="view made under no_grad"):
        aot_function(lambda x: x.shape)(view)


@pytest.mark.parametrize("size", [0, 8, 24])
def test_a_storage_that_is_resized_last_has_that_size(size: int) -> None:
    def function(x: Any) -> Any:
        y = x * 2
        x.untyped_storage().resize_(size)
        return y

    agrees(function, lambda: (torch.arange(4.0),) if size else (torch.arange(4.0)[:0],))


def test_a_detached_alias_without_memory_is_an_inference_tensor_as_its_source_is() -> None:
    with torch.inference_mode():
        agrees(lambda x: (y := x.detach(), y.untyped_storage().resize_(0))[0], lambda: (torch.ones(3),))


@pytest.mark.parametrize(
    "reshape", [lambda x: x.swapaxes_(0, 0), lambda x: x.t_(), lambda x: x.as_strided_((3, 2), (1, 1), 1)]
)
def test_an_argument_with_a_history_is_reshaped_in_place(reshape: Any) -> None:
    def function(x: Any) -> Any:
        before = x + 1
        reshape(x)
        return before, x * x, x[0]

    def gradient(f: Any) -> Any:
        x = torch.arange(12.0, requires_grad=True).view(3, 4) * 2
        return torch.autograd.grad([t.sum() for t in f(x)], x)[0].tolist()

    agrees(function, lambda: (torch.arange(12.0, requires_grad=True).view(3, 4) * 2,))
    assert gradient(aot_function(function)) == gradient(function)


@pytest.mark.parametrize("view", [lambda x: x[2], lambda x: x.unbind()[1], lambda x: _Viewed.apply(x)])
def test_an_argument_of_which_there_are_views_is_not_reshaped_in_place(view: Any) -> None:
    x = torch.arange(12.0, requires_grad=True).view(3, 4) * 2
    with pytest.raises(UnsupportedError, match="history not of a view"):
        aot_function(lambda x, v: (v * 2, x.t_())[0])(x, view(x))


@pytest.mark.parametrize("write", [lambda x: x, lambda x: x.mul_(2), lambda x: x.detach().zero_()])
def test_a_view_that_requires_grad_is_told_to_once_more(write: Any) -> None:
    def function(x: Any, view: Any) -> Any:
        write(view.requires_grad_())
        return view * view, x * 2

    agrees(function, lambda: ((x := torch.arange(4.0, requires_grad=True) * 2), x[1:]))
    agrees(lambda view: function(view[1:], view), lambda: ((torch.arange(4.0, requires_grad=True) * 2)[1:],))


@pytest.mark.parametrize("write", [lambda x, v: x.zero_(), lambda x, v: v.zero_()])
def test_views_of_what_is_written_under_no_grad_lead_to_their_base(write: Any) -> None:
    def function(x: Any, view: Any) -> Any:
        before = x.sin() + 1
        with torch.no_grad():
            write(x, view)
        return before.sum().detach(), x * 2, view * 3, view.view_as(view)

    agrees(function, lambda: ((x := torch.arange(4.0, requires_grad=True) * 2), x[1:]))


def test_a_write_that_the_counter_of_what_is_saved_does_not_tell_is_no_error() -> None:
    x = torch.ones(2, 4, requires_grad=True)
    other = torch.empty(0, dtype=torch.int32).set_(x.untyped_storage(), 0, (2,), (1,))
    y = aot_function(lambda other, x: torch.nn.functional.avg_pool1d(x, 2))(other, x)
    other.mul_(1)
    y.sum().backward()


def test_what_lies_beyond_a_written_argument_is_written_too() -> None:
    def function(x: Any) -> Any:
        made = torch.eye(2)
        made.data = x.mul_(1).detach()
        return torch.add(torch.eye(2), 1, out=made)

    agrees(function, lambda: (torch.ones(4, 0, requires_grad=True) * 2,))


def test_a_storage_that_grows_is_filled_and_is_freed_is_empty() -> None:
    def function(x: Any) -> Any:
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(16)
        x.fill_(2)
        y = -x
        x.untyped_storage().resize_(0)
        return y

    x = torch.arange(4.0)
    assert aot_function(function)(x).tolist() == [-2.0] * 4
    assert x.untyped_storage().nbytes() == 0


def test_a_view_of_what_the_function_made_and_freed_is_refused() -> None:
    def function(x: Any) -> Any:
        made = x * 2
        view = made.t()
        made.untyped_storage().resize_(0)
        return view

    with pytest.raises(UnsupportedError, match="memory that was freed"):
        aot_function(function)(torch.ones(2, 3))


def test_an_empty_tensor_that_is_written_under_grad_gets_a_history() -> None:
    def function(x: Any, y: Any) -> Any:
        x[:0].copy_(y)
        return y * 2

    agrees(function, lambda: (torch.arange(4.0), torch.empty(0, requires_grad=True)))
    agrees(function, lambda: (torch.empty(0), torch.empty(0, requires_grad=True)))


_CHANGES: dict[str, Any] = {
    "lists": lambda leaf, part, plain: torch._foreach_neg_([plain]),
    "an alias that is returned": lambda leaf, part, plain: plain.detach(),
    "sizes": lambda leaf, part, plain: (plain.resize_(9), leaf.untyped_storage().resize_(0), 1)[2],
    "data of the same storage": lambda leaf, part, plain: (part * 2, setattr(leaf, "data", leaf.data[:1]))[0],
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_what_a_call_counts_and_moves_is_as_in_eager(change: Any) -> None:
    found = []
    for function in (change, aot_function(change)):
        leaf = torch.arange(3.0, requires_grad=True)
        given = leaf, leaf[:2], torch.arange(4.0)
        result = function(*given)
        if isinstance(result, torch.Tensor):
            result.detach().mul_(2)
        facts = [(t._version > 0, t.shape, t.untyped_storage().nbytes()) for t in given]
        found.append((facts, type(given[1].grad_fn)))
    assert found[0] == found[1]


@pytest.mark.parametrize("op", ["as_strided", "as_strided_"])
def test_a_view_beyond_its_storage_is_an_error(op: str) -> None:
    agrees(lambda x: getattr(x, op)((99,), (5,)), lambda: (torch.arange(4.0),))


@pytest.mark.parametrize("view", [lambda x: x[1:], lambda x: x.t(), lambda x: x.unsqueeze(0), lambda x: x.view(16)])
def test_a_view_of_what_lost_its_memory_is_an_error_where_kernels_look(view: Any) -> None:
    def function(x: Any) -> Any:
        x.untyped_storage().resize_(16)
        return view(x).shape

    x, y = torch.zeros(4, 4), torch.zeros(4, 4)
    try:
        expected = function(x)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="out of bounds"):
            aot_function(function)(y)
    else:
        assert aot_function(function)(y) == expected


def test_an_op_whose_name_is_a_keyword_of_python_stands_in_a_graph() -> None:
    agrees(lambda x: x.random_(0, 3), lambda: (torch.zeros(4),))


def test_a_backward_into_the_graph_of_the_caller_is_refused() -> None:
    def function(x: Any) -> Any:
        (x * 2).sum().backward()
        return x

    leaf = torch.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedError, match="backward into the caller's graph"):
        aot_function(function)(leaf * 2)
    assert leaf.grad is None


def test_a_gradient_of_what_needs_none_cannot_be_retained() -> None:
    agrees(lambda x: x.retain_grad(), lambda: (torch.ones(2),))


def test_a_view_of_the_storage_that_an_argument_had_stays_there() -> None:
    def function(x: Any) -> Any:
        view = x[1:]
        x.data = x.sign()
        return view

    agrees(function, lambda: (torch.arange(4.0),))


def test_a_view_that_lost_its_memory_is_returned() -> None:
    def function(x: Any) -> Any:
        view = x[1:].t()
        x.untyped_storage().resize_(24)
        return view.detach()

    agrees(function, lambda: (torch.zeros(3, 4),))


def test_a_part_that_is_made_with_one_that_lost_its_memory_is_refused() -> None:
    def function(x: Any, alias: Any) -> Any:
        part = x.chunk(2)[0]
        alias.untyped_storage().resize_(12)
        return part

    x = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(UnsupportedError, match="history not of a view"):
        aot_function(function)(x, x.detach())


def test_what_was_resized_inside_has_its_memory_until_the_views_of_it_are_made() -> None:
    def function(x: Any, part: Any) -> Any:
        for nbytes in (0, 48):
            torch.ops.inductor.resize_storage_bytes_.default(x, nbytes)
        return x.fill_(2)[0].copy_(x[-1]), part

    agrees(function, lambda: ((t := torch.zeros(3, 4)), t[:2]))


def test_a_view_whose_source_went_elsewhere_keeps_its_offset() -> None:
    def function(x: Any) -> Any:
        made = x * 2
        view = made[1:]
        made.set_(x * 3)
        view.mul_(-1)
        return view

    agrees(function, lambda: (torch.arange(4.0),))


@pytest.mark.parametrize("read", [False, True])
def test_a_window_that_leaves_a_view_of_a_written_base_has_eagers_gradient(read: bool) -> None:
    def function(x: Any) -> Any:
        window = x[1:].as_strided((2,), (1,), 0)
        with torch.no_grad():
            x.fill_(1)
        return window * 2 if read else window

    agrees(function, lambda: (torch.zeros(2, requires_grad=True),))


class _Raised(torch.autograd.Function):
    """Gives a view."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.unsqueeze(0)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g.squeeze(0)


@pytest.mark.parametrize("of", [lambda x: x, lambda x: x.t(), lambda x: (x * 2).t()])
def test_a_view_with_the_history_of_a_custom_function_is_refused(of: Any) -> None:
    with pytest.raises(UnsupportedError, match="history not of a view"):
        aot_function(lambda x: _Raised.apply(of(x)))(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("op", ["linear", "binary_cross_entropy"])
def test_operands_of_dtypes_that_kernels_refuse_are_an_error(op: str) -> None:
    function = getattr(torch.nn.functional, op)
    agrees(lambda x, y: function(x, y), lambda: (torch.ones(3, 3) / 2, torch.ones(3, 3, dtype=torch.float64) / 2))


def test_a_view_made_before_its_base_is_written_has_the_history_of_eagers() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        before = y[0]
        y.mul_(3)
        return before, y[0]

    before, after = aot_function(function)(torch.ones(2, 3, requires_grad=True))
    assert (before.grad_fn.name(), after.grad_fn.name()) == ("AsStridedBackward0", "SelectBackward0")


def test_a_backward_reads_memory_that_the_call_freed_once_it_is_filled_again() -> None:
    def function(w: Any, x: Any) -> Any:
        y = x * w
        w.untyped_storage().resize_(0)
        return y

    w, x = torch.ones(3), torch.ones(3, requires_grad=True)
    y = aot_function(function)(w, x)
    with pytest.raises(RuntimeError, match="allocate and fill"):
        y.sum().backward(retain_graph=True)
    w.untyped_storage().resize_(12)
    w.data.fill_(5)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5, 5, 5]


def test_a_backward_reads_an_argument_as_the_caller_leaves_it() -> None:
    def function(x: Any, b: Any) -> Any:
        b.add_(1)
        return x * b[1:]

    x, b = torch.ones(2, requires_grad=True), torch.zeros(3)
    y = aot_function(function)(x, b)
    b.data.fill_(7)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [7, 7]


@pytest.mark.parametrize("leaf", [False, True])
def test_tensors_of_a_list_that_lie_beside_each_other_on_one_storage_are_written_as_in_eager(leaf: bool) -> None:
    def function(leaf: Any) -> Any:
        x = leaf * 1 if leaf.requires_grad else leaf
        torch._foreach_abs_([x[:4], x[8:], x[4:8]])
        torch._foreach_mul_([x[8:], x[:4]], 2.0)
        return x * x

    agrees(function, lambda: ((torch.arange(12.0) - 6).requires_grad_(leaf),))


@pytest.mark.parametrize("ends", [(0, 4), (2, 6), (4, 8)])
def test_tensors_of_a_list_that_overlap_are_written_as_in_eager(ends) -> None:
    def function(x: Any) -> Any:
        torch._foreach_abs_([x[:4], x[slice(*ends)], x[8:], x[2:6]])
        torch._foreach_mul_([x[:4], x[slice(*ends)], x[8:]], 2.0)
        return x * x

    agrees(function, lambda: (torch.arange(12.0) - 6,))
    agrees(lambda x: function(x * 1), lambda: ((torch.arange(12.0) - 6).requires_grad_(),))


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[:, 1:3].expand(3, 2).fill_(2.0),
        lambda x: x.expand(3, 4).zero_(),
        lambda x: x[0].unfold(0, 3, 1)[1:].fill_(torch.tensor(3.0)),
    ],
)
def test_one_value_is_written_where_elements_share_memory(write: Any) -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return write(x), write(y), y * x

    agrees(function, lambda: (torch.randn(1, 4),))
    agrees(lambda x: write(x.detach()), lambda: (torch.randn(1, 4, requires_grad=True) * 1,))
    agrees(lambda x: x.fill_(2.0), lambda: (torch.randn(1, 4).expand(3, 4),))


@pytest.mark.parametrize("write", [lambda x: x[1:].add_(x[:-1]), lambda x: x.expand(3, 4).add_(1)])
def test_operands_that_overlap_are_eagers_error(write: Any) -> None:
    agrees(write, lambda: (torch.arange(4.0),))


@pytest.mark.parametrize("op", [torch.ge, torch.mul, torch.add])
def test_results_of_expanded_operands_lie_as_in_eager(op: Any) -> None:
    def inputs() -> Any:
        s = torch.arange(4.0)
        return s.as_strided((2, 2, 1, 2), (0, 2, 2, 1)), s.as_strided((2, 1, 1, 2), (1, 2, 2, 0))

    agrees(op, inputs)


@pytest.mark.parametrize("view", [lambda x: _Viewed.apply(x), lambda x: x.expand(2, 3).unbind()[0]])
def test_a_write_under_no_grad_of_a_view_whose_history_eager_does_not_tell_then_is_refused(view: Any) -> None:
    def function(x: Any) -> Any:
        before = x.clone()
        with torch.no_grad():
            x.zero_()
        return before

    with pytest.raises(UnsupportedError, match="view made under no_grad"):
        aot_function(function)(view(torch.ones(3, requires_grad=True)))


def test_requires_grad_of_a_tensor_that_is_no_leaf_cannot_be_assigned() -> None:
    agrees(lambda x: setattr(x, "requires_grad", True), lambda: (torch.arange(3.0, requires_grad=True) * 2,))


def test_what_is_saved_counts_the_writes_of_detached_aliases_and_not_of_data() -> None:
    compiled = aot_function(lambda x, alias: (x.sin(), alias.zero_())[0])
    for alias_of, counts in ((torch.Tensor.detach, True), (lambda x: x.data, False)):
        x = torch.ones(2, requires_grad=True)
        y = compiled(x, alias_of(x))
        with pytest.raises(RuntimeError, match="modified by an inplace") if counts else contextlib.nullcontext():
            y.sum().backward()


def test_a_detached_lazy_conjugate_that_is_written_stays_one() -> None:
    made = aot_function(lambda x: ((y := x.clone().mH).detach(), y.zero_())[0])(torch.ones(2, 2) * 1j)
    assert made.is_conj()


def test_a_view_that_is_no_leaf_may_be_told_to_require_grad() -> None:
    def function(x: Any, w: Any) -> Any:
        y = (x @ w).view(-1).requires_grad_()
        return y * 2, y

    agrees(function, lambda: (torch.ones(3, 2), torch.ones(2, 2, requires_grad=True)))


def test_memory_that_was_freed_grows_back_before_a_view_of_it_is_made() -> None:
    def function(x: Any) -> Any:
        x.untyped_storage().resize_(12)
        part = x[0]
        x.zero_()
        return part

    def freed() -> tuple[Any, ...]:
        x = torch.ones(3)
        x.untyped_storage().resize_(0)
        return (x,)

    agrees(function, freed)


def _whole_of_what_moved() -> Any:
    whole = torch.ones(3)
    part = whole.detach()
    part.as_strided_((2,), (2,)).zero_()
    return part, whole


def _transposed_and_written(x: Any) -> Any:
    with torch.no_grad():
        x.t_().zero_()
    return x.clone()


class _Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (_whole_of_what_moved, lambda: ()),
        (lambda x: (part := (y := x * 2)[0], y.t_(), part.zero_())[0], lambda: (torch.ones(2, 2),)),
        (
            lambda x: torch.select_scatter(x.zero_(), torch.ones(1, 2), 0, 0),
            lambda: (torch.ones(10).as_strided((2, 1, 2), (8, 2, 1)),),
        ),
        (lambda x: (x.imag.zero_(), x.clone())[1], lambda: (torch.ones(2, 3, dtype=torch.complex64).t(),)),
        (_transposed_and_written, lambda: (torch.ones(2, 3, requires_grad=True),)),
        (lambda x, y: (x.t(), y.zero_())[0], lambda: (_Viewed.apply(y := torch.ones((), requires_grad=True) * 2), y)),
        (
            lambda x, y: (x.chunk(2)[0], (y * 2).sum().backward(), y.grad, y.detach().zero_())[0],
            lambda: [x.requires_grad_() for x in torch.ones(5).split([4, 1])],
        ),
    ],
    ids=[
        "between elements",
        "a part of what moved",
        "gaps",
        "parts",
        "a leaf that moves",
        "a view of a Function's",
        "lost beside a gradient",
    ],
)
def test_results_lie_and_are_known_to_autograd_as_in_eager(function: Any, inputs: Any) -> None:
    agrees(function, inputs)


class _SavesResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0]


def test_a_backward_that_leads_nowhere_raises_as_eagers_does() -> None:
    with torch.no_grad():
        x = torch.ones((), requires_grad=True).t()  # it requires grad, and has nowhere to send one
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        aot_function(lambda x: _SavesResult.apply(x).zero_())(x).backward()


def test_gradients_that_the_caller_would_see_in_hooks_or_retained_are_refused() -> None:
    def train(x: Any) -> Any:
        (x * 2).sum().backward()

    def retain(x: Any, y: Any) -> Any:
        z = x * 2
        z.backward(z.detach(), inputs=[z])
        return (z.grad, z) if y else z.grad

    x, compiled = torch.ones((), requires_grad=True), aot_function(train)
    compiled(x)
    x.register_hook(lambda g: g * 2)
    for refused in (lambda: compiled(x), lambda: aot_function(retain)(x, True)):
        with pytest.raises(UnsupportedError, match="hook"):
            refused()
    assert aot_function(retain)(x, False) == 2


def _alias_reshaped(x: Any, w: Any) -> Any:
    x.detach().t_()
    return x * w


@pytest.mark.parametrize("function", [lambda x, w: (x.t_() * w, w * 2), _alias_reshaped])
@pytest.mark.parametrize("leaf", [False, True])
def test_what_is_reshaped_and_then_saved_is_as_it_was_saved(function: Any, leaf: bool) -> None:
    agrees(function, lambda: (torch.rand(3, 3).requires_grad_(leaf), torch.rand(3, 3, requires_grad=True)))


def test_a_view_that_a_reshape_of_its_alias_made_old_has_no_history_that_eager_tells() -> None:
    def function(x: Any) -> Any:
        with torch.no_grad():
            part = x[:1]
        x.detach().unsqueeze_(0)
        return part

    agrees(function, lambda: (torch.ones(2, requires_grad=True) * 2,))


def test_a_view_made_under_no_grad_of_what_was_given_other_data_stays_where_it_lay() -> None:
    def function(x: Any) -> Any:
        with torch.no_grad():
            part = x[1:]
        x.data = torch.ones(3)
        return part.view(2)

    agrees(function, lambda: (torch.ones(3, requires_grad=True),))


def _saved_by_another_before_it_moves(x: Any, y: Any) -> Any:
    made = x.exp()
    view, product = made.view(-1), made.detach() * x
    made.data = y
    return made, view, product


_MOVES = {
    "the base of a view of a view": lambda x, y: [b := x * 2, b.view(-1).view(2, 2), setattr(b, "data", y)][:2],
    "the base, to another shape": lambda x, y: [b := x * 2, b[1:], setattr(b, "data", y[0])][1],
    "the view": lambda x, y: [v := (x * 2).t(), v[1:], setattr(v, "data", y), v[:1]][:2],
    "a view, and its source": lambda x, y: [b := x * 2, v := b.t(), setattr(v, "data", y), setattr(b, "data", y)][:2],
    "a part grows": lambda x, y: [y[1:].resize_(1, 1), y],
    "two arguments, to each other's data": lambda x, y: [z := y.t(), w := y.data, setattr(y, "data", x.data), z, w],
    "what is saved": _saved_by_another_before_it_moves,
}


@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("move", _MOVES.values(), ids=_MOVES)
def test_views_and_their_bases_move(move: Any, leaf: bool) -> None:
    agrees(move, lambda: (torch.rand(2, 2).requires_grad_(leaf), torch.rand(2, 2)))


def _frozen_for_a_while(x: Any, y: Any) -> Any:
    before, frozen = x * y, x.requires_grad_(False) * y
    x.requires_grad_()
    return before, frozen, x * 3


def _made_a_leaf(x: Any, y: Any) -> Any:
    made = x * 2
    before = made * 3
    made.detach_().requires_grad_()
    return before, made.view(-1) * 2, made


@pytest.mark.parametrize("function", [_frozen_for_a_while, _made_a_leaf])
def test_what_required_grad_requires_it_again(function: Any) -> None:
    agrees(function, lambda: (torch.rand(2, 2, requires_grad=True), torch.rand(2, 2, requires_grad=True)))


def test_a_part_of_an_unsafe_split_has_the_history_of_what_was_written_before() -> None:
    def function(x: Any, y: Any) -> Any:
        return x.gt_(y).unsafe_chunk(2)[0]

    agrees(function, lambda: (torch.ones(0, 2), torch.ones(0, 2, requires_grad=True)))


def test_a_view_requires_grad_as_its_base_does_that_was_told_to() -> None:
    def function(x: Any, view: Any) -> Any:
        x.requires_grad_()

    x = torch.ones(2, 2)
    view = x.t()
    aot_function(function)(x, view)
    assert view.requires_grad
    x.detach_()
    assert not view.requires_grad


@pytest.mark.parametrize("beside", [(), (2,)], ids=["alone", "beside another"])
def test_a_view_that_a_custom_function_made_of_what_is_written_then_is_refused(beside: Any) -> None:
    class View(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return (x.unsqueeze(0), *(x * n for n in beside))

    def function(base: Any, x: Any) -> Any:
        view = View.apply(x)[0]
        base.mul_(2)
        return view

    base = torch.ones(2)
    with pytest.raises(UnsupportedError, match="view made under no_grad"):
        aot_function(function)(base, base.view(2).requires_grad_())


def test_a_view_that_is_resized_to_a_symbol_begins_where_it_did() -> None:
    def function(x: Any, y: Any) -> None:
        torch.cat([y], out=x[1:])

    compiled = aot_function(function)
    for n in (1, 2, 3):
        xs = [torch.zeros(1), torch.zeros(1)]
        for f, x in zip((function, compiled), xs, strict=True):
            f(x, torch.arange(1.0, n + 1))
        expected, found = (x.as_strided((n + 1,), (1,)).tolist() for x in xs)
        assert expected == found


def test_memory_that_what_lies_in_it_does_not_fill_is_moved_to() -> None:
    def function(x: Any) -> None:
        y = x.clone()
        torch.sum(x, 0, out=y)
        x.set_(y)

    x = torch.ones(2)
    aot_function(function)(x)
    assert (x.item(), x.untyped_storage().nbytes()) == (2, 8)


def _written_apart(a: Any, b: Any, c: Any, w: Any) -> Any:
    a[0].mul_(2)
    b.add_(a)
    early = a[1:] + w[1:]
    a.copy_(b + 1)
    b[1].sub_(a[0])
    return early, a * b, b[:1].detach(), c * w


@pytest.mark.parametrize("written", [lambda w: w.detach(), lambda w: w], ids=["unrecorded", "recorded"])
def test_arguments_beside_each_other_on_a_storage_are_written_one_by_one(written: Any) -> None:
    def function(a: Any, b: Any, c: Any, w: Any) -> Any:
        a.mul_(written(w))
        b.mul_(written(w))
        return _written_apart(a, b, c, w)

    def inputs() -> Any:
        whole = torch.arange(9.0)
        return *(x.detach() for x in whole.split(3)), torch.rand(3, requires_grad=True)

    agrees(function, inputs)
    graphs: list[Any] = []
    aot_function(_written_apart, lambda graph, _: graphs.append(graph) or graph)(*inputs())
    assert "as_strided" not in graphs[0].code


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_a_result_begin_where_strides_of_dimensions_of_one_element_say(dynamic: bool) -> None:
    def function(x: Any, y: Any) -> Any:
        x.zero_()
        return y.clone()[1:]

    storage = torch.ones(1)
    found = aot_function(function, dynamic=dynamic)(storage.view(()), storage.as_strided((1,), (2,)))
    assert found.storage_offset() == 2


def test_a_part_of_an_unsafe_split_that_is_written_does_not_stand_for_the_whole() -> None:
    def function(x: Any) -> Any:
        whole = x.clone()
        part = whole.unsafe_split(1)[0]
        return part.zero_(), whole

    agrees(function, lambda: (torch.ones(2, 2),))


def test_memory_beside_what_an_op_gave_is_refused_and_a_write_that_builds_on_a_view_of_what_it_writes() -> None:
    def beside(x: Any) -> Any:
        return torch.as_strided_scatter(x.chunk(2)[1], torch.ones(2), (2,), (1,)).as_strided((1,), (0,), 1)

    def built(x: Any, y: Any) -> Any:
        view = x[0]
        y[0] = view
        return view

    with pytest.raises(UnsupportedError, match="memory beside what an op gave"):
        aot_function(beside)(torch.arange(4.0).view(2, 2))
    memory = torch.zeros(1).untyped_storage()
    x, y = (torch.empty(0).set_(memory, 0, (1,)) for _ in range(2))
    with pytest.raises(UnsupportedError, match="written by way of this view"):
        aot_function(built)(x.requires_grad_(), y)


def test_a_view_made_under_no_grad_is_refused_where_its_version_is_counted_up() -> None:
    leaf = torch.ones(2, 2, requires_grad=True)
    with torch.no_grad():
        part = leaf.t().requires_grad_()
    with pytest.raises(UnsupportedError, match="view made under no_grad"):
        aot_function(lambda x: x.detach().t_().sum())(part)


def test_a_view_made_under_no_grad_after_a_write_needs_no_history() -> None:
    def function(x: Tensor) -> Tensor:
        with torch.no_grad():
            view = x.t()
            x.zero_()
            later = view.t()
        return later.t()

    for f in (function, aot_function(function)):
        result = f(torch.ones(2, 3, requires_grad=True))
        assert result.requires_grad
        assert result.grad_fn is not None


def test_arguments_of_one_place_that_count_versions_apart_are_not_taken_for_each_other() -> None:
    x = torch.ones(2, requires_grad=True)
    other = torch.empty(0).set_(x.detach()).requires_grad_()  # type: ignore[call-overload]  # torch types storages alone
    with pytest.raises(UnsupportedError, match="several version counters"):
        aot_function(lambda x, y: y.sin())(x, other)


def _trained(x: Tensor) -> Tensor:
    leaf = torch.ones(2, requires_grad=True)
    (leaf * x).sum().backward()
    return leaf


def test_a_leaf_made_inside_has_its_gradient_but_not_once_it_was_reshaped() -> None:
    def reshaped(x: Tensor) -> Tensor:
        leaf = _trained(x)
        with torch.no_grad():
            return leaf.unsqueeze_(0)

    x = torch.arange(2.0)
    assert torch.equal(aot_function(_trained)(x).grad, _trained(x).grad)
    with pytest.raises(UnsupportedError, match="its gradient, or one of another shape"):
        aot_function(reshaped)(x)


def test_a_leaf_that_is_used_and_then_set_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        before = x * 3
        with torch.no_grad():
            x.set_(torch.ones(2))  # type: ignore[call-overload]  # torch types storages alone
        return before

    with pytest.raises(UnsupportedError, match="is used, and moved by set_ then"):
        aot_function(function)(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("view", [lambda x: x.imag, lambda x: x[0], lambda x: x.t()[:1]])
def test_a_view_of_a_leaf_that_was_given_data_lies_in_the_new_data(view: Any) -> None:
    def function(x: Tensor) -> Any:
        x.data = x.detach() * 3
        part = view(x)
        return part.clone(), part

    agrees(function, lambda: (torch.full((2, 3), 1 + 2j, requires_grad=True),))


@pytest.mark.parametrize("reshape", [lambda v: v.t_(), lambda v: v.unsqueeze_(1).transpose_(0, 2)])
def test_a_view_of_an_intermediate_that_has_a_grad_fn_is_not_reshaped_in_place(reshape: Any) -> None:
    function = aot_function(lambda x: reshape((x * 2)[:2]))
    assert torch.equal(function(torch.ones(3, 2)), reshape(torch.ones(2, 2) * 2))
    with pytest.raises(UnsupportedError, match=r"_\.default of a view"):
        function(torch.ones(3, 2, requires_grad=True))


def shrunk(x, nbytes):
    x.add_(1)
    x.untyped_storage().resize_(nbytes)
    return x[:2] * 2


ODD = {
    "written": lambda x: (x.mul_(2), x + 1)[1],
    "a part is written": lambda x: (x[1:].mul_(2), x.view(torch.uint8) + 1)[1],
    "parts of it": lambda x: (x.as_strided((2,), (1,), 1).add_(x[0]), x[1:].mul_(2), x + 1)[2],
    "shrunk to it": lambda x: shrunk(x, 13),
    "shrunk to its own": lambda x: shrunk(x, 12),
}


@pytest.mark.parametrize("nbytes", [13, 14, 18])
@pytest.mark.parametrize("function", [pytest.param(f, id=name) for name, f in ODD.items()])
def test_bytes_at_the_end_of_a_storage_that_are_no_whole_element_stay(function, nbytes):
    def arguments():
        storage = torch.UntypedStorage(nbytes)
        torch.empty(0, dtype=torch.uint8).set_(storage).copy_(torch.arange(nbytes))
        return storage, torch.empty(0).set_(storage, 0, (3,), (1,))

    (wanted, x), (storage, y) = arguments(), arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a graph that raises
        torch.testing.assert_close(aot_function(function)(y), function(x), rtol=0, atol=0)
    assert storage.tolist() == wanted.tolist()


def test_another_dtype_on_such_a_storage_is_refused():
    with pytest.raises(UnsupportedError, match="no whole number of elements"):
        aot_function(lambda x: x.view(torch.uint8).add_(1))(
            torch.empty(0).set_(torch.UntypedStorage(14), 0, (3,), (1,))
        )


@pytest.mark.parametrize("written", ["vv", "vw", "yvy", "vyv", "wu", "yv", "vt", "tv", "v", "y", "vtz"])
@pytest.mark.parametrize("returned", ["y", "yvw", "vt", "tyz"])
def test_foreach_writes_of_memory_twice_have_eagers_gradients_or_are_refused(written: str, returned: str) -> None:
    def function(x: Any) -> Any:
        y = x * 2
        named = {"y": y, "v": y[0], "t": y[1], "w": y[:, 1], "u": y.t(), "z": x * 3}
        torch._foreach_mul_([named[name] for name in written], 2.0)
        return [named[name] * 3 for name in returned], [named[name] for name in returned]

    left_behind = {"vv": "v", "vw": "v", "yvy": "v", "vyv": "v", "wu": "w"}.get(written, "")  # by the last write
    if not {*left_behind} & {*returned}:
        agrees(function, lambda: (torch.ones(2, 2, requires_grad=True),))
    else:
        with pytest.raises(UnsupportedError, match="written in a list"):
            aot_function(function)(torch.ones(2, 2, requires_grad=True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_between_two_components_and_needs_an_argument_as_it_was(dynamic: bool) -> None:
    def function(x: Any, y: Any, kept: Any) -> Any:
        v = torch.sin(x)
        kept += [v * 2, v * 3]
        return y + v

    x = torch.ones((), requires_grad=True)
    kept = [x]
    aot_function(function, dynamic=dynamic)(x, x.t(), kept).backward(retain_graph=True)
    kept[1].backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, 1 + torch.cos(torch.ones(())) * 3)


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_with_running_statistics_that_have_gaps_is_refused(training: bool) -> None:
    """In eval mode the backward of torch's kernel reads beside them if its tangent is dense, and ours always is."""
    mean, variance = torch.ones(4)[::2], torch.ones(2)
    with pytest.raises(UnsupportedError, match="running statistics with gaps"):
        aot_function(lambda x, w: torch.nn.functional.batch_norm(x, mean, variance, w, w, training))(
            torch.ones(4, 2), torch.ones(2, requires_grad=True)
        )


def test_an_operand_may_be_what_a_result_is_written_to() -> None:
    agrees(
        lambda a, b, c: torch.addmm(a, b, c, out=a), lambda: tuple(torch.arange(9.0).view(3, 3) + k for k in range(3))
    )
    with pytest.raises(UnsupportedError, match="overlapping operands"):
        aot_function(lambda a, b: torch.addmm(b, a, b, out=a))(torch.ones(3, 3), torch.ones(3, 3))


@pytest.mark.parametrize("op", [torch.neg, torch.sin, lambda x, out: torch.clamp(x, 0, out=out)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_a_result_is_converted_to_the_dtype_of_out_where_eager_does(op: Any, dtype: Any, given: Any) -> None:
    agrees(lambda x, out: op(x, out=out), lambda: (torch.ones(2, dtype=given), torch.ones(2, dtype=dtype)))


def test_a_draw_into_out_of_another_dtype_is_refused_as_eager_draws_in_that() -> None:
    with pytest.raises(UnsupportedError, match="draws in another dtype"):
        aot_function(lambda out: torch.normal(torch.zeros(2), 1.0, out=out))(torch.zeros(2, dtype=torch.float64))


def test_what_is_saved_may_be_a_view_of_what_was_written_and_has_views() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        view = y.as_strided((), ())
        y.zero_()
        return view.sin(), view

    agrees(function, lambda: (torch.ones(2, 2, requires_grad=True),))


class _Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x.unsqueeze(0)[0] * 2  # views are made here without grad mode

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * ctx.saved_tensors[1], None


def _kept_twice(x: Tensor) -> Tensor:
    return _Keeps.apply(x, x)


@pytest.mark.parametrize("function", [_kept_twice, lambda x: x * x])
@pytest.mark.parametrize("view", [lambda x: x.expand(1), lambda x: x.view(1), lambda x: x.detach().requires_grad_()])
def test_a_later_write_to_an_argument_that_a_backward_needs_raises(function: Any, view: Any) -> None:
    for f in (function, aot_function(function)):
        argument = view(torch.tensor(3.0, requires_grad=True))
        result = f(argument)
        with torch.no_grad():
            argument.fill_(100)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_a_backward_that_does_not_need_what_was_written_last_does_not_raise() -> None:
    """Behind a view of which eager does not say what its nodes saved."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        part = x.as_strided((1,), (2,), 5)
        x.mul_(-1)
        negated = torch.neg(part)
        x.sigmoid_()
        return negated, part

    for f in (function, aot_function(function)):
        leaf = torch.arange(4.0).to(torch.complex64).requires_grad_()
        negated, part = f(torch.view_as_real(leaf.clone()))
        with torch.no_grad():
            part.fill_(3)
        negated.sum().backward(retain_graph=True)
        torch.testing.assert_close(leaf.grad, torch.tensor([0, 0, 1j, 0]))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            part.sum().backward()


@pytest.mark.parametrize("shape", [(2, 3), (2, 1, 3)])
def test_results_of_what_was_expanded_and_written_lie_as_eagers(shape: tuple[int, ...]) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        expanded = x.expand(shape)
        expanded.fill_(2)
        return torch.sign(expanded.mT), expanded.clone()

    agrees(function, lambda: (torch.ones(3),))
    agrees(lambda x: function(x.clone()), lambda: (torch.ones(3),))


def test_a_view_of_one_of_several_views_made_before_a_hidden_write_is_refused() -> None:
    """Eager takes a view under no_grad of what it would not differentiate any more."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        _, rows = torch.split(x, [2, 1])
        first, second = torch.unbind(rows, 1)
        first.detach().as_strided((3,), (2,), 0).mul_(2)
        with torch.no_grad():
            return torch.chunk(second, 2)[0], rows

    with pytest.raises(UnsupportedError, match="detached and written since"):
        aot_function(function)(torch.arange(6.0).view(3, 2).requires_grad_())


def test_one_of_several_views_of_a_leaf_made_inside_that_was_written_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        leaf = x.detach().clone().requires_grad_()
        first, _ = torch.unbind(leaf)
        leaf.detach().zero_()
        return first

    with pytest.raises(UnsupportedError, match="detached or written since"):
        aot_function(function)(torch.ones(2))


def test_a_view_is_refused_whose_write_needs_its_history() -> None:
    def function(kept: Tensor, whole: Tensor, part: Tensor) -> Tensor:
        real = part.real
        whole[1:] = real
        kept.set_(kept)
        return real

    storage = torch.arange(6.0, dtype=torch.float64).untyped_storage()
    whole = torch.empty(0, dtype=torch.float64).set_(storage, 0, (2, 3), (3, 1))
    part = torch.empty(0, dtype=torch.complex64).set_(storage, 0, (3,), (1,)).requires_grad_()
    with pytest.raises(UnsupportedError, match="needs a write that needs"):
        aot_function(function)(torch.ones(2), whole, part)


def test_a_row_written_by_index_keeps_its_stride() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.index_put(x, (torch.tensor([0, 0]),), torch.ones(2), accumulate=True)[1:]

    for f in (function, aot_function(function)):
        assert f(torch.ones(4).as_strided((1,), (2,))).storage_offset() == 2


def test_an_inference_tensor_whose_storage_was_resized_outside_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        with torch.inference_mode():
            made = torch.zeros_like(x)
        made.untyped_storage().resize_(24)
        return made.data

    with pytest.raises(UnsupportedError, match="neither is a view of the other"):
        aot_function(function)(torch.ones(2))


def test_a_tensor_may_require_grad_for_a_while() -> None:
    """As an adversarial example does, whose gradient is asked for at once."""

    def function(x: Tensor, weight: Tensor) -> Tensor:
        x.requires_grad_(True)
        (gradient,) = torch.autograd.grad((x * weight).sin().sum(), x)
        x.requires_grad_(False)
        return (x + gradient.sign()) * weight

    agrees(function, lambda: (torch.arange(3.0), torch.tensor([1.0, 2.0, -3.0], requires_grad=True)))


def test_a_result_of_what_required_grad_for_a_while_is_refused() -> None:
    """The caller may let it require grad again, and then the backward accumulates into it."""

    def function(x: Tensor, weight: Tensor) -> Tensor:
        product = x.requires_grad_(True) * weight
        x.requires_grad_(False)
        return product

    with pytest.raises(UnsupportedError, match="stops to require grad"):
        aot_function(function)(torch.arange(3.0), torch.ones(3, requires_grad=True))


def test_a_detached_part_of_what_is_written_later_keeps_the_whole_storage() -> None:
    def function(x: Tensor) -> Tensor:
        part = (x * 2)[:1]
        detached = part.detach()
        part.mul_(3)
        return detached

    for f in (function, aot_function(function)):
        detached = f(torch.ones(4, requires_grad=True))
        assert (detached.untyped_storage().nbytes(), detached.tolist()) == (16, [6.0])


def test_data_of_an_inference_tensor_that_counts_versions_is_not_moved() -> None:
    with torch.inference_mode():
        x = torch.ones(2)

    def function(x: Any) -> Any:
        y = x.data
        y.data = y[:1]
        return y

    function(x).add_(1)  # which an inference tensor would refuse
    with pytest.raises(UnsupportedError, match="counts versions"):
        aot_function(function)(x)


def _square(w, data, x):
    return w * w * x


def _both(w, data, x):
    return (data.t() @ w) * x


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("written", [0, 1, None])
@pytest.mark.parametrize("function", [_square, _both])
def test_the_data_of_an_argument_is_an_argument_too(function, written, swapped):
    """What eager saved counts with one of them: a write through the other is not noticed."""

    def given(w, data, x):
        return function(data, w, x) if swapped else function(w, data, x)

    compiled, seen = aot_function(given), []
    for run in (given, compiled):
        w, x = torch.arange(1.0, 5.0).view(2, 2).requires_grad_(), torch.ones(2, 2)
        taken = (w.data, w) if swapped else (w, w.data)
        try:
            y = run(*taken, x)
            with torch.no_grad():
                _ = written is None or taken[written].mul_(2)
            y.sum().backward()
            seen.append(repr(w.grad))
        except UnsupportedError as error:
            assert function is _both or swapped, error
            return
        except RuntimeError as error:
            seen.append(type(error))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_spectral_norm_of_the_old_kind(dynamic):
    """Until its first call the weight is an attribute, the data of the parameter."""
    layers = []
    for _ in range(2):
        torch.manual_seed(0)
        layers.append(torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3)))
    compiled = aot_module(layers[1], dynamic=dynamic)
    for n in (2, 3, 5):
        x = torch.randn(n, 4)
        results = layers[0](x), compiled(x)
        torch.testing.assert_close(*results)
        for y in results:
            y.square().sum().backward()
        for ours, eager in zip(layers[1].state_dict().values(), layers[0].state_dict().values(), strict=True):
            assert torch.equal(ours, eager)
        assert torch.equal(layers[1].weight_orig.grad, layers[0].weight_orig.grad)
    assert compiled.aotcheck.made == (3 if dynamic is False else 2)


@pytest.mark.parametrize(
    "op", [torch.logaddexp, torch.logical_and, torch.heaviside, torch.xlogy, torch.special.xlog1py]
)
@pytest.mark.parametrize("shapes", [((1, 2, 1), (3, 2)), ((1, 2, 3), (3, 2)), ((3, 2), (1, 2, 3))])
def test_results_of_operands_that_are_broadcast_lie_as_in_eager(op, shapes):
    given = [torch.ones(shape).t() if len(shape) == 2 else torch.ones(shape) for shape in shapes]
    assert aot_function(op)(*given).stride() == op(*given).stride()


_SCATTERS = [
    lambda x: torch.slice_scatter(x, torch.ones(1), 0, 1),
    lambda x: torch.select_scatter(x, torch.ones(()), 0, 1),
    lambda x: torch.as_strided_scatter(x, torch.ones(1), (1,), (1,)),
]


@pytest.mark.parametrize("scatter", _SCATTERS)
def test_a_scatter_copies_all_of_the_storage_of_its_operand(scatter: Any) -> None:
    """A write to the copy is another op's result, which has no memory beside its elements."""

    def written(x: Any) -> Any:
        return scatter(x).sign_()

    def moved(x: Any) -> Any:
        return torch.zeros(2).set_(scatter(x))

    for function in (scatter, written, moved):
        agrees(function, lambda: (torch.arange(2.0),))
    agrees(scatter, lambda: (torch.arange(3.0)[:2],))
    for function in (written, moved):
        with pytest.raises(UnsupportedError, match="memory beside"):
            aot_function(function)(torch.arange(3.0)[:2])


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_saved_leaf_whose_data_are_those_of_a_result_is_refused(dynamic: bool) -> None:
    def function(x: Any) -> Any:
        y = x.sin()
        x.data = y.as_strided((6,), (1,))  # six is the size of x, as is known from then on
        return y

    with pytest.raises(UnsupportedError, match="saved memory with several version counters"):
        aot_function(function, dynamic=dynamic)(torch.ones(6, requires_grad=True))


def test_a_resize_that_changes_nothing_is_no_change_that_views_count() -> None:
    def function(x: Any, y: Any) -> Any:
        with torch.no_grad():
            y.resize_((0,))
        return y + 1

    for f in (function, aot_function(function)):
        base = torch.ones(0, requires_grad=True)
        with torch.no_grad():
            view, alias = base.unsqueeze(0), base.detach()
        f(view, alias)
        assert view.is_leaf and alias._version == 0  # which autograd does not say of one whose base was changed


def test_a_gradient_of_the_base_of_an_argument_is_refused() -> None:
    def function(x: Any, y: Any) -> Any:
        x.double().backward(torch.ones(2, 2, dtype=torch.float64), retain_graph=True)
        return y.detach()

    base = torch.ones(3, 2, requires_grad=True)
    with torch.no_grad():
        hidden = base.view(6)
    with pytest.raises(UnsupportedError, match="backward into the caller's graph"):
        aot_function(function)(base[:2], hidden)


def test_a_write_of_another_dtype_to_memory_of_bools_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="memory of bools"):
        aot_function(lambda x: x.view(torch.uint8).add_(1))(torch.tensor([True, False]))
    agrees(lambda x: (x.view(torch.bool).logical_not_(), x + 1)[1], lambda: (torch.tensor([0, 1], dtype=torch.uint8),))


@pytest.mark.parametrize("dynamic", [False, None, True])
def test_an_empty_part_of_what_moves_begins_where_it_does_in_eager(dynamic: bool | None) -> None:
    def function(x: Any) -> Any:
        alias = x.detach()
        part = alias[1:]
        alias.set_(x.detach())
        return part

    compiled = aot_function(function, dynamic=dynamic)
    for columns, stride in [(3, 0), (3, 3), (3, 7), (4, 4), (5, 0), (5, 9)]:
        x = torch.ones(20).as_strided((1, columns), (stride, 1))
        assert compiled(x).storage_offset() == function(x).storage_offset()


def test_a_foreach_write_of_what_has_another_shape_raises_as_eager_does() -> None:
    def function(x: Any, y: Any) -> Any:
        torch._foreach_addcmul_([x], [x], [y], 1)
        return x

    agrees(function, lambda: (torch.zeros(0, 1, 1), torch.zeros(3, 0)))


def test_an_argument_that_is_written_reshaped_and_told_to_require_grad_is_refused() -> None:
    def function(view: Any, alias: Any) -> Any:
        alias.swapaxes_(0, 2)
        alias.requires_grad_()
        view.pow_(2)
        return alias * 3

    base = torch.ones(3, 1, 4, requires_grad=True) * 2
    with pytest.raises(UnsupportedError, match="requires_grad changed inside"):
        aot_function(function)(base.unsqueeze(0), base.detach())


def test_data_of_another_dtype_for_what_requires_grad_are_refused() -> None:
    def function(x: Any) -> Any:
        before, y = x.detach(), x * 2
        x.data = x.detach().bfloat16()  # from then on gradients of y arrive by a node that x knows no more
        x.data = before
        return y

    with pytest.raises(UnsupportedError, match="another dtype"):
        aot_function(function)(torch.ones(3, requires_grad=True))


def test_data_of_a_detached_alias_that_lie_where_they_did_are_refused() -> None:
    def function(x: Any, view: Any) -> Any:
        alias = view.detach()
        alias.data = alias  # it counts versions with the view, still
        return alias

    base = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        view = base[:2]
    with pytest.raises(UnsupportedError, match="detached alias"):
        aot_function(function)(base, view)
