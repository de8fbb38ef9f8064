"""BEHAVIOUR 6: traceable wrapper subclasses as inputs, outputs, parameters, intermediates and tangents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor, TwoTensorMode

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check, check_session, cotangent, given, leaf, plain
from tests.behaviour.wrappers import Tagged, Wraps, extra, jagged, nested, quantized, tagged, two

MAKERS: list[Callable[..., Any]] = [two, extra, tagged, nested]
every_class = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


# -- through the function ----------------------------------------------------------------------------


@every_class
def test_an_input_and_an_output(make):
    check(lambda x: x * 2 + 1, lambda: given(make(3)))


@every_class
def test_a_gradient(make):
    check(lambda x: (x * x, x + 1), lambda: given(make(3, grad=True)))


@pytest.mark.parametrize("made", ["before", "after"])
def test_a_wrapper_holds_an_object_whichever_tensor_that_becomes(made: str):
    def f(d):
        x, y = d["x"], d["x"] * 2
        wrapper = Tagged(x, "before") if made == "before" else None
        torch.utils.swap_tensors(x, y)
        d["y"] = y
        return wrapper if wrapper is not None else Tagged(x, "after")

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            d = {"x": plain(3)}
            yield compiled(d), d

    check_session(session)


_ON_LAZY = {
    "sum": lambda x: x.sum(),
    "product": lambda x: x * 2j,
    "copy": lambda x: x.clone(),
    "matrix product": lambda x: x.view(1, 3) @ x.view(3, 1),
    "cat": lambda x: torch.cat([x, x]),
    "write": lambda x: x.mul_(2),
}


@pytest.mark.parametrize("function", _ON_LAZY.values(), ids=_ON_LAZY)
@pytest.mark.parametrize("lazy", [torch.conj, lambda x: x.conj().imag], ids=["conjugated", "negated"])
def test_what_is_held_is_conjugated_or_negated_lazily(function, lazy):
    """Most kernels of torch see below a wrapper what lies in memory: that is eager's answer."""
    if lazy is not torch.conj and function is _ON_LAZY["cat"]:  # which copies what does not lie densely
        function = _ON_LAZY["sum"]
    check(function, lambda: given(Tagged(lazy(plain(3, dtype=torch.complex64) * (1 + 2j)), "lazy")), probe=False)


_SEEN = {
    "conj_physical": lambda x: torch.conj_physical(x) if x.is_complex() else torch.negative(x),
    "diag_embed": lambda x: torch.diag_embed(x),
    "cumsum of a number": lambda x: x.sum().cumsum(0),
    "diagonal_scatter": lambda x: torch.zeros_like(x).expand(3, 3).clone().diagonal_scatter(x),
    "block_diag": lambda x: torch.block_diag(x, x),
    "addmv": lambda x: torch.addmv(x, x.expand(3, 3).clone(), x),
    "mv": lambda x: x.expand(3, 3).mv(x),
    "cat": lambda x: torch.cat([x[::2], x]),
}


@pytest.mark.parametrize("function", _SEEN.values(), ids=_SEEN)
@pytest.mark.parametrize("lazy", [torch.conj, lambda x: x.conj().imag], ids=["conjugated", "negated"])
def test_what_kernels_see_of_what_is_held_is_as_they_are(function, lazy):
    """Some look whether it is conjugated or negated lazily, some of one operand, some where it does not lie densely."""
    check(function, lambda: given(Tagged(lazy(plain(3, dtype=torch.complex64) * (1 + 2j)), "lazy")), probe=False)


@every_class
def test_an_intermediate_is_not_a_leaf_of_the_callers(make):
    def f(x):
        return (x * 3).sum(), x.exp().log() if False else x * 2

    check(f, lambda: given(make(3, grad=True)))


@every_class
def test_mixed_with_plain_tensors(make):
    check(lambda x, y: (x * y, y + 1), lambda: given(make(3), leaf(3, seed=2)))


