"""What tests of several headings use."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.behaviour.compilers import aotcheck, backend
from tests.behaviour.harness import Raised, attempt, attempt_later, check_session
from tests.behaviour.inputs import Given, given, leaf, plain, to_device

REASON = "higher-order op"


class Item:
    """Some object."""

    def __init__(self, x):
        self.x, self.n = x, 0


def through(compile, net, whole):
    """The module itself compiled, or a function that has it in its closure."""
    return compile(net) if whole else compile(lambda x: net(x))


class Cache:
    """What one layer keeps."""

    made = None

    def __init__(self):
        self.k, self.n = None, 0

    def update(self, k):
        self.k = k if self.k is None else torch.cat([self.k, k])
        self.n += 1
        return self.k

    @classmethod
    def table(cls, device):
        if cls.made is None:
            cls.made = torch.arange(3.0, device=device)
        return cls.made


def _places(container: Any, *tensors: torch.Tensor) -> list[int]:
    """Which tensor each key or member is, and -1 for others."""
    return [next((k for k, t in enumerate(tensors) if t is x), -1) for x in container]


class _Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(plain(3))
        self.factors = {self.w: 3}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factors.get(self.w, 1) + sum(p.sum() for p in self.parameters())


def _only_appended_to():
    log = []

    def f(x):
        log.append(len(x))
        log.extend(("a", "b"))
        return x * 2

    return f, log


def integers(module: nn.Module) -> nn.Module:
    """Small integers for parameters and buffers, so that results are exact."""
    with torch.no_grad():
        for k, tensor in enumerate([*module.parameters(), *module.buffers()]):
            tensor.copy_(plain(*tensor.shape, seed=k, dtype=tensor.dtype))
    return to_device(module)


class _Object:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def _other():
    return to_device(torch.tensor([2.0, 3.0, 5.0]))


def _net() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False)))


class _Counting(nn.Module):
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.register_buffer("mean", to_device(torch.zeros(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.mean.lerp_(x.mean(0), 1 / self.steps)
        return x - self.mean


@dataclasses.dataclass(slots=True)
class _Slots:
    factor: int = 2


def of_non_leaf(*views):
    def make() -> Given:
        root = leaf(8)
        base = root * 1
        return given(*[view(base) for view in views], also=[root, base])

    return make


MODES = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def facts(t: Tensor, others: list[Tensor]) -> Any:
    """What autograd says of ``t``; how eager refuses to say it goes by the names of nodes."""
    found = attempt(lambda: t.is_leaf)
    refused = isinstance(found, Raised)
    return (
        t.detach() if refused else t,
        "refused" if refused else found,
        t.requires_grad,
        [t._base is x for x in others],
    )


def same(function: Callable[..., Any], make: Callable[[], tuple[list[Tensor], list[Tensor]]], calls: int = 2) -> None:
    """``make`` gives arguments, and the leaves (and bases) behind them."""

    def session(compile):
        args, roots = make()
        compiled = compile(function)
        for _ in range(calls):
            outputs = attempt(lambda: compiled(*args))
            if isinstance(outputs, Raised):
                yield outputs
                return
            known = [*args, *roots]
            yield [facts(t, known) for t in [*args, *outputs]]
            for t in [*outputs, *args]:
                if t.requires_grad and (t.is_floating_point() or t.is_complex()):
                    ends = [x for x in [*roots, *args] if x.requires_grad and attempt(lambda x=x: x.is_leaf) is True]
                    g = attempt_later(
                        lambda t=t, ends=ends: torch.autograd.grad(t.sum(), ends, allow_unused=True, retain_graph=True)
                    )
                    yield "raised" if isinstance(g, Raised) else g

    check_session(session)


def view_of_leaf(mode: str = "grad", *shape: int) -> tuple[list[Tensor], list[Tensor]]:
    root = leaf(*shape or (2, 2))
    with MODES[mode]():
        return [root.t()], [root]


def view_of_non_leaf(mode: str = "grad", *shape: int) -> tuple[list[Tensor], list[Tensor]]:
    root = leaf(*shape or (2, 2))
    base = root * 1
    with MODES[mode]():
        return [base.t()], [root, base]


def uses_and_writes(x):
    y = x * 2
    with torch.no_grad():
        x.zero_()
    return [y]


def reshapes(x):
    x.unsqueeze_(0)
    v = x.unsqueeze(0)
    with torch.no_grad():
        v.transpose_(0, 1)
    return [v]


def moves_and_writes(x):
    x.data = torch.zeros((), device=x.device)
    v = x.expand(2)
    x.mul_(2)
    return [v]


CHANGES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.squeeze_(),
    "as_strided_": lambda x: x.as_strided_((2,), (1,), 1),
    "resize_": lambda x: x.resize_(2, 1),
    "resize_as_": lambda x: x.resize_as_(torch.empty(2, 1, device=x.device)),
    "detach_": lambda x: x.detach_(),
}


def _write_first(x, y):
    x.mul_(2)
    return y + 1


def _non_leaf() -> Given:
    root = leaf(2, 2)
    return given(root.clone(), leaf(2, 2, seed=3), also=[root])


def _alias() -> Given:
    root = leaf(2, 2)
    return given(root.clone().detach(), leaf(2, 2, seed=3), also=[root])


MAKERS = {
    "non-leaf": _non_leaf,
    "leaf": lambda: given(leaf(2, 2), leaf(2, 2, seed=3)),
    "plain": lambda: given(plain(2, 2), leaf(2, 2, seed=3)),
    "alias": _alias,
}


def _transposed_under_no_grad(v):
    with torch.no_grad():
        return v.t_()


VIEWS = {"part": lambda x: x[:1], "row": lambda x: x[0], "flat": lambda x: x.view(-1), "turned": lambda x: x.t()}


def non_leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Given:
    root = leaf(*shape, dtype=dtype)
    return given(root * 1, also=[root])


def view_with_history(*shape: int) -> Given:
    root = leaf(2, *shape)
    base = root * 1
    return given(base[1], also=[root, base])


INPUTS = {
    "plain": lambda: given(plain(2, 4)),
    "leaf": lambda: given(leaf(2, 4)),
    "non-leaf": lambda: non_leaf(2, 4),
    "view": lambda: view_with_history(2, 4),
}

KINDS_OF_VIEWS = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "slice": lambda x: x[:, 1:],
    "select": lambda x: x[1],
    "ellipsis": lambda x: x[...],
    "expand": lambda x: x.unsqueeze(0).expand(2, 2, 4),
    "squeeze": lambda x: x[:1].squeeze(0),
    "permute": lambda x: x.unsqueeze(0).permute(2, 0, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "movedim": lambda x: x.movedim(0, 1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(4, 2)),
    "and back": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 2)))[1],
    "dtype": lambda x: x.view(torch.int32),
    "dtype and back": lambda x: x.view(torch.int32).view(torch.float32),
    "narrower dtype": lambda x: x.view(torch.int16)[:, 2:],
    "as_strided": lambda x: x.as_strided((2, 2), (4, 2), 1),
    "as_strided of a view": lambda x: x[1:].as_strided((2,), (1,), 1),
    "long chain": lambda x: x.t()[1:].unsqueeze(0).transpose(0, 2)[:, ::2].expand(2, 2, 1),
    "detached": lambda x: x.detach(),
    "view of detached": lambda x: x.detach()[1],
    "data": lambda x: x.data[0],
    "alias": lambda x: torch.ops.aten.alias(x),
    "reshape": lambda x: x.reshape(4, 2),
    "flatten": lambda x: x.flatten(),
    "contiguous": lambda x: x.contiguous(),
    "to the same": lambda x: x.to(x.dtype),
    "view_as": lambda x: x.view_as(x),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2)[0],
    "unsafe_split": lambda x: torch.unsafe_split(x, 1)[1],
    "_unsafe_view": lambda x: torch.ops.aten._unsafe_view(x, (8,)),
}

GRAD_MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def leafness(t):
    found = attempt_later(lambda: (t.is_leaf, t.requires_grad, t.grad_fn is not None))
    return "refused" if isinstance(found, Raised) else found  # the message names nodes


def quietly(write):
    with torch.no_grad():
        write()


def arguments() -> Given:
    return given(leaf(4, 3), leaf(4, 3, seed=1), plain(2, 3))


asserted = pytest.mark.on_the_cpu(
    "a kernel on a GPU asserts that an index is in bounds: no op works in the process then"
)
"""Tests of values that an op does not take. On a GPU nothing raises there; it is the context that is lost."""

written_at_once = pytest.mark.on_the_cpu("on a GPU one kernel writes all tensors of a list at once")
"""Tests of a list op that is given tensors that share memory: which write comes last is a race on a GPU."""

again = pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")

KEPT = {"itself": lambda t: t.detach(), "what is computed": lambda t: t.detach() * 2}


def gradients(result, wanted):
    return torch.autograd.grad(result, wanted, torch.ones_like(result), allow_unused=True)


OF_THEMSELVES = {
    "tanh": lambda x: torch.tanh(x),
    "softmax": lambda x: torch.softmax(x, 0),
    "beside another result": lambda x: torch.exp(x) * 2 + x,
    "sigmoid in place": lambda x: x.sigmoid_(),
    "exp in place of a result": lambda x: (x * 2).exp_(),
}

PLACES = {"input": lambda x, y, z: x, "intermediate": lambda x, y, z: y, "result": lambda x, y, z: z}


def linear(*, frozen: bool = False) -> nn.Linear:
    net = to_device(nn.Linear(3, 3))
    with torch.no_grad():
        net.weight.copy_(plain(3, 3, seed=4))
        net.bias.copy_(plain(3, seed=5))
    return net.requires_grad_(not frozen)


def parameter_gradients(net):
    return [p.grad for p in net.parameters()]


def accumulated(net, how):
    for p in net.parameters():
        p.grad = torch.ones_like(p) if how == "ones" else None


def numbers(*parts, dtype=torch.complex64):
    return to_device(torch.tensor(parts, dtype=dtype)).requires_grad_()


INF = float("inf")


class GivesNothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return None, g


grad = functools.partial(torch.autograd.grad, allow_unused=True, retain_graph=True)


def _module_simplified(function):
    """``function`` of one tensor by way of ``aot_module_simplified``, which compiles at construction."""

    class Module(nn.Module):
        def forward(self, x):
            return (function(x),)

    made = []

    def call(x):
        if not made:
            made.append(aotcheck.aot_module_simplified(Module(), [x], fw_compiler=lambda graph, examples: graph))
        return made[0](x)[0]

    return call


class _Module(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


ENTRIES = {
    "aot_function": aotcheck.aot_function,
    "aot_module": lambda f: aotcheck.aot_module(_Module(f)),
    "aot_module_simplified": _module_simplified,
    "torch.compile": lambda f: torch.compile(f, backend=backend()),
}

AROUND = {
    "nothing": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "no cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "all": lambda: _all(),
}


@contextlib.contextmanager
def _all():
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16), torch.inference_mode():
        yield


STEPS = 10


def seeded(net: nn.Module) -> nn.Module:
    """``net`` with parameters that are the same each time."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) / 3)
    return to_device(net)


def batches(*shape: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        yield to_device(torch.randn(*shape, generator=generator))


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def state(*nets: nn.Module) -> list[dict[str, torch.Tensor]]:
    return [{k: v.detach() for k, v in net.state_dict().items()} for net in nets]
