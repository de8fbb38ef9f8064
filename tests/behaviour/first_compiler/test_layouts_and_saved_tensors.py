"""How results lie is asked of eager once; what a backward leaves of what was saved; what others need not refuse."""

import pytest
import torch
from torch.nn import functional as F

from aotcheck.autograd.ir.metadata import METADATA
from aotcheck.autograd.ops import layouts
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import refuses, session
from tests.behaviour.inputs import leaf, plain
from tests.behaviour.random.test_random_layouts import CHANNELS_LAST, weighted


def test_the_layout_of_a_result_is_verified_once_per_geometry(monkeypatch):
    asked = []
    ask = layouts._real
    monkeypatch.setattr(layouts, "_real", lambda a: asked.append(a) or ask(a))

    def call(function, *shape):
        x = plain(*shape).to(memory_format=CHANNELS_LAST)
        return aotcheck.aot_function(lambda x: function(x).sum())(x)

    w = plain(5, 3, 3, 3)
    call(lambda x: F.conv2d(x, w), 2, 3, 7, 8)
    assert not asked, "nothing is drawn"
    call(lambda x: F.dropout(F.conv2d(x, w)), 2, 3, 7, 8)
    assert len(asked) > 0
    del asked[:]
    call(lambda x: F.dropout(F.conv2d(x, w), 0.1), 2, 3, 7, 8)
    assert not asked


def test_the_layout_of_a_result_is_verified_again_after_the_cache_was_cleared():
    w, x = plain(4, 3, 3, 3), plain(2, 3, 7, 9).to(memory_format=CHANNELS_LAST)

    def draw(function):
        torch.manual_seed(0)
        return function(x)

    expected = draw(lambda x: weighted(F.dropout(F.conv2d(x, w))))
    assert torch.equal(draw(aotcheck.aot_function(lambda x: weighted(F.dropout(F.conv2d(x, w))))), expected)
    METADATA._known.clear()
    aotcheck.aot_function(lambda x: F.conv2d(x, w).sum())(x)
    assert torch.equal(draw(aotcheck.aot_function(lambda x: weighted(F.dropout(F.conv2d(x, w))))), expected)


def test_a_random_op_on_a_result_too_large_to_verify_its_layout_is_refused(monkeypatch):
    monkeypatch.setattr(layouts, "_MOST_TO_TRY", 100)
    w = plain(5, 3, 3, 3)
    x = plain(2, 3, 5, 6).to(memory_format=CHANNELS_LAST)
    with pytest.raises(aotcheck.UnsupportedError, match="too large to try how its results lie") as error:
        aotcheck.aot_function(lambda x: F.dropout(F.conv2d(x, w)).sum())(x)
    assert error.value.reason == "random op on a strided tensor"
    aotcheck.aot_function(lambda x: F.conv2d(x, w).sum())(x)
    aotcheck.aot_function(lambda x: F.dropout(F.conv2d(x, w)).sum())(x.contiguous())


@pytest.mark.parametrize("asked", ["bc", "cb"])
def test_autograd_grad_of_one_input_frees_only_its_saved_tensors(asked):
    b, c = leaf(3), leaf(3, seed=1)
    r = aotcheck.aot_function(lambda b, c: (b * 2).exp() + (c * 2).exp())(b, c)
    first, second = [b if name == "b" else c for name in asked]
    torch.autograd.grad(r, [first], torch.ones_like(r))
    assert len(r.grad_fn.left.saved_tensors) == 2
    torch.autograd.grad(r, [second], torch.ones_like(r))
    with pytest.raises(RuntimeError, match="a second time"):
        len(r.grad_fn.left.saved_tensors)


def test_another_tracer_inside_is_refused():
    def g(x):
        return torch.func.linearize(lambda x: x * x, x)[1](x)

    with pytest.raises(aotcheck.UnsupportedError, match="another tracer inside"):
        aotcheck.aot_function(g)(plain(3))


def test_grad_inside_through_a_freed_or_written_part_of_the_callers_graph_is_refused():
    def freed(x, root):
        return torch.autograd.grad(x.sum(), root)

    def differentiated(x, root):
        return torch.autograd.grad((x * x).sum(), root, create_graph=True)

    def written(x, root):
        x.detach().mul_(2)
        return torch.autograd.grad(x.sum(), root, retain_graph=True)

    for f in (freed, differentiated, written):
        root = leaf(3)
        with refuses("to another argument"):
            aotcheck.aot_function(f)(root * 2, root)


@session
def test_the_gradient_of_a_product_of_one_factor_requires_grad_unless_that_is_zero(compile):
    g = compile(lambda x: torch.autograd.grad(x[:1].prod(), x, create_graph=True)[0] * 2)
    for k in (1.0, 0.0, 1.0):
        yield g(plain(2).mul_(k).requires_grad_())
