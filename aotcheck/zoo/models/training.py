"""Ways to train; a size is the batch's."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck.backends import Promise
from aotcheck.zoo.model import Compiled, Kind, Place, Program, Schedule, model
from aotcheck.zoo.recipes import supervised, training


def mlp(place: Place, outputs: int = 3) -> nn.Sequential:
    """Two layers with a batch norm between them."""
    return place(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs)))


def examples(place: Place, sizes: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of (features, class)."""
    return place([(torch.randn(n, 4), torch.randint(0, 3, (n,))) for n in sizes])


@model(Kind.TRAINING, at_most=2)
def last_batch_is_smaller(place: Place, sizes: Sequence[int]) -> Program:
    """A step as everybody writes it."""
    return supervised(mlp(place), examples(place, sizes))


@model(Kind.TRAINING, at_most=2)
def ppo_loss(place: Place, sizes: Sequence[int]) -> Program:
    """A clipped policy loss with an entropy, by torch's distributions."""
    net = place(nn.ModuleDict({"policy": nn.Linear(4, 3), "value": nn.Linear(4, 1), "spread": nn.Linear(4, 1)}))

    def loss_of(x: torch.Tensor, action: torch.Tensor, before: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        chosen = torch.distributions.Categorical(logits=net["policy"](x), validate_args=False)
        spread = torch.distributions.Normal(net["value"](x).squeeze(1), F.softplus(net["spread"](x)).squeeze(1), False)
        ratio = (chosen.log_prob(action) - before).exp()
        clipped = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return -clipped - spread.log_prob(gain).mean() - 0.01 * chosen.entropy().mean()

    batches = place([(torch.randn(n, 4), torch.arange(n) % 3, -torch.rand(n) - 0.5, torch.randn(n)) for n in sizes])
    return training(net, batches, lambda loss: loss, target=loss_of)


@model(Kind.TRAINING, at_most=2)
def low_rank_adapters(place: Place, sizes: Sequence[int]) -> Program:
    """LoRA: frozen weights, and small factors that are trained."""

    class Adapted(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.linear = linear.requires_grad_(False)
            self.down = nn.Parameter(torch.randn(2, linear.in_features) / 2)
            self.up = nn.Parameter(torch.zeros(linear.out_features, 2))
            self.dropout = nn.Dropout(0.2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + self.dropout(x) @ self.down.T @ self.up.T * 0.5

    net = place(nn.Sequential(Adapted(nn.Linear(4, 8)), nn.GELU(), Adapted(nn.Linear(8, 3))))
    trained = [p for p in net.parameters() if p.requires_grad]
    return supervised(net, examples(place, sizes), optimizer=torch.optim.AdamW(trained, lr=0.05))


@model(Kind.TRAINING, at_most=4)
def moving_average(place: Place, sizes: Sequence[int]) -> Program:
    """A student that learns from a teacher, whose weights are the moving average of the student's."""
    student = mlp(place)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted = teacher(x).softmax(-1)
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return F.cross_entropy(student(x), wanted)

    def step(call: Compiled, batch: Any) -> Any:
        optimizer.zero_grad()
        loss = call(batch[0])
        loss.backward()
        optimizer.step()
        return loss

    return Program(loss_of, step, examples(place, sizes), {"student": student, "teacher": teacher})


@model(Kind.TRAINING, Schedule.STATIC, at_most=2)
def gradient_accumulation(place: Place, sizes: Sequence[int]) -> Program:
    """The optimizer steps after every second batch."""
    net = mlp(place)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    made = [0]

    def step(call: Compiled, batch: Any) -> Any:
        output = call(batch[0])
        (F.cross_entropy(output, batch[1]) / 2).backward()
        made[0] += 1
        if made[0] % 2 == 0:
            torch.nn.utils.clip_grad_value_(net.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        return output

    return Program(net, step, examples(place, sizes), {"net": net, "optimizer": optimizer})


def _whole_step(net: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Any]) -> Program:
    """A program whose target is the whole step of training: forward, backward and the optimizer."""

    def whole(x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Program(whole, lambda call, batch: call(*batch), batches, {"net": net, "optimizer": optimizer})


@model(Kind.TRAINING, Schedule.STATIC, at_most=2)
def sgd_step_inside(place: Place, sizes: Sequence[int]) -> Program:
    """The whole step is compiled, with SGD with momentum in it."""
    net = mlp(place)
    return _whole_step(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), examples(place, sizes))


@model(Kind.TRAINING, Schedule.STATIC, at_most=2)
def fused_adam_step_inside(place: Place, sizes: Sequence[int]) -> Program:
    """The whole step is compiled, with fused Adam in it, which asks for no values."""
    net = mlp(place)
    return _whole_step(net, torch.optim.Adam(net.parameters(), lr=0.01, fused=True), examples(place, sizes))


@model(Kind.TRAINING, Schedule.STATIC, at_most=2, needs={Promise.MUTATION})
def learning_rate_that_changes(place: Place, sizes: Sequence[int]) -> Program:
    """A step of gradient descent by hand, compiled, whose rate is a Python number that a schedule changes."""
    net = mlp(place)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def descend(weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: float) -> None:
        with torch.no_grad():
            for w, g in zip(weights, gradients, strict=True):
                w -= rate * g

    def step(call: Compiled, batch: Any) -> Any:
        net.zero_grad()
        loss = F.cross_entropy(net(batch[0]), batch[1])
        loss.backward()
        optimizer.step()  # what schedules want to see; the weights move twice
        parameters = list(net.parameters())
        call(parameters, [p.grad for p in parameters], schedule.get_last_lr()[0])
        schedule.step()
        return loss

    return Program(descend, step, examples(place, sizes), {"net": net, "schedule": schedule})


@model(Kind.TRAINING, at_most=2, needs={Promise.HALF})
def autocast_step(place: Place, sizes: Sequence[int]) -> Program:
    """Forward in bfloat16 under autocast, with a part that turns it off; weights and gradients in float32."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.gelu(self.norm(self.first(x)))
            with torch.autocast(x.device.type, enabled=False):
                y = y.to(self.last.weight.dtype)
                y = y / y.norm(dim=-1, keepdim=True)
            return self.last(y)

    net = place(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(call: Compiled, batch: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast(batch[0].device.type, torch.bfloat16):
            output = call(batch[0])
            loss = F.cross_entropy(output, batch[1])
        loss.backward()
        optimizer.step()
        return loss, output

    return Program(net, step, examples(place, sizes), {"net": net})


@model(Kind.TRAINING, Schedule.STATIC, at_most=3, needs={Promise.MUTATION})
def contrastive_with_a_queue(place: Place, sizes: Sequence[int]) -> Program:
    """Keys of a slow encoder go into a queue, which is a buffer that the forward writes at a position."""

    class Contrast(nn.Module):
        queue: torch.Tensor
        position: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.fast = nn.Linear(4, 4)
            self.slow = copy.deepcopy(self.fast).requires_grad_(False)
            self.register_buffer("queue", F.normalize(torch.randn(8, 4), dim=1))
            self.register_buffer("position", torch.zeros((), dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query = F.normalize(self.fast(x), dim=1)
            with torch.no_grad():
                key = F.normalize(self.slow(x + 0.1), dim=1)
            logits = torch.cat([(query * key).sum(1, keepdim=True), query @ self.queue.clone().T], 1) / 0.2
            with torch.no_grad():
                at = (self.position + torch.arange(len(x), device=x.device)) % 8
                self.queue[at] = key
                self.position += len(x)
            return logits

    batches = place([(torch.randn(n, 4),) for n in sizes])
    return training(
        place(Contrast()), batches, lambda out: F.cross_entropy(out, torch.zeros_like(out[:, 0], dtype=torch.long))
    )


@model(Kind.TRAINING, at_most=2, needs={Promise.MUTATION})
def buffer_that_counts(place: Place, sizes: Sequence[int]) -> Program:
    """A module that counts its calls in a buffer, and whose result depends on the count."""

    class Counting(nn.Module):
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.linear(x) * (1 + 1 / self.calls)

    return supervised(place(Counting()), examples(place, sizes))
