"""BEHAVIOUR 3: two tensors exchanged (``swap_tensors``), inside or by the caller, and what was known of either."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from tests.behaviour.harness import Raised, attempt_later, check_session, leaf, plain

GOES = {
    "emptied": lambda x: x.set_(),
    "elsewhere": lambda x: x.set_(torch.zeros(1, dtype=x.dtype)),
    "stays": lambda x: None,
}
OTHERS = {"a view": lambda v: v.t(), "a result": lambda v: v * 2}


@pytest.mark.parametrize("view", [lambda x: x.conj(), lambda x: x.t(), lambda x: x[:1]], ids=["conj", "t", "part"])
@pytest.mark.parametrize("goes", GOES)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("first", ["written", "gone"])
def test_a_view_that_was_written_is_exchanged(view, goes, other, first):
    def f(x, v):
        steps = [lambda: v.mul_(2), lambda: GOES[goes](x)]
        for step in steps if first == "written" else steps[::-1]:
            step()
        torch.utils.swap_tensors(OTHERS[other](v), v)

    def session(compile):
        root = leaf(2, 2, dtype=torch.complex64)
        x = root.clone()
        v = view(x)
        compile(f)(x, v)
        yield x, v, root
        yield attempt_later(lambda: torch.autograd.grad(v, root, torch.ones_like(v), allow_unused=True))

    check_session(session)


@pytest.mark.parametrize("with_argument", [True, False], ids=["argument", "result"])
def test_what_a_ragged_tensor_is_made_of_was_exchanged(with_argument):
    def f(x, y):
        other = y if with_argument else y * 2
        torch.utils.swap_tensors(x, other)
        return torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 0, 1]))

    def session(compile):
        x, y = plain(1, 4), plain(2, 3)
        made = compile(f)(x, y)
        yield x, y, made._values, made._values is x
        x.add_(1)
        yield x, y, made._values

    check_session(session)


KEPT = {
    "by gather": lambda x: x.gather(0, torch.arange(3)),
    "a view of it": lambda x: torch.take_along_dim(x, torch.arange(3), 0),
    "another": lambda x: x.view(3, 1)[:, 0].gather(0, torch.arange(3)),
    "by index_add": lambda x: x.index_add(0, torch.arange(3), x),
    "its values": lambda x: x.sin(),
    "not": lambda x: x * 2,
    "not, written": lambda x: x.clone().mul_(2),
    "what it was copied to": lambda x: x.clone().gather(0, torch.arange(3)),
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("after_backward", [True, False], ids=["after a backward", "before one"])
def test_the_caller_exchanges_a_leaf_that_a_graph_may_keep(kept, after_backward):
    def session(compile):
        compiled = compile(KEPT[kept])
        for _ in range(2):
            x, other = leaf(3), plain(3)
            result = compiled(x)
            if after_backward:
                result.sum().backward()
            found = attempt_later(lambda x=x, other=other: torch.utils.swap_tensors(x, other))
            yield isinstance(found, Raised)  # the message has a count
            yield x.detach(), other.detach(), result

    check_session(session)


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
    return x.data * torch.ones(2, 2, requires_grad=True)


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
ARGUMENTS = {
    "leaf": lambda: leaf(2, 2),
    "no leaf": lambda: leaf(2, 2) * 2,
    "view": lambda: (leaf(2, 2) * 2).t(),
}


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
def test_an_argument_is_held_by_the_graph_of_an_earlier_result_as_in_eager(holds, argument, done):
    def f(x):
        torch.utils.swap_tensors(x, x)
        return holds(x)

    def session(compile):
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

    check_session(session)


def test_what_several_results_hold_is_let_go_one_by_one():
    def f(x, y):
        torch.utils.swap_tensors(x, x)
        with torch.no_grad():
            x.add_(1)
            y.add_(1)
        return x.sin() * y.sin()

    def session(compile):
        x, y = leaf(2) * 2, leaf(2) * 3
        v = compile(f)(x, y)
        torch.autograd.grad(v, x, torch.ones_like(v))
        yield [_refused(lambda t=t: torch.utils.swap_tensors(t, t)) for t in (x, y)]
        del v
        yield [_refused(lambda t=t: torch.utils.swap_tensors(t, t)) for t in (x, y)]

    check_session(session)


def test_an_argument_that_takes_the_history_of_what_keeps_it_ends():
    def f(x):
        torch.utils.swap_tensors(x, x)
        x.exp_()
        v = x.pow(2)
        x.mul_(2)
        return v

    def session(compile):
        compiled, root = compile(f), leaf(2)
        x = root * 1
        mark = weakref.ref(x.untyped_storage())
        v = compiled(x)
        del x, v
        gc.collect()
        yield mark() is None

    check_session(session)


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
def test_what_is_taken_for_other_numbers_is_kept_as_in_eager(taken, argument, swapped, lives):
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

    def session(compile):
        compiled, x = compile(f), COMPLEX[argument](leaf(2, 2, dtype=torch.complex64))
        for _ in range(2):
            yield _refused(lambda: compiled(x))

    check_session(session)
