"""Tangents of wrappers: layout, metadata, plain for wrapper, other classes, coerced."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt_later, cotangent, session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.subclasses.common import every_class_and_jagged
from tests.behaviour.wrappers import Tagged, extra, tagged, two


@every_class_and_jagged
@pytest.mark.parametrize(
    "lay", [lambda g: g, lambda g: g.t().contiguous().t(), lambda g: g[:1].expand(2, 3)], ids=["same", "t", "expand"]
)
@session(rtol=1e-6)
def test_layouts_of_wrapper_tangents(compile, make, lay):
    compiled = compile(lambda x: x.sin() * x)
    for _ in range(2):
        x = make(2, 3, grad=True)
        y = compiled(x)
        y.backward(lay(cotangent(y)))
        yield x, y


@every_class_and_jagged
@session
def test_tangents_of_some_of_several_wrapper_results(compile, make):
    compiled = compile(lambda x, w: (x * w, x + 1, (w * w).sum()))
    for which in ([0], [1], [2], [0, 2], [1, 0]):
        x, w = make(3, grad=True), make(3, seed=2, grad=True)
        out = compiled(x, w)
        torch.autograd.backward([out[k] for k in which], [cotangent(out[k]) for k in which])
        yield x, w, out


@pytest.mark.parametrize("make", [two, tagged], ids=["two", "tagged"])
@session
def test_a_plain_tangent_of_a_wrapper_result(compile, make):
    x = make(3, grad=True)
    y = compile(lambda x: x * x)(x)
    y.backward(plain(3, seed=3))
    yield x, y


@session
def test_a_wrapper_tangent_of_a_plain_result(compile):
    x = leaf(3)
    y = compile(lambda x: x * x)(x)
    y.backward(two(3, seed=3))
    yield x, y
    x.grad = None
    y = compile(lambda x: x * x)(x)
    y.backward(plain(3, seed=3))
    yield x, y


@session
def test_a_tangent_with_other_metadata(compile):
    f = compile(lambda x: x * x)
    for tag in ("a", "b", "a"):
        x = tagged(3, tag="x", grad=True)
        y = f(x)
        y.backward(Tagged(plain(3, seed=3), tag, 5))
        yield x, y


@session
def test_a_tangent_that_is_a_nested_wrapper_of_a_result_that_is_not(compile):
    x = two(3, grad=True)
    y = compile(lambda x: x + x)(x)
    y.backward(TwoTensor(two(3, seed=3), two(3, seed=4)))
    yield x, y


class Coerced(Tagged):
    """Turns tangents into what is expected of them, as distributed tensors do."""

    coerced = 0

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Coerced(inner["elem"], context["tag"], context["scale"])

    def __coerce_tangent_metadata__(self):
        return Coerced(self.elem, "tangent", 1)

    def __coerce_same_metadata_as_tangent__(self, context, kind=None):
        Coerced.coerced += 1
        return Coerced(self.elem * self.scale, context["tag"], context["scale"])


def test_a_class_that_coerces_its_tangents():
    x = Coerced(plain(3), "x").requires_grad_()
    y = aotcheck.aot_function(lambda x: x + x)(x)
    Coerced.coerced = 0
    y.backward(Coerced(plain(3, seed=2), "other", 3))
    assert Coerced.coerced == 1
    assert x.grad is not None
    assert torch.equal(x.grad.elem, 2 * 3 * plain(3, seed=2))


@session
def test_a_tangent_of_an_unrelated_class_raises_as_in_eager(compile):
    x = two(3, grad=True)
    y = compile(lambda x: x.exp() * x)(x)
    yield attempt_later(lambda: y.backward(extra(3)))
