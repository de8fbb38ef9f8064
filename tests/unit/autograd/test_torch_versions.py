"""What aotcheck/_torch does where a torch lacks a name that others have."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from aotcheck import _torch
from aotcheck._torch import ambient, dispatch


class _Told(TorchFunctionMode):
    """Remembers which functions it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("skipping", ["torch's own", "ours"])
def test_a_mode_is_told_of_what_a_function_calls_but_not_of_the_function(skipping, monkeypatch):
    if skipping == "ours":
        monkeypatch.setattr(dispatch, "_skip_one_hop", None)
    elif dispatch._skip_one_hop is None:
        pytest.skip(f"torch {torch.__version__} has no function for this")
    x = torch.ones(2, requires_grad=True)
    y = (x * 3).sum()
    with _Told() as told:
        (gradient,) = _torch.past_function_modes(torch.autograd.grad, (y, x), {"retain_graph": True})
        _torch.past_function_modes(torch.autograd.backward, (y,), {"retain_graph": True})
        _torch.past_function_modes(Tensor.backward, (y,), {})
    assert "grad" not in told.names
    assert told.names.count("backward") == 1  # torch.autograd.backward, by Tensor.backward
    assert len(told.names) > 3  # what these ask tensors for: shapes, dtypes
    assert gradient.tolist() == [3, 3]
    assert x.grad is not None and x.grad.tolist() == [6, 6]


def test_that_fx_traces_is_known_by_a_flag_or_a_function(monkeypatch):
    """A flag of the module up to torch 2.13, a flag of each thread behind a function from 2.14 on."""
    seen = []

    class Net(torch.nn.Module):
        def forward(self, x):
            seen.append(_torch.another_tracer_active())
            return x + 1

    assert not _torch.another_tracer_active()
    torch.fx.symbolic_trace(Net())
    assert seen == [True]
    monkeypatch.setattr(ambient._symbolic_trace, "_get_is_fx_tracing", lambda: True, raising=False)
    assert ambient._find_fx_traces()()
