"""Which references to a tensor (views, graphs, saved tensors) make swap_tensors raise, as in eager."""

import gc
import weakref

import pytest
import torch

from tests.behaviour.functions import View
from tests.behaviour.harness import Raised, attempt, attempt_later, session
from tests.behaviour.inputs import leaf, plain


@session
def test_swapping_a_view_and_then_a_tensor_that_is_no_view(compile):
    def f(x):
        view = x.t()
        torch.utils.swap_tensors(x, x)
        return view * 2

    compiled = compile(f)
    base = leaf(4)
    for x in (base.as_strided((2,), (1,)), leaf(2) * 1, base[:2]):
        yield attempt(lambda x=x: compiled(x))


KEPT = {
    "by gather": lambda x: x.gather(0, torch.arange(3, device=x.device)),
    "a view of it": lambda x: torch.take_along_dim(x, torch.arange(3, device=x.device), 0),
    "another": lambda x: x.view(3, 1)[:, 0].gather(0, torch.arange(3, device=x.device)),
    "by index_add": lambda x: x.index_add(0, torch.arange(3, device=x.device), x),
    "its values": lambda x: x.sin(),
    "not": lambda x: x * 2,
    "not, written": lambda x: x.clone().mul_(2),
    "what it was copied to": lambda x: x.clone().gather(0, torch.arange(3, device=x.device)),
}


def _keeps_itself(x):
    return x.prod(-1)


def _keeps_its_result(x):
    return x.exp()


def _keeps_nothing(x):
    return x.data * 2 + x


def _keeps_a_part(x):
    return x[0] * x[1]


def _written_then_kept(x):
    with torch.no_grad():
        x.fill_(1)
    return x.prod(-1)


def _kept_then_written(x):
    v = x.prod(-1)
    torch._foreach_zero_([x])
    return v


def _keeps_a_copy(x):
    return x.data * torch.ones(2, 2, requires_grad=True, device=x.device)


def _keeps_it_and_takes_its_history(x):
    x.mul_(2)
    return x.sin()


HELD_BY = (
    _keeps_itself,
    _keeps_its_result,
    _keeps_nothing,
    _keeps_a_part,
    _written_then_kept,
    _kept_then_written,
    _keeps_a_copy,
    _keeps_it_and_takes_its_history,
)

ARGUMENTS = {"leaf": lambda: leaf(2, 2), "no leaf": lambda: leaf(2, 2) * 2, "view": lambda: (leaf(2, 2) * 2).t()}


def _refused(swap):
    """What ``swap`` raises, if it does; how often the tensor is held is nobody's business."""
    found = attempt_later(swap)
    return Raised(found.type, found.message.split(" but got ")[0]) if isinstance(found, Raised) else None


def _backward(v, **options):
    torch.autograd.backward(v, torch.ones_like(v), **options)


def _differentiated(v, x):
    """The graph of a gradient of the result, which outlives that of the result."""
    (g,) = torch.autograd.grad(v, x, torch.ones_like(v), create_graph=True, allow_unused=True)
    attempt_later(lambda: _backward(v))
    return g


def _gradient(v, x):
    (g,) = torch.autograd.grad(v, x, torch.ones_like(v), create_graph=True, allow_unused=True)
    return g


DONE_SINCE = {
    "nothing": lambda v, x: v,
    "it ended": lambda v, x: None,
    "a backward": lambda v, x: (attempt_later(lambda: _backward(v)), v),
    "a backward that keeps the graph": lambda v, x: (attempt_later(lambda: _backward(v, retain_graph=True)), v),
    "a gradient outlives it": lambda v, x: attempt_later(lambda: _gradient(v, x)),
    "a gradient is differentiable": lambda v, x: attempt_later(lambda: _differentiated(v, x)),
}


@pytest.mark.parametrize("done", DONE_SINCE)
@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("holds", HELD_BY, ids=lambda f: f.__name__.strip("_"))
@session
def test_the_graph_of_an_earlier_result_refers_to_an_argument_as_in_eager(compile, holds, argument, done):
    def f(x):
        torch.utils.swap_tensors(x, x)
        return holds(x)

    compiled, x = compile(f), ARGUMENTS[argument]()
    v = attempt_later(lambda: compiled(x))
    if isinstance(v, Raised):  # a leaf that is written under grad
        yield v
        return
    left = DONE_SINCE[done](v, x)
    del v
    yield _refused(lambda: compiled(x))
    del left
    yield _refused(lambda: torch.utils.swap_tensors(x, x))


@session
def test_arguments_that_a_graph_refers_to_are_freed_one_by_one(compile):
    def f(x, y):
        torch.utils.swap_tensors(x, x)
        with torch.no_grad():
            x.add_(1)
            y.add_(1)
        return x.sin() * y.sin()

    x, y = leaf(2) * 2, leaf(2) * 3
    v = compile(f)(x, y)
    torch.autograd.grad(v, x, torch.ones_like(v))
    yield [_refused(lambda t=t: torch.utils.swap_tensors(t, t)) for t in (x, y)]
    del v
    yield [_refused(lambda t=t: torch.utils.swap_tensors(t, t)) for t in (x, y)]


