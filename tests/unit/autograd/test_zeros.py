"""What becomes of zeros without memory in torch's ops, by which the trace of a backward knows them."""

import itertools

import pytest
import torch

from aotcheck import _torch
from aotcheck.autograd.ops.zeros import remains

aten = torch.ops.aten
ONE = [
    *[(getattr(aten, name).Scalar, (2,)) for name in ("add", "sub", "mul", "div", "rsub", "eq")],
    *[(getattr(aten, name).Tensor, (2,)) for name in ("add", "sub", "mul", "div")],
    *[
        (getattr(aten, name).default, ())
        for name in ("neg", "abs", "sgn", "exp", "clone", "sum", "_to_copy", "zeros_like", "ones_like", "square")
    ],
    (aten.masked_fill.Scalar, (torch.tensor([True, False, True]), 0)),
    (aten.select_backward.default, ([2, 3], 0, 0)),
    (aten.expand_copy.default, ([2, 3],)),
]
TWO = [
    *[getattr(aten, name).Tensor for name in ("add", "sub", "mul", "div")],
    *[getattr(aten, name).default for name in ("linalg_cross", "dot", "vdot", "maximum", "atan2", "mse_loss")],
]


def _zeros():
    return _torch.zeros_without_memory((3,), torch.float32, torch.device("cpu"))


@pytest.mark.parametrize(("op", "rest"), ONE, ids=str)
def test_an_op_of_them(op, rest):
    assert _torch.is_without_memory(op(_zeros(), *rest)) == remains(op, [True])


@pytest.mark.parametrize("op", TWO, ids=str)
@pytest.mark.parametrize("which", itertools.product([False, True], repeat=2), ids=str)
def test_an_op_of_two_tensors(op, which):
    found = op(*[_zeros() if zeros else torch.ones(3) for zeros in which])
    assert _torch.is_without_memory(found) == remains(op, which)