@pytest.mark.parametrize("make", [two, extra, nested], ids=lambda make: make.__name__)
def test_a_plain_leaf_gets_a_wrapper_for_a_gradient(make):
    check(lambda x, y: x * y, lambda: given(make(3, grad=True), leaf(3, seed=2)))


@every_class
def test_a_non_leaf(make):
    def session(compile):
        x = make(3, grad=True)
        y = x * 2
        f = compile(lambda y: y * y)
        z = f(y)
        yield x, y, z
        z.backward(cotangent(z))
        yield x, y, z

    check_session(session)


@every_class
def test_a_reduction(make):
    check(lambda x: x.sum(), lambda: given(make(3, 2, grad=True)))


@every_class
def test_an_input_returned(make):
    check(lambda x: (x, x), lambda: given(make(3, grad=True)))


@every_class
def test_the_same_wrapper_passed_twice(make):
    def f(x, y):
        x.mul_(2)
        return x + y

    check(f, lambda: (lambda t: given(t, t))(make(3)))


@every_class
def test_a_second_call_with_other_values(make):
    check(lambda x: x * x, lambda: given(make(3, grad=True)), lambda: given(make(3, seed=5, grad=True)))


def test_a_second_call_with_another_class():
    calls = [lambda make=make: given(make(3, grad=True)) for make in MAKERS]
    check(lambda x: x * x, lambda: given(leaf(3)), *calls, lambda: given(leaf(3)))


def test_a_second_call_with_other_metadata():
    def f(x):
        return x * x.scale if x.tag == "a" else x + 1

    check(f, lambda: given(tagged(3, tag="a")), lambda: given(tagged(3, tag="b")), lambda: given(tagged(3, tag="a")))


def test_metadata_that_ops_change():
    check(lambda x: ((x * 3) * 2, x + 1), lambda: given(tagged(3, grad=True)))


def test_metadata_read_inside():
    check(lambda x: x * x.get_complicated_metadata().foo, lambda: given(extra(3)), lambda: given(extra(3, constant=7)))


def test_metadata_changed_inside():
    def f(x):
        x.add_constant(3)
        return x * x.constant_attribute

    def session(compile):
        x = extra(3)
        y = compile(f)(x)
        yield x, y, x.constant_attribute, y.constant_attribute

    check_session(session)


# -- what they hold ----------------------------------------------------------------------------------


def test_inner_tensors_read_inside():
    check(lambda x: (x.a * x.b, x.get_elem_a() + 1), lambda: given(two(3)))


def test_an_inner_tensor_returned():
    check(lambda x: (x.a, x), lambda: given(two(3)))


def test_an_inner_tensor_of_a_result_returned():
    def f(x):
        y = x * 2
        return y, y.a, y.b.view(3, 1)

    check(f, lambda: given(two(3)))


def test_an_inner_tensor_of_a_view_returned():
    def f(x):
        y = x.view(-1)
        return y, y.a

    check(f, lambda: given(two(3, 2)))


def test_an_inner_tensor_written():
    def f(x):
        x.a.add_(1)
        return x * 2

    check(f, lambda: given(two(3)))


def test_inner_tensors_exchanged():
    def f(x):
        x.a, x.b = x.b, x.a
        return x * 2

    check(f, lambda: given(two(3)))


def test_an_inner_tensor_replaced():
    def f(x, y):
        x.a = x.a * 2
        return x * y

    check(f, lambda: given(two(3), plain(3)))


def test_an_inner_tensor_twice():
    def make():
        t = plain(3)
        return given(TwoTensor(t, t))

    def f(x):
        y = x + 1
        x.a.mul_(2)
        return x, y

    check(f, make)


def test_inner_tensors_that_overlap():
    def make():
        t = plain(5)
        return given(TwoTensor(t[:4], t[:4].clone()), t)

    def f(x, t):
        t.mul_(2)
        return x + 1

    check(f, make)


def test_a_plain_input_is_an_inner_tensor():
    def make():
        t = plain(3)
        return given(t, TwoTensor(t, plain(3, seed=1)))

    def f(t, x):
        t.add_(1)
        return x * t, x

    check(f, make)


