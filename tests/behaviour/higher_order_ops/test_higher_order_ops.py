"""Higher-order ops, refused by name; what Dynamo makes of checkpoints and Functions."""

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import agrees, check, through_dynamo
from tests.behaviour.inputs import given, leaf, plain
from tests.behaviour.shared import REASON


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def mapped(x):
    return map_(lambda row: row.sin() * 2, x)


def scanned(x):
    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros_like(x[0]), x)


def looped(x):
    return while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.zeros((), dtype=torch.int64, device=x.device), x)
    )


def associated(x):
    op = torch.ops.higher_order.associative_scan
    return op(lambda a, b: [a + b], [x], ())


def counted(x):
    return torch.ops.higher_order.out_dtype(torch.ops.aten.mul.Tensor, torch.float64, x, x)


def chosen_in_vmap(x):
    return torch.vmap(chosen)(x)


NAMES = {
    chosen: "cond",
    mapped: "map_impl",
    scanned: "scan",
    looped: "while_loop",
    associated: "associative_scan",
    counted: "out_dtype",
    chosen_in_vmap: "cond",
}


@pytest.mark.parametrize("make", [plain, leaf], ids=["without gradients", "with gradients"])
@pytest.mark.parametrize("function", NAMES, ids=lambda function: function.__name__)
def test_a_higher_order_op_is_refused_by_name_before_anything_is_written(function, make):
    def f(x, y):
        y.add_(1)
        y.mul_(torch.rand(3, device=x.device))
        return function(x)

    x, y, state = make(2, 3), plain(3, seed=1), torch.get_rng_state()
    with pytest.raises(aotcheck.UnsupportedError, match=rf"higher_order\.{NAMES[function]};.*outside") as error:
        aotcheck.aot_function(f)(x, y)
    assert error.value.reason == REASON
    assert torch.equal(y, plain(3, seed=1))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("function", [chosen, mapped, scanned, looped, chosen_in_vmap], ids=lambda f: f.__name__)
def test_a_higher_order_op_behind_dynamo_runs_eagerly_and_is_counted(function):
    x, y = leaf(2, 3), leaf(2, 3)
    before = aotcheck.counters().refused.get(REASON, 0)
    results = through_dynamo(function)(x)
    assert aotcheck.counters().refused.get(REASON, 0) == before + 1
    for found, expected in zip(*[torch.utils._pytree.tree_leaves(r) for r in (results, function(y))], strict=True):
        assert torch.equal(found, expected)


class ChoosesInBackward(torch.autograd.Function):
    """Its backward calls ``torch.cond``."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return chosen(g)


def test_cond_in_a_custom_backward_is_refused_before_gradients_accumulate():
    x = leaf(3)
    out = aotcheck.aot_function(lambda x: ChoosesInBackward.apply(x).sum() + (x * x).sum())(x)
    with pytest.raises(aotcheck.UnsupportedError, match=REASON):
        out.backward()
    assert x.grad is None


def test_cond_with_a_python_condition_is_traced():
    check(lambda x: torch.cond(x.shape[0] > 2, torch.sin, torch.cos, (x,)), lambda: given(leaf(3)))


@pytest.mark.parametrize("compile", [None, through_dynamo], ids=["aot_function", "dynamo"])
def test_checkpoints_of_custom_functions_are_compiled_behind_dynamo_too(compile):
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def f(x):
        return checkpoint(lambda x: Doubles.apply(x * x), x, use_reentrant=False)

    check(f, lambda: given(leaf(3)), compile=compile)


@agrees(lambda: given(leaf(4, 2)))
def test_a_generic_associative_scan_is_traced_to_plain_ops(x):
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
