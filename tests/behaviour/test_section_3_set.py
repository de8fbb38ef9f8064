"""BEHAVIOUR 3: inputs given other data or another storage, and storages that change their size."""

from __future__ import annotations

import weakref

import pytest
import torch

from tests.behaviour.functions import View
from tests.behaviour.harness import (
    Given,
    Raised,
    attempt,
    attempt_later,
    backward,
    check,
    check_session,
    given,
    leaf,
    non_leaf,
    plain,
    write,
)

# -- set_ ------------------------------------------------------------------------------------------


SETS = {
    "tensor": lambda x, y: x.set_(y),
    "storage": lambda x, y: x.set_(y.untyped_storage()),
    "storage, window": lambda x, y: x.set_(y.untyped_storage(), 1, (2,), (1,)),
    "tensor, window": lambda x, y: x.set_(y, 1, (2,), (1,)),
    "nothing": lambda x, y: x.set_(),
    "view": lambda x, y: x.set_(y[1:]),
}


@pytest.fixture(params=SETS.values(), ids=SETS)
def set_(request: pytest.FixtureRequest):
    return request.param


def _two() -> Given:
    return given(plain(3), plain(4, seed=1))


def test_an_input_set(set_):
    check(lambda x, y: (set_(x, y), x * 2)[1], _two)


def test_an_input_set_and_returned(set_):
    check(lambda x, y: set_(x, y), _two)


def test_an_input_written_before_it_is_set(set_):
    def f(x, y):
        old = x[1:]
        x.add_(1)
        set_(x, y)
        return old * 1, x * 2

    check(f, lambda: given(plain(3), plain(4, seed=1)))

    def seen_outside() -> Given:
        base = plain(3)
        return given(base.view(3), plain(4, seed=1), also=[base])

    check(f, seen_outside)


def test_an_input_written_after_it_is_set(set_):
    check(lambda x, y: (set_(x, y), x.mul_(2), x * 3, y * 2)[2:], _two)


def test_an_old_view_written_after_the_set(set_):
    def f(x, y):
        old = x[1:]
        set_(x, y)
        old.mul_(2)
        x.add_(1)
        return old, x * 3

    def make() -> Given:
        base = plain(3)
        return given(base.view(3), plain(4, seed=1), also=[base])

    check(f, make)


def test_what_an_input_is_set_to_is_written_afterwards(set_):
    check(lambda x, y: (set_(x, y), y.mul_(2), x * 3)[2], _two)


def test_an_intermediate_set_to_an_input(set_):
    def f(x, y):
        z = x * 2
        old = z[1:]
        z.add_(1)
        set_(z, y)
        z.mul_(3)
        return z, old

    check(f, _two)


def test_an_input_set_to_an_intermediate(set_):
    def f(x, y):
        z = y * 2
        set_(x, z)
        x.add_(1)
        return x * 2, z

    check(f, _two)


def test_an_input_set_under_no_grad_with_a_gradient_elsewhere(set_):
    def f(x, y, w):
        with torch.no_grad():
            set_(x, y)
        return x * 2, w * w

    check(f, lambda: given(plain(3), plain(4, seed=1), leaf(3)))


def test_an_input_set_and_set_back():
    def f(x, y):
        old = x.view(-1)
        x.set_(y)
        z = x * 2
        x.set_(old)
        return z, x * 3

    check(f, _two)


def test_two_inputs_set_to_one_another():
    def f(x, y):
        old = x.view(-1)
        x.set_(y)
        y.set_(old)
        x.add_(1)
        return x * 2, y * 3

    check(f, _two)


def test_an_input_set_to_itself():
    check(lambda x: (x.set_(x), x * 2)[1], lambda: given(plain(3)))
    check(lambda x: (x.set_(x[1:]), x * 2)[1], lambda: given(plain(3)))


