"""Hooks, gradients, backwards inside with wrappers; tangents of other classes."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, attempt_later, backward, check, cotangent, one_of, session
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import OF_THEMSELVES, PLACES
from tests.behaviour.subclasses.common import every_class
from tests.behaviour.wrappers import TwoTensor, extra, jagged, nested, tagged, two


@pytest.mark.parametrize("takes_none", [True, False])
@pytest.mark.parametrize("made", ["argument", "inside"])
@pytest.mark.parametrize("parts", [lambda x: x.unbind(1), lambda x: x.split(2, 1), lambda x: x.chunk(2, 0)])
@session
def test_a_hook_inside_on_a_part_of_a_wrapper_of_which_another_part_is_returned(compile, parts, made, takes_none):
    def f(x, hook):
        first, *_, last = parts(x if made == "argument" else x * 2)
        first.register_hook(hook)
        return last

    x = TwoTensor(plain(2, 4), plain(2, 4, seed=1)).requires_grad_()
    seen = []

    def hook(g):
        seen.append(g is None)
        return g if takes_none and g is None else g * 2

    last = compile(f)(x, hook)
    yield attempt_later(lambda: backward([last])), x, seen


place = one_of(PLACES)


@every_class
@agrees(lambda make: given(make(3, grad=True)))
def test_a_hook_inside_changes_the_gradient_of_a_wrapper(x, *, place):
    y = x * 2
    z = y.sin()
    place(x, y, z).register_hook(lambda g: g * 3)
    return z


@every_class
@agrees(lambda make: given(make(2, 2, grad=True)))
def test_a_hook_inside_on_a_view_of_which_another_view_is_made(x):
    v = x.t()
    w = v.t()
    v.register_hook(lambda g: g * 3)
    return w, v.clone()


@agrees(lambda: given(two(3, grad=True)))
def test_a_hook_inside_uses_a_tensor_of_the_function(x):
    y = x * 2
    z = y.sin()
    y.register_hook(lambda g: g * y)
    return z


@agrees(lambda: given(two(3, grad=True)))
def test_a_hook_inside_is_registered_by_keyword(x):
    y = x * 2
    y.register_hook(hook=lambda g: g * 3)
    return y


def test_a_post_accumulate_hook_is_registered_inside_on_a_wrapper():
    def halve(t):
        t.grad.div_(2)

    def f(x):
        x.register_post_accumulate_grad_hook(halve)
        return x * 2

    check(f, lambda: given(two(3, grad=True)))


@agrees(lambda: given(two(3, grad=True)))
def test_a_hook_inside_is_removed_by_the_function(x):
    handle = x.register_hook(lambda g: g * 3)
    y = x * 2
    handle.remove()
    return y


@session
def test_a_hook_inside_a_module_with_a_wrapper_parameter(compile):
    class Hooked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(two(3))

        def forward(self, x):
            y = x * self.weight
            y.register_hook(lambda g: g * 3)
            return y.sin()

    module, x = Hooked(), plain(3, seed=2)
    y = compile(module)(x)
    y.backward(cotangent(y))
    yield module.weight, x, y


@every_class
@session
def test_the_grad_of_a_wrapper_argument_is_read_inside(compile, make):
    x = make(3, grad=True)
    compiled = compile(lambda x: x * 2 if x.grad is None else x * x.grad)
    for _ in range(2):
        y = compiled(x)
        y.backward(cotangent(y))
        yield x, y


@agrees(lambda: given(two(3, grad=True)))
def test_the_grad_of_a_wrapper_argument_is_assigned_inside(x):
    x.grad = x.detach() * 3
    return x * 2


@agrees(lambda: given(two(3, grad=True)))
def test_a_backward_inside_to_a_wrapper(x):
    (x * x).backward(cotangent(x))
    return x * 2


@agrees(lambda: given(two(3, grad=True)))
def test_autograd_grad_inside_of_a_wrapper(x):
    y = x * x
    (g,) = torch.autograd.grad(y, x, cotangent(y), create_graph=True)
    return g * x


@session
def test_a_backward_inside_goes_on_past_a_no_grad_view_of_a_wrapper(compile):
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


@pytest.mark.parametrize("make", [lambda: leaf(2, 1), lambda: two(2, 1, grad=True)], ids=["plain", "wrapper"])
@session
def test_a_backward_inside_to_a_written_view_argument_passes_as_in_eager(compile, make):
    """To a written view gradients arrive before the node that saved what was written."""

    leaf_ = make()
    x = (leaf_ * 2).t()

    def f(x):
        x.addcmul_(x, x)
        x.backward(cotangent(x), retain_graph=True, inputs=[x])
        return x * 2

    y = compile(f)(x)
    yield leaf_, x, y


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
@session
def test_a_backward_inside_goes_on_into_the_callers_graph_of_wrappers(compile, function, make):
    root = make(2, 3, grad=True)
    x = root * 2
    yield compile(function)(x, torch.ones_like(x).detach()), root


of_itself = one_of(OF_THEMSELVES)


@every_class
@session(rtol=1e-5)
def test_second_derivatives_through_a_saved_wrapper_result_call_its_hooks(compile, make, of_itself):
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


@every_class
@pytest.mark.parametrize("given_as", [lambda x: x, lambda x: x.unsqueeze(0)], ids=["itself", "view"])
@pytest.mark.parametrize("write", ["tanh_", "exp_"])
@session(rtol=1e-5)
def test_retain_grad_of_a_wrapper_argument_written_by_an_op_that_saves_its_result(compile, write, given_as, make):
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


@every_class
@session
def test_a_hook_on_one_wrapper_result_is_not_called_by_a_backward_of_another(compile, make):
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


@every_class
@pytest.mark.parametrize("create_graph", [False, True])
@session
def test_a_hook_of_the_caller_on_a_view_argument_that_is_read_and_then_written(compile, make, create_graph):
    """What was read of it before leads to the history that it had then, on which the hook is."""

    def f(x):
        x[0] = x[0]
        return x.view_as(x), x * x

    leaf_ = make(2, grad=True)
    base = leaf_ * 1
    view, seen = base.view(-1), []
    view.register_hook(lambda g: [seen.append(g), g * 2][1])
    results = compile(f)(view)
    for t in results:
        t.backward(cotangent(t), retain_graph=True, create_graph=create_graph)
        yield leaf_.grad, view, results, seen


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
@session
def test_gradients_that_do_not_need_an_overwritten_saved_wrapper(compile, make, kept, overwritten, view):
    def function(x, y):
        kept(x)
        overwritten(x, y)
        return x

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


@pytest.mark.parametrize("make", [two, tagged, plain], ids=lambda make: make.__name__)
@pytest.mark.parametrize("change", ["t_", "squeeze_"])
@pytest.mark.parametrize("written", [False, True])
@session
def test_a_retained_gradient_has_the_shape_before_an_in_place_reshape(compile, make, change: str, written: bool):
    root = make(1, 3).requires_grad_()
    x = root * 2
    x.retain_grad()

    def f(x):
        getattr(x, change)()
        if written:
            with torch.no_grad():
                x.mul_(2)
        return x

    y = compile(f)(x)
    y.backward(cotangent(y))
    yield root.grad, x.grad, x.detach()


def test_a_backward_of_one_of_two_wrapper_results():
    check(lambda x: (x * x, x.exp() * 0 + x), lambda: given(two(3, grad=True)), backward=[1])


def test_backwards_of_a_wrapper_and_a_plain_result_one_after_the_other():
    def separately(roots):
        for r in roots:
            r.backward(cotangent(r))

    check(lambda x, y: (x * x, y * y), lambda: given(two(3, grad=True), leaf(3)), backward=separately)


def test_a_second_backward_through_a_wrapper_raises_as_in_eager():
    def twice(roots):
        for _ in range(2):
            roots[0].backward(cotangent(roots[0]))

    check(lambda x: x * x, lambda: given(two(3, grad=True)), backward=twice)


def test_a_gradient_penalty_of_a_wrapper():
    def penalty(roots):
        (y,) = roots
        (g,) = torch.autograd.grad(y, leaves, cotangent(y), create_graph=True)
        g.backward(cotangent(g, 2))

    leaves = []

    def make():
        leaves[:] = [two(3, grad=True)]
        return given(*leaves)

    check(lambda x: x * x * x, make, backward=penalty)


@session
def test_hooks_of_the_caller_on_a_wrapper_leaf_and_result(compile):
    seen = []
    x = two(3, grad=True)
    x.register_hook(lambda g: seen.append(g * 1))
    y = compile(lambda x: x * x)(x)
    y.register_hook(lambda g: g * 2)
    y.backward(cotangent(y))
    yield x, y, seen
