"""What aotcheck/_torch does where a torch lacks a name that others have."""

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from aotcheck import _torch
from aotcheck._torch import ambient, dispatch
from aotcheck._torch import saved as saving


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


class _Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *tensors):
        ctx.save_for_backward(*tensors)
        return tensors[0] * 2

    @staticmethod
    def backward(ctx, g):
        return (g, *[None] * (len(ctx.needs_input_grad) - 1))


@pytest.mark.parametrize("together", [False, True], ids=["each alone", "all together"])
@pytest.mark.parametrize("which", [(), (0,), (1,), (2,), (3,), (2, 0)], ids=str)
def test_some_saved_tensors_are_unpacked_whatever_became_of_the_others(which, together, monkeypatch):
    """torch 2.11 unpacks what a node saved all together alone; then others that were written must not matter."""
    if together:
        monkeypatch.setattr(saving, "_UNPACKS_ALONE", False)
    elif not saving._UNPACKS_ALONE:
        pytest.skip(f"torch {torch.__version__} cannot unpack one alone")
    a, b, c = torch.ones(2, requires_grad=True), torch.ones(2), torch.ones(3)
    given = (a, b, c, c[1:])  # the last two count versions together
    out = _Saves.apply(*given)  # kept: torch before 2.13 frees what a node saved when its graph is dropped
    node = out.grad_fn
    c.add_(1)
    b.add_(1).add_(1)
    versions = [t._version for t in given]
    if set(which) <= {0}:
        found = _torch.unpack_some(node, which)
        assert [t.data_ptr() for t in found] == [given[k].data_ptr() for k in which]
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            _torch.unpack_some(node, which)
    assert [t._version for t in given] == versions


@pytest.mark.parametrize("together", [False, True], ids=["each alone", "all together"])
def test_saved_tensors_that_are_freed_are_not_unpacked(together, monkeypatch):
    if together:
        monkeypatch.setattr(saving, "_UNPACKS_ALONE", False)
    a = torch.ones(2, requires_grad=True)
    out = _Saves.apply(a, torch.ones(2))
    out.sum().backward()
    for which in ((), (0,)):
        with pytest.raises(RuntimeError, match="second time"):
            _torch.unpack_some(out.grad_fn, which)


@pytest.mark.parametrize("freed", [False, True], ids=["kept", "freed"])
@pytest.mark.parametrize("dropped", [False, True], ids=["there", "dropped"])
def test_whether_a_backward_has_freed_what_was_saved(freed, dropped):
    """torch before 2.13 frees it when the graph is dropped, too."""

    class Saves(_Saves):
        backward = staticmethod(_torch.noting_freed(_Saves.backward))

    out = Saves.apply(torch.ones(2, requires_grad=True), torch.ones(2))
    node = out.grad_fn
    out.sum().backward(retain_graph=not freed)
    if dropped:
        del out
    if freed:
        with pytest.raises(RuntimeError, match="second time"):
            _torch.check_saved(node)
    else:
        _torch.check_saved(node)


def test_a_fake_tensor_says_on_which_device_it_is():
    fake = _torch.Fakes().from_meta(torch.empty(2, 3, device="meta"), torch.device("cpu"))
    assert isinstance(fake, _torch.FakeTensor)
    assert (fake.device, fake.shape) == (torch.device("cpu"), (2, 3))


def test_transforms_of_every_kind_that_a_failure_left_entered_are_left():
    """torch 2.11's own function for this leaves each twice."""
    transforms = torch._C._functorch
    before = transforms.get_dynamic_layer_stack_depth()
    with pytest.raises(ValueError, match="within"), _torch.TransformsLeftOnError():
        transforms._vmap_increment_nesting(3, "error")
        transforms._jvp_increment_nesting()
        transforms._grad_increment_nesting()
        transforms._func_increment_nesting(True)
        transforms._vmap_increment_nesting(2, "error")
        raise ValueError("within")
    assert transforms.get_dynamic_layer_stack_depth() == before == 0
