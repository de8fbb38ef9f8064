"""Hooks that the function registers."""

import functools

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt_later, backward, check, one_of, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import PLACES


@session
def test_a_hook_on_a_leaf_that_grad_is_not_asked_for_is_not_called(compile):
    calls = []

    def function(x, w):
        x.register_hook(lambda gradient: calls.append("x"))
        w.register_hook(lambda gradient: calls.append("w"))
        return x * w

    compiled = compile(function)
    for asked in ("x", "w", "w"):
        leaves = {"x": leaf(3), "w": leaf(3, seed=1)}
        yield torch.autograd.grad(compiled(**leaves).sum(), leaves[asked]), list(calls)


def _used_together(x, note):
    h = x * 1
    a, b = h.sin(), h.cos()
    note(a, "a"), note(b, "b")
    return (b * 3 + a * 2,)


def _overlapping(x, note):
    h = x * 1
    a, b = h[:2], h[1:]
    note(a, "a"), note(b, "b")
    return b * 3, a * 2


def _of_parts(x, note):
    a, b = (x * 1).split([1, 2])
    a, b = a.sin(), b.cos()
    note(b, "b"), note(a, "a")
    return a * 2, b * 3


@pytest.mark.parametrize("function", [_used_together, _overlapping, _of_parts])
@session
def test_hooks_on_independent_intermediates_are_called_in_reverse_order_of_creation(compile, function):
    seen = []

    def note(t, name):
        t.register_hook(lambda g: seen.append((name, g.clone())))

    x = leaf(3)
    results = compile(lambda x: function(x, note))(x)
    yield attempt_later(lambda: backward(results)), x.grad, list(seen)


place = one_of(PLACES)


@pytest.fixture(params=["leaf", "non-leaf"])
def given_x(request):
    """A leaf, and the input made from it."""

    def make():
        root = leaf(3)
        return root, root if request.param == "leaf" else root * 1

    return make


@session
def test_a_hook_that_changes_the_gradient(compile, place, given_x):
    def f(x):
        y = x * 2
        z = y * y
        place(x, y, z).register_hook(lambda g: g * 3)
        return z, y + 1

    compiled = compile(f)
    for _ in range(2):
        root, x = given_x()
        z, w = compiled(x)
        backward([z], retain_graph=True)
        yield root
        backward([w * 2, x * 5])
        yield root


@session
def test_a_hook_sees_the_real_gradient_in_each_backward(compile, place, given_x):
    seen = []

    def f(x):
        y = x * 2
        z = y * y
        place(x, y, z).register_hook(lambda g: seen.append(g.clone()))
        return z, y

    compiled = compile(f)
    for _ in range(3):
        root, x = given_x()
        z, y = compiled(x)
        backward([z, y * 3], retain_graph=True)
        backward([z])
        yield root, list(seen)


@session
def test_hooks_are_called_in_the_order_in_which_gradients_are_computed(compile):
    order = []

    def note(name):
        return lambda g: order.append(name)

    def f(x, w):
        a = x * 2
        b = a * w
        c = b.exp()
        for t, name in ((b, "b"), (c, "c"), (a, "a"), (x, "x"), (b, "b again")):
            t.register_hook(note(name))
        return c.sum()

    compiled = compile(f)
    for _ in range(2):
        backward([compiled(leaf(3), leaf(3, seed=1))])
        yield list(order)


@session
def test_each_call_registers_one_more_hook_on_an_input(compile):
    """Each call registers one more, and they see the gradient of whatever the input is used for later."""

    def f(x):
        x.register_hook(lambda g: g * 2)
        return x + 1

    compiled = compile(f)
    x = leaf(3)
    for _ in range(3):
        compiled(x)
        backward([x * 3])
        yield x


@agrees(lambda: given(leaf(3), leaf(3, seed=1)), backward=[0])
def test_a_hook_on_an_input_is_not_called_by_a_backward_that_does_not_reach_it(x, w):
    x.register_hook(lambda g: 1 / 0)
    return x.detach() * w, x * 2


@session
def test_an_error_in_a_hook_is_raised_by_the_backward(compile, place):
    def fail(g):
        raise ValueError("not today")

    def f(x):
        y = x * 2
        z = y * y
        place(x, y, z).register_hook(fail)
        return z

    x = leaf(3)
    z = compile(f)(x)
    yield attempt_later(lambda: backward([z]))
    yield x


@session
def test_a_hook_is_not_called_by_the_backward_of_another_result(compile, place):
    seen = []

    def f(x, w):
        y = x * 2
        z = y * y
        place(x, y, z).register_hook(lambda g: seen.append(g.sum().item()))
        return z, w * 2

    z, other = compile(f)(leaf(3), leaf(3, seed=1))
    backward([other])
    yield list(seen)
    backward([z])
    yield list(seen)


@session
def test_hooks_on_two_intermediates_one_computed_from_the_other(compile):
    seen = []

    def f(x, w):
        a = x * w
        a.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        b = a * a + x
        b.register_hook(lambda g: seen.append(g.clone()) or g * 5)
        return b * w, a * 3

    x, w = leaf(3), leaf(3, seed=1)
    p, q = compile(f)(x, w)
    backward([p], retain_graph=True)
    yield x, w, list(seen)
    backward([p, q])
    yield x, w, list(seen)


