"""BEHAVIOUR 5: hooks of the caller's on arguments, met by a backward that the function calls."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check_session, leaf


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
def test_a_backward_inside_calls_the_hooks_of_an_argument(inside, argument, make_hook):
    def session(compile):
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

    check_session(session)


def test_a_hook_raises_in_a_backward_inside():
    def hook(g):
        raise ValueError("this is what it raises")

    def session(compile):
        x = leaf(2, 2)
        compiled = compile(_asked)
        handle = x.register_hook(hook)
        yield attempt(lambda: compiled(x)), x
        handle.remove()
        yield compiled(x), x

    check_session(session)


def test_a_hook_is_called_once_though_strides_are_foretold_otherwise():
    def f(x):
        (g,) = torch.autograd.grad((x * x).sum(), x)
        return torch.nn.functional.batch_norm(x.detach().t(), None, None, training=True), g

    def session(compile):
        compiled, x, seen = compile(f), leaf(11, 11), []
        x.register_hook(seen.append)
        for _ in range(2):
            yield compiled(x), len(seen)

    check_session(session)


def test_hooks_for_after_an_accumulation_are_not_called_where_none_is():
    def session(compile):
        x, seen = leaf(2, 2), []
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        y = compile(_asked)(x)
        yield y, list(seen)
        y.sum().backward()
        yield x.grad, seen

    check_session(session)


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
def test_a_backward_inside_comes_by_another_argument_to_one_with_a_hook_of_the_function(other, order, directly, write):
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

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            seen.clear()
            root = leaf(2, 2)
            x = root * 2
            y = attempt(lambda x=x: compiled(x, other(x)))
            yield y, list(seen), root.grad
            attempt_later(lambda y=y: y.sum().backward())
            yield list(seen), root.grad

    check_session(session)


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_backward_inside_comes_by_another_argument_to_one_that_keeps_its_gradient(order):
    def f(x, y):
        if order == "before":
            x.retain_grad()
        (y * 2).sum().backward(retain_graph=True)
        if order == "after":
            x.retain_grad()
        return x * 1

    def session(compile):
        root = leaf(3)
        x = root * 2
        y = compile(f)(x, x * 3)
        yield x.grad, root.grad
        y.sum().backward()
        yield x.grad, root.grad

    check_session(session)
