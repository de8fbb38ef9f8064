"""BEHAVIOUR 3: memory that a call frees and that is allocated again before the backward reads it, as FSDP's is."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, check_session, leaf, plain


def _allocate(w: torch.Tensor, data: torch.Tensor) -> None:
    """Let ``w`` have memory, and in it ``data``, unnoticed by autograd."""
    w.untyped_storage().resize_(data.numel() * data.element_size())
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(w):
        w.copy_(data)


def _free(w: torch.Tensor) -> None:
    w.untyped_storage().resize_(0)


def _freed(*shape: int) -> torch.Tensor:
    w = leaf(*shape)
    _free(w)
    return w


@pytest.mark.parametrize("factor", [1, 2], ids=["as it was", "otherwise"])
@pytest.mark.parametrize(
    "use",
    [
        lambda x, w: x @ w,
        lambda x, w: x @ w.t().t(),
        lambda x, w: x @ w[:, 1:],
        lambda x, w: (x @ w) * w.sum() + (w * w).sum(),
        lambda x, w: torch.nn.functional.linear(x, w.t()),
    ],
    ids=["matmul", "views", "part", "several", "linear"],
)
def test_a_parameter_that_is_allocated_for_the_call_and_again_for_the_backward(use, factor):
    def f(w, shard, x):
        _allocate(w, shard)
        y = use(x, w)
        _free(w)
        return y

    def session(compile):
        w, shard, x = _freed(2, 3), plain(2, 3, seed=1), leaf(1, 2, seed=2)
        compiled = compile(f)
        for _ in range(2):
            y = compiled(w, shard, x)
            yield y, w.untyped_storage().nbytes()
            _allocate(w, shard * factor)
            y.sum().backward()
            _free(w)
            yield x.grad, w.grad

    check_session(session)


@pytest.mark.parametrize("between", [True, False])
def test_a_parameter_is_allocated_twice_in_a_call(between):
    def f(w, shard, x):
        _allocate(w, shard)
        y = x * w
        _free(w)
        y = torch.relu(y) if between else y
        _allocate(w, shard)
        y = y * w
        _free(w)
        return y

    def session(compile):
        w, shard, x = _freed(3), plain(3, seed=1), leaf(3, seed=2)
        y = compile(f)(w, shard, x)
        _allocate(w, shard)
        yield y, torch.autograd.grad(y.sum(), [x, w])

    check_session(session)


def test_parameters_that_are_parts_of_memory_that_is_freed():
    def f(flat, weight, bias, shard, x):
        _allocate(flat, shard)
        y = x * weight * bias
        _free(flat)
        return y

    def session(compile):
        flat, shard, x = plain(6), plain(6, seed=1), leaf(3, seed=2)
        weight, bias = [flat.detach()[k : k + 3].requires_grad_() for k in (0, 3)]
        _free(flat)
        y = compile(f)(flat, weight, bias, shard, x)
        _allocate(flat, shard)
        yield y, torch.autograd.grad(y.sum(), [x, weight, bias])

    check_session(session)


def test_a_parameter_that_comes_with_memory_which_the_call_frees():
    def f(w, x):
        y = x * w
        _free(w)
        return y

    def session(compile):
        w, x = leaf(3), leaf(3, seed=2)
        y = compile(f)(w, x)
        _allocate(w, plain(3))
        yield y, torch.autograd.grad(y.sum(), [x, w])

    check_session(session)


def test_part_of_a_parameters_memory_is_left():
    def f(w, x):
        y = x * w
        w.untyped_storage().resize_(4)
        return y, w[:1] * 2

    def session(compile):
        w, x = leaf(3), leaf(3, seed=2)
        y, z = compile(f)(w, x)
        yield z, w.untyped_storage().nbytes()
        _allocate(w, plain(3))
        yield y, torch.autograd.grad(y.sum() + z.sum(), [x, w])

    check_session(session)


GROWS = {
    "storage": lambda x: x.untyped_storage().resize_(4),
    "op": lambda x: torch.ops.inductor.resize_storage_bytes_(x, 4),
}


@pytest.mark.parametrize("grow", GROWS.values(), ids=GROWS)
@pytest.mark.parametrize("later", [True, False], ids=["parts made later", "parts made before"])
@pytest.mark.parametrize("through", [0, 2], ids=["freed", "shrunk"])
def test_parts_of_what_reaches_beyond_its_storage(through, later, grow):
    """What they were cut from no graph can hold."""

    def f(x):
        a, b, _ = (None,) * 3 if later else x.split(1)
        x.untyped_storage().resize_(through)
        x.untyped_storage().resize_(2)
        first = x[:1] if later else a
        first.fill_(2)
        y = first * 3
        grow(x)
        second = x.as_strided((1,), (1,), 1) if later else b
        second.fill_(1)
        second.add_(first)
        return y, first * 5, second.clone()

    def session(compile):
        compiled = compile(f)
        for seed in (0, 1):
            x = plain(3, dtype=torch.bfloat16, seed=seed)
            yield compiled(x), x.untyped_storage().nbytes(), x.as_strided((2,), (1,))

    check_session(session)


VIEWS = {
    "slice": lambda x: x[2:],
    "a slice of what is left": lambda x: x[:1],
    "select": lambda x: x[3],
    "chunk": lambda x: x.chunk(2),
    "unsafe_split": lambda x: torch.unsafe_split(x, 2),
    "expand": lambda x: x.expand(2, 4),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(),
    "unfold": lambda x: x.unfold(0, 2, 1),
    "view": lambda x: x.view(2, 2),
    "detach": lambda x: x.detach(),
    "another dtype": lambda x: x.view(torch.int32),
    "nothing of it": lambda x: x[4:],
}
ON = {
    "what is made inside": lambda x: x * 1,
    "a view of that": lambda x: (x * 1).view(4),
    "what is written there": lambda x: (x * 1).mul_(2),
    "a written view": lambda x: (x * 1).view(4).mul_(2),
    "an argument": lambda x: x,
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("nbytes", [0, 4, 8, 12])
@pytest.mark.parametrize("on", ON.values(), ids=ON)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_of_what_reaches_beyond_its_storage(view, on, nbytes, grad):
    def f(x):
        t = on(x)
        t.untyped_storage().resize_(nbytes)
        return t, view(t)

    def session(compile):
        compiled = compile(f)
        for seed in (0, 1):
            x = leaf(4, seed=seed) * 1 if grad else plain(4, seed=seed)
            found = attempt(lambda x=x: compiled(x))
            if not isinstance(found, tuple):
                yield found
                continue
            views = [found[1]] if isinstance(found[1], torch.Tensor) else found[1]
            yield [(v.shape, v.stride(), v.storage_offset(), v.requires_grad) for v in (found[0], *views)]

    check_session(session)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("view", [lambda x: x.detach(), lambda x: x.view_as(x), lambda x: x.data])
def test_an_alias_of_an_argument_that_was_freed(view, grad):
    def session(compile):
        x = leaf(4) * 1 if grad else plain(4)
        _free(x)
        y = compile(lambda x: view(x))(x)
        yield y.shape, y.requires_grad, y.untyped_storage().nbytes()
        _allocate(x, plain(4, seed=1))
        yield y

    check_session(session)


def _resized_by_op(x):
    torch.ops.inductor.resize_storage_bytes_(x, 4)


def _resized_quietly_by_op(x):
    with torch.no_grad():
        _resized_by_op(x)


def _resized(x):
    x.untyped_storage().resize_(4)


def _emptied(x):
    torch.ops.inductor.resize_storage_bytes_(x, 0)


def _looked_at_and_resized(x):
    _ = x.grad_fn
    _resized(x)


PARTS = {
    "imag": lambda x: torch.view_as_complex(x.view(2, 2)).imag,
    "part": lambda x: x[1:],
    "row of the transposed": lambda x: x.view(2, 2).t()[1],
    "conj": lambda x: torch.view_as_complex(x.view(2, 2)).conj(),
}


@pytest.mark.parametrize("resize", [_resized_by_op, _resized_quietly_by_op, _resized, _emptied, _looked_at_and_resized])
@pytest.mark.parametrize("begins", ["leaf", "no leaf"])
@pytest.mark.parametrize("given", ["view", "view and base"])
@pytest.mark.parametrize("part", PARTS)
def test_the_history_of_a_view_written_under_no_grad_whose_memory_is_freed(part, given, begins, resize):
    def f(v, x):
        with torch.no_grad():
            v.mul_(2)
        resize(v)

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            x = leaf(4) if begins == "leaf" else leaf(4) * 1
            v = PARTS[part](x)
            compiled(v, x if given == "view and base" else None)
            yield attempt(lambda v=v: str(v.grad_fn)[:12]), v._version, x.untyped_storage().nbytes()

    check_session(session)
