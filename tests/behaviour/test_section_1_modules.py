"""BEHAVIOUR 1: modules, and functions behind torch.compile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.behaviour import harness
from tests.behaviour.compilers import aotcheck, backend
from tests.behaviour.harness import (
    Recorder,
    attempt_later,
    backward,
    check,
    check_session,
    given,
    leaf,
    overlap,
    plain,
    through_dynamo,
)

# -- modules -----------------------------------------------------------------------------------------


def integers(module: nn.Module) -> nn.Module:
    """Small integers for parameters and buffers, so that results are exact."""
    with torch.no_grad():
        for k, tensor in enumerate([*module.parameters(), *module.buffers()]):
            tensor.copy_(plain(*tensor.shape, seed=k, dtype=tensor.dtype))
    return module.to(plain(1).device)


class Counting(nn.Module):
    """Writes to a buffer in forward, and behaves otherwise in eval()."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        if self.training:
            self.seen.add_(x.detach().sum(0))
            return self.linear(x)
        return self.linear(x) * 2 + self.seen


def _state(module: nn.Module) -> list[Any]:
    return [dict(module.named_parameters()), dict(module.named_buffers())]


@pytest.fixture(params=["aot_module", "torch.compile"])
def compile_module(request):
    """None for the recording `aot_module` of the harness."""
    if request.param == "aot_module":
        return None
    torch._dynamo.reset()
    return through_dynamo


