"""Ragged / NestedTensor."""

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Raised, agrees, attempt, attempt_later, check, session
from tests.behaviour.inputs import given, leaf, plain, to_device
from tests.behaviour.wrappers import jagged

LENGTHS = {
    "softmax": lambda x: torch.softmax(x, 1),
    "softmax of the last": lambda x: torch.softmax(x, -1),
    "softmax twice": lambda x: (torch.softmax(x, 1), torch.softmax(x * 2, 1)),
    "product": lambda x: torch.softmax(x, 1) * x,
    "in place": lambda x: (torch.softmax(x, 1), x.mul_(2)),
    "view": lambda x: (torch.softmax(x, 1), x.unsqueeze(-1), x.detach()),
    "lengths": lambda x: (x._maybe_max_seqlen, x._get_max_seqlen(), x._get_min_seqlen(), x * 2),
    "nothing": lambda x: torch.softmax(x, 1)[0].sum(),
    "made inside": lambda x: torch.softmax(
        torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()).tanh(), 1
    ),
}


@pytest.mark.parametrize("function", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("asked", ["not", "before", "of another"])
@pytest.mark.parametrize("shape", [(4,), (4, 3)], ids=str)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@session
def test_the_largest_length_of_a_jagged_tensor_is_cached_as_in_eager(compile, function, asked, shape, grad):
    compiled = compile(function)
    values = plain(*shape)
    x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 4], device=values.device))
    y = x.requires_grad_(grad) * 2
    if asked != "not":
        (x if asked == "of another" else y)._get_max_seqlen()
    for _ in range(2):
        results = compiled(y)
        results = results if isinstance(results, tuple) else (results,)
        ragged = [t for t in (x, y, *results) if isinstance(t, torch.Tensor) and t.layout is torch.jagged]
        yield [t.__tensor_flatten__()[0] for t in ragged]
        for name in ("_max_seqlen_tensor", "_min_seqlen_tensor"):
            yield [[getattr(a, name) is getattr(b, name) for b in ragged] for a in ragged]
    yield results


@session(rtol=1e-6)
def test_a_jagged_parameter(compile):
    p = nn.Parameter(jagged(2, 3))
    y = compile(lambda p: (p * 2).sin())(p)
    y.backward(torch.ones_like(y))
    yield p, y, type(p)


_ON_RAGGED = {
    "offsets": lambda x: (x * 2, x.offsets()),
    "a write": lambda x: x.detach().clone().mul_(2),
    "values": lambda x: x.values() * 2,
    "sum of a batch": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(dim=1),
    "mean of columns": lambda x: x.mean(-1),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: nn.functional.layer_norm(x, (2,)),
    "cat": lambda x: torch.cat([x, x], dim=-1),
    "chunk": lambda x: x.chunk(2, dim=-1),
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.5) * 2,
    "clone": lambda x: (x.clone(), x.detach()),
    "view": lambda x: x.transpose(1, 2),
    "unsqueezed": lambda x: x.unsqueeze(-1) * 2,
    "like": lambda x: torch.zeros_like(x) + x,
    "other dtype": lambda x: x.double() * 2,
    "comparison": lambda x: torch.where(x > 0, x, x * 2),
    "a scalar": lambda x: x * x.max(),
    "of its values": lambda x: torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()) + x,
    "dropout": lambda x: nn.functional.dropout(x, 0.5),
    "gelu": lambda x: nn.functional.gelu(x),
}


