"""BEHAVIOUR 4: views of leaves and arguments that are written, cut or reshaped under no_grad and in inference mode."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check, check_session, given, leaf, non_leaf, plain


def leaf_that_is_a_view():
    base = plain(3, 3)
    return given(base[1:].requires_grad_(), also=[base])


VIEWS = {"part": lambda x: x[:1], "row": lambda x: x[0], "flat": lambda x: x.view(-1), "turned": lambda x: x.t()}


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_leaf_that_is_a_view_is_written_after_a_view_of_it_was_made(view, used):
    def function(x):
        seen = view(x)
        before = seen * seen if used else None
        with torch.no_grad():
            x.mul_(2)
        return seen * 3, before

    check(function, leaf_that_is_a_view, leaf_that_is_a_view)


@pytest.mark.parametrize("kind", [lambda: given(leaf(2, 3)), lambda: non_leaf(2, 3)], ids=["leaf", "no leaf"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_is_detached_in_place_in_an_inference_mode_inside(view, kind):
    def function(x):
        with torch.inference_mode():
            seen = view(x)
            seen.detach_()
        return seen, seen.is_leaf, x * 2

    check(function, kind, kind)


@pytest.mark.parametrize("made", [lambda x: x * 2, torch.ones_like, lambda x: x[:1]])
def test_what_is_made_in_an_inference_mode_inside_is_told_there_to_require_grad(made):
    def function(x):
        with torch.inference_mode():
            inside = made(x)
            inside.requires_grad_()
        return inside * 2, inside

    check(function, lambda: (leaf(2, 3),), lambda: non_leaf(2, 3))


@pytest.mark.parametrize("kind", [lambda: given(leaf(2, 3)), leaf_that_is_a_view], ids=["leaf", "view"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_an_argument_is_told_to_require_grad_no_longer_after_a_view_of_it_was_made(view, kind):
    def function(x):
        seen = view(x)
        before = seen * 2
        with torch.no_grad():
            x.add_(1)
        x.requires_grad_(False)
        return before, seen

    check(function, kind, kind)


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("dim", [None, 0])
@pytest.mark.parametrize("grad", [False, True])
def test_elements_of_an_inference_tensor_are_repeated_outside(repeats, dim, grad):
    def repeated(x):
        return x.repeat_interleave(repeats, dim)

    def cut(x):
        return repeated(x).detach_()

    def session(compile):
        for compiled in (compile(repeated), compile(cut)):
            for _ in range(2):
                with torch.inference_mode():
                    x = plain(2, 3).requires_grad_(grad)
                y = attempt(lambda compiled=compiled, x=x: compiled(x))
                yield x, y, isinstance(y, torch.Tensor) and y._is_view()

    check_session(session)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("used", [False, True])
def test_a_leaf_is_given_its_view_as_data_after_a_write_in_an_inference_mode_inside(view, used):
    def function(x):
        seen = view(x)
        before = seen * seen if used else None
        with torch.inference_mode():
            x.mul_(2)
        x.data = seen
        return seen * 1, before

    check(function, lambda: (leaf(2, 3),), lambda: (leaf(2, 3),))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (3, 3)])
def test_a_leaf_whose_cast_autocast_has_dropped_is_transposed(shape, again):
    def function(x):
        with torch.autocast("cpu", torch.bfloat16):
            first = x @ torch.ones(x.shape[-1], 2)
        with torch.no_grad():
            x.t_()
        if not again:
            return first, None
        with torch.autocast("cpu", torch.bfloat16):
            return first, x @ torch.ones(x.shape[-1], 2)

    check(function, lambda: (leaf(*shape),), lambda: (leaf(*shape),))


@pytest.mark.parametrize("out", [torch.zeros_like, lambda v: torch.zeros_like(v)[1:], lambda v: torch.zeros(2, 2)])
def test_a_view_made_under_no_grad_is_told_to_require_grad_beside_an_out(out):
    def function(x):
        base = x * 2
        with torch.no_grad():
            view = base[1:]
        view.requires_grad_()
        with torch.no_grad():
            written = out(view)
            torch.add(torch.ones_like(written), 1, out=written)
        return view * 1, view, written

    check(function, lambda: (leaf(3, 3),), lambda: non_leaf(3, 3))


def copies_into_an_argument(x, y):
    with torch.inference_mode():
        whole = x[:]
    view = whole.view(-1)
    y.copy_(view)
    return y, view


def test_a_view_of_a_leaf_by_way_of_an_inference_mode_is_copied_into_an_argument():
    check(copies_into_an_argument, *[lambda: (leaf(2, 3), plain(6))] * 2)
    check(copies_into_an_argument, *[lambda: given(leaf(2, 3), *non_leaf(6).args)] * 2)


@pytest.mark.parametrize("further", [lambda x: x[:1], lambda x: x.view(-1), lambda x: x[:1][:]])
@pytest.mark.parametrize(
    "function",
    [lambda x: (x.is_leaf, x * 2), lambda x: (x.requires_grad, x[:1]), lambda x: x.detach_()],
    ids=["leafness", "history", "cut"],
)
def test_an_argument_is_a_view_of_a_view_that_was_made_in_inference_mode(function, further):
    def argument():
        root = leaf(2, 3)
        with torch.inference_mode():
            whole = root[:]
        return given(further(whole), also=[root, whole])

    check(function, argument, argument)


def parts(x):
    with torch.inference_mode():
        return x.unsafe_split(1)


def parts_of_what_is_given_other_data(x):
    made = parts(x)
    x.data = torch.ones(3)
    return made


@pytest.mark.parametrize("function", [parts, parts_of_what_is_given_other_data])
@pytest.mark.parametrize("under_grad", [False, True])
@pytest.mark.parametrize("writes", [(0, 1), (1, 0), (0, 0, 2)])
def test_parts_are_made_in_inference_mode_of_what_was_written_before_some_calls(function, writes, under_grad):
    def session(compile):
        compiled = compile(function)
        for count in writes:
            root = leaf(2, 3)
            x = root * 1
            for _ in range(count):
                with torch.set_grad_enabled(under_grad):
                    x.mul_(2)
            made = attempt(lambda x=x: compiled(x))
            yield root, x, made
            yield [attempt_later(lambda part=part: (part.is_leaf, part * 2)) for part in made]

    check_session(session)
