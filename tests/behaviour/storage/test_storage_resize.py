"""Untyped_storage().resize_, resize_storage_bytes_, FSDP's cycle, memory freed and read in backward."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, check, one_of, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import CHANGES
from tests.behaviour.storage.common import RESIZES, _allocate, _free, _freed

GROWS = {
    "storage": lambda x: x.untyped_storage().resize_(4),
    "op": lambda x: torch.ops.inductor.resize_storage_bytes_(x, 4),
}


@pytest.mark.parametrize("grow", GROWS.values(), ids=GROWS)
@pytest.mark.parametrize("later", [True, False], ids=["parts made later", "parts made before"])
@pytest.mark.parametrize("through", [0, 2], ids=["freed", "shrunk"])
@session
def test_parts_of_a_tensor_whose_storage_is_too_small_for_it(compile, through, later, grow):
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

    compiled = compile(f)
    for seed in (0, 1):
        x = plain(3, dtype=torch.bfloat16, seed=seed)
        yield compiled(x), x.untyped_storage().nbytes(), x.as_strided((2,), (1,))


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
@session
def test_a_view_of_a_tensor_whose_storage_is_too_small_for_it(compile, view, on, nbytes, grad):
    def f(x):
        t = on(x)
        t.untyped_storage().resize_(nbytes)
        return t, view(t)

    compiled = compile(f)
    for seed in (0, 1):
        x = leaf(4, seed=seed) * 1 if grad else plain(4, seed=seed)
        found = attempt(lambda x=x: compiled(x))
        if not isinstance(found, tuple):
            yield found
            continue
        views = [found[1]] if isinstance(found[1], torch.Tensor) else found[1]
        yield [(v.shape, v.stride(), v.storage_offset(), v.requires_grad) for v in (found[0], *views)]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("view", [lambda x: x.detach(), lambda x: x.view_as(x), lambda x: x.data])
@session
def test_an_alias_of_an_argument_whose_storage_was_freed(compile, view, grad):
    x = leaf(4) * 1 if grad else plain(4)
    _free(x)
    y = compile(lambda x: view(x))(x)
    yield y.shape, y.requires_grad, y.untyped_storage().nbytes()
    _allocate(x, plain(4, seed=1))
    yield y


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
@session
def test_the_grad_fn_of_a_view_written_under_no_grad_whose_storage_is_resized(compile, part, given, begins, resize):
    def f(v, x):
        with torch.no_grad():
            v.mul_(2)
        resize(v)

    compiled = compile(f)
    for _ in range(2):
        x = leaf(4) if begins == "leaf" else leaf(4) * 1
        v = PARTS[part](x)
        compiled(v, x if given == "view and base" else None)
        yield attempt(lambda v=v: str(v.grad_fn)[:12]), v._version, x.untyped_storage().nbytes()


change = one_of(CHANGES)


@agrees(lambda: given(plain(2).as_strided((3, 0), (1, 1))), probe=False)
def test_a_view_reshaped_in_place_whose_storage_is_then_freed(x):
    v = x.t()
    v.as_strided_((1,), (0,))
    x.untyped_storage().resize_(0)
    return v


resize = one_of(RESIZES)


@agrees(lambda: given(plain(3), plain(3, seed=1)))
def test_a_storage_freed(x, y, *, resize):
    z = x * y
    resize(x, 0)
    return z


@agrees(lambda: given(_freed(3), plain(3, seed=1)))
def test_a_storage_grown_and_filled(x, y, *, resize):
    resize(x, 12)
    x.copy_(y)
    return x * 2


@agrees(lambda: given(plain(3), plain(3, seed=1)))
def test_a_storage_grown_in_place_keeps_its_values(x, y, *, resize):
    resize(x, 24)
    z = x.as_strided((6,), (1,))
    z[3:].copy_(y)
    return z * 2


@agrees(lambda: given(plain(3)), lambda: given(leaf(3)), anew=True)
def test_an_intermediates_storage_freed(x, *, resize):
    y = x * 2
    z = y + 1
    resize(y, 0)
    return z


@agrees(lambda: given(plain(3), plain(3, seed=1)))
def test_a_storage_freed_through_a_view(x, y, *, resize):
    z = x * y
    resize(x.view(-1), 0)
    return z


@agrees(lambda: given(plain(3), plain(3, seed=1)))
def test_a_storage_freed_and_grown_again(x, y, *, resize):
    resize(x, 0)
    resize(x, 12)
    x.copy_(y)
    return x * 2


@pytest.mark.parametrize("grown", [False, True])
def test_a_view_whose_storage_was_freed_and_another_view_that_is_written(grown):
    def make():
        base, freed = leaf(3), plain(3)
        view = freed.view(3)
        freed.untyped_storage().resize_(0)
        return given(base.clone().view(3), view, also=[base])

    def f(x, y):
        x.mul_(2)
        if grown:
            y.untyped_storage().resize_(12)
            with torch.no_grad():
                y.copy_(x)
        return x

    check(f, make)


@session
def test_a_backward_that_reads_beyond_a_storage_is_eagers_error(compile):
    def f(x):
        with torch.no_grad():
            v = x.t()
        torch.ops.inductor.resize_storage_bytes_.default(x, 20)
        (part,) = torch.unsafe_split(v, 1)
        part.as_strided((1,), (0,), 1).zero_()
        return part

    y = compile(f)(leaf(1))
    raised = attempt(lambda: y.backward(torch.ones_like(y)))
    yield raised.type
