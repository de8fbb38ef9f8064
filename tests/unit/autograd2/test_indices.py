"""Indices that are numbers: those of Python, and those that integer tensors without dimensions hold."""

from __future__ import annotations

import pytest
import torch

from aotcheck.autograd2 import aot_function, counters


def _read(x, t):
    return x[t] * 2, x[..., t].sum(), x[:, t, None], x[t, 1:]


def _write(x, t):
    x[t] = x.sum()
    x[1:, t] += 1
    return x * 2


def _row(x, t):
    return x[t]


def _write_row(x, t):
    row = x[t]
    row.add_(1)
    return row


def _largest(x, t):
    return x[x.sum(1).argmax()] + t


FUNCTIONS = [_read, _write, _row, _write_row, _largest]


def _observed(function, t):
    """Results, what is left in all of the storage, the gradient; or the error."""
    base = torch.arange(24.0).view(6, 4).remainder_(7)
    leaf = torch.ones((), requires_grad=True)
    x = base[1:5]
    try:
        found = function(x, t)
    except IndexError as error:
        return type(error), str(error), base
    several = found if type(found) is tuple else (found,)
    for y in several:
        y.detach().mul_(3)
    total = sum((y * leaf).sum() for y in several)
    return several, base, torch.autograd.grad(total, leaf)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_an_integer_tensor_selects(function, dynamic):
    compiled = aot_function(function, dynamic=dynamic)
    for t in (1, 3, 0, -1, -4, 2):
        expected, found = (_observed(f, torch.tensor(t)) for f in (function, compiled))
        assert repr(found) == repr(expected), t


@pytest.mark.parametrize("function", [_read, _write, _row])
def test_an_integer_tensor_that_is_out_of_bounds_raises_as_eager_does(function):
    compiled = aot_function(function)
    compiled(torch.ones(4, 4), torch.tensor(0))
    for t in (4, 9, -5):
        assert repr(_observed(compiled, torch.tensor(t))) == repr(_observed(function, torch.tensor(t)))


def test_the_gradient_of_what_an_integer_tensor_selects():
    def function(x, t):
        return (x * x)[t].sum() + x[:, t].sum()

    compiled = aot_function(function)
    for t in (0, 2, -1):
        gradients = []
        for f in (function, compiled):
            x = torch.arange(9.0).view(3, 3).requires_grad_()
            f(x, torch.tensor(t)).backward()
            gradients.append(x.grad.tolist())
        assert gradients[0] == gradients[1]


@pytest.mark.parametrize("function", FUNCTIONS[:-1])
def test_indices_of_python_compile_twice(function):
    compiled, before = aot_function(function), counters().compiled
    for t in (1, 2, 3):
        assert repr(_observed(compiled, t)) == repr(_observed(function, t))
    assert counters().compiled - before == 2


def test_a_ring_buffer_whose_pointer_is_a_tensor():
    def push(buffer, pointer, value):
        buffer[pointer] = value
        pointer.add_(1).remainder_(len(buffer))
        return buffer.sum()

    compiled = aot_function(push)
    ours, eager = [(torch.zeros(3), torch.tensor(1)) for _ in range(2)]
    for k in range(5):
        value = torch.tensor(float(k))
        assert torch.equal(compiled(*ours, value), push(*eager, value))
        assert torch.equal(ours[0], eager[0])
        assert torch.equal(ours[1], eager[1])


@pytest.mark.parametrize("start", [0, 1])
def test_a_part_beyond_a_size_that_data_decide_raises_as_eager_does(start):
    def function(x):
        x.add_(1)
        return x[x > 2].narrow(0, start, 2).sum()

    compiled = aot_function(function)
    for values in ([3.0, 2.0, 1.0], [0.0, 5.0, 2.0], [4.0, 0.0, 0.0], [1.0, 1.0, 1.0]):
        seen = []
        for f in (function, compiled):
            x = torch.tensor(values)
            try:
                seen.append((f(x), x))
            except (RuntimeError, IndexError) as error:
                seen.append((type(error), str(error), x))
        assert repr(seen[0]) == repr(seen[1])


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_part_whose_beginning_data_decide(dynamic):
    def function(x, start):
        x = x * 1
        x.narrow(0, start, 2).mul_(3)
        return x, torch.narrow(x, -1, start, 1)

    compiled = aot_function(function, dynamic=dynamic)
    for n, start in ((5, 0), (5, 3), (6, -2), (7, 5), (7, 6), (7, -1), (7, -8)):
        seen = []
        for f in (function, compiled):
            x = torch.arange(n * 7.0).view(n, 7).requires_grad_()
            try:
                results = f(x, torch.tensor(start))
                seen.append((*[t.detach() for t in results], torch.autograd.grad([t.sum() for t in results], x)))
                seen.append((results[1].stride(), results[1]._base is results[0]._base))
            except (RuntimeError, IndexError) as error:
                seen.append((type(error), str(error)))
        assert repr(seen[0]) == repr(seen[len(seen) // 2])
        assert repr(seen[1]) == repr(seen[-1]) or len(seen) == 2


def _first(x, t):
    return x[:t] * 2, x[:, t:] + 1


def _between(x, t):
    return x[1:t, None], x[..., -3:t].exp(), x[t:-1].view(-1)


def _erase(x, t):
    x[:t] = 0
    x[1:, t:] = x.sum()
    return x * 2


def _as_many(x, t):
    return x[:, 1][: (x > 3).sum() // 3].cumsum(0) + t


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8])
@pytest.mark.parametrize("function", [_first, _between, _erase, _as_many])
def test_a_part_whose_ends_an_integer_tensor_tells(function, dtype, dynamic):
    compiled, before = aot_function(function, dynamic=dynamic), counters()
    for t in (1, 3, 0, -1, 2, 4, 9, -9, 127, 1):
        expected, found = (_observed(f, torch.tensor(t, dtype=dtype)) for f in (function, compiled))
        assert repr(found) == repr(expected), t
        for ours, eager in zip(found[0], expected[0], strict=True):
            assert (ours.stride(), ours.storage_offset()) == (eager.stride(), eager.storage_offset())
    assert counters().compiled - before.compiled == 1
    assert counters().refused == before.refused


def test_the_gradient_of_a_part_that_data_decide():
    def function(x, t):
        y = x * x
        return y[:t].sum() + (y[t:] * 3).sum() + x[: (x > 2).sum()].sum()

    compiled = aot_function(function)
    for t in (0, 2, -1, 7):
        gradients = []
        for f in (function, compiled):
            x = torch.arange(5.0).requires_grad_()
            f(x, torch.tensor(t)).backward()
            gradients.append(x.grad.tolist())
        assert gradients[0] == gradients[1]


def test_a_part_whose_end_is_no_integer_raises_as_eager_does():
    for end in (torch.tensor(1.5), torch.tensor([1, 2])):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            aot_function(lambda x, t: x[:t])(torch.ones(3), end)
