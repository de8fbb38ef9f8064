"""How many bytes a storage has, what lies behind and around the elements, sizes of no whole number of elements."""

import pytest
import torch
import torch.nn.functional as F

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, check_session, session
from tests.behaviour.inputs import given, leaf, plain, to_device


@session
def test_an_argument_that_out_resizes_is_then_freed(compile):
    def f(x):
        torch.cumsum(torch.ones(5, device=x.device), 0, out=x)
        x.untyped_storage().resize_(0)

    x = to_device(torch.zeros(()))
    compile(f)(x)
    yield x.shape, x.stride(), x.untyped_storage().nbytes()


@pytest.mark.parametrize("nbytes", [0, 4, 64])
def test_the_storage_of_assigned_data_made_inside_is_resized(nbytes):
    def f(x):
        x.data = x.clone()
        x.untyped_storage().resize_(nbytes)

    def another_size(x):
        x.data = x[1:].clone()
        x.untyped_storage().resize_(nbytes)
        return x.detach()

    for body in (f, another_size):
        for make in (plain, leaf):

            def session(compile, body=body, make=make):
                x = make(3)
                out = compile(body)(x)
                yield out is None, x.shape, x.untyped_storage().nbytes()

            check_session(session)


@pytest.mark.parametrize("nbytes", [0, 4])
@pytest.mark.parametrize("window", [lambda x: x.t(), lambda x: x.detach()], ids=["view", "alias"])
@session
def test_a_view_that_out_resizes_on_a_storage_that_is_then_shrunk(compile, window, nbytes):
    def f(x, y):
        v = window(x)
        torch.neg(y, out=v)
        torch.ops.inductor.resize_storage_bytes_.default(x, nbytes)
        return v

    x, y = to_device(torch.tensor(3.0)), plain(2)
    v = compile(f)(x, y)
    yield x.untyped_storage().nbytes(), v.shape, v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    v.untyped_storage().resize_(8)
    v.fill_(2.0)
    yield x, v


@pytest.mark.parametrize("nbytes", [0, 8, 16])
@pytest.mark.parametrize("write", [True, False])
@session
def test_a_result_whose_storage_was_freed_and_allocated_again_and_then_resized(compile, nbytes, write):
    def f(x):
        y = x * 2
        torch.ops.inductor.resize_storage_bytes_.default(y, 0)
        torch.ops.inductor.resize_storage_bytes_.default(y, 16)
        y.fill_(2.0)
        z = -y
        torch.ops.inductor.resize_storage_bytes_.default(y, nbytes)
        return (y, z.zero_() if write else z)

    y, z = compile(f)(plain(4))
    yield y.untyped_storage().nbytes(), y[: nbytes // 4], z


@pytest.mark.parametrize("write", [lambda y: y.zero_(), lambda y: y.add_(1), lambda y: None])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("part", [lambda y: y[0], lambda y: y[1:, 1], lambda y: y[:, ::2]], ids=["row", "low", "gaps"])
@session
def test_memory_around_an_intermediate_that_is_set_to_a_part_of_itself(compile, part, inside, write):
    """The part is computed by itself, and would lie alone in memory."""

    def f(x):
        y = x.clone()
        y.set_(part(y))
        write(y)
        return y.as_strided((1, 3), (0, 1)) if inside else y

    y = compile(f)(to_device(torch.arange(1.0, 41.0)).as_strided((3, 3), (4, 12)))
    around = y.as_strided((1, 3), (0, 1)) if not inside else y
    yield y, around
    around.add_(1)
    yield y, around


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
@session
def test_the_storage_size_of_the_result_of_a_loss(compile, make, shape, loss, take):
    def f(x, y, w):
        v = loss(x, y)
        take(w, v)
        return v.untyped_storage().nbytes(), v

    w = plain(3)
    size, v = compile(f)(make(*shape), plain(*shape, seed=1), w)
    yield size, w.untyped_storage().nbytes(), v, w


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("loss", _SUMMANDS_STAY.values(), ids=_SUMMANDS_STAY)
@session
def test_the_summands_behind_the_result_of_a_loss_are_read(compile, loss, inside, write):
    def f(x, y, w):
        v = loss(x, y)
        if write:
            v.mul_(2)
        w.set_(v)
        return v.as_strided((2, 2), (2, 1), 1) if inside else v

    w = plain(3)
    v = compile(f)(plain(3, 2), plain(3, 2, seed=1), w)
    yield v, w.as_strided((6,), (1,))


@pytest.mark.parametrize("loss", [k for k in _LOSSES if k != "each square"])
def test_a_returned_loss_is_the_graphs_result_without_a_larger_storage(loss):
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
    return torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage(), start, (end - start,), (1,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.int16], ids=str)
@pytest.mark.parametrize("sizes", [(5,), (0, 5), (37,), (37, 48), (3, 48), (5, 1, 48), (69,)], ids=str)
@pytest.mark.parametrize("made", ["argument", "inside"])
@agrees(lambda dtype: given(torch.arange(4).to(dtype)))
def test_a_storage_of_no_whole_number_of_elements(x, *, sizes, made):
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


@pytest.mark.parametrize("nbytes", [5, 37])
@session
def test_a_write_as_bytes_to_a_storage_of_no_whole_number_of_elements(compile, nbytes):
    def f(x):
        x.untyped_storage().resize_(nbytes)
        end = _bytes_of(x, 4, nbytes).fill_(7)
        x.as_strided((1,), (1,), 0).add_(1)
        x.untyped_storage().resize_(nbytes - 1)
        return end[:-1].clone(), x.as_strided((1,), (1,), 0)

    x = plain(2, 4)
    result = compile(f)(x)
    yield result, x.untyped_storage().nbytes()
    yield _bytes_of(x, 0, nbytes - 1)


@pytest.mark.parametrize("nbytes", [4, 17])
@agrees(lambda: given(to_device(torch.ones(3, dtype=torch.float64)).requires_grad_(), plain(3).double()))
def test_gradients_of_a_tensor_whose_storage_then_holds_no_whole_number_of_elements(x, y, *, nbytes):
    t = x * y
    loss = (t * 3).exp()
    t.detach().untyped_storage().resize_(nbytes)
    return loss
