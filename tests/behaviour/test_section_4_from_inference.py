"""BEHAVIOUR 4: what is made in inference mode inside and used outside it."""

from __future__ import annotations

import contextlib

import pytest
import torch

from tests.behaviour.harness import attempt, attempt_later, check_session, leaf, plain, write
from tests.behaviour.wrappers import extra, tagged, two


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(torch.float32),
        lambda x: x.view(torch.int32),
        lambda x: x.view(-1),
        lambda x: x.detach(),
        lambda x: x[1:].view(torch.int32)[:1],
        lambda x: x * 2,
    ],
    ids=["same dtype", "other dtype", "shape", "detached", "part", "result"],
)
def test_what_is_detached_outside_counts_versions(view, grad):
    def inside(x):
        with torch.inference_mode():
            made = view(x)
        return made, made.detach(), made.detach().detach()

    def session(compile):
        compiled = compile(inside)
        for k in range(3):
            x = leaf(4) if grad else plain(4)
            made = attempt(lambda x=x: compiled(x))
            yield x, made
            yield attempt_later(lambda made=made, k=k: write(made[k])), x, made

    check_session(session)


@pytest.mark.parametrize("make", [two, extra, tagged], ids=lambda make: make.__name__)
def test_a_wrapper_of_what_requires_grad_is_made_in_inference_mode(make):
    def inside(x, y):
        with torch.inference_mode():
            return torch.broadcast_tensors(x, y)

    def session(compile):
        compiled = compile(inside)
        for y in (leaf(2, 3), leaf(2, 3).requires_grad_(False)):
            yield attempt(lambda y=y: compiled(make(2, 3, grad=False), y))

    check_session(session)


DATA = {
    "to an inference tensor": lambda x, y: setattr(x, "data", y),
    "to another": lambda x, y: setattr(y, "data", x),
    "and written": lambda x, y: (setattr(x, "data", y), x.add_(1)),
    "as it lies": lambda x, y: (setattr(y, "data", x.t()), y.view(3)),
    "a part": lambda x, y: setattr(x, "data", y[1:]),
}


@pytest.mark.parametrize("action", DATA)
def test_data_that_lie_where_the_argument_lay(action: str):
    def f(x, y):
        DATA[action](x, y)
        return x * 2, y

    def session(compile):
        y = plain(3)
        with torch.inference_mode():
            x = y.clone()
        y.set_(x)
        out = attempt(lambda: compile(f)(x, y))
        yield x.is_inference(), y.is_inference(), x, y, out

    check_session(session)


INSIDE = {
    "clone": lambda x: x.clone(),
    "to another dtype": lambda x: x.double(),
    "a scalar first": lambda x: 1 - x,
    "padded": lambda x: torch.nn.functional.pad(x, (1, 1)),
    "blocks": lambda x: torch.block_diag(x, x),
    "raises": lambda x: x.abs(),
    "made anew in place": lambda x: x.clone().mul_(2),
    "not recorded": lambda x: x.exp(),
    "a view": lambda x: x.t(),
}


@pytest.mark.parametrize("op", INSIDE.values(), ids=INSIDE)
@pytest.mark.parametrize("is_leaf", [True, False], ids=["leaf", "no leaf"])
@pytest.mark.parametrize("grad", [True, False])
def test_what_is_computed_of_what_requires_grad_and_has_data_made_in_inference_mode(op, is_leaf, grad):
    def f(x):
        with torch.inference_mode():
            made = x * 2
        x.data = made
        with torch.set_grad_enabled(grad):
            return x, op(x)

    def session(compile):
        root = leaf(2, 3)
        x = root if is_leaf else root * 1
        out = attempt(lambda: compile(f)(x))
        yield out
        if isinstance(out, tuple) and out[1].requires_grad:
            yield torch.autograd.grad(out[1], root, torch.ones_like(out[1]))

    check_session(session)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("written", ["argument", "part", "view", "nothing"])
@pytest.mark.parametrize("looked", [lambda v: v.t(), lambda v: v[:1], lambda v: v.view(1), lambda v: v.detach()])
@pytest.mark.parametrize("split", [torch.unsafe_chunk, torch.chunk])
def test_a_view_of_a_part_split_off_in_inference_mode_of_what_is_then_written(split, looked, written, inside):
    def session(compile):
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

    check_session(session)


