"""Detach_ of arguments and views."""

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, attempt, attempt_later, check, session
from tests.behaviour.inputs import Given, given, given_of, leaf, non_leaf, plain
from tests.behaviour.shared import MAKERS, VIEWS, _non_leaf
from tests.behaviour.wrappers import two


def test_an_argument_detached_twice_around_a_leaf_is_as_in_eager_or_refused_and_untouched():
    def f(x):
        x.detach_()
        x.requires_grad_()
        y = x * 2
        x.detach_()
        return y

    root = torch.ones(2, requires_grad=True, device=plain(1).device)
    x = root.clone()
    try:
        aotcheck.aot_function(f)(x)
    except aotcheck.UnsupportedError as refused:
        assert "leaf made inside" in str(refused) and not x.is_leaf
    else:
        check(f, lambda: given(root.clone(), also=[root]))


@agrees(lambda: given_of(leaf(3), lambda root: (root * 2, leaf(3, seed=1))))
def test_an_input_detached_in_place(x, y):
    x.detach_()
    return x * y


def _cut(h, w):
    h.detach_()
    h.requires_grad_()
    return (h * w).sum()


def _used_before_and_after(h, w):
    before = h * w
    h.detach_()
    h.requires_grad_()
    return before, (h * w).sum(), h


def _view_made_in_between(h, w):
    h.detach_()
    view = h.t()
    h.requires_grad_()
    return view, h * w


def _what_leads_to_both(h, w):
    before, first = (h * w).exp(), h[0]
    h.detach_()
    h.requires_grad_()
    both = h * before
    return first, before, both, both.sum(), h[1]


def _written_before(h, w):
    with torch.no_grad():
        h.mul_(2)
    before = h * w
    h.detach_()
    h.requires_grad_()
    return before, h * w


def _written_after(h, w):
    h.detach_()
    h.requires_grad_()
    result = h * w
    with torch.no_grad():
        h.mul_(2)
    return result, h.t()


def _assigned(h, w):
    h.detach_()
    h.requires_grad = True
    return h, h + w


def _reshaped(h, w):
    h.detach_()
    h.t_()
    h.requires_grad_()
    return h * w, h[0]


def _view_that_requires_grad(h, w):
    h.detach_()
    view = h.unsqueeze(0)
    view.requires_grad_()
    return view, view * w, h * 2


CUTS = [
    _cut,
    _used_before_and_after,
    _view_made_in_between,
    _what_leads_to_both,
    _written_before,
    _written_after,
    _assigned,
    _reshaped,
    _view_that_requires_grad,
]


