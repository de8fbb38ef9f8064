"""What no result needs, and raises in eager."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from aotcheck.autograd2.api import aot_function


def test_what_no_result_needs_raises_as_in_eager_and_draws_nothing_twice() -> None:
    for dynamic in (False, True):
        compiled = aot_function(
            lambda x: (F.binary_cross_entropy(x, x.double()), x.new_zeros(x.shape), x + 1)[2], dynamic=dynamic
        )
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Found dtype Double"):
                compiled(torch.full((3,), 0.5))
    dropped = aot_function(lambda x: (F.dropout(x).sin(), x + 1)[1])
    torch.manual_seed(0)
    for _ in range(2):
        F.dropout(torch.ones(3))
    expected = torch.rand(1)
    torch.manual_seed(0)
    for _ in range(2):
        dropped(torch.ones(3))
    assert torch.equal(torch.rand(1), expected)


def test_what_a_result_does_not_need_raises_also_where_the_graph_takes_no_size():
    def f(x):
        return torch.stft(x, 2, hop_length=1, return_complex=True) is None

    x = torch.ones(4, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="FFT"):
        aot_function(f, dynamic=True)(x)


def test_a_scatter_that_no_result_needs_raises_for_the_sizes_of_a_later_call():
    def f(x, part):
        return (torch.select_scatter(x, part, 0, 1), x + 1)[1]

    compiled = aot_function(f, dynamic=True)
    for width in (3, 4):
        assert torch.equal(compiled(torch.ones(3, width), torch.ones(width)), torch.full((3, width), 2.0))
    with pytest.raises(RuntimeError, match="expected src to have a size equal to the slice of self"):
        compiled(torch.ones(3, 3), torch.ones(2))


def test_a_write_at_indices_that_no_result_needs_raises_for_the_sizes_of_a_later_call():
    def f(x):
        values = torch.ones(2, 2)
        x.clone().index_put_((torch.tensor([3, 0]),), values)
        return values

    compiled = aot_function(f, dynamic=True)
    for height in (4, 5):
        assert torch.equal(compiled(torch.zeros(height, 2)), torch.ones(2, 2))
    with pytest.raises(RuntimeError, match="cannot be broadcast to indexing result"):
        compiled(torch.zeros(4, 3))