def test_set_inside_a_custom_function():
    class Set(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            with torch.no_grad():
                x.set_(y)
            return y * 2

        @staticmethod
        def backward(ctx, g):
            return None, g * 2

    def f(x, y):
        z = Set.apply(x, y)
        return z, x * 1

    check(f, lambda: given(plain(3), leaf(4, seed=1)))
    check(f, lambda: given(plain(3), plain(4, seed=1)))


def test_set_of_a_detached_parameter_inside_a_custom_function():
    class Unshard(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, full, x):
            w.detach().set_(full)
            ctx.save_for_backward(full)
            return x * full

        @staticmethod
        def backward(ctx, g):
            (full,) = ctx.saved_tensors
            return None, None, g * full

    check(lambda w, full, x: Unshard.apply(w, full, x), lambda: given(leaf(1), plain(3), leaf(3, seed=1)))


def test_set_on_a_non_leaf():
    check(lambda x, y: (x.set_(y), x * 2)[1], lambda: given(*non_leaf(3).args, plain(4, seed=1)))
    check(lambda x, y: (x.set_(y), x * 2)[1], lambda: given(plain(3), leaf(4, seed=1)))
    check(lambda x, y: (x.set_(y), x * 2)[1], lambda: given(plain(3), *non_leaf(4).args))


# -- .data = and swap_tensors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [lambda y: y, lambda y: y * 2, lambda y: y[1:], lambda y: y.clone()],
    ids=["input", "fresh", "view", "clone"],
)
def test_data_assigned_to_an_input_without_grad(data):
    def f(x, y):
        x.data = data(y)
        return x * 3

    check(f, lambda: given(plain(3), plain(4, seed=1)))


@pytest.mark.parametrize("data", [lambda y: y, lambda y: y * 2, lambda y: y.clone()], ids=["input", "fresh", "clone"])
def test_data_assigned_to_a_leaf_of_the_same_shape(data):
    def f(x, y):
        x.data = data(y)
        return x * 3

    check(f, lambda: given(leaf(3), plain(3, seed=1)))
    check(f, lambda: given(leaf(3), leaf(3, seed=1)))


def test_data_assigned_then_written():
    def f(x, y):
        x.data = y
        with torch.no_grad():
            x.mul_(2)
        return x * 3

    check(f, lambda: given(leaf(3), plain(3, seed=1)))


def test_data_assigned_while_an_old_view_stays():
    def f(x, y):
        old = x.detach()
        x.data = y
        old.add_(1)
        return x * 3, old

    check(f, lambda: given(leaf(3), plain(3, seed=1)))


def test_data_assigned_after_a_use():
    def f(x, y):
        z = x * x
        x.data = y
        return z, x * 2

    check(f, lambda: given(leaf(3), plain(3, seed=1)))


def test_data_assigned_to_a_non_leaf_and_to_an_intermediate():
    check(
        lambda x, y: (setattr(x, "data", y), x * 2)[1],
        lambda: given(*(r := non_leaf(3)).args, plain(3, seed=1), also=r.also),
    )

    def f(x, y):
        z = x * 2
        z.data = y
        return z * 3, z

    check(f, lambda: given(leaf(3), plain(3, seed=1)))


def test_data_of_another_dtype():
    def f(x, y):
        x.data = y
        return x * 2

    check(f, lambda: given(plain(3), plain(3, dtype=torch.float64)))


def test_swap_tensors_of_two_inputs():
    def f(x, y):
        torch.utils.swap_tensors(x, y)
        return x * 2, y * 3

    check(f, lambda: given(plain(3), plain(4, seed=1)))
    check(f, lambda: given(leaf(3), leaf(4, seed=1)))


def test_swap_tensors_of_an_input_and_an_intermediate():
    def f(x, y):
        z = y * 2
        torch.utils.swap_tensors(x, z)
        return x * 2, z * 3

    check(f, lambda: given(plain(3), plain(4, seed=1)))


def test_swap_tensors_of_an_input_with_a_hook_for_after_accumulation():
    def session(compile):
        x, seen = leaf(3), []

        def f(x):
            x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
            y = x * 2
            torch.utils.swap_tensors(x, x.detach())
            return y

        y = compile(f)(x)
        yield x, y, attempt(lambda: y.backward(torch.ones(3))), list(seen)

    check_session(session)


def test_swap_tensors_of_a_view_whose_history_eager_refuses_to_say():
    def f(x):
        view = x[:1]
        view.zero_()
        with torch.inference_mode():
            torch.utils.swap_tensors(view, x.topk(1)[0])
        return x * 2

    def session(compile):
        x = leaf(3)
        with torch.no_grad():
            yield compile(f)(x)
        yield x

    check_session(session)


