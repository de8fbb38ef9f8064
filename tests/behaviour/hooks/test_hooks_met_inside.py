"""Hooks of the caller's met by a backward inside."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, attempt_later, check_session, session
from tests.behaviour.hooks.common import _grad
from tests.behaviour.inputs import leaf


def _over_a_hook_for_after_accumulation():
    x = leaf(3)
    x.register_post_accumulate_grad_hook(lambda t: None)
    return lambda x: (x * x).sum().backward(), x


@pytest.mark.parametrize("make", [_over_a_hook_for_after_accumulation])
def test_a_backward_inside_to_a_leaf_with_a_post_accumulate_hook_is_refused(make):
    f, x = make()
    with pytest.raises(aotcheck.UnsupportedError):
        aotcheck.aot_function(f)(x)
    assert x.grad is None


@pytest.mark.parametrize("given", [lambda x: x.detach(), lambda x: x], ids=["a gradient", "itself"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_hook_on_an_argument_called_in_another_order_or_with_a_history_is_refused(given, goes_on):
    """It is called for another gradient first, or of one that requires grad."""

    def f(x):
        if goes_on:
            x.backward(given(x))
        return torch.autograd.grad(x, x, given(x))[0]

    x = leaf(3) * 2
    x.register_hook(lambda g: None)
    if goes_on or given(x) is x:
        with pytest.raises(aotcheck.UnsupportedError, match="hooks"):
            aotcheck.aot_function(f)(x)
    else:
        aotcheck.aot_function(f)(x)


@pytest.mark.parametrize("way", ["detached", "data", "under no_grad", "not at all"])
@pytest.mark.parametrize("registered", ["before", "between", "after"])
def test_a_hook_inside_is_called_once_by_a_backward_into_the_callers_graph(way, registered):
    def write(x):
        if way == "detached":
            x.detach().copy_(torch.ones(3, device=x.device))
        elif way == "data":
            x.data.mul_(2)
        elif way == "under no_grad":
            with torch.no_grad():
                x.add_(1)

    def f(x):
        moments = {
            "before": lambda: write(x),
            "between": lambda: x.sum().backward(retain_graph=True),
            "after": lambda: None,
        }
        for moment, do in moments.items():
            if moment == registered:
                x.register_hook(lambda g: g * 2)
            do()

    def session(compile):
        root = leaf(3)
        x = root * 3
        compile(f)(x)
        yield x, root.grad
        x.sum().backward()
        yield root.grad

    check_session(session)


def _asked(x):
    (g,) = torch.autograd.grad((x * x).sum(), x)
    return x - g


def _accumulated(x):
    (x * x).sum().backward()
    return x * 2


def _accumulated_here(x):
    (x * x).sum().backward(inputs=[x])
    return x.sin()


def _twice(x):
    (g,) = torch.autograd.grad((x * x).sum(), x)
    (h,) = torch.autograd.grad((x * g).sum(), x)
    return x * g + h


def _before_a_write(x):
    y = x.clone()
    (g,) = torch.autograd.grad((y * y).sum(), x)
    x.detach().add_(g)
    return x * g


def _from_itself(x):
    return torch.autograd.grad(x, x, x.detach() * 2)[0] * x


BACKWARDS = {
    "asked": _asked,
    "accumulated": _accumulated,
    "accumulated there": _accumulated_here,
    "twice": _twice,
    "before a write": _before_a_write,
    "from itself": _from_itself,
}

ARGUMENTS = {
    "leaf": lambda a: a,
    "non-leaf": lambda a: a * 2,
    "view": lambda a: (a * 2)[:1],
    "view of a leaf": lambda a: a[:1],
    "transposed": lambda a: (a * 2).t(),
}

HOOKS = {
    "looks": lambda seen: lambda g: seen.append(g),
    "changes": lambda seen: lambda g: (seen.append(g.clone()), g * 2)[1],
    "lays out otherwise": lambda seen: lambda g: (seen.append(g.clone()), (g * 3).t().contiguous().t())[1],
    "writes": lambda seen: lambda g: (seen.append(g.clone()), g.add_(1))[0],
}

SUPPORTED = [
    (b, a)
    for b in BACKWARDS
    for a in ARGUMENTS
    if (b, a) not in {("accumulated", "view"), ("accumulated", "transposed")}
]


@pytest.mark.parametrize("make_hook", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize(("inside", "argument"), SUPPORTED)
@session
def test_a_backward_inside_calls_the_hooks_of_an_argument(compile, inside, argument, make_hook):
    compiled = compile(BACKWARDS[inside])
    for k in range(3):
        root, seen = leaf(2, 2, seed=k), []
        x = ARGUMENTS[argument](root)
        if k != 2:
            x.register_hook(make_hook(seen))
        x.register_hook(lambda g: g + 1)
        y = attempt(lambda x=x: compiled(x))
        yield y.contiguous(), [g.contiguous() for g in seen], x.grad if x.is_leaf else None
        if inside != "accumulated there":
            yield attempt_later(lambda y=y: y.sum().backward()), root.grad, [g.contiguous() for g in seen]


@session
def test_a_hook_on_an_argument_raises_in_a_backward_inside(compile):
    def hook(g):
        raise ValueError("this is what it raises")

    x = leaf(2, 2)
    compiled = compile(_asked)
    handle = x.register_hook(hook)
    yield attempt(lambda: compiled(x)), x
    handle.remove()
    yield compiled(x), x


@session
def test_a_hook_is_called_once_where_strides_differ_from_those_of_the_meta_function(compile):
    def f(x):
        (g,) = torch.autograd.grad((x * x).sum(), x)
        return torch.nn.functional.batch_norm(x.detach().t(), None, None, training=True), g

    compiled, x, seen = compile(f), leaf(11, 11), []
    x.register_hook(seen.append)
    for _ in range(2):
        yield compiled(x), len(seen)


@session
def test_a_post_accumulate_hook_is_not_called_by_grad_inside(compile):
    x, seen = leaf(2, 2), []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    y = compile(_asked)(x)
    yield y, list(seen)
    y.sum().backward()
    yield x.grad, seen


def _of_a_product(x, create_graph):
    return x * _grad(x * 2, x, create_graph)


def _of_itself(x, create_graph):
    g = _grad(x, x, create_graph)
    return x * g, g


def _twice_by_an_intermediate(x, create_graph):
    y = x * 3
    g = _grad(y * 4, y, create_graph)
    return g, x * _grad(y, x, create_graph) + _grad(x, x, create_graph)


def _after_a_write(x, create_graph):
    x = x if x.grad_fn is not None else x * 1
    x.mul_(2)
    return torch.autograd.grad([x], [x], [torch.ones_like(x)], retain_graph=True, create_graph=create_graph)[0], x * 3


def _of_what_was_written(x, create_graph):
    y = x * 2
    x = x if x.grad_fn is not None else x * 1
    x.mul_(2)
    g = _grad(y, x, create_graph) if y.grad_fn is None else y
    return g, x * 3, torch.autograd.grad([x], [x], [torch.ones_like(x)], retain_graph=True)


def _reshaped(x, create_graph):
    y = x * 2
    x = x if x.grad_fn is not None else x * 1
    g = _grad(y.sum(), y, create_graph)
    x.unsqueeze_(0)
    return g, x * 3, _grad(x, x, create_graph)


def _told_to_keep(x, create_graph):
    if x.grad_fn is not None:
        x.retain_grad()
    return x * _grad(x * 2, x, create_graph)


INSIDE = [
    _of_a_product, _of_itself, _twice_by_an_intermediate, _after_a_write, _of_what_was_written, _reshaped,
    _told_to_keep,
]  # fmt: skip


@pytest.mark.parametrize("hook", ["changes", "keeps", "both"])
@pytest.mark.parametrize("create_graph", [False, True], ids=["", "graph"])
@pytest.mark.parametrize("argument", ["leaf", "non-leaf", "view", "view of a leaf"])
@pytest.mark.parametrize("inside", INSIDE, ids=[f.__name__[1:] for f in INSIDE])
@session
def test_grad_inside_of_an_argument_with_hooks_or_retain_grad_and_create_graph(
    compile, inside, argument, create_graph, hook
):
    compiled = compile(lambda x: inside(x, create_graph))
    for _ in range(2):
        root, seen = leaf(2, 2), []
        x = ARGUMENTS[argument](root)
        if hook != "keeps":
            x.register_hook(lambda g, seen=seen: (seen.append((g.clone(), torch.is_grad_enabled())), g * 2)[1])
        if hook != "changes" and not x.is_leaf:
            x.retain_grad()
        made = attempt(lambda x=x: compiled(x))
        yield made, x.grad, seen
        yield attempt_later(lambda x=x: (x * 2).sum().backward()), x.grad, root.grad, seen


@session
def test_an_argument_that_is_passed_twice_calls_its_hook_once(compile):
    x, seen = leaf(3) * 2, []
    x.register_hook(lambda g: (seen.append(g.clone()), g * 2)[1])
    yield compile(lambda x, y: _grad(x * 3, y, create_graph=True))(x, x), seen


@session
def test_grad_inside_returns_the_tangent_itself_where_no_hook_is_called(compile):
    def f(x):
        g = torch.ones_like(x)
        (found,) = torch.autograd.grad([x], [x], [g])
        g.mul_(3)
        return found, g

    compiled = compile(f)
    x = leaf(3)
    x.register_post_accumulate_grad_hook(lambda t: None)
    yield compiled(x)
    x = leaf(3) * 2
    x.retain_grad()
    yield compiled(x), x.grad


def test_hooks_that_no_graph_can_call_are_refused():
    weight = leaf(3)

    def with_a_history(x):
        x.register_hook(lambda g: g * weight)
        return x, lambda x: _grad(x * 2, x, create_graph=True)

    def of_what_requires_grad(x):
        x.register_hook(lambda g: g * 2)
        return x, lambda x: _grad(x * x, x, create_graph=True)

    def read_inside(x):
        y = x * 2
        y.retain_grad()
        return y, lambda y: (_grad(y * 2, y, create_graph=False), y.grad)

    for make in (with_a_history, of_what_requires_grad, read_inside):
        x, f = make(leaf(3))
        with pytest.raises(aotcheck.UnsupportedError, match="hook"):
            aotcheck.aot_function(f)(x)
        assert x.grad is None


OTHERS = {
    "result": lambda x: x * 3,
    "view": lambda x: x.view(-1),
    "part": lambda x: x[:1],
    "result of a view": lambda x: x[0].sin(),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("order", ["before", "between", "after"])
@pytest.mark.parametrize("directly", [False, True], ids=["by another", "both ways"])
@pytest.mark.parametrize("write", [False, True], ids=["", "written"])
@session
def test_a_backward_inside_through_another_argument_to_one_with_a_hook_inside(compile, other, order, directly, write):
    """It goes on in the caller's graph, which leads from the one to the other."""
    seen = []

    def f(x, y):
        for moment in ("before", "between", "after"):
            if moment == order:
                x.register_hook(lambda g: (seen.append(g.detach().clone()), g * 2)[1])
            if moment != "after":
                (y.sum() * 2 + (x.sum() if directly else 0)).backward(retain_graph=True)
            if write and moment == "before":
                x.detach().add_(1)
        return x * 1

    compiled = compile(f)
    for _ in range(2):
        seen.clear()
        root = leaf(2, 2)
        x = root * 2
        y = attempt(lambda x=x: compiled(x, other(x)))
        yield y, list(seen), root.grad
        attempt_later(lambda y=y: y.sum().backward())
        yield list(seen), root.grad
