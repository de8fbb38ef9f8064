"""Which histories, late histories."""

import pytest
import torch

from tests.behaviour.harness import Raised, agrees, attempt_later, backward, check, cotangent, differentiable, session
from tests.behaviour.inputs import given
from tests.behaviour.shared import quietly
from tests.behaviour.subclasses.common import every_class
from tests.behaviour.wrappers import extra, jagged, nested, tagged, two


@every_class
@session
def test_requires_grad_of_a_no_grad_view_argument_of_a_wrapper_leaf(compile, make):
    x = make(3, 2, grad=True)
    with torch.no_grad():
        v = x.t()

    def f(v):
        v.requires_grad_()
        return v.clone()

    y = compile(f)(v)
    y.backward(cotangent(y))
    yield x.grad, v.grad


@session
def test_a_view_of_a_constant_by_a_custom_function_that_is_written_under_grad(compile):
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v, x):
            return x * 2, v.view_as(v)

        @staticmethod
        def backward(ctx, g, h):
            return h, g * 2

    def f(x):
        v = torch.ones_like(x)
        _, view = Both.apply(v, x)
        with torch.no_grad():
            other = v.transpose(0, 1)
        other.add_(1)
        return other, view

    x = extra(2, 2, grad=True)
    other, view = compile(f)(x)
    yield other, view.elem, view.requires_grad, view._base is other._base
    yield isinstance(attempt_later(lambda: view.grad_fn), Raised)  # the message names the Function


_BOTH_WAYS = {"a sum": lambda x, y: x + y, "a product": lambda x, y: x * y, "each": lambda x, y: (x * y, x * 5, y * 7)}

_REWRITES = {"mul_": lambda x: x.mul_(3), "relu_": lambda x: x.relu_(), "zero_": lambda x: x.zero_()}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("combine", _BOTH_WAYS.values(), ids=_BOTH_WAYS)
@pytest.mark.parametrize("write", _REWRITES.values(), ids=_REWRITES)
@pytest.mark.parametrize("make", [two, extra, jagged, nested], ids=lambda make: make.__name__)
@session
def test_gradients_of_what_is_computed_of_a_wrapper_before_and_after_a_write(
    compile, make, write, combine, create_graph
):
    """One result leads both to the history that the argument came with and to the one that it has since."""

    def f(x):
        before = x * 2
        write(x)
        return combine(before, x)

    a = make(2, 3, grad=True)
    x = a * 5
    y = compile(f)(x)
    outs = y if isinstance(y, tuple) else (y,)
    for out in outs:
        (g,) = torch.autograd.grad(out, a, torch.ones_like(out), retain_graph=True, create_graph=create_graph)
        yield g
        if g.requires_grad:
            yield torch.autograd.grad(g, a, torch.ones_like(g), retain_graph=True, allow_unused=True)


@pytest.mark.parametrize("view", ["unsqueeze", "detach"])
@agrees(lambda: (two(2, 2).t(),))
def test_requires_grad_of_a_view_argument_after_a_view_of_it_was_made(x, *, view):
    y = x.unsqueeze(0) if view == "unsqueeze" else x.detach()
    x.requires_grad_()
    return y, x * 2


VIEWS = {
    "t": lambda x: x.t(),
    "row": lambda x: x[0],
    "unsqueezed": lambda x: x.unsqueeze(0),
    "detached": lambda x: x.detach(),
}

USES = {
    "alone": lambda v: [],
    "summed up": lambda v: [v.sum()],
    "viewed": lambda v: [v.view_as(v)],
    "viewed and used": lambda v: [v[0:], v[0] * 2],
}


def _quietly(view):
    def made(x):
        with torch.no_grad():
            return view(x)

    return made


