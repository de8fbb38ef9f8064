"""Hooks registered on what is written or reshaped afterwards."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Raised, attempt, attempt_later, backward, check, differentiable, session
from tests.behaviour.hooks.common import _used_before
from tests.behaviour.inputs import given, leaf


def test_retain_grad_before_an_in_place_reshape_is_refused():
    """Eager keeps the gradient of what the tensor was."""

    def f(x):
        y = x.clone()
        y.retain_grad()
        return y.t_()

    with pytest.raises(aotcheck.UnsupportedError, match="hook"):
        aotcheck.aot_function(f)(leaf(2, 3))


def test_a_hook_inside_on_a_view_whose_base_was_written():
    def f(x):
        y = x * 2
        v = y[:2]
        y.mul_(3)
        assert v.grad_fn is not None  # without this torch itself crashes
        v.register_hook(lambda g: g * 5)
        return y, v

    check(f, lambda: given(leaf(4)))
    check(f, lambda: given(leaf(4)), backward=[1])


def _once(x, note):
    y = x * 2
    y.register_hook(note("a", 3))
    return y.mul_(5)


def _between_writes(x, note):
    y = x * 2
    y.register_hook(note("a", 3))
    y.mul_(x)
    y.register_hook(note("b", 2))
    y.exp_()
    return y, y * y


def _base_written_by_a_view(x, note):
    base = x * 1
    base.register_hook(note("a", 3))
    base[:2].mul_(3)
    base.register_hook(note("b", 2))
    return base


def _view_whose_base_is_written(x, note):
    base = x * 1
    view = base[:2]
    view.register_hook(note("a", 3))
    w = view * 2
    base.mul_(3)
    view.register_hook(note("b", 2))  # eager has it beside the first
    return view.sum(), w


def _reshaped(x, note):
    y = (x * 1).view(3, 1).clone()
    y.register_hook(note("a", 3))
    y.t_()
    y.register_hook(note("b", 2))  # likewise
    return y


def _argument_between_writes(x, note):
    x = x if x.grad_fn is not None else x * 1
    x.mul_(2)
    x.register_hook(note("a", 3))
    x.mul_(5)
    return x


def _argument_reshaped_after_a_write(x, note):
    x = x if x.grad_fn is not None else x * 1
    x.cumsum_(0)
    x.register_hook(note("a", 3))
    x.unsqueeze_(1)
    return x * 1, x


def _view_of_an_argument(x, note):
    x = x if x.grad_fn is not None else x * 1
    view = x[:2]
    view.register_hook(note("a", 3))
    view.mul_(2)
    return view, view * 2, x


def _one_of_two_results(x, note):
    values, _ = (x * 2).sort()
    values.register_hook(note("a", 3))
    return values.mul_(2)


def _detached_in_place(x, note):
    y = x * 2
    w = y + x
    y.register_hook(note("a", 3))
    return y.detach_(), w


def _given_other_data(x, note):
    y = x * 2
    y.register_hook(note("a", 3))
    y.data = x[:1].detach()
    y.register_hook(note("b", 2))
    return y * 1


FUNCTIONS = [
    _once, _between_writes, _used_before, _base_written_by_a_view, _view_whose_base_is_written, _reshaped,
    _argument_between_writes, _argument_reshaped_after_a_write, _view_of_an_argument, _one_of_two_results,
    _detached_in_place, _given_other_data,
]  # fmt: skip


@pytest.mark.parametrize("f", FUNCTIONS, ids=[f.__name__[1:] for f in FUNCTIONS])
@pytest.mark.parametrize("given", [lambda: leaf(3), lambda: leaf(3) * 1], ids=["leaf", "non-leaf"])
@session
def test_a_hook_sees_the_gradient_of_the_value_at_its_registration(compile, f, given):
    seen = []

    def note(name, factor):
        def hook(g):
            seen.append((name, g.clone()))
            return g * factor

        return hook

    compiled = compile(lambda x: f(x, note))
    for _ in range(2):
        x = given()
        results = differentiable(compiled(x))
        for y in results:
            yield attempt_later(lambda y=y: backward([y], retain_graph=True)), x, list(seen)
            seen.clear()
        yield attempt_later(lambda results=results: backward(results)), x, list(seen)
        seen.clear()
    x = given()
    losses = [(y * y).sum() for y in differentiable(compiled(x))]
    first = attempt(lambda: torch.autograd.grad(losses, [x], create_graph=True))
    yield first, list(seen)
    yield attempt(lambda: torch.autograd.grad((first[0] * first[0]).sum(), [x])), list(seen)


VIEWS = {"row": lambda b: b[0], "transposed": lambda b: b.t(), "real": lambda b: torch.view_as_complex(b).real}

DATA = {"reshaped": lambda x: x.unsqueeze(0), "alias": lambda x: x.view(x.shape), "fresh": lambda x: x.detach() * 2}

USES = {"reads": lambda v: v * 2, "gives it": lambda v: v}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@session
def test_a_hook_on_a_view_that_is_given_other_data_and_written_under_no_grad(compile, view, data, use, first):
    """Its history is what it has when it is first looked at, where it then lies."""

    def function(x):
        x.register_hook(lambda g: g * 3)
        v = x.view(-1, 1) if x.is_contiguous() else x.unsqueeze(0)
        x.data = data(x)
        with torch.no_grad():
            x.mul_(2)
        return use(v), x

    root = leaf(2, 2)
    x = view(root * 1)
    results = compile(function)(x)
    result = results[0 if first else 1]
    yield attempt_later(lambda: torch.autograd.grad(result, [x], torch.ones_like(result), retain_graph=True))
    yield results
    yield attempt_later(lambda: torch.autograd.grad(result, [root], torch.ones_like(result)))


@session
def test_hooks_on_an_input_before_and_after_it_is_written(compile):
    def f(x):
        x.register_hook(lambda g: g * 3)
        x.mul_(2)
        x.register_hook(lambda g: g * 5)
        return x * 7

    root = leaf(3)
    x = root * 1
    y = compile(f)(x)
    backward([y])
    yield root, x


@pytest.mark.parametrize("returned", [0, 1, 2], ids=["itself", "another", "a later one"])
@session
def test_a_hook_on_a_view_made_under_no_grad_of_a_leaf_that_is_then_written(compile, returned):
    """Autograd was not told of the view: its gradients end there, and then it refuses to say its history."""

    def f(x):
        with torch.no_grad():
            view, other = x.t(), x.t()
            view.register_hook(lambda g: g * 2)
            x.zero_()
            return (view, other, x.t())[returned]

    x = leaf(2, 2)
    view = compile(f)(x)
    yield x, view.detach(), view.requires_grad, isinstance(attempt_later(lambda: view.grad_fn), Raised)