@pytest.mark.parametrize("returned", ["view", "both", "whole"])
@pytest.mark.parametrize("write", [lambda v: v.zero_(), lambda v: v.data.zero_(), lambda v: None])
def test_a_view_of_what_is_given_data_made_in_inference_mode_later(write, returned):
    def f(x):
        whole = x.clone()
        view = whole.t()
        whole.data = x
        write(whole)
        return {"view": view, "both": (view, whole), "whole": whole}[returned]

    def session(compile):
        with torch.inference_mode():
            x = plain(2, 3).clone()
        out = compile(f)(x)
        for t in out if isinstance(out, tuple) else (out,):
            yield t.is_inference(), t.clone(), attempt_later(lambda t=t: t.add_(1))

    check_session(session)


@pytest.mark.parametrize("data", [lambda y: y.view(torch.int32), lambda y: y.detach(), lambda y: y[:1]])
def test_a_view_of_what_is_given_its_own_data_as_seen_in_inference_mode(data):
    def f(x):
        whole = x * 2
        view = whole.t()
        with torch.inference_mode():
            whole.data = data(whole)
        return view, whole

    def session(compile):
        view, whole = compile(f)(plain(2, 3))
        yield whole.is_inference(), view.is_inference(), attempt_later(lambda: view.as_strided((2,), (1,)))
        yield view, attempt_later(lambda: view.add_(1)), view, whole

    check_session(session)


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
def test_parts_that_count_versions_anew_are_used_outside(make, op, written, around):
    """Autograd takes one for written if it does not stand where what it is a part of did."""

    def inside(x):
        with torch.inference_mode():
            if written == "first":
                x.mul_(2)
            parts = op(x)
            if written in ("whole", "part"):
                (x if written == "whole" else parts[0]).mul_(2)
        return torch.neg(parts[1]), parts

    def session(compile):
        compiled = compile(inside)
        for _ in range(2):
            x = make()
            with around():
                made = attempt(lambda x=x: compiled(x))
            yield x, made
            if made and isinstance(made, tuple):
                yield attempt_later(lambda made=made: write(made[1][1])), x, made

    check_session(session)


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
def test_a_part_that_counts_by_itself_of_a_view_that_is_then_reshaped(split, counted, change):
    def f(x):
        y = x.view(4, 1)
        part = split(y, 2)[0]
        change(x, y, part)
        return part

    def session(compile):
        x = leaf(4)
        with torch.no_grad():
            for _ in range(counted):
                x.add_(1)
        with torch.inference_mode():
            part = compile(f)(x)
        yield part, x

    check_session(session)


# -- what requires grad though it is an inference tensor: autograd refuses what some kernels do with their results ---


BENEATH = {
    "hardtanh": torch.nn.functional.hardtanh,
    "relu6": torch.nn.functional.relu6,
    "mean": torch.mean,
    "mean of one dimension": lambda x: x.mean(1),
    "std": torch.std,
    "std of one dimension": lambda x: x.std(1),
    "var": torch.var,
    "abs": torch.abs,
    "nan_to_num": torch.nan_to_num,
    "kthvalue": lambda x: x.kthvalue(1)[0],
    "renorm": lambda x: x.renorm(2, 0, 1),
    "gelu": torch.nn.functional.gelu,
    "softmax": lambda x: x.softmax(1),
    "matmul": lambda x: x @ x,
    "by a number": lambda x: x * 2,
    "by a tensor": lambda x: x * torch.ones(2, 2, device=x.device),
    "in place": lambda x: x.add_(1),
}


@pytest.mark.parametrize("op", BENEATH.values(), ids=BENEATH)
@pytest.mark.parametrize("made", ["inside", "by data", "in place of a leaf"])
@pytest.mark.parametrize("ambient", [torch.enable_grad, torch.no_grad], ids=["grad", "no_grad"])
def test_ops_outside_inference_mode_of_an_inference_tensor_that_requires_grad(op, made, ambient):
    def function(x):
        with torch.inference_mode():
            y = x.clone()
            if made == "inside":
                y.requires_grad = True
        if made != "inside":
            z = x.clone() if made == "by data" else x.detach().requires_grad_()
            z.data = y
            y = z
        with ambient():
            return op(y)

    def session(compile):
        compiled = compile(function)
        for _ in range(2):
            result = attempt(lambda: compiled(leaf(2, 2)))
            yield result
            yield isinstance(result, torch.Tensor) and (result.requires_grad, result.is_inference())

    check_session(session, rtol=1e-6)
