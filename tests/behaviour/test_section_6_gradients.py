"""BEHAVIOUR 6: hooks, gradients and backwards inside the function, where the tensors are wrapper subclasses."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import (
    attempt,
    attempt_later,
    backward,
    check,
    check_session,
    cotangent,
    given,
    leaf,
    plain,
    write,
)
from tests.behaviour.test_section_5_graphs import OF_THEMSELVES
from tests.behaviour.test_section_5_hooks_inside import PLACES
from tests.behaviour.wrappers import extra, jagged, nested, tagged, two

every_class = pytest.mark.parametrize("make", [two, extra, tagged, nested], ids=lambda make: make.__name__)


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def place(request):
    return request.param


@pytest.fixture(params=OF_THEMSELVES.values(), ids=OF_THEMSELVES)
def of_itself(request):
    return request.param


@every_class
def test_a_hook_that_changes_the_gradient(place, make):
    def f(x):
        y = x * 2
        z = y.sin()
        place(x, y, z).register_hook(lambda g: g * 3)
        return z

    check(f, lambda: given(make(3, grad=True)))


@every_class
def test_a_hook_on_a_view_of_which_another_view_is_made(make):
    def f(x):
        v = x.t()
        w = v.t()
        v.register_hook(lambda g: g * 3)
        return w, v.clone()

    check(f, lambda: given(make(2, 2, grad=True)))


def test_a_hook_that_uses_a_tensor_of_the_function():
    def f(x):
        y = x * 2
        z = y.sin()
        y.register_hook(lambda g: g * y)
        return z

    check(f, lambda: given(two(3, grad=True)))


def test_a_hook_of_keyword():
    def f(x):
        y = x * 2
        y.register_hook(hook=lambda g: g * 3)
        return y

    check(f, lambda: given(two(3, grad=True)))


def test_a_hook_for_after_the_accumulation():
    def halve(t):
        t.grad.div_(2)

    def f(x):
        x.register_post_accumulate_grad_hook(halve)
        return x * 2

    check(f, lambda: given(two(3, grad=True)))


def test_a_hook_that_the_function_removes():
    def f(x):
        handle = x.register_hook(lambda g: g * 3)
        y = x * 2
        handle.remove()
        return y

    check(f, lambda: given(two(3, grad=True)))


def test_a_hook_in_a_module():
    class Hooked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(two(3))

        def forward(self, x):
            y = x * self.weight
            y.register_hook(lambda g: g * 3)
            return y.sin()

    def session(compile):
        module, x = Hooked(), plain(3, seed=2)
        y = compile(module)(x)
        y.backward(cotangent(y))
        yield module.weight, x, y

    check_session(session)


@every_class
def test_the_gradient_of_an_argument_is_read(make):
    def session(compile):
        x = make(3, grad=True)
        compiled = compile(lambda x: x * 2 if x.grad is None else x * x.grad)
        for _ in range(2):
            y = compiled(x)
            y.backward(cotangent(y))
            yield x, y

    check_session(session)


def test_the_gradient_of_an_argument_is_written():
    def f(x):
        x.grad = x.detach() * 3
        return x * 2

    check(f, lambda: given(two(3, grad=True)))


def test_a_backward_inside():
    def f(x):
        (x * x).backward(cotangent(x))
        return x * 2

    check(f, lambda: given(two(3, grad=True)))


def test_a_gradient_inside():
    def f(x):
        y = x * x
        (g,) = torch.autograd.grad(y, x, cotangent(y), create_graph=True)
        return g * x

    check(f, lambda: given(two(3, grad=True)))


def test_a_backward_inside_does_not_stop_at_a_view_made_under_no_grad():
    def session(compile):
        leaf_ = tagged(3, grad=True)
        x = leaf_ * 2
        with torch.no_grad():
            v = x.view(3)

        def f(x, v):
            part = v[1:]
            part.backward(cotangent(part), retain_graph=True)
            return x * 2

        y = compile(f)(x, v)
        yield leaf_, x, v, y

    check_session(session)


@pytest.mark.parametrize("make", [lambda: leaf(2, 1), lambda: two(2, 1, grad=True)], ids=["plain", "wrapper"])
def test_a_backward_inside_that_eager_lets_pass_because_its_argument_is_a_view(make):
    """To a written view gradients arrive before the node that saved what was written."""

    def session(compile):
        leaf_ = make()
        x = (leaf_ * 2).t()

        def f(x):
            x.addcmul_(x, x)
            x.backward(cotangent(x), retain_graph=True, inputs=[x])
            return x * 2

        y = compile(f)(x)
        yield leaf_, x, y

    check_session(session)


def _last(x, y):
    (x * y).backward(y * 3, retain_graph=True)


def _then_written(x, y):
    (x * y).backward(y * 3)
    with torch.no_grad():
        x.mul_(2)
    return x * 3


def _after_a_write(x, y):
    with torch.no_grad():
        y.mul_(2)
    x.backward(y)
    return x * 3


@pytest.mark.parametrize("make", [two, extra, tagged, nested, jagged], ids=lambda make: make.__name__)
@pytest.mark.parametrize("function", [_last, _then_written, _after_a_write])
def test_a_backward_inside_goes_on_in_the_callers_graph(function, make):
    def session(compile):
        root = make(2, 3, grad=True)
        x = root * 2
        yield compile(function)(x, torch.ones_like(x).detach()), root

    check_session(session)


# -- second derivatives that come by what an op keeps of itself ---------------------------------------


@every_class
def test_second_derivatives_come_by_a_result_and_its_hooks(make, of_itself):
    def session(compile):
        x = make(3, grad=True)
        y = compile(of_itself)(x * 0.5)
        seen = []
        y.register_hook(lambda g: seen.append(g.detach().clone()))
        y.register_hook(lambda g: g * 2)
        ones = torch.ones_like(y).detach()
        (g,) = torch.autograd.grad([y], [x], [ones], create_graph=True)
        second = torch.autograd.grad([g], [x, y], [ones * 3], allow_unused=True, create_graph=True)
        yield seen, g, second
        third = [s for s in second if s is not None and s.requires_grad]
        yield torch.autograd.grad(third, [x, y], [ones] * len(third), allow_unused=True), seen

    check_session(session, rtol=1e-5)


@every_class
@pytest.mark.parametrize("given_as", [lambda x: x, lambda x: x.unsqueeze(0)], ids=["itself", "view"])
@pytest.mark.parametrize("write", ["tanh_", "exp_"])
def test_an_argument_that_keeps_its_gradient_and_is_written_by_an_op_that_keeps_it(write, given_as, make):
    def session(compile):
        root = make(3, grad=True)
        x = given_as(root * 0.5)
        x.retain_grad()
        y = compile(lambda x: getattr(x, write)() * 2)(x)
        y.backward(torch.ones_like(y).detach(), create_graph=True)
        yield x.grad, root.grad
        second = root.grad
        root.grad = None
        second.backward(torch.ones_like(second).detach())
        yield x.grad, root.grad

    check_session(session, rtol=1e-5)


@every_class
def test_the_callers_hook_on_one_of_several_results_is_not_told_of_backwards_from_others(make):
    def session(compile):
        def f(x):
            y = x * 0.5
            return x + y, x - y

        x = make(3, grad=True)
        first, second = compile(f)(x)
        seen = []
        first.register_hook(lambda g: seen.append(("first", g.detach().clone())))
        second.register_hook(lambda g: seen.append(("second", g.detach().clone())))
        for result in (second, first):
            result.backward(torch.ones_like(result), retain_graph=True)
            yield list(seen), x.grad

    check_session(session)


# -- hooks of the caller's on arguments that are views -------------------------------------------------


@every_class
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_hook_on_a_view_that_is_read_and_then_written(make, create_graph):
    """What was read of it before leads to the history that it had then, on which the hook is."""

    def f(x):
        x[0] = x[0]
        return x.view_as(x), x * x

    def session(compile):
        leaf_ = make(2, grad=True)
        base = leaf_ * 1
        view, seen = base.view(-1), []
        view.register_hook(lambda g: [seen.append(g), g * 2][1])
        results = compile(f)(view)
        for t in results:
            t.backward(cotangent(t), retain_graph=True, create_graph=create_graph)
            yield leaf_.grad, view, results, seen

    check_session(session)


@pytest.mark.parametrize("product", [torch.mul, torch.complex], ids=["mul", "complex"])
def test_the_caller_writes_a_ragged_result_on_memory_that_was_saved(product):
    """Of a ragged tensor itself eager says otherwise that it was written since."""

    def f(x, offsets):
        y = torch.nested.nested_tensor_from_jagged(x.detach(), offsets)
        return product(x, x), y

    def session(compile):
        x = leaf(3, 2)
        z, y = compile(f)(x, torch.tensor([0, 2, 3]))
        write(y)
        yield attempt_later(lambda: z.abs().sum().backward()), x.grad

    check_session(session)


@pytest.mark.parametrize(
    "f",
    [torch.sum, torch.mean, lambda x: (x * x).sum(), lambda x: x.sum(-1), lambda x: x.sin(), lambda x: x * 2],
    ids=["sum", "mean", "product", "rows", "sin", "double"],
)
def test_the_caller_writes_a_ragged_argument_made_of_a_leaf(f):
    """The graph takes the leaf's memory; what eager saved and says to be written is the ragged tensor."""

    def session(compile):
        values = plain(3)
        x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 3]))
        values.requires_grad_()
        y = compile(f)(x)
        with torch.no_grad():
            x.copy_(x.detach() * 2)
        yield attempt_later(lambda: y.sum().backward()), values.grad

    check_session(session)


