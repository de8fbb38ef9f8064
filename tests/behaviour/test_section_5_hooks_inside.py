"""BEHAVIOUR 5: hooks that the compiled function itself registers, on inputs, results and what lies between."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.functions import Same, View
from tests.behaviour.harness import Raised, attempt_later, backward, check, check_session, given, leaf, plain

PLACES = {
    "input": lambda x, y, z: x,
    "intermediate": lambda x, y, z: y,
    "result": lambda x, y, z: z,
}


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def place(request):
    return request.param


@pytest.fixture(params=["leaf", "non-leaf"])
def given_x(request):
    """A leaf, and the input made from it."""

    def make():
        root = leaf(3)
        return root, root if request.param == "leaf" else root * 1

    return make


# -- what hooks do -----------------------------------------------------------------------------------


def test_a_hook_that_changes_the_gradient(place, given_x):
    def f(x):
        y = x * 2
        z = y * y
        place(x, y, z).register_hook(lambda g: g * 3)
        return z, y + 1

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            root, x = given_x()
            z, w = compiled(x)
            backward([z], retain_graph=True)
            yield root
            backward([w * 2, x * 5])
            yield root

    check_session(session)


def test_a_hook_sees_the_real_gradient_in_each_backward(place, given_x):
    def session(compile):
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

    check_session(session)


def test_hooks_are_called_in_the_order_in_which_gradients_arrive():
    def session(compile):
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

    check_session(session)


def test_a_hook_on_an_input_stays_with_it():
    """Each call registers one more, and they see the gradient of whatever the input is used for later."""

    def session(compile):
        def f(x):
            x.register_hook(lambda g: g * 2)
            return x + 1

        compiled = compile(f)
        x = leaf(3)
        for _ in range(3):
            compiled(x)
            backward([x * 3])
            yield x

    check_session(session)


def test_a_hook_on_an_input_of_a_backward_that_never_reaches_it():
    def f(x, w):
        x.register_hook(lambda g: 1 / 0)
        return x.detach() * w, x * 2

    check(f, lambda: given(leaf(3), leaf(3, seed=1)), backward=[0])


def test_an_error_in_a_hook_is_raised_by_the_backward(place):
    def fail(g):
        raise ValueError("not today")

    def f(x):
        y = x * 2
        z = y * y
        place(x, y, z).register_hook(fail)
        return z

    def session(compile):
        x = leaf(3)
        z = compile(f)(x)
        yield attempt_later(lambda: backward([z]))
        yield x

    check_session(session)


def test_a_hook_is_not_called_where_no_gradient_comes_by(place):
    def session(compile):
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

    check_session(session)


def test_hooks_on_two_intermediates_one_behind_the_other():
    def session(compile):
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

    check_session(session)


def test_hooks_on_views_and_what_is_written_afterwards():
    def f(x):
        y = x * 2
        y.view(-1).register_hook(lambda g: g * 1000)  # nothing is computed from it
        v = y.t()
        v.register_hook(lambda g: g * 3)
        return v * v, y

    check(f, lambda: given(leaf(2, 3)))


@pytest.mark.parametrize("given_x", [lambda: leaf(2, 3), lambda: leaf(2, 3) * 1], ids=["leaf", "non-leaf"])
@pytest.mark.parametrize("made", ["of the argument", "of a result"])
def test_a_hook_on_a_view_of_which_another_was_made(made: str, given_x):
    def f(x):
        v = (x if made == "of the argument" else x * 2).t()
        w = v.view(3, 2)[1:]
        v.register_hook(lambda g: g * 3)
        return w, w * 2

    check(f, lambda: given(given_x()))


def test_a_hook_on_an_input_that_is_written_afterwards():
    def f(x):
        x.register_hook(lambda g: g * 3)
        x.mul_(2)
        x.register_hook(lambda g: g * 5)
        return x * 7

    def session(compile):
        root = leaf(3)
        x = root * 1
        y = compile(f)(x)
        backward([y])
        yield root, x

    check_session(session)


def test_a_hook_on_a_leaf_made_inside():
    def session(compile):
        seen = []

        def f(x):
            w = torch.ones(3, requires_grad=True)
            w.register_hook(lambda g: seen.append(g.clone()) or g * 2)
            return w, w * x

        w, y = compile(f)(plain(3))
        backward([y])
        yield w, list(seen)

    check_session(session)


def test_a_hook_that_uses_tensors_of_the_function():
    def f(x, mask):
        y = x * 2
        limit = mask * 2
        y.register_hook(lambda g: g * limit)
        y.register_hook(functools.partial(torch.mul, mask))
        return y * y

    check(f, lambda: given(leaf(3), plain(3, seed=1)), lambda: given(leaf(3), plain(3, seed=2)))


def test_a_hook_that_uses_tensors_of_the_function_on_a_result_that_others_are_computed_from():
    def f(x, mask):
        y = x * 2
        limit = mask * 2
        y.register_hook(lambda g: g * limit)
        return y * y, y, y * 3

    for roots in ([0], [1], [0, 2], [0, 1, 2]):
        check(f, lambda: given(leaf(3), plain(3, seed=1)), backward=roots)


@pytest.mark.parametrize(
    "op", [lambda x: x.chunk(2), lambda x: (x * 1).unsafe_chunk(2), lambda x: torch.var_mean(x, 0)]
)
def test_a_hook_on_one_of_several_results_of_an_op(op):
    def f(x):
        a, b = op(x)
        a.register_hook(lambda g: g * 2)
        return a * b, b * 1

    for roots in ([0], [0, 1]):
        check(f, lambda: given(leaf(4)), backward=roots)


def test_a_second_derivative_through_a_hook(place):
    def f(x):
        y = x * x
        z = y * y
        place(x, y, z).register_hook(lambda g: g * g)
        return z

    def session(compile):
        x = leaf(3)
        (g,) = torch.autograd.grad(compile(f)(x).sum(), x, create_graph=True)
        yield g
        yield torch.autograd.grad(g.sum(), x)

    check_session(session)


# -- handles -----------------------------------------------------------------------------------------


def test_a_handle_that_is_removed_inside(place):
    def f(x):
        y = x * 2
        z = y * y
        place(x, y, z).register_hook(lambda g: g * 3).remove()
        place(x, y, z).register_hook(lambda g: g * 5)
        return z

    check(f, lambda: given(leaf(3)))


def test_a_handle_that_is_kept_is_refused(place):
    """Each call would need a handle of its own, and only the first would give one."""
    handles = []

    def f(x):
        y = x * 2
        z = y * y
        handles.append(place(x, y, z).register_hook(lambda g: g * 3))
        return z

    with pytest.raises(aotcheck.UnsupportedError, match="handle"):
        aotcheck.aot_function(f)(leaf(3))


def test_a_handle_that_is_kept_and_removed_later_runs_eagerly_if_asked():
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


def test_what_is_refused():
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


# -- after accumulation ------------------------------------------------------------------------------


def test_a_hook_for_after_accumulation():
    def session(compile):
        seen = []

        def f(x, w):
            x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
            return x * w

        compiled = compile(f)
        x, w = leaf(3), leaf(3, seed=1)
        for _ in range(2):
            backward([compiled(x, w)])
            yield x, w, list(seen)

    check_session(session)


def test_a_step_taken_as_soon_as_the_gradient_is_there():
    def session(compile):
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

    check_session(session)


# -- modules -----------------------------------------------------------------------------------------


def test_backward_hooks_of_modules_that_change_gradients():
    def session(compile):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        net[0].register_full_backward_hook(lambda m, gi, go: None)
        net[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
        net[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
        net.register_full_backward_hook(lambda m, gi, go: (gi[0] * 5,))
        compiled = compile(net)
        for _ in range(2):
            x = leaf(2, 3)
            backward([compiled(x)])
            yield x, list(net.parameters())

    check_session(session)


def test_forward_hooks_of_modules():
    def session(compile):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        seen = []
        net[0].register_forward_hook(lambda m, args, out: out.register_hook(lambda g: seen.append(g.clone())) and None)
        net[1].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        compiled = compile(net)
        for _ in range(2):
            x = leaf(2, 3)
            backward([compiled(x)])
            yield x, list(net.parameters()), list(seen)

    check_session(session)


def test_retain_grad_of_a_view_of_a_custom_function_before_its_history_is_refused():
    def f(x):
        x.retain_grad()
        x.logical_not_()

    def make():
        base = leaf(3)
        return given(Same.apply(base), also=[base])

    check(f, make)


@pytest.mark.parametrize("returned", [0, 1, 2], ids=["itself", "another", "a later one"])
def test_a_hook_on_a_view_made_under_no_grad_of_a_leaf_that_is_then_written(returned):
    """Autograd was not told of the view: its gradients end there, and then it refuses to say its history."""

    def f(x):
        with torch.no_grad():
            view, other = x.t(), x.t()
            view.register_hook(lambda g: g * 2)
            x.zero_()
            return (view, other, x.t())[returned]

    def session(compile):
        x = leaf(2, 2)
        view = compile(f)(x)
        yield x, view.detach(), view.requires_grad, isinstance(attempt_later(lambda: view.grad_fn), Raised)

    check_session(session)


_SEVERAL = {
    "split": lambda x: x.split(1),
    "split of what is made of it": lambda x: (x * x).split(1),
    "unbind": lambda x: x.unbind(),
    "a list": lambda x: torch._foreach_mul([x, x * 2, x], 3),
    "topk": lambda x: (*x.topk(2), x * 2),
    "svd": lambda x: torch.linalg.svd(x, full_matrices=False),
}


@pytest.mark.parametrize("make", _SEVERAL.values(), ids=_SEVERAL)
@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("returned", [(1,), (0, 1), (2,)], ids=str)
def test_a_hook_is_called_without_a_gradient_where_only_others_of_the_op_have_one(make, returned, used):
    def session(compile):
        calls: list[bool] = []

        def f(x):
            several = make(x)
            several[0].register_hook(lambda g: calls.append(g is None))
            others = [(several[0] * 3).sum()] if used else []
            return [several[k] for k in returned] + others

        x = leaf(3, 3)
        out = compile(f)(x)
        for t in out:
            if t.requires_grad:
                found = attempt_later(lambda t=t: t.sum().backward(retain_graph=True))
                yield found, list(calls)

    check_session(session, rtol=1e-4)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("source", ["custom", "part", "clone"])
def test_a_view_that_keeps_its_gradient_of_what_is_then_written(source, mode, beside):
    def session(compile):
        root = leaf(2, 2)
        x = {"custom": View.apply, "part": lambda t: t.clone().unbind()[0], "clone": torch.clone}[source](root)

        def f(x):
            v = x.view(-1)
            v.retain_grad()
            with mode():
                x.zero_()
            return (v, x * 2) if beside else v

        out = attempt_later(lambda: compile(f)(x))
        if isinstance(out, Raised):
            yield out
            return
        v = out[0] if beside else out
        yield v.retains_grad, x
        yield attempt_later(lambda: v.is_leaf)
        yield attempt_later(lambda: (v * 3).sum().backward())
        yield v.grad, root.grad

    check_session(session)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("hook", [lambda g: g * 2, lambda g: None if g is None else g * 2], ids=["of any", "of some"])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.split])
def test_a_hook_on_a_part_that_nobody_needs_is_called_for_the_others(split, hook, inside: bool):
    def f(x):
        parts = split(x * 2 if inside else x, 1)
        parts[1].register_hook(hook)
        return parts[0], parts[0] * parts[2]

    def session(compile):
        x = leaf(3)
        for out in compile(f)(x):
            yield attempt_later(lambda out=out: torch.autograd.grad(out.sum(), x, retain_graph=True))

    check_session(session)
