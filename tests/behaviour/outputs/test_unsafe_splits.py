"""Unsafe_split, unsafe_chunk and _unsafe_view: views that count versions of their own, mostly in inference mode."""

import contextlib

import pytest
import torch

from tests.behaviour.harness import Raised, agrees, attempt, attempt_later, check, session, write
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import MODES
from tests.behaviour.wrappers import two


@agrees(lambda: given(plain(4)), lambda: given(leaf(4)), anew=True)
def test_an_argument_is_assigned_one_of_its_unsafe_chunks(x):
    first, second = torch.unsafe_chunk(x, 2)
    x.data = first
    return second


@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
@session
def test_an_unsafe_split_in_inference_mode_whose_source_is_then_reshaped(compile, split):
    def f(x):
        v, _ = split(x, *((1, 1) if split is torch.unsafe_split else (2, 1)))
        x.squeeze_(1)
        return v

    x = leaf(1, 2).clone()
    with torch.inference_mode():
        v = attempt(lambda: compile(f)(x))
    yield v, x


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
@agrees(lambda requires_grad: given(leaf(1, 2) if requires_grad else plain(1, 2)))
def test_an_unsafe_split_whose_source_is_then_assigned_data(x, *, split):
    y = x.clone()
    v, w = split(y, *((1, 1) if split is torch.unsafe_split else (2, 1)))
    y.data = v
    return w, y


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
@agrees(lambda requires_grad: given(leaf(1, 2) if requires_grad else plain(1, 2)))
def test_data_assigned_to_an_unsafe_split(x, *, split):
    v, w = split(x, *((1, 1) if split is torch.unsafe_split else (2, 1)))
    other = v.clone()
    v.data = other
    return v, w, other


@pytest.mark.parametrize("op", [torch.unsafe_split, torch.unsafe_chunk])
@agrees(lambda: given(leaf(2, 2)), lambda: given(plain(2, 2)), anew=True)
def test_a_view_of_an_unsafe_split_made_in_inference_mode(x, *, op):
    with torch.inference_mode():
        v = op(x, 1)[0]
    with torch.inference_mode():
        return v.t()


SPLITS = {
    "unsafe_split": lambda x: torch.unsafe_split(x, 1)[1],
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2)[1],
    "slice": lambda x: x[1:],
}

CHANGES = {
    "transposed": lambda x, y: x.t_(),
    "unsqueezed": lambda x, y: x.unsqueeze_(0),
    "by .data =": lambda x, y: setattr(x, "data", y),
    "by set_": lambda x, y: x.set_(y),
    "squeezed, written": lambda x, y: x.squeeze_(0).add_(1),
}


@pytest.mark.parametrize("whole", [False, True], ids=["part", "both"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", [torch.detach, torch.t], ids=["detached", "transposed"])
@session
def test_a_split_or_slice_whose_source_is_then_reshaped_or_moved(compile, source, mode, split, change, whole):
    def f(x, y):
        v = source(x)
        with MODES[mode]():
            part = SPLITS[split](v)
        CHANGES[change](v, y)
        return (part, v) if whole else (part,)

    x, y = plain(2, 3), plain(3, 2, seed=1)
    out = compile(f)(x, y)
    yield out, x, y
    yield attempt_later(lambda: write(out[0])), out, x, y


@pytest.mark.parametrize("again", [False, True])
def test_an_unsafe_chunk_whose_source_is_assigned_a_clone(again):
    def f(x, y):
        whole = x + y
        (part,) = torch.unsafe_chunk(whole, 1)
        other = y.clone()
        whole.data = other
        return (part, other, whole) if again else (part, other)

    for make in (plain, leaf):
        check(f, lambda make=make: given(make(), plain(1, seed=2)))


@pytest.mark.parametrize("between", [False, True], ids=["once", "by another place"])
@pytest.mark.parametrize("make", [plain, leaf, lambda *n: leaf(*n).clone()], ids=["plain", "leaf", "no leaf"])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.split])
@session
def test_a_split_or_unsafe_split_of_an_argument_that_moved_before(compile, split, make, between):
    def f(x, y):
        x.data = y.clone() if between else y
        part = split(x, 1)[0]
        if between:
            x.data = y
        return part

    x, y = make(2, 2), plain(2, 2, seed=3)
    part = compile(f)(x, y)
    yield part, x, y


