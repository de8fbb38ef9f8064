"""A backward inside that goes on into the caller's graph."""

import contextlib

import pytest
import torch

from tests.behaviour.backward.common import calls
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Raised, attempt, attempt_later, backward, refuses, session
from tests.behaviour.inputs import leaf, plain


def _without_grad(change):
    def f(t):
        with torch.no_grad():
            change(t)

    return f


CHANGES = {
    "transposed": lambda x: x.t_(),
    "transposed twice": lambda x: x.t_().t_(),
    "unsqueezed": lambda x: x.unsqueeze_(0),
    "under no_grad": _without_grad(lambda x: x.t_()),
    "by an alias": lambda x: x.detach().t_(),
    "by a view": lambda x: x.view(2, 2).t_(),
    "transposed and written": lambda x: x.t_().mul_(2),
    "written": lambda x: x.mul_(2),
    "not": lambda x: x,
}


def _outcome(action):
    """What is raised, or None: what the function gives then is looked at by other tests."""
    found = attempt(action)
    return (found.type, found.message) if isinstance(found, Raised) else None


@pytest.mark.parametrize("keeps", [torch.exp, torch.Tensor.clone], ids=["its result", "nothing"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@session
def test_mutating_what_the_callers_graph_saved_before_a_backward_inside(compile, change, keeps):
    def f(x):
        change(x)
        (x * 2).backward(torch.ones_like(x))

    root = leaf(2, 2)
    yield _outcome(lambda: compile(f)(keeps(root))), root


@pytest.mark.parametrize("change", [v for k, v in CHANGES.items() if k != "transposed and written"])
@pytest.mark.parametrize("written_first", [False, True])
@session
def test_mutating_what_the_callers_graph_saved_after_a_backward_inside(compile, change, written_first):
    def f(x, y):
        if written_first:
            y.detach().mul_(2)
        (x * 2).sum().backward(retain_graph=True)
        if not written_first or change is not CHANGES["written"]:
            change(x)

    root, other = leaf(2, 2), leaf(2, 2)
    yield _outcome(lambda: compile(f)(root.exp(), other.sigmoid())), root, other


@session
def test_a_saved_argument_transposed_in_place_between_backwards_into_the_callers_graph(compile):
    def f(x, y):
        (x * 2).sum().backward(retain_graph=True)
        y.t_()
        (x * 3).sum().backward(retain_graph=True)
        (y * 2).sum().backward()

    root, other = leaf(2, 2), leaf(2, 2)
    yield _outcome(lambda: compile(f)(root.exp(), other.exp())), root, other


@session
def test_a_second_call_mutates_what_the_first_call_saved(compile):
    def f(x):
        x.t_()
        (x * 2).sum().backward(retain_graph=True)
        x.exp_()

    g = compile(f)
    root = leaf(2, 2)
    x = root.clone()
    for _ in range(2):
        found = attempt(lambda: g(x))
        yield isinstance(found, Raised), root


def test_a_backward_inside_from_an_argument_to_one_that_is_its_tangent_is_refused():
    compiled = aotcheck.aot_function(lambda x, y: y.backward(x, inputs=[x]))
    x = leaf(3)
    with refuses("backward inside"):
        compiled(x, x * 3)
    assert x.grad is None


class _ReturnsView(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 3


def test_a_backward_inside_through_a_custom_view_whose_base_is_written_is_refused():
    def f(x, v, writes):
        v.backward(torch.ones_like(v))
        return x.zero_() if writes else x * 2

    root = leaf(3)
    compiled = aotcheck.aot_function(f)
    x = root * 1
    with refuses("custom Function"):
        compiled(x, _ReturnsView.apply(x), True)
    assert root.grad is None
    calls(lambda x: f(x, _ReturnsView.apply(x), False), lambda: leaf(3) * 1)


@pytest.mark.parametrize("place", [0, 1, 2])
@session
def test_an_argument_without_gradient_leaves_the_grad_of_the_callers_leaf_none(compile, place):
    def f(x, y):
        torch._foreach_mul([x, y, x], 2.0)[place].sum().backward()

    root, other = leaf(3), leaf(3, seed=1)
    compile(f)(root * 1, other * 1)
    yield root.grad, other.grad


def _once(x, y):
    (x * y).sum().backward()


def _twice(x, y):
    (x * y).sum().backward(retain_graph=True)
    (x * 2).sum().backward()


def _twice_freeing(x, y):
    (x * y).sum().backward()
    (x * 2).sum().backward()


def _with_a_leaf(x, y):
    w = (x * 1).detach().requires_grad_()
    (x * w).sum().backward()
    return w.grad * 2


def _then_written(x, y):
    (x * y).sum().backward()
    with torch.no_grad():
        x.mul_(2)
    return x * 3


def _and_returned(x, y):
    z = x * y
    z.sum().backward(retain_graph=True)
    return z, x.view(-1)


def _after_a_write(x, y):
    x.mul_(2)
    (x * y).sum().backward(retain_graph=True)
    return x * 3


def _after_a_write_beside_it(x, y):
    with torch.no_grad():
        y.mul_(2)
    (x * y).sum().backward()
    return x * 3


_ONWARD = [
    _once,
    _twice,
    _twice_freeing,
    _with_a_leaf,
    _then_written,
    _and_returned,
    _after_a_write,
    _after_a_write_beside_it,
]

_BEHIND = {
    "a product": lambda root: (root * root, root.detach() * 3),
    "of one leaf": lambda root: (root * 2, root * root),
    "a view": lambda root: ((root * root).view(3), root.detach() * 3),
    "freed at once": lambda root: (root.exp2(), root.detach() * 3),
}


@pytest.mark.parametrize("behind", _BEHIND)
@pytest.mark.parametrize("function", _ONWARD, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("hooked", [False, True])
@session
def test_a_backward_inside_goes_on_to_the_leaves_of_the_callers_graph(compile, function, behind, hooked):
    hooked = hooked and behind != "a view"  # whose hooks a trace with its base does not know
    if function is _after_a_write and behind == "freed at once":
        hooked = False  # it raises, and then the argument has not yet another history

    compiled = compile(function)
    for _ in range(2):
        root, seen = leaf(3), []
        x, y = _BEHIND[behind](root)
        if hooked:
            x.register_hook(lambda g, seen=seen: seen.append(g.clone()) or g * 3)
        out = attempt_later(lambda x=x, y=y: compiled(x, y))
        yield out, root, x, y, seen
        yield attempt_later(lambda x=x: x.sum().backward()), root, seen


def _by_a_view(x, y):
    x.backward(torch.ones_like(x), retain_graph=True)
    return x * 2


def _beside_a_write(x, y):
    with torch.no_grad():
        y.add_(1)
    x.backward(torch.ones_like(x), retain_graph=True)
    return x * 2


def _between_writes(x, y):
    x.detach().mul_(2)
    x.backward(torch.ones_like(x), retain_graph=True)
    y.detach().mul_(2)
    x.detach().mul_(3)
    return x * 2


def _between_several_writes(x, y):
    for t in (y, x, x):
        x.backward(torch.ones_like(x), retain_graph=True)
        t.detach().mul_(2)
    (x * 3).sum().backward(retain_graph=True)
    return x * 2


def _between_writes_under_grad(x, y):
    x.mul_(2)
    x.backward(torch.ones_like(x), retain_graph=True)
    x.mul_(2)
    return x * 2


def _freed_between_writes(x, y):
    y.detach().mul_(2)
    (x * x).sum().backward()
    y.detach().mul_(2)
    return y * 1


def _between_a_write_and_a_change_of_shape(x, y):
    x.detach().mul_(2)
    x.unsqueeze_(0)
    x.backward(torch.ones_like(x), retain_graph=True)
    y.detach().mul_(2)
    return y * 2


_LEADING = [
    _by_a_view, _beside_a_write, _between_writes, _between_several_writes, _between_writes_under_grad,
    _freed_between_writes, _between_a_write_and_a_change_of_shape,
]  # fmt: skip

_ARGUMENTS = {
    "apart": lambda a, b: (a * 2, b * 3),
    "squares": lambda a, b: (a * a, b * b),
    "keeping itself": lambda a, b: (a.exp(), b * 2),
    "view of a leaf": lambda a, b: (a[:2], b * 2),
    "view": lambda a, b: ((a * 2)[:2], b * 2),
    "and a leaf behind it": lambda a, b: (a * b, b),
    "view of a leaf, and that": lambda a, b: (a[:2], a),
    "view, and its base": lambda a, b: (lambda c: (c[:2], c))(a * 2),
    "and what it was detached from": lambda a, b: (a.exp(), a.detach()),
    "and another of one leaf": lambda a, b: (a * 2, a.exp()),
}


@pytest.mark.parametrize("arguments", _ARGUMENTS.values(), ids=_ARGUMENTS)
@pytest.mark.parametrize("function", _LEADING, ids=[f.__name__[1:] for f in _LEADING])
@pytest.mark.parametrize("hooked", [False, True], ids=["", "hooked"])
@session
def test_a_backward_inside_goes_on_to_other_arguments_and_between_writes(compile, function, arguments, hooked):
    if hooked and function is _between_several_writes:
        hooked = False  # a hook on a view is then called after a backward that went on: refused

    compiled = compile(function)
    for k in range(2):
        roots, seen = [leaf(3), leaf(3, seed=1)], []
        if k:
            for r in roots:
                r.grad = torch.ones_like(r)
        x, y = arguments(*roots)
        for t in (x, y) if hooked else ():
            if t.requires_grad:
                t.register_hook(lambda g, seen=seen: seen.append(g.clone()))
        made = attempt_later(lambda x=x, y=y: compiled(x, y))
        yield made, x, y, [r.grad for r in roots], seen
        if not isinstance(made, Raised):
            yield attempt_later(lambda made=made: backward([made])), [r.grad for r in roots]


@session
def test_a_backward_inside_through_a_view_whose_base_is_no_argument(compile):
    compiled = compile(lambda v: v.backward(torch.ones_like(v)))
    for _ in range(2):
        base, seen = leaf(4), []
        base.register_hook(lambda g, seen=seen: seen.append(g.clone()) or g * 2)
        for _ in range(2):
            compiled(base[1:3])
            yield base, base.grad, seen


def test_a_backward_inside_to_another_argument_whose_grad_is_used_is_refused():
    def read(x, root):
        x.sum().backward()
        return root.grad * 2

    def besides(x, root):
        (x * root).sum().backward()

    def hidden(x, y):
        x.data.mul_(2)
        x.sum().backward()
        y.data.mul_(2)
        x.data.mul_(2)

    for f in (read, besides, hidden):
        root = leaf(3)
        with refuses("to another argument", "between writes"):
            aotcheck.aot_function(f)(root * 2, root)
        assert root.grad is None


_MODES = {
    "none": contextlib.nullcontext,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to another": lambda: torch.autocast("cpu", torch.float16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "inference": torch.inference_mode,
    "outside inference": lambda: torch.inference_mode(False),
    "no_grad": torch.no_grad,
}


class Product(torch.autograd.Function):
    """A product whose backward is seen: it is computed in the mode that is in force around it."""

    @staticmethod
    def forward(ctx, x, weight, seen):
        ctx.save_for_backward(weight)
        ctx.seen = seen
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        ctx.seen.append((torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), g.is_inference()))
        return g @ ctx.saved_tensors[0], None, None


_HISTORIES = {
    "a view": lambda a, _: (a * 1).view(2, 2),
    "what is handed on": lambda a, _: a + plain(2, 2),
    "a product": lambda a, seen: Product.apply(a, plain(2, 2, seed=1) / 3, seen),
}

_GRADIENTS = {
    "an argument": lambda x, h: h,
    "made there": lambda x, h: torch.full_like(x, 1.01),
    "computed there": lambda x, h: h * 1.01,
}


@pytest.mark.parametrize("around", ["none", "autocast", "inference", "no_grad"])
@pytest.mark.parametrize("inside", _MODES)
@pytest.mark.parametrize("gradient", _GRADIENTS)
@pytest.mark.parametrize("history", _HISTORIES)
@session
def test_a_backward_into_the_callers_graph_runs_in_the_modes_of_its_call(compile, history, gradient, inside, around):
    def f(x, h):
        with _MODES[inside]():
            x.backward(_GRADIENTS[gradient](x, h))
        return h * 2

    compiled = compile(f)
    for _ in range(2):
        seen = []
        a = leaf(2, 2)
        x = _HISTORIES[history](a, seen)
        with _MODES[around]():
            y = compiled(x, plain(2, 2, seed=2) / 7)
        yield y, a.grad, a.grad.is_inference(), seen
        yield attempt_later(lambda a=a: (a * 2).sum().backward()), a.grad
