"""What modules and functions do in Python beside computing; a size is the batch's."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import FunctionCtx

from aotcheck.backends import Promise
from aotcheck.zoo.model import Compiled, Kind, Place, Program, Schedule, model
from aotcheck.zoo.models.training import examples, mlp
from aotcheck.zoo.recipes import supervised


@model(Kind.CALLS, at_most=3)
def module_that_counts_its_calls(place: Place, sizes: Sequence[int]) -> Program:
    """A module that counts its calls in an attribute and remembers the last shape."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.calls = nn.Linear(4, 3), 0
            self.last: dict[str, Any] | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = {"shape": tuple(x.shape)}
            return self.linear(x)

    net = place(Counting())

    def step(call: Compiled, batch: Any) -> Any:
        net.zero_grad()
        output = call(batch[0])
        F.cross_entropy(output, batch[1]).backward()
        return output, net.calls, net.last

    return Program(net, step, examples(place, sizes), {"net": net})


@model(Kind.CALLS, at_most=2)
def library_of_a_tensor(place: Place, sizes: Sequence[int]) -> Program:
    """A function for several libraries: it asks which one the class of its argument is from."""
    net = place(nn.Linear(4, 3))

    def anything(x: Any) -> Any:
        library = x.__class__.__module__.split(".")[0]
        y = net(x)
        return y.softmax(-1) if library == "torch" else y * 0

    def step(call: Compiled, batch: Any) -> Any:
        net.zero_grad()
        output = call(batch[0])
        output.square().sum().backward()
        return output

    return Program(anything, step, examples(place, sizes), {"net": net})


@model(Kind.CALLS, at_most=4)
def training_and_evaluation_in_turn(place: Place, sizes: Sequence[int]) -> Program:
    """After each step of training the network is evaluated, in evaluation mode and without gradients."""
    net = place(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.4), nn.Linear(6, 3)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(call: Compiled, batch: Any) -> Any:
        net.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(call(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            scores = call(batch[0])
        return loss, scores.argmax(-1)

    return Program(net, step, examples(place, sizes), {"net": net})


@model(Kind.CALLS, at_most=2)
def dictionary_of_results(place: Place, sizes: Sequence[int]) -> Program:
    """A dictionary goes in, an ordered one comes out, with losses of several depths and detached features."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.heads = nn.ModuleDict({"early": nn.Linear(4, 3), "late": nn.Linear(4, 3)})

        def forward(self, batch: dict[str, torch.Tensor], *, scale: float = 1.0) -> dict[str, Any]:
            early = F.relu(self.first(batch["x"]))
            late = F.relu(self.second(early)) + early
            losses = {
                name: F.cross_entropy(self.heads[name](y) * scale, batch["wanted"])
                for name, y in (("early", early), ("late", late))
            }
            return OrderedDict(losses=losses, features=late.detach(), kept=early, classes=3)

    net = place(Deep())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(call: Compiled, batch: Any) -> Any:
        optimizer.zero_grad()
        output = call({"x": batch[0], "wanted": batch[1]}, scale=2.0)
        sum(output["losses"].values()).backward()
        optimizer.step()
        return output

    return Program(net, step, examples(place, sizes), {"net": net})


@model(Kind.CALLS, at_most=2)
def hooks_on_modules_and_gradients(place: Place, sizes: Sequence[int]) -> Program:
    """A forward hook that scales activations, and hooks on parameters that clip gradients when they have come."""
    net = mlp(place)

    def scale(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return output * 0.5

    net[0].register_forward_hook(scale)
    for p in net.parameters():
        p.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return supervised(net, examples(place, sizes))


@model(Kind.CALLS, at_most=2)
def straight_through_estimator(place: Place, sizes: Sequence[int]) -> Program:
    """Quantization-aware training: rounding whose gradient is a custom Function's."""

    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: FunctionCtx, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, scale)
            return (x / scale).round().clamp(-8, 7) * scale

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            x, scale = ctx.saved_tensors
            inside = ((x / scale) >= -8) & ((x / scale) <= 7)
            return gradient * inside, (gradient * x.sign() * ~inside).sum()

    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.05))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = Rounded.apply(self.linear.weight, self.scale)
            return F.linear(x, weight, self.linear.bias)

    return supervised(place(Quantized()), examples(place, sizes))


@torch.library.custom_op("aotcheck_zoo::scaled", mutates_args=("seen",))
def _scaled(x: torch.Tensor, seen: torch.Tensor | None = None, factor: float = 2.0) -> torch.Tensor:
    if seen is not None:
        seen.add_(1)
    return x * factor


@_scaled.register_fake
def _(x: torch.Tensor, seen: torch.Tensor | None = None, factor: float = 2.0) -> torch.Tensor:
    return torch.empty_like(x)


@model(Kind.CALLS, at_most=2, needs={Promise.MUTATION})
def custom_op_that_may_write(place: Place, sizes: Sequence[int]) -> Program:
    """A custom op before a layer, whose argument to write in is there in one call and None in the other."""

    class Custom(nn.Module):
        seen: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(_scaled(_scaled(x, factor=3.0), self.seen, 0.5))

    return supervised(place(Custom()), examples(place, sizes))


@model(Kind.CALLS, Schedule.STATIC, at_most=1)
def branch_by_a_value(place: Place, sizes: Sequence[int]) -> Program:
    """``torch.cond`` on what the data is, so that both branches are taken in turn."""
    net = place(nn.Linear(4, 3))

    def target(x: torch.Tensor) -> torch.Tensor:
        y = net(x)
        return torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,))

    def step(call: Compiled, batch: Any) -> Any:
        with torch.no_grad():
            return call(batch[0]), call(-batch[0])

    return Program(target, step, examples(place, sizes), {"net": net})


@model(Kind.CALLS, Schedule.STATIC, at_most=1)
def loop_while_a_value(place: Place, sizes: Sequence[int]) -> Program:
    """Newton's method in a ``while_loop``: how many turns it takes, the data says; none for what is solved already."""
    while_loop = torch.ops.higher_order.while_loop  # torch exports it nowhere

    def target(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        def unsolved(n: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return n > 0

        def turn(n: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return n - 1, y - (y * y - x) / (2 * y)

        return while_loop(unsolved, turn, (turns, x.clone()), ())[1]

    def step(call: Compiled, batch: Any) -> Any:
        x = batch[0].abs() + 1
        return [call(x, torch.tensor(n, device=x.device)) for n in (3, 0, 5)]

    return Program(target, step, examples(place, sizes))


@model(Kind.CALLS, Schedule.STATIC, at_most=1)
def early_exit(place: Place, sizes: Sequence[int]) -> Program:
    """A Python branch on a value: whether a second layer is asked depends on how sure the first one is."""

    class Exit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            if y.softmax(-1).amax() > 0.9:
                return y
            return self.second(F.relu(y))

    return supervised(place(Exit()), examples(place, sizes))
