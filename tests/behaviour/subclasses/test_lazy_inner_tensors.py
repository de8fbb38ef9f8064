"""Inner tensors that are conjugated or negated lazily."""

import pytest
import torch
from torch.testing._internal.custom_tensor import ConstantExtraMetadataTensor
from torch.testing._internal.two_tensor import TwoTensor

from tests.behaviour.harness import attempt_later, check, session
from tests.behaviour.inputs import given, plain
from tests.behaviour.subclasses.common import every_class
from tests.behaviour.wrappers import Tagged

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
def test_ops_on_a_wrapper_whose_inner_tensor_is_lazily_conjugated_or_negated(function, lazy):
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
def test_kernels_that_resolve_a_lazily_conjugated_inner_tensor_give_eagers_result(function, lazy):
    """Some look whether it is conjugated or negated lazily, some of one operand, some where it does not lie densely."""
    check(function, lambda: given(Tagged(lazy(plain(3, dtype=torch.complex64) * (1 + 2j)), "lazy")), probe=False)


@pytest.mark.parametrize("lazily", [torch.conj, lambda x: x.conj().imag, lambda x: x])
@session
def test_unsafe_split_of_a_wrapper_whose_inner_tensors_are_lazily_conjugated_or_negated(compile, lazily):
    x = torch.view_as_complex(plain(3, 2, 2))
    parts = compile(lambda x: torch.unsafe_split(x, 1, 1))(TwoTensor(lazily(x), lazily(x)))
    yield parts, parts[0].a.is_conj(), parts[0].a.is_neg()
    parts[1].a.mul_(2)
    yield x, parts


@every_class
@pytest.mark.parametrize("lazily", [torch.conj, lambda x: x.conj().imag, lambda x: x.conj().t()])
@pytest.mark.parametrize("made", [torch.complex, lambda x, y: torch.polar(x, y) * x])
@session
def test_a_tangent_whose_inner_tensor_is_lazily_conjugated_or_negated(compile, make, lazily, made):
    x = make(3, grad=True)
    out = attempt_later(lambda: compile(lambda x: lazily(made(x, x)))(x))
    yield out
    if isinstance(out, torch.Tensor):
        yield attempt_later(lambda: out.backward(torch.ones_like(out)))
        yield x


_LAZY = {
    "imag": lambda: (base := torch.view_as_complex(plain(2, 2)), base.conj().imag),
    "neg": lambda: (base := plain(2), torch._neg_view(base)),
    "conj": lambda: (base := torch.view_as_complex(plain(2, 2)), base.conj()),
}

_WRITES = {
    "add_": lambda x: x.add_(1),
    "add_ itself": lambda x: x.add_(x),
    "mul_": lambda x: x.mul_(2),
    "mul_ by what has no dimensions": lambda x: x.mul_(torch.tensor(2.0, dtype=torch.float64, device=x.device)),
    "copy_": lambda x: x.copy_(x.new_ones(2)),
    "fill_": lambda x: x.fill_(2),
    "zero_": lambda x: x.zero_(),
    "pow_": lambda x: x.pow_(2),
    "addcmul_": lambda x: x.addcmul_(x, x),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 1),
    "masked_fill_": lambda x: x.masked_fill_(torch.tensor([True, False], device=x.device), 2),
    "foreach": lambda x: torch._foreach_add_([x], 1),
    "foreach by lists": lambda x: torch._foreach_mul_([x], [x]),
    "out": lambda x: torch.mul(x, x, out=x),
    "through a view": lambda x: x[:1].mul_(2),
    "of integers": lambda x: x.add_(torch.tensor([1, 2], device=x.device)),
}


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
@pytest.mark.parametrize("kind", _LAZY)
def test_writes_to_a_wrapper_whose_inner_tensor_is_lazily_conjugated_or_negated(kind, write):
    """Below the class of a wrapper kernels do not see that a tensor is conjugated or negated lazily."""

    def f(x):
        write(x)

    def make():
        base, lazy = _LAZY[kind]()
        return given(ConstantExtraMetadataTensor(lazy), also=[base])

    check(f, make)
