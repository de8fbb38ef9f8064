"""Retain_grad before, inside and after the call; retained .grad under backwards inside."""

import pytest
import torch

from tests.behaviour.functions import Same, View
from tests.behaviour.harness import Raised, agrees, attempt, attempt_later, backward, session
from tests.behaviour.hooks.common import _grad
from tests.behaviour.inputs import given_of, leaf, plain, to_device
from tests.behaviour.shared import asserted


@session
def test_retain_grad_of_a_result(compile):
    x = leaf(3)
    y = compile(lambda x: x * x)(x)
    y.retain_grad()
    backward([y * 2])
    yield x, y.grad


@session
def test_the_function_reads_the_retained_grad_of_a_non_leaf(compile):
    root = leaf(3)
    x = root * 2
    x.retain_grad()
    (x * x).sum().backward()
    yield compile(lambda x: x.grad * 2)(x), root


@pytest.mark.parametrize("change", [lambda x: x.unsqueeze_(1), lambda x: x.mul_(2)], ids=["reshaped", "written"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@session
def test_a_backward_inside_with_inputs_sets_the_grad_of_a_non_leaf_reshaped_afterwards(compile, change, grad):
    def f(x):
        x.backward(torch.ones_like(x), retain_graph=True, inputs=[x])
        change(x)

    compiled = compile(f)
    for _ in range(2):
        root = leaf(3)
        x = root * 2
        with torch.set_grad_enabled(grad):
            compiled(x)
        yield x, x.grad
        yield attempt_later(lambda x=x: x.backward(torch.ones_like(x))), root.grad, x.grad


@session
def test_grad_inside_of_an_argument_that_retains_grad_only_from_the_second_call_on(compile):
    compiled = compile(lambda x: torch.autograd.grad([x], [x], [x.detach()]))
    compiled(leaf(3))
    x = leaf(3) * 2
    compiled(x)
    x.retain_grad()
    for _ in range(2):
        yield compiled(x), x.grad


@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.mul_(2)], ids=["zero", "mul"])
@session
def test_grad_inside_of_a_written_argument_that_retains_grad(compile, write):
    def f(x):
        write(x)
        return torch.autograd.grad([x], [x], [x.detach()], retain_graph=True)

    compiled = compile(f)
    compiled(leaf(3, 3) * 2)
    for _ in range(2):
        x = leaf(3, 3) * 2
        x.retain_grad()
        yield compiled(x), x.grad
        x.sum().backward()
        yield x.grad


@pytest.mark.parametrize("written", ["base", "view"])
@pytest.mark.parametrize("read", [lambda x: x, lambda x: x * 2], ids=["itself", "result"])
@session
def test_grad_inside_past_a_view_argument_that_retains_grad_and_is_written(compile, read, written):
    def f(base, view):
        (base if written == "base" else view).mul_(2)
        y = read(view)
        return torch.autograd.grad([y], [base], [torch.ones_like(y)], retain_graph=True, allow_unused=True)

    def arguments():
        base = leaf(2, 2).clone()
        return base, base.view(4)

    compiled = compile(f)
    compiled(*arguments())
    for _ in range(2):
        base, view = arguments()
        view.retain_grad()
        yield compiled(base, view), view.grad
        (base * 2).sum().backward(retain_graph=True)
        yield view.grad
        (view * 2).sum().backward()
        yield view.grad


@pytest.mark.parametrize(
    "pick", [lambda x, y, z: x, lambda x, y, z: y, lambda x, y, z: z], ids=["input", "intermediate", "output"]
)
@session
def test_retain_grad_inside_of_an_input_intermediate_or_result(compile, pick):
    def f(x):
        y = x * 2
        z = y * y
        pick(x, y, z).retain_grad()
        return y, z

    root = leaf(3)
    x = root * 1
    y, z = compile(f)(x)
    backward([z])
    yield root, x.grad, y.grad, z.grad


@pytest.mark.parametrize("looked", [False, True])
@session
def test_retain_grad_of_a_view_that_was_written_before_its_base_required_grad(compile, looked):
    """Autograd takes the view for a leaf until it has looked for its history."""

    def f(x, view):
        view.mul_(2)
        x.requires_grad_()
        if looked:
            view.clone()
        view.retain_grad()
        return view

    x = plain(3)
    view = x.view(3)
    y = compile(f)(x, view)
    yield y.retains_grad
    backward([y])
    yield x.grad, view.grad


@session
def test_retain_grad_of_results_that_alias(compile):
    x = leaf(2, 3)
    a, b = compile(lambda x: ((y := x * 2), y.view(-1)))(x)
    a.retain_grad()
    b.retain_grad()
    backward([a * 2, b * 3])
    yield x, a.grad, b.grad


@session
def test_retain_grad_of_a_view_argument_that_is_then_transposed_in_place(compile):
    def f(x):
        x.retain_grad()
        x.t_()
        return x

    root = leaf(2, 3)
    base = root.clone()
    x = base[:]
    y = compile(f)(x)
    yield y is x, x.retains_grad
    x.backward(plain(3, 2))
    yield root, x.grad


