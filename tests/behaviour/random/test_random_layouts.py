"""Drawn whatever the memory format."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.behaviour.harness import check, check_session, session, through_dynamo
from tests.behaviour.inputs import given, leaf, plain


@session
def test_rand_with_a_strided_out_argument_draws_as_eager(compile):
    f = compile(lambda x: torch.rand(3, out=x))
    for k in range(2):
        torch.manual_seed(k)
        base = plain(6)
        yield f(base[::2]), base


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.98])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (3, 5, 16)], ids=str)
@session
def test_dropout_of_a_transposed_tensor_draws_eagers_mask(compile, p, shape):
    f = compile(lambda x: F.dropout((x * 1).transpose(0, 1), p))
    x = leaf(*shape)
    for _ in range(30):
        y = f(x)
        x.grad = None
        y.sum().backward()
        yield y, x


CHANNELS_LAST = torch.channels_last


def weighted(t):
    """A sum in which each element has a weight of its own: its strides do not show, where its numbers lie does."""
    weights = torch.arange(1.0, t.numel() + 1, dtype=t.dtype, device=t.device).view(t.shape)
    return (t * weights).sum()


CONVOLVED = {
    "convolution": lambda x, w: F.conv2d(x, w),
    "strided convolution of one group each": lambda x, w: F.conv2d(x, w[:, :1], stride=2, groups=16),
    "transposed convolution": lambda x, w: F.conv_transpose2d(x, w),
    "pixel_shuffle": lambda x, w: F.pixel_shuffle(x, 2),
    "reflection padding": lambda x, w: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "roll": lambda x, w: x.roll(1, 2),
    "two convolutions": lambda x, w: F.conv2d(F.conv2d(x, w, padding=1).relu(), w),
    "convolution joined with its input": lambda x, w: torch.cat([F.conv2d(x, w, padding=1), x], 1),
}

FILLED = {
    "dropout": lambda t: F.dropout(t, 0.5),
    "dropout behind relu": lambda t: F.dropout(t.relu(), 0.5, inplace=True),
    "feature dropout": lambda t: F.dropout2d(t, 0.5),
    "bernoulli_": lambda t: torch.empty_like(t).bernoulli_(),
    "normal_": lambda t: torch.zeros_like(t).normal_(),
    "rand_like": torch.rand_like,
}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("memory_format", [CHANNELS_LAST, torch.contiguous_format], ids=["channels last", "contiguous"])
@pytest.mark.parametrize("fill", FILLED.values(), ids=FILLED)
@pytest.mark.parametrize("convolve", CONVOLVED.values(), ids=CONVOLVED)
def test_random_fills_after_a_convolution_draw_eagers_numbers(convolve, fill, memory_format, batch):
    def f(x, w):
        return weighted(fill(convolve(x, w)))

    def make():
        x = plain(batch, 16, 6, 6, dtype=torch.float64).to(memory_format=memory_format)
        return given(x.requires_grad_(), leaf(16, 16, 3, 3, seed=1, dtype=torch.float64))

    check(f, make)


class UNet(nn.Module):
    """Two levels, joined on the way up, with dropout in each block."""

    def __init__(self):
        super().__init__()

        def block(channels, out):
            return nn.Sequential(
                nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.Dropout(0.3)
            )

        self.down, self.bottom, self.end = block(3, 8), block(8, 16), nn.Sequential(block(16, 8), nn.Conv2d(8, 2, 1))
        self.pool, self.up = nn.MaxPool2d(2), nn.ConvTranspose2d(16, 8, 2, stride=2)

    def forward(self, x):
        down = self.down(x)
        return self.end(torch.cat([down, self.up(self.bottom(self.pool(down)))], 1))


class ResNet(nn.Module):
    """A residual block, global pooling, and dropout before the classifier."""

    def __init__(self):
        super().__init__()
        self.begin, self.block, self.norm = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 4))

    def forward(self, x):
        x = self.begin(x)
        return self.end(torch.relu(x + self.norm(self.block(x))))


@pytest.mark.parametrize("compile", [None, through_dynamo], ids=["aot_module", "dynamo"])
@pytest.mark.parametrize("memory_format", [CHANNELS_LAST, torch.contiguous_format], ids=["channels last", "contiguous"])
@pytest.mark.parametrize("kind", [UNet, ResNet])
def test_convolutional_networks_with_dropout_train_as_in_eager(kind, memory_format, compile):
    def session(compile):
        torch.manual_seed(0)
        model = kind().to(device=plain(1).device, memory_format=memory_format)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        compiled = compile(model)
        for step in range(2):
            x = plain(2, 3, 8, 8, seed=step).to(memory_format=memory_format)
            weighted(compiled(x)).mul(1e-4).backward()
            yield [p.grad.clone(memory_format=torch.contiguous_format) for p in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()

    check_session(session, compile=compile, rtol=1e-3)
