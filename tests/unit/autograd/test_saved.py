"""What nodes keep is looked up once while a plain function is compiled, and only then: Note [Looked up once]."""

import pytest
import torch
from torch import Tensor

import aotcheck
from aotcheck.autograd.eager_graph import saved
from aotcheck.autograd.eager_graph.saved import Compiling, look_up_again, look_up_once, saved_by


def _node() -> tuple[Tensor, Tensor]:
    x = torch.ones(3, requires_grad=True)
    factor = torch.full((3,), 2.0)
    return x * factor, factor


def test_what_was_found_is_found_again_until_it_is_written():
    y, factor = _node()
    with Compiling():
        look_up_once()
        found = saved_by(y.grad_fn, y)
        assert saved_by(y.grad_fn, y) is found
        factor.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved_by(y.grad_fn, y)


@pytest.mark.parametrize("way", ["not compiling", "taken back", "another"])
def test_it_is_looked_up_each_time_else(way):
    y, _ = _node()
    with Compiling():
        if way != "not compiling":
            look_up_once()
        if way == "taken back":
            look_up_again()
        if way == "another":
            with Compiling():  # a function compiled while another is
                assert saved_by(y.grad_fn, y) is not saved_by(y.grad_fn, y)
            return
        assert saved_by(y.grad_fn, y) is not saved_by(y.grad_fn, y)
    look_up_once()
    assert saved_by(y.grad_fn, y) is not saved_by(y.grad_fn, y)


def test_nothing_is_kept_when_all_is_compiled(monkeypatch):
    asked, unpacked = [], saved._unpacked
    monkeypatch.setattr(saved, "_unpacked", lambda node, near: asked.append(node) or unpacked(node, near))
    x = torch.ones(3, requires_grad=True)
    aotcheck.aot_function(lambda x: (x * x).exp())(x)
    assert len(asked) == len(set(asked)) == 2  # each node once: of the product, and of exp
    assert saved._found.kept is None


class _Writes(torch.autograd.Function):
    """Its backward writes what it was given, which others keep."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.x.add_(1)
        return g * 2


def test_a_backward_that_writes_what_another_node_keeps_is_as_in_eager():
    def f(x):
        y = x.exp()
        return _Writes.apply(y) * 3

    raised = []
    for g in (f, aotcheck.aot_function(f)):
        x = torch.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError) as error:
            g(x).sum().backward()
        raised.append(str(error.value).split(":")[0])
    assert raised[0] == raised[1]
    assert "modified by an inplace operation" in raised[0]
