"""Attributes of modules that are neither parameters nor buffers (numbers, flags, containers, tensors, layers, hooks):
read per call, assigned.
"""

import collections
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.behaviour.entry_points.common import _Settings
from tests.behaviour.harness import session, through_dynamo
from tests.behaviour.inputs import leaf, plain, to_device
from tests.behaviour.shared import _Counting, _Named, _net, _Object, _other, batches, integers, seeded, state


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_a_module_looks_up_its_parameter_in_a_dictionary(compile):
    net = _Named()
    compiled = compile(net)
    for k in range(2):
        y = compiled(plain(3, seed=k))
        y.sum().backward()
        yield y, net.w


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", ["tensors", "numbers", "both"])
@session
def test_a_full_deque_of_a_module_drops_its_first_element(compile, kind, whole):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen, self.count = collections.deque(maxlen=2), {"n": 0}
            self.seen.append(0)

        def forward(self, x):
            self.count["n"] += 1
            if kind != "numbers":
                self.seen.append(x.sum())
            if kind != "tensors":
                self.seen.append(x.shape[0])
            return x * 2

    net = Net()
    f = compile(net if whole else lambda x: net(x))
    for k in range(5):
        yield f(plain(3 + k % 2, seed=k)), list(net.seen), net.seen.maxlen, net.count


@pytest.fixture(params=["aot_module", "torch.compile"])
def compile_module(request):
    """None for the recording `aot_module` of the harness."""
    if request.param == "aot_module":
        return None
    torch._dynamo.reset()
    return through_dynamo


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
@session(compile="compile_module")
def test_tensors_in_attributes_of_a_module_are_read_assigned_and_differentiated(compile, module):
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


@session(compile="compile_module")
def test_tensors_that_a_module_appends_to_its_list_persist(compile):
    class Logging(Keeping):
        def __init__(self):
            super().__init__()
            self.seen, self.calls = [], 0

        def forward(self, x):
            self.calls += 1
            self.seen.append(self.linear(x))
            return x * 2

    net = integers(Logging())
    compiled = compile(net)
    for k in range(4):
        x = leaf(2, 3, seed=k)
        yield compiled(x), net.seen, net.calls
        yield torch.autograd.grad(net.seen[-1].sum(), [x, *net.linear.parameters()])


class _Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.several = [to_device(torch.ones(3)), to_device(torch.ones(3))]
        self.pair = (to_device(torch.ones(3)), 1)
        self.by_name = {"of": {"w": to_device(torch.ones(3))}}
        self.object = _Object(parts=(1, to_device(torch.ones(3))))

    def forward(self, x):
        of = self.by_name["of"]["w"]
        return x * self.several[1] * self.pair[0] * of * self.object.parts[1]


MODULE_CHANGES = {
    "list": lambda m: setattr(m, "several", [_other(), _other()]),
    "reversed": lambda m: (m.several.__setitem__(0, _other()), m.several.reverse()),
    "tuple": lambda m: setattr(m, "pair", (_other(), 1)),
    "outer": lambda m: setattr(m, "by_name", {"of": {"w": _other()}}),
    "inner": lambda m: m.by_name.update(of={"w": _other()}),
    "of an object": lambda m: setattr(m.object, "parts", (1, _other())),
    "object": lambda m: setattr(m, "object", _Object(parts=(1, _other()))),
}


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("within", ["itself", "a part", "a closure"])
@pytest.mark.parametrize("change", MODULE_CHANGES.values(), ids=MODULE_CHANGES.keys())
@session
def test_a_replaced_container_of_a_module_is_read_on_every_call(compile, change, within):
    m = _Kept()
    compiled = compile({"itself": m, "a part": nn.Sequential(m), "a closure": lambda x: m(x)}[within])
    for k in range(4):
        yield compiled(plain(2, 3, seed=k))
        if k in (0, 2):
            change(m)


def _forward_hook(net):
    net[0].register_forward_hook(lambda module, args, out: out * 2)