def test_swap_tensors_back():
    def f(x, y):
        torch.utils.swap_tensors(x, y)
        z = x * 2
        torch.utils.swap_tensors(x, y)
        return z, x * 3

    check(f, lambda: given(plain(3), plain(4, seed=1)))


def test_swap_tensors_of_leaves():
    def f(x, y):
        z = x * x
        torch.utils.swap_tensors(x, y)
        return z, x * 2, y * 3

    check(f, lambda: given(leaf(3), leaf(3, seed=1)))
    check(f, lambda: given(leaf(3), plain(2, seed=1)))


def test_swap_tensors_of_three_inputs_in_a_circle():
    def f(x, y, z):
        torch.utils.swap_tensors(x, y)
        torch.utils.swap_tensors(y, z)
        return x, y * 2, z

    check(f, lambda: given(leaf(3), plain(4), plain(2)))


def test_swap_tensors_looks_at_who_holds_them_on_every_call():
    def session(compile):
        f = compile(lambda x: (torch.utils.swap_tensors(x, x), x.t())[1])
        x, y = plain(2, 3), plain(3, 2)
        yield f(x), attempt(lambda: f(x))
        reference = weakref.ref(y)
        yield attempt(lambda: f(y)), reference() is y

    check_session(session)


@pytest.mark.parametrize("first", ["view", "no view"])
@pytest.mark.parametrize("grad", [False, True])
def test_swap_tensors_is_refused_where_a_view_of_the_argument_is_held_and_that_is_no_view(first, grad):
    """A view of a view holds the base instead."""

    def f(x):
        v = x.t()
        torch.utils.swap_tensors(x, x)
        return v * 2

    def session(compile):
        compiled = compile(f)
        for kind in ("view", "no view", "view") if first == "view" else ("no view", "view", "no view"):
            x = plain(3).requires_grad_(grad)
            x = x * 1 if kind == "no view" else x[:]
            yield attempt(lambda x=x: compiled(x))

    check_session(session)


def _view_that_ended(x, y):
    x.view(-1).sum()
    torch.utils.swap_tensors(x, y)
    return x * 1


def _view_that_is_held(x, y):
    view = x.view(-1)
    torch.utils.swap_tensors(x, y)
    return view


def _saved_by_what_ended(x, y):
    (x * x).sum()
    torch.utils.swap_tensors(x, y)
    return x * 1


def _saved_by_what_is_held(x, y):
    z = x * x
    torch.utils.swap_tensors(x, y)
    return z


def _with_a_view_of_its_own(x, y):
    view = x[1:]
    torch.utils.swap_tensors(x, view)
    return view * 2


_HOLDING = [
    _view_that_ended,
    _view_that_is_held,
    _saved_by_what_ended,
    _saved_by_what_is_held,
    _with_a_view_of_its_own,
]
_HELD = {
    "leaf": lambda root: root,
    "plain": lambda root: root.detach().clone(),
    "non-leaf": lambda root: root * 2,
    "view": lambda root: (root * 2).view_as(root),
    "custom view": lambda root: View.apply(root * 2),
}