def parts(x):
    with torch.inference_mode():
        return x.unsafe_split(1)


def parts_of_what_is_given_other_data(x):
    made = parts(x)
    x.data = torch.ones(3, device=x.device)
    return made


@pytest.mark.parametrize("function", [parts, parts_of_what_is_given_other_data])
@pytest.mark.parametrize("under_grad", [False, True])
@pytest.mark.parametrize("writes", [(0, 1), (1, 0), (0, 0, 2)])
@session
def test_unsafe_split_in_inference_mode_of_an_argument_written_before_the_call(compile, function, writes, under_grad):
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


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("written", ["argument", "part", "view", "nothing"])
@pytest.mark.parametrize("looked", [lambda v: v.t(), lambda v: v[:1], lambda v: v.view(1), lambda v: v.detach()])
@pytest.mark.parametrize("split", [torch.unsafe_chunk, torch.chunk])
@session
def test_a_view_of_a_part_split_in_inference_mode_after_a_write_to_any_of_them(compile, split, looked, written, inside):
    x = leaf(2)

    def f(x):
        with torch.inference_mode():
            part = split(x, 2)[0]
            view = looked(part)
            if written != "nothing":
                {"argument": x, "part": part, "view": view}[written].zero_()
            return part, view

    def call(x):
        with contextlib.nullcontext() if inside else torch.inference_mode():
            return compile(f)(x)

    part, view = call(x)
    yield x, part, view
    yield attempt_later(lambda: part.is_leaf), attempt_later(lambda: view.is_leaf)
    yield attempt_later(lambda: (view * 2).sum().backward()), x.grad


SPLIT = {
    "leaf": lambda: leaf(4),
    "non-leaf": lambda: leaf(4) * 1,
    "view": lambda: (leaf(6) * 1)[1:5],
    "written before": lambda: (leaf(4) * 1).mul_(2),
    "plain": lambda: plain(4),
}


@pytest.mark.parametrize("make", SPLIT.values(), ids=SPLIT)
@pytest.mark.parametrize("op", [lambda x: torch.unsafe_chunk(x, 2), lambda x: torch.unsafe_split_with_sizes(x, [1, 3])])
@pytest.mark.parametrize("written", [None, "first", "whole", "part"])
@pytest.mark.parametrize("around", [contextlib.nullcontext, torch.inference_mode])
@session
def test_unsafe_split_parts_made_in_inference_mode_are_used_outside(compile, make, op, written, around):
    """Autograd takes one for written if it does not stand where what it is a part of did."""

    def inside(x):
        with torch.inference_mode():
            if written == "first":
                x.mul_(2)
            parts = op(x)
            if written in ("whole", "part"):
                (x if written == "whole" else parts[0]).mul_(2)
        return torch.neg(parts[1]), parts

    compiled = compile(inside)
    for _ in range(2):
        x = make()
        with around():
            made = attempt(lambda x=x: compiled(x))
        yield x, made
        if made and isinstance(made, tuple):
            yield attempt_later(lambda made=made: write(made[1][1])), x, made


@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        lambda x, y, part: y.t_(),
        lambda x, y, part: (y.t_(), part.add_(1)),
        lambda x, y, part: (x.add_(1), y.t_(), part.add_(1)),
        lambda x, y, part: (part.unsqueeze_(0), y.unsqueeze_(0)),
    ],
    ids=["reshaped", "and the part written", "both written", "and the part reshaped"],
)
@session
def test_an_unsafe_split_part_of_a_view_that_is_then_reshaped_in_place(compile, split, counted, change):
    def f(x):
        y = x.view(4, 1)
        part = split(y, 2)[0]
        change(x, y, part)
        return part

    x = leaf(4)
    with torch.no_grad():
        for _ in range(counted):
            x.add_(1)
    with torch.inference_mode():
        part = compile(f)(x)
    yield part, x