MADE = {
    f"{kind}-{'under no_grad' if quietly else ''}-{name}": (kind, quietly, view)
    for kind in ("plain", "leaf", "result")
    for quietly in (False, True)
    for name, view in VIEWS.items()
    if name == "detached" or kind == "plain" or quietly  # any other view requires grad by its base
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize(("kind", "quietly", "view"), MADE.values(), ids=MADE.keys())
@pytest.mark.parametrize("make", [two, tagged, nested], ids=lambda make: make.__name__)
@session
def test_requires_grad_of_a_view_of_a_wrapper_made_inside(compile, make, kind, quietly, view, use):
    def function(x):
        made = _quietly(view)(x) if quietly else view(x)
        before = made[0:]
        made.requires_grad_()
        return made, before, *use(made)

    root = make(2, 2, grad=kind != "plain")
    x = root * 1 if kind == "result" else root
    results = compile(function)(x)
    yield root, x, results
    tensors = [x, *results]
    yield [attempt_later(lambda t=t: t._base is None) for t in tensors]
    yield [[attempt_later(lambda t=t, u=u: t._base is u) for t in tensors] for u in tensors]
    with_history = [t for t in differentiable(results) if t.grad_fn is not None]
    if with_history:
        backward(with_history)
    yield root, x, results
    with torch.no_grad():
        results[0].add_(1)
    yield root, x, results[0]


@pytest.mark.parametrize("last", [lambda y: y, lambda y: y[1:]], ids=["the view", "a later view of it"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@session
def test_a_view_of_a_view_argument_after_a_write_without_grad_has_eagers_history(compile, mode, last):
    def f(x):
        y = x.t()
        with mode():
            x.zero_()
        return last(y)

    root = two(3, 2, grad=True)
    x = root.t()
    y = compile(f)(x)
    yield attempt_later(lambda: torch.autograd.backward([y], [torch.ones_like(y)], inputs=[x, root]))
    yield x.grad, root.grad  # autograd looked for both histories anew, and found them apart


@session
def test_a_view_made_under_grad_of_a_no_grad_view(compile):
    leaf_ = two(3, 2, grad=True)
    with torch.no_grad():
        v = leaf_.view(-1)
    y = compile(lambda x, v: v.unsqueeze(1))(leaf_, v)
    yield leaf_, v, y
    y.backward(cotangent(y))
    yield leaf_, v, y


@session
def test_a_view_of_a_view_argument_that_is_then_written(compile):
    def f(x):
        v = x.t()
        x.zero_()
        return v

    root = tagged(3, 2, grad=True)
    base = root.clone()
    x = base.t()
    v = compile(f)(x)
    yield v, x, base
    found = torch.autograd.grad(v, [root, base, x], cotangent(v), allow_unused=True)
    yield [g is None for g in found], found


@session
def test_a_no_grad_view_of_a_view_after_requires_grad_false_of_the_base(compile):
    """Eager fails an assertion of its own where it is asked for the history of the view, and does not ask here."""

    def f(x, v):
        x.requires_grad = False
        x.zero_()
        with torch.no_grad():
            return v.t()

    x = two(2, 3, grad=True)
    v = x[:]
    out = compile(f)(x, v)
    yield x, out, out._base is x, v.requires_grad


@every_class
@pytest.mark.parametrize("later", [lambda x, v: v.add_(1), lambda x, v: x.add_(1)], ids=["view", "base"])
@session
def test_the_caller_writes_a_view_whose_base_began_to_require_grad_after_it(compile, later, make):
    """Autograd was told of the view, so that it looks for its history after the write."""

    def f(x):
        y = x.detach().clone()
        v = y.t()
        y.requires_grad_()
        return y, v

    y, v = compile(f)(make(2, 3))
    with torch.no_grad():
        later(y, v)
    yield v.requires_grad, v.is_leaf, v.grad_fn is not None
    v.backward(torch.ones_like(v).detach())
    yield y.grad


LEAVES = {
    "written, then required": lambda x, v: (x.zero_(), x.requires_grad_()),
    "required, then written": lambda x, v: (x.requires_grad_(), quietly(x.zero_)),
    "required alone": lambda x, v: x.requires_grad_(),
    "written through the view": lambda x, v: (v.zero_(), x.requires_grad_()),
    "the view required": lambda x, v: (x.zero_(), v.requires_grad_()),
}


@pytest.mark.parametrize("act", LEAVES.values(), ids=LEAVES)
@every_class
def test_a_wrapper_passed_with_its_view_is_written_and_begins_to_require_grad(make, act):
    def make_inputs():
        base = make(2, 2)
        return given(base, base.t())

    def f(x, v):
        act(x, v)
        return x * 2

    check(f, make_inputs, backward=None, probe=False)