def test_two_wrappers_hold_the_same_tensor():
    def make():
        t = plain(3)
        return given(TwoTensor(t, plain(3, seed=1)), TwoTensor(plain(3, seed=2), t))

    def f(x, y):
        x.mul_(2)
        return y + 1

    check(f, make)


# -- made inside -------------------------------------------------------------------------------------


def test_made_of_arguments():
    check(lambda x, y: TwoTensor(x, y), lambda: given(plain(3), plain(3, seed=1)))


def test_made_of_intermediates():
    check(lambda x: TwoTensor(x * 2, x + 1) * 3, lambda: given(plain(3)))


class FromTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.a + x.b

    @staticmethod
    def backward(ctx, g):
        return TwoTensor(g, g * 2)


def test_made_by_a_custom_function():
    check(lambda x: Wraps.apply(x) * 3, lambda: given(leaf(3)))


def test_left_by_a_custom_function():
    check(lambda x: FromTwo.apply(x * x), lambda: given(two(3, grad=True)))


def test_only_inside():
    check(lambda x: FromTwo.apply(Wraps.apply(x) * 3), lambda: given(leaf(3)))


def test_a_mode_inside():
    def f(x):
        with TwoTensorMode():
            y = torch.ones(3)
        return x * y

    check(f, lambda: given(plain(3)))


def test_a_leaf_made_inside():
    def f(x):
        w = TwoTensor(x.detach().clone(), x.detach() + 1).requires_grad_()
        return x * w, w

    check(f, lambda: given(plain(3)))


def test_from_a_closure():
    w = two(3, seed=4, grad=True)

    def session(compile):
        w.grad = None
        f = compile(lambda x: x * w)
        y = f(plain(3))
        yield y, w
        y.backward(cotangent(y))
        yield y, w

    check_session(session)


def test_an_inner_tensor_of_one_from_a_closure():
    w = two(3, seed=4)
    check(lambda x: x * w.b, lambda: given(leaf(3)))


# -- parameters --------------------------------------------------------------------------------------


class Linear(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.bias = torch.nn.Parameter(plain(2, seed=8))

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight, self.bias)


@pytest.mark.parametrize("make", [two, tagged], ids=lambda make: make.__name__)
def test_a_parameter(make):
    def session(compile):
        m = Linear(make(2, 3))
        f = compile(m)
        for seed in (0, 1):
            x = leaf(4, 3, seed=seed) if make is two else plain(4, 3, seed=seed)
            y = f(x)
            yield x, y, dict(m.named_parameters())
            y.backward(cotangent(y))
            yield x, y, dict(m.named_parameters())
            with torch.no_grad():
                m.weight.add_(m.weight.grad)

    check_session(session)


def test_a_quantized_weight():
    def session(compile):
        m = Linear(quantized(2, 3))
        m.weight.requires_grad_(False)
        f = compile(m)
        x = leaf(4, 3)
        y = f(x)
        yield x, y, dict(m.named_parameters())
        y.backward(cotangent(y))
        yield x, y, dict(m.named_parameters())

    check_session(session)


def test_a_quantized_weight_that_is_trained():
    def session(compile):
        m = Linear(quantized(2, 3))
        f = compile(m)
        x = leaf(4, 3)
        y = f(x)
        y.backward(cotangent(y))
        yield x, y, dict(m.named_parameters())

    check_session(session)


def test_a_quantized_tensor_falls_back_to_real_numbers():
    check(lambda q, x: (q + x, q[1:]), lambda: given(quantized(3, 2), plain(3, 2)))


# -- jagged ------------------------------------------------------------------------------------------


def test_a_ragged_batch():
    check(lambda x: x * 2, lambda: given(jagged(2, 3, 1)), lambda: given(jagged(1, 1)), probe=False)


def test_a_ragged_batch_and_its_gradient():
    check(lambda x: (x * x).sin(), lambda: given(jagged(2, 3, 1, grad=True)), probe=False)