@pytest.mark.parametrize(
    "op", [lambda x: torch.unsafe_split(x, 1), lambda x: [torch.ops.aten._unsafe_view(x, (3,))]], ids=["split", "view"]
)
@session
def test_unsafe_split_and_unsafe_view_give_views_under_inference_mode(compile, op):
    def f(x):
        with torch.inference_mode():
            y = op(x)[0]
        return y.zero_()

    x = leaf(3)
    yield attempt_later(lambda: compile(f)(x)), x
    with torch.inference_mode():
        yield compile(lambda x: (op(x)[0], x.zero_())[0])(x), x


@pytest.mark.parametrize("op", [torch.unsafe_chunk, torch.unsafe_split])
@pytest.mark.parametrize("written", [False, True])
@session
def test_an_unsafe_split_part_is_written_in_inference_mode(compile, op, written):
    """Whether autograd refuses to say its history depends on the versions that it and its base have."""

    x = leaf(3)
    if written:
        with torch.no_grad():
            x.mul_(2)

    def f(x):
        parts = op(x, 2)
        parts[0].zero_()
        return parts

    with torch.inference_mode():
        parts = compile(f)(x)
    yield [part._version for part in parts], attempt_later(lambda: parts[0].is_leaf)


@pytest.mark.parametrize("op", [torch.unsafe_chunk, torch.unsafe_split])
@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x.view(2), lambda x: torch.unsafe_split(x, 2)[0]])
@pytest.mark.parametrize("inside", [False, True])
@session
def test_an_unsafe_split_part_of_a_view_is_written_in_inference_mode(compile, op, times, part, inside):
    def f(x, written):
        with torch.inference_mode():
            y = part(x)
            if "before" in written:
                y.mul_(2)
            parts = op(y, 2)
            if "part" in written:
                parts[0].neg_()
            if "whole" in written:
                x.neg_()
            return parts

    compiled = compile(f)
    for written in ("", "part", "whole", "part, whole", "before", "before, part", "before, whole"):
        x = leaf(2) * 1
        with torch.no_grad():
            for _ in range(times):
                x.mul_(2)
        with torch.inference_mode(not inside):
            parts = compiled(x.view(2), written)
        yield x, parts, [p._version for p in parts], [attempt_later(lambda p=p: p.is_leaf) for p in parts]


@pytest.mark.parametrize(
    "change",
    [lambda v, x: v, lambda v, x: v.set_(x), lambda v, x: v.add_(1)],
    ids=["as it is", "on another place", "written"],
)
@pytest.mark.parametrize("counted", [0, 1, 2])
@pytest.mark.parametrize("split", [torch.unsafe_split, torch.unsafe_chunk])
@session
def test_unsafe_split_in_inference_mode_of_a_leaf_written_before_the_call(compile, split, counted, change):
    """Autograd compares what such a view has counted with what its base had when the view was made."""

    x = leaf(4)
    with torch.no_grad():
        for _ in range(counted):
            x.add_(1)
    with torch.inference_mode():
        v = compile(lambda x: change(split(x, 2)[0], x))(x)
    yield v.requires_grad, isinstance(attempt_later(lambda: v.grad_fn), Raised)


@session
def test_unsafe_split_in_inference_mode_of_a_result_of_linear(compile):
    def f(x):
        y = torch.nn.functional.linear(x, torch.ones(3, 4, device=x.device))
        with torch.inference_mode():
            return torch.unsafe_split(y, 2)[0]

    v = compile(f)(leaf(4))
    yield v.requires_grad, isinstance(attempt_later(lambda: v.grad_fn), Raised)


@agrees(lambda: given(two(4, 1)))
def test_unsafe_chunk_of_a_wrapper_that_was_squeezed_in_place(x):
    x.squeeze_()
    return torch.unsafe_chunk(x, 2)[0]
