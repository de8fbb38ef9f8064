"""Real use: nets trained with optimizers end where eager training ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.behaviour.harness import Compile, check_session, through_dynamo

STEPS = 20


class ConvNet(nn.Module):
    """Convolutions and batch normalization, which mutates its running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classify = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(x).flatten(1))


class CountingMLP(nn.Module):
    """Counts its calls in a buffer, and scales by the count."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layers(x) * (1 + 1 / self.calls)


def train(net: nn.Module, compiled: nn.Module, optimizer: torch.optim.Optimizer, *shape: int) -> Iterator[object]:
    device = next(net.parameters()).device
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(6, *shape, generator=generator).to(device)
        y = torch.randint(4, (6,), generator=generator).to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        yield loss, dict(net.named_parameters()), dict(net.named_buffers()), optimizer.state_dict()["state"]


@pytest.fixture(params=["aot_module", "torch.compile"])
def way(request):
    """None for the recording `aot_module` of the harness."""
    torch._dynamo.reset()
    yield None if request.param == "aot_module" else through_dynamo
    torch._dynamo.reset()


def test_a_convolutional_net_with_batch_norm_by_sgd_with_momentum(way, device: str):
    def session(compile: Compile) -> Iterator[object]:
        net = ConvNet().to(device)
        return train(net, compile(net), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), 3, 8, 8)

    check_session(session, compile=way)


def test_an_mlp_with_a_buffer_counter_by_adam(way, device: str):
    def session(compile: Compile) -> Iterator[object]:
        net = CountingMLP().to(device)
        return train(net, compile(net), torch.optim.Adam(net.parameters(), lr=0.01), 10)

    check_session(session, compile=way)