@session
def test_a_swapped_argument_that_its_own_history_saves_is_freed(compile):
    def f(x):
        torch.utils.swap_tensors(x, x)
        x.exp_()
        v = x.pow(2)
        x.mul_(2)
        return v

    compiled, root = compile(f), leaf(2)
    x = root * 1
    mark = weakref.ref(x.untyped_storage())
    v = compiled(x)
    del x, v
    gc.collect()
    yield mark() is None


TAKEN_AS = {
    "parts": torch.view_as_real,
    "conj": lambda x: x.conj(),
    "neg": torch._neg_view,
    "imag": lambda x: x.imag,
    "imag of conj": lambda x: x.conj().imag,
    "conj of conj": lambda x: x.conj().conj(),
    "conj of a row": lambda x: x[:1].conj(),
    "row of conj": lambda x: x.conj()[:1],
    "neg of a row of conj": lambda x: torch._neg_view(x.conj()[:1]),
    "row": lambda x: x[:1],
}

COMPLEX = {
    "leaf": lambda root: root,
    "no leaf": lambda root: root * 1,
    "view": lambda root: root.t(),
    "conjugate": lambda root: root.conj(),
    "view of a conjugate": lambda root: root.conj().t(),
    "view without history": lambda root: root.detach().t(),
}


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize("swapped", ["argument", "made inside", "view made inside"])
@pytest.mark.parametrize("argument", COMPLEX)
@pytest.mark.parametrize("taken", TAKEN_AS)
@session
def test_conjugates_and_parts_refer_to_a_swapped_tensor_as_in_eager(compile, taken, argument, swapped, lives):
    def f(x):
        if swapped != "argument":
            x = x * 1
        if swapped == "view made inside":
            x = x.t()
        v = TAKEN_AS[taken](x)
        if not lives:
            del v
        torch.utils.swap_tensors(x, x)
        return x * 1

    compiled, x = compile(f), COMPLEX[argument](leaf(2, 2, dtype=torch.complex64))
    for _ in range(2):
        yield _refused(lambda: compiled(x))


@session
def test_swap_tensors_checks_references_on_every_call(compile):
    f = compile(lambda x: (torch.utils.swap_tensors(x, x), x.t())[1])
    x, y = plain(2, 3), plain(3, 2)
    yield f(x), attempt(lambda: f(x))
    reference = weakref.ref(y)
    yield attempt(lambda: f(y)), reference() is y


@pytest.mark.parametrize("first", ["view", "no view"])
@pytest.mark.parametrize("grad", [False, True])
@session
def test_swap_tensors_is_an_error_where_a_view_refers_to_an_argument_that_is_no_view(compile, first, grad):
    """A view of a view holds the base instead."""

    def f(x):
        v = x.t()
        torch.utils.swap_tensors(x, x)
        return v * 2

    compiled = compile(f)
    for kind in ("view", "no view", "view") if first == "view" else ("no view", "view", "no view"):
        x = plain(3).requires_grad_(grad)
        x = x * 1 if kind == "no view" else x[:]
        yield attempt(lambda x=x: compiled(x))


def _view_that_ended(x, y):
    x.view(-1).sum()
    torch.utils.swap_tensors(x, y)
    return x * 1


def _view_that_is_held(x, y):
    view = x.view(-1)
    torch.utils.swap_tensors(x, y)
    return view


def _saved_by_what_ended(x, y):
    (x * x).sum()
    torch.utils.swap_tensors(x, y)
    return x * 1


def _saved_by_what_is_held(x, y):
    z = x * x
    torch.utils.swap_tensors(x, y)
    return z


def _with_a_view_of_its_own(x, y):
    view = x[1:]
    torch.utils.swap_tensors(x, view)
    return view * 2


_HOLDING = [_view_that_ended, _view_that_is_held, _saved_by_what_ended, _saved_by_what_is_held, _with_a_view_of_its_own]

_HELD = {
    "leaf": lambda root: root,
    "plain": lambda root: root.detach().clone(),
    "non-leaf": lambda root: root * 2,
    "view": lambda root: (root * 2).view_as(root),
    "custom view": lambda root: View.apply(root * 2),
}


@pytest.mark.parametrize("function", _HOLDING, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("given_x", _HELD.values(), ids=_HELD)
@session
def test_swap_tensors_counts_references_as_eager(compile, function, given_x):
    root = leaf(3)
    x, y = given_x(root), plain(3, seed=1)
    compiled = compile(function)
    for _ in range(2):
        yield attempt(lambda: compiled(x, y)), x, y