@pytest.mark.parametrize("f", CUTS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_requires_grad_of_an_argument_after_detach_in_place(make, f):
    check(f, make)
    check(f, make, make)


@agrees(_non_leaf)
def test_requires_grad_of_a_written_argument_after_detach_in_place(h, w):
    h.mul_(w)
    before = h * 2
    h.detach_()
    h.requires_grad_()
    return before, h * w


def test_truncated_backpropagation_through_time():
    def step(h, w, x):
        h.detach_()
        h.requires_grad_()
        return torch.tanh(h @ w + x)

    def make():
        h, w, xs = non_leaf(2, 3), leaf(3, 3, seed=1), [plain(2, 3, seed=k) for k in range(3)]
        return given(h.args[0], w, *xs, also=h.also)

    def loop(h, w, *xs):
        for x in xs:
            h = step(h, w, x)
        return h, h.sum()

    check(loop, make, rtol=1e-5)


@agrees(lambda: given(leaf(3), leaf(3, seed=1)), lambda: given(plain(3), leaf(3, seed=1)), anew=True)
def test_detach_in_place_of_a_leaf(x, y):
    x.detach_()
    return x * y


def test_detach_in_place_of_a_tensor_used_before():
    def f(x, y):
        z = x * y
        x.detach_()
        return z, x * y

    def make() -> Given:
        root = leaf(3)
        return given(root * 2, leaf(3, seed=1), also=[root])

    check(f, make)
    check(f, make, backward=[0])
    check(f, make, backward=[1])


@agrees(
    lambda: given_of(leaf(4), lambda root: (root * 1, plain(4, seed=1))),
    lambda: given_of(leaf(4), lambda root: (root * 1, leaf(4, seed=1))),
    anew=True,
)
def test_detach_in_place_and_a_write_after_it(x, w):
    x.detach_()
    x.mul_(w)
    return x * 2


@agrees(lambda: non_leaf(4))
def test_detach_in_place_after_a_write(x):
    x.mul_(2)
    x.detach_()
    return x * 3


def test_detach_in_place_of_an_input_that_is_a_view():
    def make() -> Given:
        root = leaf(4)
        base = root * 1
        return given(base[1:], also=[root, base])

    check(lambda x: (x.detach_(), x * 2)[1], make)


def test_detach_in_place_of_a_view_made_inside():
    check(lambda x: (x.view(-1).detach_(), x * 2)[1], lambda: given(leaf(2, 3)))


def test_detach_in_place_of_an_intermediate():
    def f(x):
        y = x * 2
        z = y * y
        y.detach_()
        return y, z, y * x

    check(f, lambda: given(leaf(3)))
    check(f, lambda: given(leaf(3)), backward=[0])
    check(f, lambda: given(leaf(3)), backward=[1])


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("grad", [torch.enable_grad, torch.no_grad])
def test_detach_in_place_of_a_view_of_a_plain_tensor_is_eagers_error(told, grad):
    def make():
        with grad():
            view = plain(2, 3).t()
        return given(view.requires_grad_(told))

    check(lambda x: x.detach_(), make)


@pytest.mark.parametrize("write", [lambda x, v: x.zero_(), lambda x, v: v.zero_(), lambda x, v: None])
@pytest.mark.parametrize("make", [plain, leaf, lambda *shape: leaf(*shape) * 1], ids=["plain", "leaf", "history"])
@session
def test_detach_in_place_of_a_view_in_inference_mode_does_nothing(compile, make, write):
    def f(x):
        v = x.t()
        v.detach_()
        write(x, v)
        return v

    x = make(2, 3)
    with torch.inference_mode():
        v = compile(f)(x)
    yield x, v


@pytest.mark.parametrize("reshape", [False, True])
@pytest.mark.parametrize("make", [plain, leaf], ids=["plain", "leaf"])
@session
def test_detach_in_place_twice_takes_effect_at_the_first(compile, make, reshape):
    def f(x):
        x.detach_()
        v = x.t()
        if reshape:
            x.t_()
        x.detach_()
        return v, v * 2

    x = make(2, 2)
    yield compile(f)(x), x


@pytest.mark.parametrize("kind", [lambda: given(leaf(2, 3)), lambda: non_leaf(2, 3)], ids=["leaf", "no leaf"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_detach_of_a_view_in_an_inference_mode_inside(view, kind):
    def function(x):
        with torch.inference_mode():
            seen = view(x)
            seen.detach_()
        return seen, seen.is_leaf, x * 2

    check(function, kind, kind)


@agrees(lambda: given(leaf(3) * 2))
def test_detach_in_place_under_inference_mode_does_nothing(x):
    with torch.inference_mode():
        x.detach_()


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("written", ["nothing", "base before", "base after", "view after"])
@session
def test_detach_of_a_view_in_a_call_under_inference_mode(compile, requires_grad, written):
    def f(x):
        v = x.t()
        if written == "base before":
            x.zero_()
        v.detach_()
        if written == "base after":
            x.zero_()
        elif written == "view after":
            v.zero_()
        return v, v * 2

    x = plain(3, 2).requires_grad_(requires_grad)
    with torch.inference_mode():
        v, y = compile(f)(x)
    yield v, y, attempt_later(lambda: v.is_leaf), attempt_later(lambda: v.grad_fn), v._base is x


def ragged_view(grad):
    values = plain(3, 2)
    ragged = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3], device=values.device))
    return ragged.requires_grad_(grad)


MADE_VIEWS = {
    "ragged": lambda: ragged_view(False),
    "ragged-leaf": lambda: ragged_view(True),
    "wrapper": lambda: two(2, 2).t(),
    "wrapper-with-history": lambda: two(2, 2, grad=True).clone().t(),
    "plain": lambda: plain(2, 2).t(),
    "plain-with-history": lambda: leaf(2, 2).clone().t(),
    "no view": lambda: two(2, 2, grad=True).clone(),
    "plain, no view": lambda: leaf(2, 2).clone(),
}


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad], ids=["grad", "no_grad"])
@pytest.mark.parametrize("detach", [torch.Tensor.detach_, torch.detach_], ids=["method", "function"])
@pytest.mark.parametrize("make", MADE_VIEWS.values(), ids=MADE_VIEWS)
@session
def test_detach_of_plain_wrapper_and_jagged_arguments_and_their_views(compile, make, detach, around):
    """Eager refuses it of views, whether they require grad or not."""

    def function(x):
        with around():
            detach(x)
        return x

    x = make()
    yield attempt(lambda: compile(function)(x)), x


@agrees(lambda: (leaf(3),))
def test_detach_of_an_intermediate_by_the_function_torch_detach(x):
    y, z = x * 2, x * 3
    torch.detach_(input=y)
    return y, z, y * x


@session
def test_detach_of_an_argument_with_retain_grad_and_a_write_through_a_view(compile):
    def f(x):
        x.retain_grad()
        total = x.sum()
        x.detach_()
        x[0] = total

    x, compiled = leaf(3), compile(f)
    for _ in range(3):
        compiled(x)
        yield x, x.retains_grad, x.grad
        yield torch.autograd.grad((x * 2).sum(), x, retain_graph=True), x.grad
