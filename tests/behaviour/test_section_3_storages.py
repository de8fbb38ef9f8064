"""BEHAVIOUR 3: what windows show once their storage shrank, or what they were made of lies on another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import View
from tests.behaviour.harness import attempt, attempt_later, backward, check, check_session, given, leaf, plain


@pytest.mark.parametrize("nbytes", [0, 4])
@pytest.mark.parametrize("window", [lambda x: x.t(), lambda x: x.detach()], ids=["view", "alias"])
def test_a_window_that_grew_by_out_on_a_storage_that_shrank(window, nbytes):
    def f(x, y):
        v = window(x)
        torch.neg(y, out=v)
        torch.ops.inductor.resize_storage_bytes_.default(x, nbytes)
        return v

    def session(compile):
        x, y = torch.tensor(3.0), plain(2)
        v = compile(f)(x, y)
        yield x.untyped_storage().nbytes(), v.shape, v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        v.untyped_storage().resize_(8)
        v.fill_(2.0)
        yield x, v

    check_session(session)


@pytest.mark.parametrize("grad", [False, True])
def test_a_view_of_what_was_given_a_part_of_its_own_data(grad):
    def f(x):
        y = x.clone()
        view = y.t()
        y.data = y.detach()[0]
        y.zero_()
        return view.as_strided((2,), (0,))

    check(f, lambda: given(plain(2).requires_grad_(grad)))


@pytest.mark.parametrize("again", [False, True])
def test_a_part_by_unsafe_chunk_of_what_was_given_other_data(again):
    def f(x, y):
        whole = x + y
        (part,) = torch.unsafe_chunk(whole, 1)
        other = y.clone()
        whole.data = other
        return (part, other, whole) if again else (part, other)

    for make in (plain, leaf):
        check(f, lambda make=make: given(make(), plain(1, seed=2)))


@pytest.mark.parametrize("write", [lambda x, v: x.zero_(), lambda x, v: v.zero_(), lambda x, v: None])
@pytest.mark.parametrize("make", [plain, leaf, lambda *shape: leaf(*shape) * 1], ids=["plain", "leaf", "history"])
def test_detach_in_place_in_inference_mode_does_nothing(make, write):
    def f(x):
        v = x.t()
        v.detach_()
        write(x, v)
        return v

    def session(compile):
        x = make(2, 3)
        with torch.inference_mode():
            v = compile(f)(x)
        yield x, v

    check_session(session)


def test_a_view_made_under_no_grad_is_given_data_of_another_dtype():
    def f(x, y):
        x.data = y
        return x * 2

    def session(compile):
        root = leaf(2).double().detach().requires_grad_()
        with torch.no_grad():
            view = root.view(2)
        yield compile(f)(view, plain(2)).requires_grad, view

    check_session(session)


def test_a_view_between_as_many_writes_as_set_makes_of_them():
    def f(x, y):
        x.zero_()
        x.zero_()
        v = x.t()
        x.set_(y.clone())
        return v

    def session(compile):
        v = compile(f)(leaf() * 1, plain())
        yield attempt_later(lambda: v.backward())

    check_session(session)


class _ReturnsIt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g


def test_a_view_of_a_view_of_what_a_custom_function_returned_before_a_write():
    def f(x):
        v = x.t().t()
        with torch.no_grad():
            x.zero_()
        return v

    check(f, lambda: given(_ReturnsIt.apply(leaf())), backward=None, probe=False)


@pytest.mark.parametrize("write", [torch.sigmoid_, torch.relu_, torch.Tensor.exp_], ids=["sigmoid", "relu", "exp"])
def test_a_result_that_its_own_op_keeps_is_written_unseen_in_an_argument(write):
    def session(compile):
        root = leaf(3)
        x = root * 1
        out = compile(lambda x: (write(x), x.data))(x)
        out[1].add_(5)
        backward(out[:1])
        yield root.grad

    check_session(session)


def test_a_leaf_that_is_an_inference_tensor():
    def session(compile):
        with torch.inference_mode():
            x, data = plain(2).requires_grad_(), plain(2)
        y = leaf(2)
        y.data = data
        yield attempt(lambda: compile(lambda x: x * 2)(x)), attempt(lambda: compile(lambda y: y.view(2))(y)), y

    check_session(session)


@pytest.mark.parametrize("place", [0, 1])
def test_a_part_of_another_dtype_of_what_was_given_a_part_without_elements_of_its_own_data(place):
    def f(x):
        y = x.clone()
        part = torch.view_as_real(y)[..., place]
        y.data = y[1:]
        return y.zero_(), part

    check(f, lambda: given(plain(1, dtype=torch.complex64)))


def test_parts_of_two_dtypes_none_of_which_lies_at_the_beginning():
    def f(x):
        y = x.clone()
        return y[1:], torch.view_as_real(y)[1:, 1], torch.view_as_real(y)[2:, 0]

    check(f, lambda: given(plain(4, dtype=torch.complex64)))


@pytest.mark.parametrize("nbytes", [0, 8, 16])
@pytest.mark.parametrize("write", [True, False])
def test_a_result_whose_storage_was_freed_and_allocated_again_and_then_resized(nbytes, write):
    def f(x):
        y = x * 2
        torch.ops.inductor.resize_storage_bytes_.default(y, 0)
        torch.ops.inductor.resize_storage_bytes_.default(y, 16)
        y.fill_(2.0)
        z = -y
        torch.ops.inductor.resize_storage_bytes_.default(y, nbytes)
        return (y, z.zero_() if write else z)

    def session(compile):
        y, z = compile(f)(plain(4))
        yield y.untyped_storage().nbytes(), y[: nbytes // 4], z

    check_session(session)


@pytest.mark.parametrize("told", [True, False])
def test_a_view_of_a_custom_functions_view_whose_storage_grew_before_a_write(told):
    def f(x):
        torch.ops.inductor.resize_storage_bytes_.default(x, 32)
        v = x.as_strided((2,), (4,))
        x.requires_grad_(told)
        x.zero_()
        return v[0]

    check(f, lambda: given(View.apply(plain(2))))


@pytest.mark.parametrize("view", [torch.conj, lambda x: x.conj()[1:]], ids=["conj", "part"])
@pytest.mark.parametrize("make", [plain, leaf, lambda *args, **kwargs: leaf(*args, **kwargs) * 1])
def test_an_argument_is_given_the_data_of_its_lazy_conjugate_and_written(make, view):
    def f(x):
        v = view(x)
        with torch.no_grad():
            x.data = x.conj()
            x.mul_(2)
        return v

    check(f, lambda: given(make(2, dtype=torch.complex64)))


def test_a_backward_that_reaches_beyond_a_storage_raises_what_eager_does():
    def f(x):
        with torch.no_grad():
            v = x.t()
        torch.ops.inductor.resize_storage_bytes_.default(x, 20)
        (part,) = torch.unsafe_split(v, 1)
        part.as_strided((1,), (0,), 1).zero_()
        return part

    def session(compile):
        y = compile(f)(leaf(1))
        raised = attempt(lambda: y.backward(torch.ones_like(y)))
        yield raised.type

    check_session(session)


@pytest.mark.parametrize("write", [lambda y: y.zero_(), lambda y: y.add_(1), lambda y: None])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("part", [lambda y: y[0], lambda y: y[1:, 1], lambda y: y[:, ::2]], ids=["row", "low", "gaps"])
def test_memory_beside_what_was_put_on_a_part_of_its_own_and_written(part, inside, write):
    """The part is computed by itself, and would lie alone in memory."""

    def f(x):
        y = x.clone()
        y.set_(part(y))
        write(y)
        return y.as_strided((1, 3), (0, 1)) if inside else y

    def session(compile):
        y = compile(f)(torch.arange(1.0, 41.0).as_strided((3, 3), (4, 12)))
        around = y.as_strided((1, 3), (0, 1)) if not inside else y
        yield y, around
        around.add_(1)
        yield y, around

    check_session(session)


_SUMMANDS_STAY = {
    "soft margin": lambda x, y: F.soft_margin_loss(x, y),
    "of transposes": lambda x, y: F.soft_margin_loss(x.t(), y.t(), reduction="sum"),
    "cross entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "weighted": lambda x, y: F.binary_cross_entropy(x.t().sigmoid(), y.t().sigmoid(), y.t().abs(), reduction="sum"),
}
_LOSSES = {
    **_SUMMANDS_STAY,
    "squares": lambda x, y: F.mse_loss(x, y),
    "sum of squares": lambda x, y: F.mse_loss(x, y, reduction="sum"),
    "each square": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "smooth": lambda x, y: F.smooth_l1_loss(x, y, beta=0.5),
    "huber": lambda x, y: F.huber_loss(x, y),
}
_TAKE = {
    "data": lambda w, v: setattr(w, "data", v),
    "set_": lambda w, v: w.set_(v.detach()),
    "written": lambda w, v: w.set_(v.detach()).mul_(2),
}


@pytest.mark.parametrize("take", _TAKE.values(), ids=_TAKE)
@pytest.mark.parametrize("loss", _LOSSES.values(), ids=_LOSSES)
@pytest.mark.parametrize("shape", [(3, 2), (2, 1), (1, 1), (0, 2)])
@pytest.mark.parametrize("make", [leaf, plain])
def test_how_large_the_storage_is_that_a_loss_leaves_under_its_result(make, shape, loss, take):
    def f(x, y, w):
        v = loss(x, y)
        take(w, v)
        return v.untyped_storage().nbytes(), v

    def session(compile):
        w = plain(3)
        size, v = compile(f)(make(*shape), plain(*shape, seed=1), w)
        yield size, w.untyped_storage().nbytes(), v, w

    check_session(session)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("loss", _SUMMANDS_STAY.values(), ids=_SUMMANDS_STAY)
def test_a_window_on_the_summands_that_a_loss_leaves_behind_its_result(loss, inside, write):
    def f(x, y, w):
        v = loss(x, y)
        if write:
            v.mul_(2)
        w.set_(v)
        return v.as_strided((2, 2), (2, 1), 1) if inside else v

    def session(compile):
        w = plain(3)
        v = compile(f)(plain(3, 2), plain(3, 2, seed=1), w)
        yield v, w.as_strided((6,), (1,))

    check_session(session)


@pytest.mark.parametrize("loss", [k for k in _LOSSES if k != "each square"])
def test_a_loss_that_is_returned_is_the_graphs_result(loss):
    """Nobody sees how much room there is behind it."""
    graphs = []

    def compiler(graph, inputs):
        graphs.append([str(n.target) for n in graph.graph.nodes])
        return graph

    for write in (False, True):
        x, y = plain(3, 2), plain(3, 2, seed=1)
        aotcheck.aot_function(lambda x, y, w=write: _LOSSES[loss](x, y).add_(1 if w else 0), compiler)(x, y)
    assert len(graphs) == 2
    assert not [op for ops in graphs for op in ops if "cat" in op or "slice" in op or "strided" in op]


def _bytes_of(t, start, end):
    """The bytes from ``start`` to ``end`` of the storage of ``t``."""
    return torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage(), start, (end - start,), (1,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.int16], ids=str)
@pytest.mark.parametrize("sizes", [(5,), (0, 5), (37,), (37, 48), (3, 48), (5, 1, 48), (69,)], ids=str)
@pytest.mark.parametrize("made", ["argument", "inside"])
def test_a_storage_of_no_whole_number_of_elements(dtype, sizes, made):
    def f(x):
        t = x if made == "argument" else x.clone()
        doubled, known = t.mul(2), t.untyped_storage().nbytes()
        for nbytes in sizes:
            t.untyped_storage().resize_(nbytes)
            known = min(known, nbytes)
        t.untyped_storage().resize_(69)
        _bytes_of(t, known, 69).fill_(63)
        t[1:3].add_(1)
        end = _bytes_of(t, 60, 69)
        t.untyped_storage().resize_(67)
        return doubled, t[:2], t[1:].mul(3), end[:7]

    check(f, lambda: given(torch.arange(4).to(dtype)))


@pytest.mark.parametrize("nbytes", [5, 37])
def test_a_write_through_another_dtype_to_bytes_that_hold_no_whole_number_of_elements(nbytes):
    def f(x):
        x.untyped_storage().resize_(nbytes)
        end = _bytes_of(x, 4, nbytes).fill_(7)
        x.as_strided((1,), (1,), 0).add_(1)
        x.untyped_storage().resize_(nbytes - 1)
        return end[:-1].clone(), x.as_strided((1,), (1,), 0)

    def session(compile):
        x = plain(2, 4)
        result = compile(f)(x)
        yield result, x.untyped_storage().nbytes()
        yield _bytes_of(x, 0, nbytes - 1)

    check_session(session)


@pytest.mark.parametrize("nbytes", [4, 17])
def test_gradients_of_what_is_computed_before_its_storage_holds_no_whole_number_of_elements(nbytes):
    def f(x, y):
        t = x * y
        loss = (t * 3).exp()
        t.detach().untyped_storage().resize_(nbytes)
        return loss

    check(f, lambda: given(torch.ones(3, dtype=torch.float64).requires_grad_(), plain(3).double()))