@agrees(lambda: given(leaf(2, 3)))
def test_a_hook_on_an_unused_view_is_not_called_and_one_on_a_used_view_is(x):
    y = x * 2
    y.view(-1).register_hook(lambda g: g * 1000)  # nothing is computed from it
    v = y.t()
    v.register_hook(lambda g: g * 3)
    return v * v, y


@pytest.mark.parametrize("given_x", [lambda: leaf(2, 3), lambda: leaf(2, 3) * 1], ids=["leaf", "non-leaf"])
@pytest.mark.parametrize("made", ["of the argument", "of a result"])
@agrees(lambda given_x: given(given_x()))
def test_a_hook_on_a_view_of_which_another_view_was_made(x, *, made: str):
    v = (x if made == "of the argument" else x * 2).t()
    w = v.view(3, 2)[1:]
    v.register_hook(lambda g: g * 3)
    return w, w * 2


@session
def test_a_hook_on_a_leaf_made_inside(compile):
    seen = []

    def f(x):
        w = torch.ones(3, requires_grad=True, device=x.device)
        w.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        return w, w * x

    w, y = compile(f)(plain(3))
    backward([y])
    yield w, list(seen)


@agrees(lambda: given(leaf(3), plain(3, seed=1)), lambda: given(leaf(3), plain(3, seed=2)))
def test_a_hook_that_uses_tensors_of_the_function(x, mask):
    y = x * 2
    limit = mask * 2
    y.register_hook(lambda g: g * limit)
    y.register_hook(functools.partial(torch.mul, mask))
    return y * y


def test_a_hook_that_uses_tensors_of_the_function_on_a_result_used_by_other_results():
    def f(x, mask):
        y = x * 2
        limit = mask * 2
        y.register_hook(lambda g: g * limit)
        return y * y, y, y * 3

    for roots in ([0], [1], [0, 2], [0, 1, 2]):
        check(f, lambda: given(leaf(3), plain(3, seed=1)), backward=roots)


@session
def test_a_second_derivative_through_a_hook_that_squares_the_gradient(compile, place):
    def f(x):
        y = x * x
        z = y * y
        place(x, y, z).register_hook(lambda g: g * g)
        return z

    x = leaf(3)
    (g,) = torch.autograd.grad(compile(f)(x).sum(), x, create_graph=True)
    yield g
    yield torch.autograd.grad(g.sum(), x)


@agrees(lambda: given(leaf(3)))
def test_a_hook_whose_handle_is_removed_inside_is_not_called(x, *, place):
    y = x * 2
    z = y * y
    place(x, y, z).register_hook(lambda g: g * 3).remove()
    place(x, y, z).register_hook(lambda g: g * 5)
    return z


def test_a_hook_whose_handle_escapes_the_call_is_refused(place):
    """Each call would need a handle of its own, and only the first would give one."""
    handles = []

    def f(x):
        y = x * 2
        z = y * y
        handles.append(place(x, y, z).register_hook(lambda g: g * 3))
        return z

    with pytest.raises(aotcheck.UnsupportedError, match="handle"):
        aotcheck.aot_function(f)(leaf(3))


def test_a_hook_whose_handle_escapes_the_call_runs_eagerly_if_configured():
    def run(compile):
        handles, gradients = [], []

        def f(x):
            y = x * 2
            handles.append(y.register_hook(lambda g: g * 3))
            return y * y

        compiled = compile(f)
        for removed in (False, True):
            x = leaf(3)
            y = compiled(x)
            if removed:
                handles[-1].remove()
            backward([y])
            gradients.append(x.grad)
        return torch.stack(gradients)

    with aotcheck.patch_config(on_unsupported=aotcheck.OnUnsupported.EAGER):
        assert torch.equal(run(aotcheck.aot_function), run(lambda f: f))


def test_hooks_on_arguments_with_tensors_of_the_trace_or_on_reshaped_views_are_refused():
    def on_an_argument_with_tensors_of_the_call(x):
        x.register_hook(lambda g: g * x)
        return x * 2

    def on_a_view_that_is_made_again_and_was_reshaped_since(x):
        y = (x * 2).view(2, 2)
        y.register_hook(lambda g: g * 2)
        y.t_()
        return y

    for f in (on_an_argument_with_tensors_of_the_call, on_a_view_that_is_made_again_and_was_reshaped_since):
        with pytest.raises(aotcheck.UnsupportedError, match="hook"):
            aotcheck.aot_function(f)(leaf(4))


@session
def test_a_post_accumulate_hook_registered_inside(compile):
    seen = []

    def f(x, w):
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        return x * w

    compiled = compile(f)
    x, w = leaf(3), leaf(3, seed=1)
    for _ in range(2):
        backward([compiled(x, w)])
        yield x, w, list(seen)


@session
def test_a_post_accumulate_hook_that_steps_and_clears_grad(compile):
    @torch.no_grad()
    def step(p):
        p.sub_(p.grad)
        p.grad = None

    registered = []

    def f(x, w):
        if not registered:
            w.register_post_accumulate_grad_hook(step)
        return x * w

    compiled = compile(f)
    w = leaf(3, seed=1)
    for _ in range(2):
        backward([compiled(plain(3), w)])
        registered.append(True)
        yield w
        compiled = compile(f)  # Python outside tensors is not part of the key
