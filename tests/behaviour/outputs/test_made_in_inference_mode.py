"""Made in inference mode inside and used outside it."""

import pytest
import torch

from tests.behaviour.harness import agrees, attempt, attempt_later, check, session, write
from tests.behaviour.inputs import given, leaf, non_leaf, plain


@pytest.mark.parametrize("made", [lambda x: x * 2, torch.ones_like, lambda x: x[:1]])
@agrees(lambda: (leaf(2, 3),), lambda: non_leaf(2, 3))
def test_requires_grad_of_results_and_views_made_in_inference_mode(x, *, made):
    with torch.inference_mode():
        inside = made(x)
        inside.requires_grad_()
    return inside * 2, inside


def copies_into_an_argument(x, y):
    with torch.inference_mode():
        whole = x[:]
    view = whole.view(-1)
    y.copy_(view)
    return y, view


def test_a_view_of_a_leaf_made_in_inference_mode_is_copied_into_an_argument():
    check(copies_into_an_argument, *[lambda: (leaf(2, 3), plain(6))] * 2)
    check(copies_into_an_argument, *[lambda: given(leaf(2, 3), *non_leaf(6).args)] * 2)


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
@session
def test_detach_outside_of_what_is_made_in_inference_mode_counts_versions(compile, view, grad):
    def inside(x):
        with torch.inference_mode():
            made = view(x)
        return made, made.detach(), made.detach().detach()

    compiled = compile(inside)
    for k in range(3):
        x = leaf(4) if grad else plain(4)
        made = attempt(lambda x=x: compiled(x))
        yield x, made
        yield attempt_later(lambda made=made, k=k: write(made[k])), x, made


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
@session(rtol=1e-6)
def test_ops_outside_inference_mode_of_an_inference_tensor_that_requires_grad(compile, op, made, ambient):
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

    compiled = compile(function)
    for _ in range(2):
        result = attempt(lambda: compiled(leaf(2, 2)))
        yield result
        yield isinstance(result, torch.Tensor) and (result.requires_grad, result.is_inference())


@agrees(lambda: given(leaf(2, 3)), lambda: given(plain(2, 3)), anew=True)
def test_results_and_views_made_in_inference_mode_are_returned(x):
    with torch.inference_mode():
        y = x * 2
        z = x.view(-1)
    return y, z, x * 3


@agrees(lambda: given(plain(3)))
def test_requires_grad_of_an_inference_tensor_made_inside(x):
    with torch.inference_mode():
        y = x * 2
        y.requires_grad_()
    return y, x * 3


@session
def test_the_caller_writes_a_detached_alias_of_what_is_made_in_inference_mode(compile):
    def f(x):
        with torch.inference_mode():
            v = x.clone()
        return v.detach()

    v = compile(f)(plain(3))
    yield v, v.is_inference(), v._version
    v.add_(1)
    yield v, v._version


@pytest.mark.parametrize("returned", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("part", [lambda t: t[0], lambda t: t.view(-1), lambda t: t], ids=["row", "view", "itself"])
@session
def test_detach_outside_of_a_part_made_in_inference_mode_may_be_written(compile, returned, part):
    def f(x):
        with torch.inference_mode():
            whole = x.clone()
            some = part(whole)
        several = whole, some, some.detach()
        return [several[k] for k in returned]

    out = compile(f)(plain(2, 2))
    yield out, [attempt_later(lambda t=t: t._version) for t in out]
    for t in out:
        yield attempt_later(lambda t=t: t.add_(1)), out


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
@pytest.mark.parametrize("size", [0, 4])
@agrees(lambda size: (plain(size, size),))
def test_detach_outside_of_a_dtype_view_made_and_written_in_inference_mode(x, *, dtype):
    y = x * 2
    with torch.inference_mode():
        view = y.view(dtype)
        view.zero_()
    return view.detach(), y