# -- backwards that are asked for some gradients, where on the way to others something was written since -------------


KEPT = {
    "relu_": lambda x: x.relu_(),
    "exp_": lambda x: x.exp_(),
    "sin_": lambda x: x.sin_(),
    "mul_ by itself": lambda x: x.mul_(x),
}
OVERWRITTEN = {
    "copy_": lambda x, y: x.copy_(y),
    "eq_": lambda x, y: x.eq_(y),
    "fill_": lambda x, y: x.fill_(y.sum()),
    "mul_": lambda x, y: x.mul_(y),
    "zero_": lambda x, y: x.zero_(),
}


@pytest.mark.parametrize("make", [two, tagged, extra])
@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("overwritten", OVERWRITTEN.values(), ids=OVERWRITTEN)
@pytest.mark.parametrize("view", [False, True], ids=["itself", "view"])
def test_gradients_that_do_not_come_by_what_was_written_since(make, kept, overwritten, view):
    def function(x, y):
        kept(x)
        overwritten(x, y)
        return x

    def session(compile):
        root, other = make(2, 2, grad=True), leaf(2, 2)
        x = root.clone()
        result = attempt(lambda: compile(function)(x.t() if view else x, other.clone()))
        yield result
        if not isinstance(result, torch.Tensor):
            return
        for asked in ([other], [root], [root, other], [other]):
            yield attempt_later(
                lambda asked=asked: torch.autograd.grad(
                    result, asked, torch.ones_like(result), retain_graph=True, allow_unused=True
                )
            )
        yield attempt_later(lambda: backward([result])), other.grad

    check_session(session)