@pytest.mark.parametrize("function", _HOLDING, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("given_x", _HELD.values(), ids=_HELD)
def test_swap_tensors_counts_who_holds_a_tensor_as_in_eager(function, given_x):
    def session(compile):
        root = leaf(3)
        x, y = given_x(root), plain(3, seed=1)
        compiled = compile(function)
        for _ in range(2):
            yield attempt(lambda: compiled(x, y)), x, y

    check_session(session)


def test_swap_tensors_with_a_view_made_inside_stays_with_a_view():
    def f(x):
        y = (x * 2)[0]
        torch.utils.swap_tensors(x, y)

    def session(compile):
        x = plain(1)
        compile(f)(x)
        made_of_it = x.view(1)
        yield x, made_of_it
        yield attempt(lambda: torch.utils.swap_tensors(x, plain(2)))  # which only its base would be kept from
        yield x

    check_session(session)


def test_a_view_of_a_leaf_that_lies_elsewhere_is_not_written():
    def f(y, view):
        view.data = y
        view.zero_()

    def session(compile):
        compiled = compile(f)
        root, y = leaf(2), plain(2, seed=1)
        view = root.view(2)
        for _ in range(2):
            yield attempt(lambda: compiled(y, view))
            yield y, view, root

    check_session(session)


def test_swap_tensors_poisons_a_leaf_that_was_used():
    def session(compile):
        x, y = leaf(3), leaf(3, seed=1)
        before = x * 3
        after = compile(lambda x, y: (torch.utils.swap_tensors(x, y), x * 2)[1])(x, y)
        backward([after])
        yield after, x, y, attempt_later(lambda: backward([before]))

    check_session(session)


def test_swap_tensors_poisons_a_leaf_that_the_function_used():
    def itself(x, y):
        z = x * 3
        torch.utils.swap_tensors(x, x)
        return z

    def another(x, y):
        z = x * 3
        torch.utils.swap_tensors(x, y)
        return z + x + y

    def before_use(x, y):
        torch.utils.swap_tensors(x, y)
        return x * 2

    for f in (itself, another, before_use):

        def session(compile, f=f):
            x, y = leaf(3), leaf(3, seed=1)
            out = compile(f)(x, y)
            yield attempt_later(lambda: backward([out]))  # which gradients came before is the engine's affair

        check_session(session)


@pytest.mark.parametrize("of_leaf", [True, False])
def test_gradients_with_respect_to_an_input_that_became_an_intermediate(of_leaf):
    def f(x, y):
        v = x.t() if of_leaf else x * 2
        torch.utils.swap_tensors(v, y)
        return y.clone()

    def session(compile):
        x, y = leaf(3), plain(3, seed=1)
        out = compile(f)(x, y)
        yield out, torch.autograd.grad(out, (x, y), plain(3), allow_unused=True)

    check_session(session)


def test_inference_data_given_to_a_tensor_with_a_history():
    def session(compile):
        f = compile(lambda x, y: setattr(x, "data", y))
        root = leaf(3)
        x = root.clone()
        with torch.inference_mode():
            y = plain(3, seed=1)
        for _ in range(2):
            f(x, y)
            yield x, x.is_inference(), y

    check_session(session)


def test_an_inference_tensor_resized_as_out_in_inference_mode():
    def f(x):
        v = x.clone()
        with torch.inference_mode():
            torch.sum(v, 0, out=x)

    def session(compile):
        with torch.inference_mode():
            x = plain(1)
        compile(f)(x)
        yield x, x.shape

    check_session(session)


def test_a_view_resized_after_its_base_left_the_storage():
    def f(x, y):
        v = x.t()
        x.set_(y)
        w = v[1:]
        torch.sum(x, 0, out=w)
        return w

    check(f, lambda: given(plain(1), plain()))


def test_a_view_of_a_no_grad_view_that_gets_other_data_and_is_written():
    def f(x, y):
        v, d = y.t(), y.detach()
        y.data = x
        d.zero_()
        return v

    def make():
        root = leaf(3)
        with torch.no_grad():
            view = root.t()
        return given(plain(3), view, also=[root])

    check(f, make)


# -- the size of a storage -------------------------------------------------------------------------


RESIZES = {
    "untyped_storage": lambda x, n: x.untyped_storage().resize_(n),
    "inductor": lambda x, n: torch.ops.inductor.resize_storage_bytes_(x, n),
}


@pytest.fixture(params=RESIZES.values(), ids=RESIZES)
def resize(request: pytest.FixtureRequest):
    return request.param


def _freed(n: int) -> torch.Tensor:
    x = plain(n)
    x.untyped_storage().resize_(0)
    return x


def test_a_storage_freed(resize):
    def f(x, y):
        z = x * y
        resize(x, 0)
        return z

    check(f, lambda: given(plain(3), plain(3, seed=1)))


def test_a_storage_grown_and_filled(resize):
    def f(x, y):
        resize(x, 12)
        x.copy_(y)
        return x * 2

    check(f, lambda: given(_freed(3), plain(3, seed=1)))


def test_a_storage_grown_filled_used_and_freed(resize):
    def f(x, y):
        resize(x, 12)
        x.copy_(y)
        z = x * y
        resize(x, 0)
        return z

    check(f, *[lambda: given(_freed(3), plain(3, seed=1))] * 2)


def test_a_parameters_storage_grown_filled_used_and_freed(resize):
    """What fully sharded training does, under no_grad, around the use of a parameter that requires grad."""

    def f(w, shard, x):
        with torch.no_grad():
            resize(w, 12)
            w.copy_(shard)
        y = (x + w).sum()
        with torch.no_grad():
            resize(w, 0)
        return y

    def make() -> Given:
        w = leaf(3)
        w.untyped_storage().resize_(0)
        return given(w, plain(3, seed=1), leaf(3, seed=2))

    check(f, make)


def test_a_storage_freed_after_what_backward_needs_was_saved(resize):
    def f(w, shard, x):
        with torch.no_grad():
            resize(w, 12)
            w.copy_(shard)
        y = x * w
        with torch.no_grad():
            resize(w, 0)
        return y

    def session(compile):
        w, shard, x = leaf(3), plain(3, seed=1), leaf(3, seed=2)
        w.untyped_storage().resize_(0)
        y = compile(f)(w, shard, x)
        yield y, x, w
        with torch.no_grad():
            resize(w, 12)
            w.copy_(shard)
        yield attempt_later(lambda: backward([y])), x, w

    check_session(session)


def test_a_storage_grown_in_place_keeps_its_values(resize):
    def f(x, y):
        resize(x, 24)
        z = x.as_strided((6,), (1,))
        z[3:].copy_(y)
        return z * 2

    check(f, lambda: given(plain(3), plain(3, seed=1)))


def test_an_intermediates_storage_freed(resize):
    def f(x):
        y = x * 2
        z = y + 1
        resize(y, 0)
        return z

    check(f, lambda: given(plain(3)))
    check(f, lambda: given(leaf(3)))


def test_a_storage_freed_through_a_view(resize):
    def f(x, y):
        z = x * y
        resize(x.view(-1), 0)
        return z

    check(f, lambda: given(plain(3), plain(3, seed=1)))


def test_a_storage_freed_and_grown_again(resize):
    def f(x, y):
        resize(x, 0)
        resize(x, 12)
        x.copy_(y)
        return x * 2

    check(f, lambda: given(plain(3), plain(3, seed=1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize(
    "grow",
    [
        lambda x: x.resize_(6),
        lambda x: (x.clone().resize_(6), x.logical_not()),
        lambda x: (x[1:].resize_(4), x),
        lambda x: (x.resize_(2), x.resize_(5)),
        lambda x: x.resize_as_(x.new_zeros(3, 3)),
    ],
    ids=["input", "intermediate", "view", "twice", "as another"],
)
def test_new_elements_where_resizing_is_deterministic(grow, dtype):
    def session(compile):
        compiled = compile(grow)
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            x = plain(4).to(dtype)
            yield compiled(x), x
        finally:
            torch.use_deterministic_algorithms(before)

    check_session(session)


def test_inputs_that_exchange_their_data_beside_a_view_left_behind_twice():
    def f(x, y, z):
        w = y.detach()
        y.data = x
        x.data = w

    def session(compile):
        compiled = compile(f)
        x, y = plain(3), plain(3, seed=1)
        with torch.no_grad():
            z = y.view(-1)
        for _ in range(3):
            compiled(x, y, z)
            yield x, y, z

    check_session(session)


@pytest.mark.parametrize("leave", [lambda x, y: x.set_(y), lambda x, y: setattr(x, "data", y)], ids=["set_", "data"])
@pytest.mark.parametrize("grad", [False, True])
def test_views_made_before_and_after_their_base_leaves_its_storage(leave, grad):
    def f(x, y):
        before = x.view(-1)
        leave(x, y)
        after = before[1:]
        x.mul_(2)
        return before, after, x * 3

    check(f, lambda: given(leaf(3) * 2 if grad else plain(3), plain(4)))


def test_a_reshaped_input_leaves_its_storage():
    def f(x, y):
        x.squeeze_()
        view = x.t()
        x.data = y
        return view

    check(f, lambda: given(plain(1, 3), plain(3, 2)))
    check(f, lambda: given(plain(1, dtype=torch.complex64), plain(1, dtype=torch.complex64).conj()))


def test_data_assigned_to_a_view_and_to_what_it_is_a_view_of():
    def f(x, y):
        view = y.t()
        y.data = x
        view.data = x
        return view, y

    def session(compile):
        whole = plain(2, 3, seed=1)
        x, y = whole[0], whole[1]
        compiled = compile(f)
        for _ in range(2):
            view, _ = compiled(x, y)
            yield view, x, y, whole
            view.add_(1)
            yield view, x, y, whole

    check_session(session)


def test_a_view_that_autograd_refuses_and_that_left_its_base():
    def f(x, y):
        x.data = y
        x.clone()  # refused, also where nobody needs it
        return y * 2

    def session(compile):
        base, y = leaf(3), plain(3, seed=1)
        with torch.no_grad():
            x = base.view(3)
        compiled = compile(f)
        yield attempt(lambda: compiled(x, y)), x
        with torch.no_grad():
            x.add_(1)
        yield attempt(lambda: compiled(x, y)), x, y, base

    check_session(session)


class _SumAndFirst(torch.autograd.Function):
    """Returns its first argument beside the sum."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y, x

    @staticmethod
    def backward(ctx, g, h):
        return g + h, g


@pytest.mark.parametrize("part", [lambda x: x.view(3), torch.detach], ids=["view", "detached"])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("moves", ["part", "whole"])
def test_what_a_function_returned_counts_with_what_it_left(part, inside, moves):
    def f(x, y):
        x = x * 2 if inside else x
        v = part(x)
        (v if moves == "part" else x).set_()
        return _SumAndFirst.apply(v, y)[1], x

    def session(compile):
        x, y = leaf(3) * 1, leaf(0 if moves == "part" else 3)
        out = compile(f)(x, y)
        yield out, x, y
        yield attempt_later(lambda: write(out[1])), x
        yield (
            isinstance(attempt_later(lambda: out[0].is_leaf), Raised),
            isinstance(attempt_later(lambda: write(out[0])), Raised),
            x,
        )

    check_session(session)


def test_what_is_saved_of_an_argument_that_then_gets_other_data():
    def whole(x):
        v = torch.sin(x.squeeze())
        x.data = v
        return v

    def part(x):
        v = torch.sin(x[0])
        x.data = x[1:]
        return v

    check(whole, lambda: given(leaf(3, 2)))
    check(part, lambda: given(leaf(3, 2)))


def test_a_view_of_a_view_that_then_gets_other_data():
    def f(x):
        v = x[0]
        x.t_()
        w = x.clone()
        u = v.t()
        v.data = w
        return u

    check(f, lambda: given(plain(2)))


def test_a_view_left_by_what_goes_to_a_smaller_storage_is_written():
    def f(x, y):
        v = x * 2
        part = v.unsqueeze(0)
        v.set_(y)
        v.zero_()
        return part * 3, v

    def session(compile):
        x, y = leaf(3), plain(2, seed=1)
        outputs = attempt(lambda: compile(f)(x, y))
        yield outputs, x, y
        for out in outputs:
            yield attempt_later(lambda: torch.autograd.grad(out, x, torch.ones_like(out), retain_graph=True))  # noqa: B023

    check_session(session)


@pytest.mark.parametrize("nbytes", [0, 4, 64])
def test_the_storage_of_data_made_inside_is_resized(nbytes):
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


def test_a_view_of_a_view_that_then_goes_elsewhere():
    def f(x, y):
        v = y.t()
        w = v.t()
        v.set_(x)
        return w

    def with_both(x, y):
        v = y.t()
        w = v.t()
        v.set_(x)
        return w, v

    for body in (f, with_both):
        for shape in ((), (2, 2)):
            check(body, lambda shape=shape: given(plain(*shape), plain(*shape, seed=1)))


@pytest.mark.parametrize("grown", [False, True])
def test_a_view_whose_storage_was_freed_beside_one_that_is_written(grown):
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


@pytest.mark.parametrize("set_it", [lambda x: x.set_(), lambda x: x.set_(x), lambda x: x.set_(torch.ones(2))])
@pytest.mark.parametrize("written", [False, True])
def test_a_backward_with_respect_to_what_set_has_no_derivative_for(set_it, written):
    """It raises even though that is where the backward begins."""

    def session(compile):
        x = non_leaf(3).args[0]

        def f(x):
            set_it(x)
            if written:
                with torch.no_grad():
                    x.add_(1)
            return x

        y = compile(f)(x)
        yield y, y.grad_fn is None, written or y._version
        yield attempt_later(lambda: y.backward(torch.ones_like(y), inputs=[y]))

    check_session(session)


@pytest.mark.parametrize("source", [lambda y: y, torch.detach], ids=["leaf", "alias"])
@pytest.mark.parametrize("cut_first", [False, True])
def test_what_was_set_and_cut_from_its_history_before_it_is_written(source, cut_first):
    def f(x, y):
        if cut_first:
            x.detach_()
        x.set_(source(y))
        if not cut_first:
            x.detach_()
        x.mul_(y)

    def session(compile):
        y = leaf(3)
        x = y * 2
        compile(f)(x, y)
        yield x, y, x.is_leaf
        yield attempt_later(lambda: backward([x])), y

    check_session(session)


def _swapped(a, part, z):
    torch.utils.swap_tensors(a, z * 5)
    part.data = z * 7


@pytest.mark.parametrize("part", [torch.detach, lambda a: a.view(3), lambda a: a.view(3).detach()])
@pytest.mark.parametrize(
    "leave",
    [
        lambda a, part, z: setattr(part, "data", z * 3),
        lambda a, part, z: setattr(a, "data", z * 3),
        lambda a, part, z: part.detach().set_(z * 3) if part.requires_grad else part.set_(z * 3),
        lambda a, part, z: a.set_(z * 3),
        _swapped,
    ],
    ids=["data of the part", "data of the whole", "part set", "whole set", "swapped"],
)
@pytest.mark.parametrize("grad", [False, True])
def test_what_left_its_alias_made_inside_still_counts_with_it(part, leave, grad):
    def f(x, z):
        a = (x if grad else x.detach()) * 2
        p = part(a)
        leave(a, p, z)
        return a, p

    def session(compile):
        w = leaf(3)
        out = attempt(lambda: compile(f)(leaf(3), plain(3)))
        yield out
        for written in out if isinstance(out, tuple) else ():
            products = [t * w for t in out]
            yield attempt_later(lambda t=written: write(t)), out
            for y in products:
                yield attempt_later(lambda y=y: backward([y], inputs=[w])), w

    check_session(session)


@pytest.mark.parametrize("set_it", [lambda x: x.set_(), lambda x: x.set_(torch.ones(3))], ids=["nothing", "tensor"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_backward_with_respect_to_what_was_set_through_a_view(set_it, inside):
    def f(x, view, y):
        view = x.view(3) if inside else view
        set_it(view)
        return view.sum() + y

    def session(compile):
        x, y = leaf(3) * 1, leaf(3)
        view = x.view(3)
        out = compile(f)(x, view, y)
        for t in (out, x, view):
            for inputs in ([x], [y], [view], [x, y]):
                yield attempt_later(lambda t=t, i=inputs: backward([t], inputs=i, retain_graph=True)), x, y

    check_session(session)


def _set_several_times(x, y):
    x.set_(y * 2)
    x.set_(x)
    x.set_(y)
    x.set_(torch.ones(4))


@pytest.mark.parametrize(
    "set_it",
    [
        lambda x, y: x.set_(y),
        lambda x, y: x.set_(y * 2),
        lambda x, y: x.set_(y[:2]),
        lambda x, y: x.set_(y.mul_(2)),
        lambda x, y: x.set_(y.detach()),
        lambda x, y: x.set_(torch.ones(3).requires_grad_()),
        _set_several_times,
    ],
    ids=["argument", "product", "view", "written", "detached", "leaf", "several"],
)
def test_a_backward_comes_by_set_to_what_that_was_given(set_it):
    """And raises only where it does: a backward to something else finds no way there."""

    def session(compile):
        end, other = leaf(3), leaf(3)
        x, y = leaf(3) * 1, end * 1
        compile(set_it)(x, y)
        for inputs in ([x], [y], [end], [other]):
            yield attempt_later(lambda inputs=inputs: backward([x], inputs=inputs))

    check_session(session)


def test_a_view_is_reshaped_after_its_base_was_set_to_itself():
    """Autograd then looks for its history, and finds that of ``set_``."""

    def session(compile):
        x = non_leaf(2, 2).args[0]
        view = x.t()

        def f(x, view):
            x.set_(x)
            return view.t_()

        out = compile(f)(x, view)
        yield attempt_later(lambda: backward([out]))

    check_session(session)


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("to", [lambda x: x.set_(), lambda x: x.set_(torch.ones(3)), lambda x: x.unsqueeze_(0)])
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x.unsqueeze(0), lambda x: x * 2], ids=["t", "more", "*"])
@pytest.mark.parametrize("grad", [True, False])
def test_a_leaf_that_is_a_view_is_viewed_after_its_base_goes_elsewhere_again(grad, view, to, calls):
    """The second time only the version that both count shows that the base moved."""

    def f(x, y):
        with torch.set_grad_enabled(grad):
            to(x)
        return view(y)

    def session(compile):
        x = torch.tensor(1.0)
        y = x.t().requires_grad_()
        g = compile(f)
        for _ in range(calls):
            out = g(x, y)
            out.sum().backward()
            yield out, y.grad.clone()

    check_session(session)


_RESHAPED_SINCE = {
    "transposed": lambda x: x.t_(),
    "without a dimension": lambda x: x.squeeze_(),
    "with one more": lambda x: x.unsqueeze_(0),
    "not at all": lambda x: x,
}
_VIEWS_SINCE = {
    "a view": lambda x: x.transpose(0, -1),
    "a view of a view": lambda x: x.transpose(0, -1).unsqueeze(0),
    "unknown to autograd": lambda x: x.unsafe_chunk(2)[0],
}


@pytest.mark.parametrize("view", _VIEWS_SINCE.values(), ids=_VIEWS_SINCE)
@pytest.mark.parametrize("reshape", _RESHAPED_SINCE.values(), ids=_RESHAPED_SINCE)
@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize("twice", [False, True])
def test_a_view_of_what_was_set_to_itself_and_then_reshaped_is_made_where_that_then_lies(twice, count, reshape, view):
    """Although what is computed of the view is attached with the history that ``set_`` gave."""

    def function(x):
        x.set_(x)
        reshape(x)
        part = view(x)
        out = part.clone()
        return [out, part, *([out * 2, part * 3] if twice else [])]

    def session(compile):
        x = leaf(1, count).clone()
        outputs = compile(function)(x)
        yield outputs, x
        yield [attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [x], allow_unused=True)) for t in outputs]

    check_session(session)


_WRITTEN_FIRST = {
    "copied": lambda x, y: x.copy_(y),
    "multiplied": lambda x, y: x.mul_(y),
    "by a view": lambda x, y: x.t().mul_(y),
    "and reshaped": lambda x, y: x.copy_(y).t_(),
    "not at all": lambda x, y: x,
}


@pytest.mark.parametrize("write", _WRITTEN_FIRST.values(), ids=_WRITTEN_FIRST)
@pytest.mark.parametrize("set_", [lambda x, z: x.set_(z), lambda x, z: x.set_(z.untyped_storage(), 0, (2,), (1,))])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("wanted", [0, 1])
def test_set_of_what_was_written_has_no_derivative_for_what_was_written_either(wanted, used, set_, write):
    """The history of ``set_`` leads to that of the write, by which a backward comes to others."""

    def function(x, y, z):
        write(x, y)
        out = x * 3 if used else None
        set_(x, z)
        return [x, out] if used else [x]

    def session(compile):
        root, y, z = leaf(2, 2), leaf(2, 2, seed=1), plain(2, 2, seed=2)
        outputs = compile(function)(root.clone(), y, z)
        yield outputs
        into = (root, y)[wanted]
        for t in reversed(outputs):
            yield attempt_later(lambda t=t: torch.autograd.grad(t.sum(), [into], allow_unused=True, retain_graph=True))

    check_session(session)