def _pre_hook(net):
    net[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def _backward_hook(net):
    net[3].register_full_backward_hook(lambda module, to, come: (to[0] * 2,))


def _backward_pre_hook(net):
    net[3].register_full_backward_pre_hook(lambda module, come: (come[0] * 2,))


def _forward_of_its_own(net):
    net.forward = types.MethodType(lambda self, x: self[0](x) * 2, net)


CHANGES = {
    "a layer like it": lambda net: net.__setitem__(0, seeded(nn.Linear(4, 4))),
    "a layer without parameters": lambda net: net.__setitem__(1, nn.Tanh()),
    "a layer more": lambda net: net.append(to_device(nn.Linear(2, 3))),
    "a layer less": lambda net: net.__delitem__(1),
    "a layer twice": lambda net: net.__setitem__(3, net[0]),
    "probability": lambda net: setattr(net[1], "p", 0.25),
    "momentum": lambda net: setattr(net[2], "momentum", 0.5),
    "eps": lambda net: setattr(net[2], "eps", 0.5),
    "no statistics": lambda net: setattr(net[2], "track_running_stats", False),
    "no bias": lambda net: setattr(net[0], "bias", None),
    "a bias": lambda net: setattr(net[3], "bias", nn.Parameter(to_device(torch.ones(2)))),
    "a part in eval": lambda net: net[2].eval(),
    "forward hook": _forward_hook,
    "forward pre-hook": _pre_hook,
    "backward hook": _backward_hook,
    "backward pre-hook": _backward_pre_hook,
    "forward": _forward_of_its_own,
    "weight norm": lambda net: nn.utils.parametrizations.weight_norm(net[0]),
}

REACHED = {"module": lambda net: net, "closure": lambda net: lambda x: net(x), "method": lambda net: net.forward}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("reach", REACHED.values(), ids=REACHED)
@session(rtol=1e-6)
def test_layers_options_and_hooks_changed_between_calls_are_read_anew(compile, reach, change):
    net = _net()
    compiled = compile(reach(net))
    for k, x in enumerate(batches(5, 4)):
        if k == 3:
            change(net)
        if k == 8:
            net.eval()
        for p in net.parameters():
            p.grad = None
        y = compiled(x)
        y.square().sum().backward()
        yield y, state(net), [p.grad for p in net.parameters()], torch.rand(1, device=x.device)


class _Scaled(nn.Module):
    def __init__(self, settings: _Settings) -> None:
        super().__init__()
        self.settings, self.k, self.activation = settings, 1, torch.relu
        self.skipped: set[int] = set()

    @property
    def twice(self) -> int:
        return self.k * 2

    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.twice * getattr(self, "k")  # noqa: B009  # as of a name that is not known beforehand

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k in range(3):
            if k not in self.skipped:
                x = x + k
        return self.activation(self.helper(x) * self.settings.scale * self.settings.nested["factors"][1])


@session
def test_plain_attributes_of_a_module_and_its_objects_are_read_on_every_call(compile):
    net = _Scaled(_Settings())
    compiled = compile(net)
    x = plain(5)
    yield compiled(x)
    for change in (
        lambda: setattr(net, "k", 3),
        lambda: setattr(net, "k", 3.0),
        lambda: setattr(net.settings, "scale", -1),
        lambda: net.settings.nested["factors"].__setitem__(1, 5),
        lambda: net.settings.nested.__setitem__("factors", [1, 7]),
        lambda: setattr(net, "settings", _Settings()),
        lambda: net.skipped.add(1),
        lambda: setattr(net, "skipped", {2}),
        lambda: setattr(net, "activation", F.hardtanh),
        lambda: setattr(net, "activation", lambda x: x),
    ):
        change()
        yield compiled(x)
        yield compiled(x)


class _ActNorm(nn.Module):
    """Its parameters are set from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.is_set = nn.Parameter(to_device(torch.zeros(4))), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.is_set:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
            self.is_set = True
        return x + self.shift


class _Rotary(nn.Module):
    """What it computed for the longest sequence is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.longest, self.cos = 0, to_device(torch.empty(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.longest:
            self.longest = len(x)
            self.cos = torch.arange(len(x), device=x.device).cos()[:, None]
        return x * self.cos[: len(x)]


class _Queue(nn.Module):
    """Written in turn, where a number says."""

    queue: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", to_device(torch.zeros(6, 4)))
        self.place, self.places = 0, [0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.queue[self.place : self.place + 2] = x[:2]
        self.place = (self.place + 2) % 6
        self.places[0] += 1
        return self.queue.sum(0) * self.places[0]


@pytest.mark.parametrize("make", [_Counting, _ActNorm, _Rotary, _Queue])
@session
def test_counters_and_flags_that_a_module_sets_are_set_on_every_call(compile, make):
    net = to_device(make())
    compiled = compile(net)
    for k, n in enumerate((3, 3, 2, 5, 4, 6, 6)):
        yield (compiled(plain(n, 4, seed=k)), state(net), [v for v in vars(net).values() if isinstance(v, (int, list))])


@session
def test_an_annealed_temperature_of_a_module_is_read_on_every_call(compile):
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits, self.temperature = nn.Linear(4, 3), 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gumbel_softmax(self.logits(x), tau=self.temperature, hard=True)

    net = seeded(Choice())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = compile(net)
    for x in batches(5, 4):
        optimizer.zero_grad()
        y = compiled(x)
        (y * x[:, :3]).sum().backward()
        optimizer.step()
        net.temperature = max(net.temperature * 0.7, 0.3)
        yield y, state(net)


class _Every(nn.Module):
    """Does something in every tenth step."""

    written: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("written", to_device(torch.zeros(3)))
        self.step = 0

    def forward(self, x):
        self.step += 1
        if self.step % 10 == 0:
            self.written.add_(x)
        return x + self.written


@pytest.mark.filterwarnings("ignore:aotcheck")
@session
def test_a_branch_on_a_step_counter_of_a_module_is_taken_as_in_eager(compile):
    net = to_device(_Every())
    compiled = compile(net)
    for k in range(31):
        yield compiled(plain(3, seed=k)), net.step, net.written.clone()
