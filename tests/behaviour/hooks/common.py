"""What several tests of hooks use."""

import torch
from torch import nn


def _used_before(x, note):
    y = x.sin()
    y.register_hook(note("a", 3))
    w = y * 2
    y.mul_(5)
    y.register_hook(note("b", 2))
    return y, w


def _grad(y, x, create_graph):
    return torch.autograd.grad([y], [x], [torch.ones_like(y)], create_graph=create_graph)[0]


class Square(nn.Module):
    def forward(self, x):
        return x * x


class KeepsOutput(nn.Linear):
    def forward(self, x):
        self.out = super().forward(x)
        return self.out


class ReturnsFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        features = self.fc(x)
        return features, features * features


class KeepsFeatures(ReturnsFeatures):
    def forward(self, x):
        self.features, y = super().forward(x)
        return y
