"""Ops are called by the quickest way, but only where that means the same op with the same arguments."""

import pytest
import torch

from aotcheck import _torch

aten = torch.ops.aten


class Value:
    """Stands for a tensor."""


def quick(op, *args, **kwargs):
    return _torch.quick_op(op, args, kwargs, Value)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.mm.default, (Value(), Value())),
        (aten.mul.Tensor, (Value(), 2.0)),
        (aten.view.default, (Value(), [3])),
        (aten.cat.default, ([Value(), Value()], 1)),
        (aten.sum.dim_IntList, (Value(), [0], True)),
    ],
    ids=lambda x: str(x) if not isinstance(x, tuple) else str(len(x)),
)
def test_common_ops_are_called_by_a_quicker_way(op, args):
    assert quick(op, *args) is not _torch.raw_op(op)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.div.Scalar, (Value(), 2)),  # torch.div would choose div.Tensor
        (aten.binary_cross_entropy_with_logits.default, (Value(), Value())),  # another default for the reduction
        (aten.tanh_backward.default, (Value(), Value())),  # no such function
    ],
    ids=lambda x: str(x) if not isinstance(x, tuple) else str(len(x)),
)
def test_an_op_that_would_become_another_call_is_called_as_it_is(op, args):
    assert quick(op, *args) is _torch.raw_op(op)


def test_what_is_no_op_of_torchs_is_left_alone():
    assert quick(max, 1, 2) is max


def test_both_ways_give_the_same():
    x = torch.arange(6.0).reshape(2, 3)
    for op, args in ((aten.mul.Tensor, (x, 2)), (aten.sum.dim_IntList, (x, [0])), (aten.add.Tensor, (x, x[0, 0]))):
        kinds = [Value() if isinstance(a, torch.Tensor) else a for a in args]
        assert torch.equal(quick(op, *kinds)(*args), op(*args))
