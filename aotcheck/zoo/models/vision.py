"""Networks over images; a size is the batch's."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck.backends import Promise
from aotcheck.zoo.model import Kind, Place, Program, Schedule, model
from aotcheck.zoo.recipes import supervised, training


def _images(place: Place, sizes: Sequence[int], channels: int = 3, side: int = 8) -> list[torch.Tensor]:
    return place([torch.randn(n, channels, side, side) for n in sizes])


def _channels_last(place: Place, net: nn.Module) -> nn.Module:
    moved: Any = place(net)
    return moved.to(memory_format=torch.channels_last)


def _labels(place: Place, sizes: Sequence[int], classes: int = 5) -> list[torch.Tensor]:
    return place([torch.randint(0, classes, (n,)) for n in sizes])


@model(Kind.VISION, at_most=2)
def conv_net(place: Place, sizes: Sequence[int]) -> Program:
    """Convolutions with batch norm and pooling, trained as a classifier."""
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return supervised(place(net), list(zip(_images(place, sizes), _labels(place, sizes), strict=True)))


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.norm_2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.first(x)))
        y = self.norm_2(F.dropout2d(self.second(y), 0.3, self.training))
        y = F.dropout(y, 0.4, self.training)
        y += x
        return F.relu(y)


@model(Kind.VISION, at_most=2, needs={Promise.RANDOM})
def resnet_channels_last(place: Place, sizes: Sequence[int]) -> Program:
    """Residual blocks with dropout, images and weights in channels-last memory."""
    stem, head = nn.Conv2d(3, 6, 3, padding=1), nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))
    net = _channels_last(place, nn.Sequential(stem, _Residual(6), _Residual(6), head))
    images = [x.contiguous(memory_format=torch.channels_last) for x in _images(place, sizes)]
    return supervised(net, list(zip(images, _labels(place, sizes), strict=True)))


@model(Kind.VISION, at_most=2)
def mobile_block(place: Place, sizes: Sequence[int]) -> Program:
    """An inverted residual block: depthwise convolution, squeeze and excitation, hard activations."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expand = nn.Sequential(nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(inplace=True))
            self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.GroupNorm(2, 8), nn.ReLU6())
            self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
            self.project = nn.Conv2d(8, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.depthwise(self.expand(x))
            scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
            return x + self.project(y * scale)

    net = nn.Sequential(Block(), nn.AvgPool2d(2), Block(), nn.Flatten(), nn.LazyLinear(5))
    net(torch.zeros(2, 4, 8, 8))
    images = _images(place, sizes, channels=4)
    return supervised(place(net), list(zip(images, _labels(place, sizes), strict=True)))


@model(Kind.VISION, at_most=2)
def u_net(place: Place, sizes: Sequence[int]) -> Program:
    """Down, up by a transposed convolution and by interpolation, with skip connections; every pixel has a class."""

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.deep = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
            self.middle = nn.Conv2d(6, 6, 3, padding=1)
            self.up = nn.ConvTranspose2d(6, 6, 2, stride=2)
            self.merge, self.head = nn.Conv2d(12, 4, 3, padding=1), nn.Conv2d(8, 3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one = F.relu(self.down(x))
            two = F.relu(self.deep(F.max_pool2d(one, 2)))
            three = F.relu(self.middle(F.max_pool2d(two, 2)))
            y = F.relu(self.merge(torch.cat([two, self.up(three)], 1)))
            y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
            return self.head(torch.cat([one, y], 1))

    wanted = place([torch.randint(0, 3, (n, 8, 8)) for n in sizes])
    return supervised(place(UNet()), list(zip(_images(place, sizes), wanted, strict=True)), F.cross_entropy)


@model(Kind.VISION, at_most=2)
def vision_transformer(place: Place, sizes: Sequence[int]) -> Program:
    """Patches, a class token and learned positions through an encoder."""

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 8, 4, stride=4)
            self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
            layer = nn.TransformerEncoderLayer(
                8, 2, 16, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.patches(x).flatten(2).transpose(1, 2)
            y = torch.cat([self.token.expand(len(x), -1, -1), y], 1) + self.positions
            return self.head(self.norm(self.encoder(y)[:, 0]))

    net = place(ViT())
    # A larger epsilon: the gradient of the keys' bias is rounding alone, which Adam would make as large as any other.
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, eps=1e-4)
    return supervised(
        net, list(zip(_images(place, sizes), _labels(place, sizes), strict=True)), F.cross_entropy, optimizer
    )


@model(Kind.VISION, at_most=2, needs={Promise.RANDOM})
def noise_behind_a_transposed_convolution(place: Place, sizes: Sequence[int]) -> Program:
    """A decoder whose noise is drawn into memory laid out as a convolution left its result."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.head = nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv2d(4, 1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.up(x)
            return self.head(y * torch.empty_like(y).bernoulli_(0.7))

    net = _channels_last(place, Decoder())
    images = [(x,) for x in _images(place, sizes, channels=4, side=5)]
    return training(net, images, lambda y: y.square().mean())


@model(Kind.VISION, at_most=2)
def super_resolution(place: Place, sizes: Sequence[int]) -> Program:
    """Pixel shuffle, then ``view`` where the layout allows it and ``reshape`` where not."""

    class Upscaler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Conv2d(3, 12, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.pixel_shuffle(self.features(x), 2)
            return y.view(len(x), -1) * 2 if y.is_contiguous() else y.reshape(len(x), -1) * 3

    net = _channels_last(place, Upscaler())
    images = [(x.contiguous(memory_format=torch.channels_last),) for x in _images(place, sizes, side=4)]
    return training(net, images, lambda y: y.abs().mean())


@model(Kind.VISION, Schedule.STATIC, at_most=2)
def detector_in_evaluation(place: Place, sizes: Sequence[int]) -> Program:
    """A frozen backbone in evaluation mode below a head that is trained, with boxes that are decoded in place."""

    class Detector(nn.Module):
        anchors: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()).eval()
            self.head = nn.Conv2d(6, 4, 1)
            self.register_buffer("anchors", torch.arange(64.0).reshape(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                features = self.backbone(x)
            boxes = self.head(features)
            boxes[:, :2] += self.anchors
            boxes[:, 2:] = boxes[:, 2:].exp()
            return boxes

    wanted = place([torch.rand(n, 4, 8, 8) for n in sizes])
    return supervised(place(Detector()), list(zip(_images(place, sizes), wanted, strict=True)), F.smooth_l1_loss)
