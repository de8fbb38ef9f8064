"""What people's programs keep in Python: numbers that are asked for their class, caches, hooks, arrays, attributes."""

from __future__ import annotations

import functools
import numbers

import numpy
import pytest
import torch
from torch import nn

from aotcheck.autograd2 import UnsupportedError, aot_function, aot_module


def _last(h, keep):
    return h[:, slice(-keep, None) if isinstance(keep, int) else keep] * 2


def _by_class(x, k):
    kinds = isinstance(k, int), isinstance(k, (float, complex)), isinstance(k, numbers.Number), isinstance(k, int | str)
    return x * k, kinds, isinstance(x.shape[0], int), isinstance(k, torch.Tensor), isinstance(x.shape[0] > 2, bool)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [_last, _by_class])
def test_a_number_that_is_a_symbol_is_an_instance_of_its_class(function, dynamic):
    compiled = aot_function(function, dynamic=dynamic)
    for n, k in ((3, 1), (4, 2), (5, 3), (6, 4)):
        assert str(compiled(torch.ones(2, n), k)) == str(function(torch.ones(2, n), k))
    if function is _by_class:
        for k in (0.5, 1.5, 2.5):
            assert str(compiled(torch.ones(2), k)) == str(function(torch.ones(2), k))


class _Scales(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.k if isinstance(ctx.k, int) else 100), None


def test_a_number_that_is_a_symbol_is_an_instance_of_its_class_in_a_backward_too():
    compiled = aot_function(_Scales.apply)
    for k in (2, 3, 4, 5):
        x = torch.ones(2, requires_grad=True)
        compiled(x, k).sum().backward()
        assert x.grad.tolist() == [k, k]


@functools.lru_cache
def _mask(n):
    return torch.ones(n, n).tril()


def test_what_the_function_cached_is_a_tensor_afterwards():
    def function(x):
        return x * _mask(x.shape[0])

    compiled = aot_function(function)
    assert torch.equal(compiled(torch.ones(2, 2)), torch.ones(2, 2).tril())
    assert torch.equal(function(torch.ones(2, 2)), torch.ones(2, 2).tril())
    assert _mask(2).tolist() == [[1, 0], [1, 1]] and "tensor(" in str(_mask(2)) and _mask(2).numpy().sum() == 3
    _mask(2).mul_(3)
    assert (_mask(2) + 0).sum() == 9
    with pytest.raises(UnsupportedError, match="captured tensor"):
        compiled(torch.ones(2, 2, requires_grad=True))


class _Kept:
    tensor = torch.ones(1)


def test_what_hangs_on_an_input_and_was_cached_is_refused():
    def function(x):
        _Kept.tensor = x * 2
        return x + 1

    aot_function(function)(torch.ones(2))
    with pytest.raises(UnsupportedError, match="kept tensor"):
        _Kept.tensor + 1


def _gradient(module, net):
    net.zero_grad()
    module(torch.ones(2, 2)).sum().backward()
    return net[0].bias.grad.tolist()


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_a_hook_of_a_module_that_a_backward_calls(register):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    compiled = aot_module(net)
    for _ in range(3):
        assert _gradient(compiled, net) == _gradient(net, net)
    handle = getattr(net[1], register)(lambda module, *gradients: (gradients[0][0] * 10,))
    for _ in range(3):
        assert _gradient(compiled, net) == _gradient(net, net)
    handle.remove()
    for _ in range(3):
        assert _gradient(compiled, net) == _gradient(net, net)


def test_a_hook_that_keeps_gradients_leaves_the_module_as_it_is():
    net, kept = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)), []
    net[1].register_full_backward_hook(lambda module, *gradients: kept.append(gradients[1][0]))
    compiled = aot_module(net)
    for _ in range(4):
        assert _gradient(compiled, net) == _gradient(net, net)


class _Twice(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_a_module_of_another_class_in_later_calls():
    net, x = nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)
    compiled = aot_module(net)
    for kind in (nn.Linear, _Twice, nn.Linear):
        net[0].__class__ = kind
        for _ in range(4):
            assert torch.equal(compiled(x), net(x))


def test_arrays_and_attributes_of_functions_are_compared_by_what_they_hold():
    def function(x, a):
        return x * float(a.sum()) + function.k

    function.k = 1
    compiled, array, x = aot_function(function), numpy.zeros(2), torch.ones(2)
    for k in range(5):
        array[0] = k
        assert torch.equal(compiled(x, array), function(x, array))
    for k in range(5):
        function.k = k
        assert torch.equal(compiled(x, array), function(x, array))


class _Array(numpy.ndarray):
    pass


@pytest.mark.parametrize("kind", [numpy.ndarray, _Array])
def test_an_array_in_a_closure_is_compared_by_what_it_holds(kind):
    array = numpy.zeros(2).view(kind)
    compiled = aot_function(function := lambda x: x * float(array.sum()))
    for k in range(6):
        array[0] = k // 2
        assert torch.equal(compiled(torch.ones(2)), function(torch.ones(2)))


def test_an_attribute_of_a_function_that_is_set_later():
    def function(x):
        return x * getattr(function, "k", 1)

    compiled, x = aot_function(function), torch.ones(2)
    for k in (None, None, None, 5, 6):
        if k is not None:
            function.k = k
        for _ in range(3):
            assert torch.equal(compiled(x), function(x))
