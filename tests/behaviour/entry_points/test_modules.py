"""Aot_module: state read on each call, buffers, eval(), parametrizations, load_state_dict."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import Recorder, backward, session, through_dynamo
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import integers, mlp, seeded, through


class _Holds(nn.Module):
    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x) * 2


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is", "ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["itself", "in a module", "in a function"])
@pytest.mark.parametrize("made", ["scripted", "traced"])
@session(rtol=1e-6)
def test_torchscript_modules_are_run_and_differentiated(compile, kind: str, made: str):
    torch.manual_seed(0)
    own = to_device(nn.Linear(3, 2))
    part = torch.jit.script(own) if made == "scripted" else torch.jit.trace(own, plain(1, 3))
    function = {"itself": part, "in a module": _Holds(part), "in a function": lambda x: part(x) * 2}[kind]
    f = compile(function)
    for k in range(2):
        f(plain(2, 3, seed=k)).sum().backward()
        yield own.weight.grad, own.bias.grad


class Recurrent(torch.nn.Module):
    """Makes what it needs when it is first called, and goes on with its state."""

    def __init__(self, detached):
        super().__init__()
        self.cell = torch.nn.LSTMCell(3, 3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(plain(*p.shape) / 8)
        self.state, self.mask, self.detached = None, None, detached
        self.register_buffer("scale", None, persistent=False)

    def forward(self, x):
        if self.mask is None or self.mask.shape[0] != x.shape[0]:
            self.mask = torch.tril(torch.ones(x.shape[0], x.shape[0], device=x.device))
        if self.scale is None:
            self.scale = torch.arange(1.0, 4.0, device=x.device)
        h, c = self.cell(self.mask @ x * self.scale, self.state)
        self.state = (h.detach(), c.detach()) if self.detached else (h, c)
        return h


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("detached", [False, True])
@session
def test_lazily_made_masks_and_recurrent_state_of_a_module_persist(compile, detached, whole):
    net = to_device(Recurrent(detached))
    f = through(compile, net, whole)
    total = 0
    for k in range(4):
        x = leaf(2, 3, seed=k)
        y = f(x)
        total = y.sum() + (0 if detached else total)
        if detached:
            total.backward()
        yield x, y, net.state, net.mask, net.scale, type(net.state), [p.grad for p in net.parameters()]
    if not detached:
        total.backward()
        yield net.state, [p.grad for p in net.parameters()]
    net.state = None
    yield f(plain(3, 3)), net.state, net.mask


class Counting(nn.Module):
    """Writes to a buffer in forward, and behaves otherwise in eval()."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", to_device(torch.zeros((), dtype=torch.int64)))
        self.register_buffer("seen", to_device(torch.zeros(3)))

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


@session(compile="compile_module")
def test_parameters_are_differentiated_and_buffers_written(compile):
    net = integers(Counting())
    compiled = compile(net)
    for k in range(3):
        out = compiled(plain(2, 3, seed=k))
        backward([out])
        yield out, _state(net)


@session(compile="compile_module")
def test_eval_and_train_are_read_on_every_call(compile):
    net = integers(Counting())
    compiled = compile(net)
    yield compiled(plain(2, 3)), _state(net)
    net.eval()
    yield compiled(plain(2, 3)), _state(net)
    net.train()
    yield compiled(plain(2, 3)), _state(net)


@session(compile="compile_module")
def test_a_replaced_parameter_is_read_and_differentiated(compile):
    net = integers(Counting())
    compiled = compile(net)
    yield compiled(plain(2, 3)), _state(net)
    net.linear.weight = nn.Parameter(plain(3, 3, seed=7))
    out = compiled(plain(2, 3))
    backward([out])
    yield out, _state(net)


@session(compile="compile_module")
def test_a_replaced_buffer_is_read_and_written(compile):
    net = integers(Counting())
    compiled = compile(net)
    yield compiled(plain(2, 3)), _state(net)
    net.seen = plain(3, seed=7)
    yield compiled(plain(2, 3)), _state(net)


@session(compile="compile_module")
def test_load_state_dict_reaches_the_compiled_module(compile):
    net, other = integers(Counting()), integers(nn.Sequential(nn.ReLU(), Counting()))[1]
    compiled = compile(net)
    yield compiled(plain(2, 3)), _state(net)
    net.load_state_dict(other.state_dict())
    yield compiled(plain(2, 3)), _state(net)
    net.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    yield compiled(plain(2, 3)), _state(net)


