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
