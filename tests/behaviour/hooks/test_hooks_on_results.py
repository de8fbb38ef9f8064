"""The caller's hooks on results, nodes; retain_grad."""

import pytest
import torch

from tests.behaviour.harness import backward, one_of, session
from tests.behaviour.inputs import leaf
from tests.behaviour.shared import KINDS_OF_VIEWS

view = one_of(KINDS_OF_VIEWS)


@pytest.mark.parametrize("how", ["no_grad", "grad"])
@pytest.mark.parametrize("view", [torch.t, lambda y: y[1:], lambda y: y.view(-1)])
@session
def test_a_hook_on_a_lone_returned_view_that_the_caller_then_writes(compile, view, how):
    """Then autograd gives it another history, of which hooks that were registered before are not told."""

    x = leaf(3, 2)
    result = compile(lambda x: view(x.clone()))(x)
    seen = []
    result.register_hook(lambda g: seen.append(g.clone()))
    with torch.no_grad() if how == "no_grad" else torch.enable_grad():
        result.mul_(2)
    result.backward(torch.ones_like(result))
    yield seen, x.grad, result._is_view()


@session
def test_hooks_on_an_input_and_on_a_result(compile):
    seen = []
    x = leaf(3)
    x.register_hook(lambda g: seen.append(g.clone()))
    y = compile(lambda x: x * x)(x)
    y.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    backward([y])
    yield x, seen


@session
def test_hooks_and_prehooks_on_the_grad_fn_of_a_result(compile):
    seen = []
    x = leaf(3)
    y = compile(lambda x: x * x)(x)
    y.grad_fn.register_hook(lambda gi, go: seen.append([g.clone() for g in go if g is not None]))
    y.grad_fn.register_prehook(lambda go: tuple(g * 2 for g in go))
    backward([y])
    yield x, seen


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.sin(), x.cos()),
        lambda x: (y := x * 2, y.clone(), y.clone()),
        lambda x: (x.sin().add_(1), x * x),
        lambda x: (x.sin()[:2], x.sin() * x),
    ],
)
@session(rtol=1e-6)
def test_hooks_on_results_that_a_backward_does_not_reach_are_not_called(compile, f):
    """Each result has a node of its own in eager: no hook is called without a gradient."""

    x = leaf(3)
    results = compile(f)(x)
    seen = []
    for k, r in enumerate(results):
        r.register_hook(lambda g, k=k: seen.append((k, g.tolist() if g is not None else None)))
    for r in results:
        seen.append("backward")
        backward([r], retain_graph=True)
    first = results[0].register_hook(lambda g: g * 3)
    backward([results[0]], retain_graph=True)
    first.remove()
    backward([results[0]])
    yield x, str(seen)


@session
def test_hooks_on_a_result_before_and_after_the_caller_writes_it(compile):
    x = leaf(3)
    a, b = compile(lambda x: (x * x, x * 3))(x)
    seen = []
    a.register_hook(lambda g: seen.append(("before", g.tolist())))
    a.mul_(2)
    a.register_hook(lambda g: seen.append(("after", g.tolist())))
    backward([b], retain_graph=True)
    backward([a])
    yield x, str(seen)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("write", [None, lambda v: v.mul_(2)])
@pytest.mark.parametrize("use", [lambda t: t.clone(), lambda t: t.sin(), lambda t: t[0] * 2])
@session
def test_a_hook_or_retain_grad_on_the_base_of_a_returned_view(compile, use, write, retain):
    """Gradients of what was computed from that come by it, though the function returns it by no other way."""

    def f(x):
        t = x * 3
        v = t.t()
        if write is not None:
            write(v)
        return v, use(t), v * 3

    x, seen = leaf(2, 2), []
    v, y, z = compile(f)(x)
    base = v._base
    base.retain_grad() if retain else base.register_hook(lambda g: seen.append(g.tolist()))
    torch.autograd.backward([y.sum(), z.sum()], retain_graph=True)
    yield x.grad, seen, base.grad if retain else None
    yield torch.autograd.grad(y.sum(), base)