def test_parameters_and_buffers(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        for k in range(3):
            out = compiled(plain(2, 3, seed=k))
            backward([out])
            yield out, _state(net)

    check_session(session, compile=compile_module)


def test_eval_respecializes(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        yield compiled(plain(2, 3)), _state(net)
        net.eval()
        yield compiled(plain(2, 3)), _state(net)
        net.train()
        yield compiled(plain(2, 3)), _state(net)

    check_session(session, compile=compile_module)


def test_a_replaced_parameter(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        yield compiled(plain(2, 3)), _state(net)
        net.linear.weight = nn.Parameter(plain(3, 3, seed=7))
        out = compiled(plain(2, 3))
        backward([out])
        yield out, _state(net)

    check_session(session, compile=compile_module)


def test_a_replaced_buffer(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        yield compiled(plain(2, 3)), _state(net)
        net.seen = plain(3, seed=7)
        yield compiled(plain(2, 3)), _state(net)

    check_session(session, compile=compile_module)


def test_load_state_dict(compile_module):
    def session(compile):
        net, other = integers(Counting()), integers(nn.Sequential(nn.ReLU(), Counting()))[1]
        compiled = compile(net)
        yield compiled(plain(2, 3)), _state(net)
        net.load_state_dict(other.state_dict())
        yield compiled(plain(2, 3)), _state(net)
        net.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
        yield compiled(plain(2, 3)), _state(net)

    check_session(session, compile=compile_module)


def test_shared_parameters(compile_module):
    def session(compile):
        a, b = nn.Linear(3, 3), nn.Linear(3, 3)
        b.weight = a.weight
        net = integers(nn.Sequential(a, nn.ReLU(), b))
        out = compile(net)(leaf(2, 3))
        backward([out])
        yield out, _state(net)

    check_session(session, compile=compile_module)


def test_frozen_parameters(compile_module):
    def session(compile):
        net = integers(Counting())
        compiled = compile(net)
        backward([compiled(plain(2, 3))])
        yield _state(net)
        net.linear.weight.requires_grad_(False)
        backward([compiled(plain(2, 3))])
        yield _state(net)

    check_session(session, compile=compile_module)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}], ids=str)
def test_a_recurrent_module(options):
    """On the CPU its backward gives one tensor for two biases, and its kernel looks at grad mode."""

    def session(compile):
        torch.manual_seed(0)
        module, x = nn.LSTM(3, 4, **options), leaf(2, 5, 3)
        compiled = compile(module)
        for training in (True, False):
            module.train(training)
            out, (h, c) = compiled(x)
            (out.sum() + (h * c).sum()).backward()
            yield x, out, h, c, list(module.parameters())
        with torch.no_grad():
            yield compiled(x)

    check_session(session)


def test_a_module_keeps_its_original():
    net = integers(Counting())
    assert aotcheck.aot_module(net, aotcheck.nop).orig_module is net


def test_a_compiled_module_has_the_parameters_of_its_original():
    net = integers(Counting())
    compiled = aotcheck.aot_module(net, aotcheck.nop)
    assert {id(p) for p in compiled.parameters()} == {id(p) for p in net.parameters()}


# -- attributes that are neither parameters nor buffers ------------------------------------------------


class Keeping(nn.Module):
    """Keeps what it computed; None before."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.last = None

    def forward(self, x):
        self.last = self.linear(x)
        return self.last * 2


class KeepingInParts(Keeping):
    """Reads what a part of it kept, and keeps its argument."""

    def __init__(self):
        super().__init__()
        self.part = Keeping()

    def forward(self, x):
        out = self.part(x) + self.linear(self.part.last)
        self.last = x
        return out


class Growing(Keeping):
    """Another shape on each call."""

    def forward(self, x):
        self.last = x.detach() if self.last is None else torch.cat([self.last, x.detach()])
        return self.linear(self.last).sum(0)


class Averaging(Keeping):
    """Reads a tensor, writes it in place, and assigns another; reads one in a list."""

    def __init__(self):
        super().__init__()
        self.last = plain(3)
        self.scales = [plain(3, seed=1)]

    def forward(self, x):
        self.last.mul_(2)
        out = x * self.last * self.scales[0]
        self.last = self.last + x.detach().sum(0)
        return out


@pytest.mark.parametrize("module", [Keeping, KeepingInParts, Growing, Averaging])
def test_tensors_in_attributes(module, compile_module):
    def session(compile):
        net = integers(module())
        compiled = compile(net)
        for k in range(4):
            x = leaf(2, 3, seed=k)
            out = compiled(x)
            kept = [m.last for m in net.modules() if hasattr(m, "last")]
            yield x, out, kept
            of = [t for t in [out, *kept] if t.requires_grad]
            yield torch.autograd.grad(of[k % len(of)].sum(), [x, *net.parameters()], allow_unused=True)
            if k == 2:
                net.last = plain(1, 3, seed=5)

    check_session(session, compile=compile_module)


def test_what_a_module_puts_into_a_list(compile_module):
    class Logging(Keeping):
        def __init__(self):
            super().__init__()
            self.seen, self.calls = [], 0

        def forward(self, x):
            self.calls += 1
            self.seen.append(self.linear(x))
            return x * 2

    def session(compile):
        net = integers(Logging())
        compiled = compile(net)
        for k in range(4):
            x = leaf(2, 3, seed=k)
            yield compiled(x), net.seen, net.calls
            yield torch.autograd.grad(net.seen[-1].sum(), [x, *net.linear.parameters()])

    check_session(session, compile=compile_module)


def test_a_lazy_module_gets_its_shape_from_the_first_call():
    def session(compile):
        net = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
        compiled = compile(net)
        for k in range(3):
            torch.manual_seed(k)
            out = compiled(x := leaf(4, 3, seed=k))
            yield out, x, list(net.parameters()), list(net.buffers())
            yield torch.autograd.grad(out.square().sum(), [x, *net.parameters()])

    check_session(session)


class Flat(Counting):
    """As Dynamo hands modules over: flat inputs, a tuple as output."""

    def forward(self, x):
        return (super().forward(x),)


def test_aot_module_simplified_compiles_at_construction():
    recorder = Recorder()
    net, reference = integers(Flat()), integers(Flat())
    x, again = leaf(2, 3), leaf(2, 3)
    compiled = aotcheck.aot_module_simplified(net, (x,), fw_compiler=recorder.forward, bw_compiler=recorder.backward)
    assert len(recorder.forwards) == 1
    assert net.calls == reference.calls, "compiling has no effect of its own"
    (out,) = compiled(x)
    (expected,) = reference(again)
    assert torch.equal(out, expected)
    backward([out])
    backward([expected])
    assert torch.equal(x.grad, again.grad)
    assert torch.equal(net.linear.weight.grad, reference.linear.weight.grad)
    assert net.calls == reference.calls


def test_aot_module_simplified_offers_what_a_module_does():
    net = integers(Flat())
    compiled = aotcheck.aot_module_simplified(net, (plain(2, 3),), fw_compiler=aotcheck.nop)
    assert [name for name, _ in compiled.named_parameters()] == ["linear.weight", "linear.bias"]
    assert [name for name, _ in compiled.named_buffers()] == ["calls", "seen"]
    compiled.zero_grad()


# -- torch.compile -----------------------------------------------------------------------------------


@pytest.fixture
def dynamo():
    torch._dynamo.reset()
    yield through_dynamo
    torch._dynamo.reset()


def test_torch_compile_finds_the_backend_by_name():
    assert "aotcheck" in torch._dynamo.list_backends(exclude_tags=())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x @ y,
        lambda x, y: (x * 2, y.t(), x),
        lambda x, y: x.sum().backward() if False else (x @ y).relu(),
    ],
    ids=["product", "aliases", "activation"],
)
def test_a_function_through_torch_compile(function, dynamo):
    check(function, lambda: given(leaf(2, 3), leaf(3, 2, seed=1)), compile=dynamo)


def test_a_mutation_through_torch_compile(dynamo):
    def f(x, y):
        x[0].add_(1)
        y.mul_(x)
        return x + y

    check(f, lambda: given(plain(2, 3), plain(2, 3, seed=1)), compile=dynamo)


def test_a_view_that_crosses_a_graph_break_is_a_view_behind_it(dynamo):
    def f(x):
        v = torch.ones_like(x)[1:]
        torch._dynamo.graph_break()
        with torch.no_grad():
            torch.add(x, x, out=v)
        v.mul_(x)
        return v

    def session(compile):
        x = leaf(3)
        v = compile(f)(x)
        yield v
        yield attempt_later(lambda: v.sum().backward()), x

    check_session(session, compile=dynamo)


def test_a_second_call_with_other_aliasing_through_torch_compile(dynamo):
    def f(x, y):
        x.mul_(2)
        return y + 1

    check(f, overlap(4), overlap(2), overlap(1), overlap(0), compile=dynamo)


def test_a_second_call_with_another_shape_through_torch_compile(dynamo):
    def compile(f):
        return torch.compile(f, backend=backend(), dynamic=False)

    check(lambda x: x * 2 + 1, lambda: given(leaf(3)), lambda: given(leaf(4)), compile=compile)


def test_a_graph_break_through_torch_compile(dynamo):
    def f(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y.view(-1), y

    check(f, lambda: given(leaf(2, 3)), compile=dynamo)


def test_the_harness_knows_where_its_tensors_lie(device: str):
    assert harness.plain(1).device.type == device