@pytest.mark.parametrize("kind", ["plain", "leaf", "non-leaf"])
@pytest.mark.parametrize("function", _ON_RAGGED.values(), ids=_ON_RAGGED)
@session(rtol=1e-5)
def test_ops_on_jagged_tensors_and_their_gradients(compile, function, kind):
    compiled = compile(function)
    for lengths in ((2, 3), (1, 4), (2, 1, 3)):
        root = x = jagged(*lengths, grad=kind != "plain")
        if kind == "non-leaf":
            x = x * 2
        out = attempt(lambda: compiled(x))  # noqa: B023
        yield root, x, out
        if isinstance(out, Raised):
            continue
        outs = [o for o in torch.utils._pytree.tree_leaves(out) if o.requires_grad]
        if outs:
            gradients = [torch.ones_like(o) for o in outs]
            yield attempt_later(lambda: torch.autograd.backward(outs, gradients))  # noqa: B023
        yield root, x, out


def _with_offsets(make_values):
    offsets = to_device(torch.tensor([0, 2, 5]))
    return torch.nested.nested_tensor_from_jagged(make_values, offsets), offsets


@pytest.mark.parametrize("grad", [False, True])
def test_a_jagged_tensor_is_passed_with_its_values_and_offsets(grad):
    def make():
        values = plain(5, 2)
        x, offsets = _with_offsets(values)
        return given(x.detach().requires_grad_(grad), values, offsets)

    def f(x, values, offsets):
        return x * 2, values + 1, offsets + 1, torch.nested.nested_tensor_from_jagged(values * 3, offsets)

    check(f, make, make, probe=False)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@session
def test_a_jagged_tensor_under_no_grad_and_in_inference_mode(compile, mode):
    compiled = compile(lambda x: (x * 2, x.transpose(1, 2), x.values()))
    with mode():
        yield compiled(jagged(2, 3))
    yield compiled(jagged(2, 3))


@session
def test_jagged_tensors_from_a_closure_and_in_a_dict(compile):
    w = jagged(2, 3, grad=True)
    compiled = compile(lambda d: {"y": d["x"] * 2, "w": w * 3})
    out = compiled({"x": jagged(2, 2)})
    out["w"].backward(torch.ones_like(out["w"]))
    yield out, w


def test_to_padded_tensor_of_a_plain_tensor_raises_as_in_eager():
    """Eager has no kernel for that, and says so."""
    check(lambda x: torch.nested.to_padded_tensor(x * 2, 0.0), lambda: given(leaf(3)))


_NUMBERS_OF_OFFSETS = {
    "unbind": lambda x: x.unbind(),
    "rows": lambda x: [row * 2 for row in x.unbind()],
    "row": lambda x: x[0],
    "part of a row": lambda x: x[-1][1:].sin(),
    "row of a result": lambda x: (x * 2)[1].sum(),
    "chunks": lambda x: [c * 1 for c in x.chunk(2)],
    "a number": lambda x: x.values() * x.offsets()[1].item(),
}


@pytest.mark.parametrize("function", _NUMBERS_OF_OFFSETS.values(), ids=_NUMBERS_OF_OFFSETS)
@pytest.mark.parametrize("grad", [False, True])
@session
def test_ops_that_read_the_numbers_in_offsets(compile, function, grad):
    f = compile(function)
    for lengths in ((2, 3), (1, 4), (2, 3), (3, 3)):
        x = jagged(*lengths, grad=grad)
        out = f(x)
        yield out
        if grad:
            sum(t.sin().sum() for t in pytree.tree_leaves(out)).backward()
            yield x.grad


def test_attention_that_makes_strided_nested_tensors_is_refused():
    def attend(x):
        return nn.functional.scaled_dot_product_attention(*[x.unflatten(-1, (1, 2)).transpose(1, 2)] * 3)

    with pytest.raises(aotcheck.UnsupportedError, match="layout"):
        aotcheck.aot_function(attend)(jagged(2, 3))


def test_an_index_read_from_another_tensor_than_offsets_is_refused():
    with pytest.raises(aotcheck.UnsupportedError, match="data-dependent"):
        aotcheck.aot_function(lambda x, i: x[i[0].item()])(jagged(2, 3), to_device(torch.tensor([1])))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("lengths", [(0, 0), (2, 3)], ids=["empty", "filled"])