@pytest.mark.parametrize("which", [0, 1], ids=["used before", "used after"])
@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0).squeeze_(0)], ids=["t_", "cancelling"])
@session
def test_retain_grad_of_an_argument_that_is_then_reshaped_in_place(compile, change, which):
    def f(x):
        x.retain_grad()
        before = x * 2
        change(x)
        return before, x * 3

    root = leaf(2, 3)
    x = root.clone()
    outputs = compile(f)(x)
    yield x.retains_grad, outputs, x
    outputs[which].sum().backward()
    yield root, x.grad


@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.mul_(2)], ids=["zero", "mul"])
@pytest.mark.parametrize("reshape", [lambda x: x.t_(), lambda x: x.unsqueeze_(0).squeeze_(0)], ids=["t_", "twice"])
@pytest.mark.parametrize("roots", [[0], [1], [0, 1]])
@session
def test_retain_grad_before_the_call_of_an_argument_that_is_written_and_reshaped(compile, write, reshape, roots):
    def f(x):
        write(x)
        used = x * 2
        reshape(x)
        return used, x, x * 3

    source = leaf(2, 3)
    x = source * 1
    x.retain_grad()
    out = compile(f)(x)
    outs = [out[k] for k in roots]
    grads = torch.autograd.grad([(y * y).sum() for y in outs], [source], create_graph=True)
    yield outs, grads, x.grad
    x.grad = None
    torch.autograd.backward([g.sum() for g in grads if g.requires_grad] + [y.sum() for y in outs])
    yield x.grad, source.grad


def _reshaped_before(x):
    x.t_()
    x.retain_grad()
    x.mul_(2)
    return x * 2, x


def _reshaped_after(x):
    x.mul_(2)
    x.retain_grad()
    x.t_()
    return x * 2, x


def _reshaped_before_and_after(x):
    x.mul_(2)
    x.t_()
    x.retain_grad()
    x.unsqueeze_(0)
    return x * 2, x


def _told_again(x):
    x.mul_(2)
    x.retain_grad()
    x.t_()
    x.retain_grad()
    return x * 2, x


def _used_before_t_(x):
    x.mul_(2)
    w = x * x
    x.retain_grad()
    x.t_()
    return x, w


def _view_made_inside(x):
    v = (x * 1)[:1]
    v.retain_grad()
    v.mul_(2)
    v.t_()
    v.unsqueeze_(1)
    return v, v * 2


def _view_reshaped_before(x):
    v = (x * 1)[:1]
    v.unsqueeze_(0)
    v.retain_grad()
    v.mul_(2)
    return v, v * 2


def _result_reshaped_before(x):
    y = x * 1
    y.t_()
    y.retain_grad()
    y.mul_(2)
    return y, y * 2


KEEPING = [
    _reshaped_before, _reshaped_after, _reshaped_before_and_after, _told_again, _used_before_t_, _view_made_inside,
    _view_reshaped_before, _result_reshaped_before,
]  # fmt: skip


@pytest.mark.parametrize("f", KEEPING, ids=[f.__name__[1:] for f in KEEPING])
@pytest.mark.parametrize("given", [lambda r: r * 2, lambda r: (r * 2)[:, :2]], ids=["non-leaf", "view"])
@session
def test_retain_grad_before_between_and_after_in_place_reshapes(compile, f, given):
    compiled = compile(f)
    for _ in range(2):
        root = leaf(2, 3)
        x = given(root)
        results = compiled(x)
        for y in results:
            yield attempt_later(lambda y=y: backward([y], retain_graph=True)), root.grad
            yield [t.grad for t in (x, *results)], [t.retains_grad for t in (x, *results)]
        yield attempt_later(lambda results=results: backward(results)), [t.grad for t in (root, x, *results)]


@agrees(lambda: given_of(leaf(3), lambda base: (Same.apply(base),)))
def test_retain_grad_of_a_custom_view_before_a_write_without_derivative(x):
    x.retain_grad()
    x.logical_not_()


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("source", ["custom", "part", "clone"])
@session
def test_retain_grad_inside_of_a_view_whose_base_is_then_written(compile, source, mode, beside):
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


@asserted
@session
def test_grad_inside_of_an_argument_that_retains_grad_in_a_call_that_raises(compile):
    def f(x, index):
        g = _grad(x * 2, x, create_graph=False)
        return g[index]

    compiled = compile(f)
    x = leaf(3) * 2
    x.retain_grad()
    yield attempt(lambda: compiled(x, to_device(torch.tensor([1])))), x.grad
    yield attempt(lambda: compiled(x, to_device(torch.tensor([7])))), x.grad


@pytest.mark.parametrize("order", ["before", "after"])
@session
def test_a_backward_inside_through_another_argument_to_one_that_retains_grad(compile, order):
    def f(x, y):
        if order == "before":
            x.retain_grad()
        (y * 2).sum().backward(retain_graph=True)
        if order == "after":
            x.retain_grad()
        return x * 1

    root = leaf(3)
    x = root * 2
    y = compile(f)(x, x * 3)
    yield x.grad, root.grad
    y.sum().backward()
    yield x.grad, root.grad