@session(compile="compile_module")
def test_a_parameter_shared_by_two_layers_gets_both_gradients(compile):
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = a.weight
    net = integers(nn.Sequential(a, nn.ReLU(), b))
    out = compile(net)(leaf(2, 3))
    backward([out])
    yield out, _state(net)


@session(compile="compile_module")
def test_parameters_frozen_between_calls_get_no_gradients(compile):
    net = integers(Counting())
    compiled = compile(net)
    backward([compiled(plain(2, 3))])
    yield _state(net)
    net.linear.weight.requires_grad_(False)
    backward([compiled(plain(2, 3))])
    yield _state(net)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}], ids=str)
@session
def test_an_lstm_is_differentiated_in_training_and_eval(compile, options):
    """On the CPU its backward gives one tensor for two biases, and its kernel looks at grad mode."""

    torch.manual_seed(0)
    module, x = to_device(nn.LSTM(3, 4, **options)), leaf(2, 5, 3)
    compiled = compile(module)
    for training in (True, False):
        module.train(training)
        out, (h, c) = compiled(x)
        (out.sum() + (h * c).sum()).backward()
        yield x, out, h, c, list(module.parameters())
    with torch.no_grad():
        yield compiled(x)


def test_a_compiled_module_has_its_original_as_orig_module():
    net = integers(Counting())
    assert aotcheck.aot_module(net, aotcheck.nop).orig_module is net


def test_a_compiled_module_has_the_parameters_of_its_original():
    net = integers(Counting())
    compiled = aotcheck.aot_module(net, aotcheck.nop)
    assert {id(p) for p in compiled.parameters()} == {id(p) for p in net.parameters()}


@session
def test_a_lazy_module_gets_its_shape_from_the_first_call(compile):
    net = to_device(nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d()))
    compiled = compile(net)
    for k in range(3):
        torch.manual_seed(k)
        out = compiled(x := leaf(4, 3, seed=k))
        yield out, x, list(net.parameters()), list(net.buffers())
        yield torch.autograd.grad(out.square().sum(), [x, *net.parameters()])


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


def test_aot_module_simplified_has_named_parameters_buffers_and_zero_grad():
    net = integers(Flat())
    compiled = aotcheck.aot_module_simplified(net, (plain(2, 3),), fw_compiler=aotcheck.nop)
    assert [name for name, _ in compiled.named_parameters()] == ["linear.weight", "linear.bias"]
    assert [name for name, _ in compiled.named_buffers()] == ["calls", "seen"]
    compiled.zero_grad()


class _Alternating(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = seeded(nn.Linear(3, 3)), nn.Linear(3, 3)
        self.now = self.first

    def forward(self, x):
        self.now = self.second if self.now is self.first else self.first
        return self.now(x)


class _MadeLate(nn.Module):
    def forward(self, x):
        if not hasattr(self, "layer"):
            self.layer = nn.Linear(x.shape[-1], 2)
            nn.init.constant_(self.layer.weight, 0.5)
        return self.layer(x)


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("in_closure", [False, True])
@pytest.mark.parametrize("kind", [_Alternating, _MadeLate])
@session(rtol=1e-5)
def test_submodules_that_a_module_assigns_inside_persist(compile, kind, in_closure):
    torch.manual_seed(1)
    net = kind()
    compiled = compile((lambda x: net(x)) if in_closure else net)
    for k in range(4):
        y = compiled(plain(2, 3, seed=k))
        y.sum().backward()
        yield y, [p.grad for p in net.parameters()], [name for name, _ in net.named_modules()]


@session
def test_a_copy_of_a_compiled_module_has_parameters_of_its_own(compile):
    compiled = compile(seeded(mlp(4, 4, 1)))
    x = plain(3, 4)
    compiled(x).sum().backward()
    other = copy.deepcopy(compiled)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1)
    other(x).square().sum().backward()
    for net in (compiled, other):
        yield net(x), [(p, p.grad) for p in net.parameters()]


def test_a_compiled_module_can_be_pickled():
    compiled = aotcheck.aot_module(seeded(mlp(4, 4, 1)))
    x = plain(3, 4)
    expected = compiled(x)
    assert torch.equal(pickle.loads(pickle.dumps(compiled))(x), expected)