@pytest.mark.parametrize("inference", [False, True], ids=["grad", "inference"])
@agrees(lambda lengths, inference: given(jagged(*lengths, grad=not inference)))
def test_dropout_of_a_jagged_tensor(x, *, p, inference):
    with torch.inference_mode(inference):
        return torch.nn.functional.dropout(x, p)


PARTED = {
    "dropout": lambda v: torch.nn.functional.dropout(v, 0.5),
    "product": lambda v: v * 2,
    "of a product": lambda v: (v * 2).sin(),
    "cast": lambda v: v.to(torch.float64),
}


@pytest.mark.parametrize("op", PARTED.values(), ids=PARTED)
@pytest.mark.parametrize("split", ["chunk", "one of three", "both"])
@pytest.mark.parametrize("kind", ["leaf", "of a plain leaf", "with a history", "no grad"])
@pytest.mark.parametrize("order", ["part first", "result first"])
@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
@session
def test_a_chunk_of_a_jagged_tensor_and_its_results_share_offsets(compile, op, split, kind, order, written):
    def function(x):
        if written:
            x.mul_(2)
        parts = torch.chunk(x, 3 if split == "one of three" else 2)
        results = [op(v) for v in (parts if split == "both" else parts[:1])]
        return (*parts, *results, x) if order == "part first" else (*results, *parts)

    values = plain(6, 2)
    x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 4, 6], device=values.device))
    if kind == "of a plain leaf":
        values.requires_grad_()
    elif kind != "no grad":
        x.requires_grad_()
    given = x * 2 if kind == "with a history" else x
    torch.manual_seed(0)
    results = attempt(lambda: compile(function)(given))
    if isinstance(results, Raised):  # of a leaf that is written
        yield results
        return
    yield [[a.offsets() is b.offsets() for b in results] for a in results]
    yield [[a.shape == b.shape for b in results] for a in results]
    if kind != "no grad":
        # Torch looks at whether a gradient is as ragged as what it is for.
        for t in results:
            yield attempt_later(lambda t=t: torch.autograd.grad(t, [x], torch.ones_like(t), retain_graph=True))
        yield attempt_later(lambda: torch.autograd.backward(results, [torch.ones_like(t) for t in results]))
        yield x.grad, values.grad


def test_two_jagged_tensors_with_the_same_offsets():
    def make():
        x = jagged(2, 3, grad=True)
        y = torch.nested.nested_tensor_from_jagged(plain(5, 2, seed=3), x.offsets()).requires_grad_()
        return given(x, y)

    check(lambda x, y: x * y + x, make, probe=False)


def test_a_linear_layer_of_a_jagged_tensor():
    check(torch.nn.functional.linear, lambda: given(jagged(2, 3, grad=True), leaf(3, 2)), probe=False)


@agrees(lambda: given(leaf(5, 2), to_device(torch.tensor([0, 2, 5]))), probe=False)
def test_a_jagged_tensor_made_inside(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values * 2, offsets) + 1


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.unflatten(-1, (2, 1)),
        lambda x: x.reshape(2, -1, 1, 2),
        lambda x: x.view(2, x.size(1), 2, 1),
        lambda x: x.transpose(1, 2),
        lambda x: x.unsqueeze(-1),
        lambda x: x.detach().unflatten(-1, (1, 2)),
        lambda x: torch.repeat_interleave(x, 2, 2),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_views_of_a_jagged_tensor_that_stay_jagged(view, grad):
    check(view, lambda: given(jagged(2, 3, grad=grad)), lambda: given(jagged(1, 4, grad=grad)), probe=False)


@agrees(lambda: given(jagged(2, 3, grad=True), leaf(4, 2)), probe=False)
def test_attention_heads_of_a_jagged_tensor(x, weight):
    heads = torch.nn.functional.linear(x, weight).unflatten(-1, (2, 2)).transpose(1, 2)
    return (heads * 2).transpose(1, 2).flatten(-2)