def test_two_ragged_batches_with_the_same_offsets():
    def make():
        x = jagged(2, 3, grad=True)
        y = torch.nested.nested_tensor_from_jagged(plain(5, 2, seed=3), x.offsets()).requires_grad_()
        return given(x, y)

    check(lambda x, y: x * y + x, make, probe=False)


def test_a_ragged_batch_and_a_weight():
    check(torch.nn.functional.linear, lambda: given(jagged(2, 3, grad=True), leaf(3, 2)), probe=False)


def test_the_values_of_a_ragged_batch():
    check(lambda x: x.values() * 2, lambda: given(jagged(2, 3, grad=True)), probe=False)


def test_a_ragged_batch_made_inside():
    def f(values, offsets):
        return torch.nested.nested_tensor_from_jagged(values * 2, offsets) + 1

    check(f, lambda: given(leaf(5, 2), torch.tensor([0, 2, 5])), probe=False)


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
def test_a_view_of_a_ragged_batch_has_the_ragged_size_of_its_own(view, grad):
    check(view, lambda: given(jagged(2, 3, grad=grad)), lambda: given(jagged(1, 4, grad=grad)), probe=False)


def test_attention_heads_of_a_ragged_batch():
    def f(x, weight):
        heads = torch.nn.functional.linear(x, weight).unflatten(-1, (2, 2)).transpose(1, 2)
        return (heads * 2).transpose(1, 2).flatten(-2)

    check(f, lambda: given(jagged(2, 3, grad=True), leaf(4, 2)), probe=False)


def test_a_ragged_batch_with_a_history_is_written():
    def f(x):
        x.neg_()
        return x.clone()

    check(f, lambda: given(jagged(2, 3, grad=True) * 2), lambda: given(jagged(1, 1, grad=True) * 2), probe=False)


def test_the_gradient_of_a_padded_batch():
    check(lambda x: torch.nested.to_padded_tensor(x, 0.0), lambda: given(jagged(2, 3, grad=True)), probe=False)
    check(lambda x: x.amax(1), lambda: given(jagged(2, 3, grad=True)), probe=False)


def test_a_ragged_batch_that_was_saved_is_written_before_the_backward():
    """Eager's own message asks a ragged tensor for what it cannot say."""

    def session(compile):
        x = jagged(2, 3, grad=True) * 2
        y = compile(lambda x: x.sin())(x)
        with torch.no_grad():
            x.mul_(2)
        yield attempt(lambda: y.backward(torch.ones_like(y)))

    check_session(session)


def test_a_view_by_way_of_a_ragged_batch_of_what_it_was_made_of():
    """Refused where it has to be made again; that raised where torch lets no error pass."""

    def f(view, x):
        y = x.gather(0, torch.tensor([1, 1], device=x.device))
        return y, x, view

    def make(grad):
        x = leaf(2) if grad else plain(2)
        ragged = torch.nested.nested_tensor_from_jagged(x.detach(), torch.tensor([0, 1, 2], device=x.device))
        return ragged.requires_grad_().values(), x * 1

    compiled = aotcheck.aot_function(f)
    compiled(*make(True))
    for view, x in (make(False), make(True)):
        with torch.no_grad():
            assert compiled(view, x)[2] is view
    with pytest.raises(aotcheck.UnsupportedError, match="ragged"):
        aotcheck.aot_function(lambda view: view.mul_(2))(make(False)[0])


def test_a_ragged_tangent_is_not_the_primal():
    def session(compile):
        x = jagged(2, 3, grad=True)
        y = compile(lambda x: x * x)(x)
        y.backward(x.detach())
        yield x, y
        assert x.grad is not None and x.grad.offsets() is x.offsets()

    check_session(session)


# -- tagged classes of the tests' own ----------------------------------------------------------------


def test_the_tests_own_class_is_one():
    x = Tagged(plain(2), "x")
    assert x.__tensor_flatten__() == (["elem"], {"tag": "x", "scale": 1})
    assert (x * x).scale == 2
