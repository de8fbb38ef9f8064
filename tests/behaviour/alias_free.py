"""Twenty functions without aliasing or mutation: the ordinary programs whose graphs should hold nothing superfluous."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Ordinary:
    """A function, and the shapes of its arguments, all of which require grad."""

    name: str
    function: Callable[..., Tensor | tuple[Tensor, ...]]
    shapes: tuple[tuple[int, ...], ...]

    def arguments(self, device: str = "cpu") -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(0)
        return tuple(torch.randn(s, generator=generator).to(device).requires_grad_() for s in self.shapes)


def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return F.linear(F.relu(F.linear(x, w1, b1)), w2, b2)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ v


def multi_head(x: Tensor, w: Tensor, out: Tensor) -> Tensor:
    batch, length, width = x.shape
    q, k, v = (F.linear(x, part).view(batch, length, 2, width // 2).transpose(1, 2) for part in w.unbind(0))
    mixed = attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
    return F.linear(mixed, out)


def conv_block(x: Tensor, w: Tensor, b: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    y = F.conv2d(x, w, b, padding=1)
    return F.max_pool2d(F.relu(F.batch_norm(y, None, None, gamma, beta, training=True)), 2)


def residual(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    return x + F.conv2d(F.silu(F.conv2d(x, w1, padding=1)), w2, padding=1)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gamma, beta)


def group_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return F.group_norm(x, 2, gamma, beta)


def rms_norm(x: Tensor, gamma: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gamma


def gated(x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
    return (F.silu(x @ w1) * (x @ w2)) @ w3


def cross_entropy(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits, torch.arange(logits.shape[0], device=logits.device) % logits.shape[1])


def soft_targets(logits: Tensor, targets: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(logits, -1), F.softmax(targets, -1), reduction="batchmean")


def lstm_cell(x: Tensor, h: Tensor, c: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    i, f, g, o = (x @ w + h @ u).chunk(4, -1)
    cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def embedding_bag(table: Tensor, w: Tensor) -> Tensor:
    index = torch.tensor([[0, 2, 1], [3, 3, 0]], device=table.device)
    return F.embedding(index, table).mean(1) @ w


def contrastive(a: Tensor, b: Tensor) -> Tensor:
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    return F.mse_loss(a @ b.t(), torch.eye(a.shape[0], device=a.device))


def rotary(x: Tensor, angle: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(-2)


ORDINARY = (
    Ordinary("mlp", mlp, ((4, 8), (16, 8), (16,), (3, 16), (3,))),
    Ordinary("attention", attention, ((2, 4, 8), (2, 4, 8), (2, 4, 8))),
    Ordinary("multi-head attention", multi_head, ((2, 3, 8), (3, 8, 8), (8, 8))),
    Ordinary("convolution block", conv_block, ((2, 3, 8, 8), (4, 3, 3, 3), (4,), (4,), (4,))),
    Ordinary("residual block", residual, ((2, 3, 6, 6), (4, 3, 3, 3), (3, 4, 3, 3))),
    Ordinary("layer norm", layer_norm, ((4, 8), (8,), (8,))),
    Ordinary("group norm", group_norm, ((2, 4, 5), (4,), (4,))),
    Ordinary("rms norm", rms_norm, ((4, 8), (8,))),
    Ordinary("gated feed-forward", gated, ((4, 8), (8, 6), (8, 6), (6, 8))),
    Ordinary("cross entropy", cross_entropy, ((5, 3),)),
    Ordinary("mean squared error", lambda x, y: F.mse_loss(x, y), ((5, 3), (5, 3))),
    Ordinary("huber loss", lambda x, y: F.smooth_l1_loss(x, y), ((5, 3), (5, 3))),
    Ordinary("binary cross entropy", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), ((5,), (5,))),
    Ordinary("soft targets", soft_targets, ((4, 3), (4, 3))),
    Ordinary("lstm cell", lstm_cell, ((2, 3), (2, 4), (2, 4), (3, 16), (4, 16))),
    Ordinary("embedding", embedding_bag, ((5, 4), (4, 2))),
    Ordinary("contrastive loss", contrastive, ((3, 4), (3, 4))),
    Ordinary("rotary embedding", rotary, ((2, 3, 4), (3, 2))),
    Ordinary("pooling", lambda x: F.avg_pool2d(x, 2).amax((2, 3)), ((2, 3, 4, 4),)),
    Ordinary("log-sum-exp and variance", lambda x: torch.logsumexp(x, 1) + x.var(1), ((4, 6),)),
)
