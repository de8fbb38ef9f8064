"""Writes docs/memory.md: what a training step keeps and how much it takes at its peak, against torch's ``aot_module``.

``python -m benchmarks.memory [--output FILE]``

Both compile the same modules with a compiler that returns the graph as it is; torch's with its default partition, which
saves what the backward reads, as ours does. Bytes are those of tensors, as torch's own profiler reports each allocation
and each release, so they are the same on every run. *Saved* is what is alive between forward and backward besides the
parameters, the input and the loss; *peak* the most that is alive at any moment of forward and backward, gradients of
the parameters included.
"""

import argparse
import gc
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import functorch.compile
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aotcheck

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "memory.md"

Compile = Callable[[nn.Module], nn.Module]


# -- what is compiled --------------------------------------------------------------------------------


class ConvNet(nn.Module):
    """Convolutions with batch normalization and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1),
        )  # fmt: skip
        self.classify = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        out: Tensor = self.classify(self.features(x).flatten(1))
        return out


class TransformerBlock(nn.Module):
    """Attention and a feed-forward part, each behind a layer norm, with dropout."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output for (batch, length, width)."""
        n, length, width = x.shape
        qkv = self.project(self.norms[0](x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        weights = F.dropout(torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1), 0.1)
        x = x + self.merge((weights @ v).transpose(1, 2).reshape(n, length, width))
        out: Tensor = x + self.feed(self.norms[1](x))
        return out


class LstmLoop(nn.Module):
    """An LSTM cell in a Python loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(16, 32)

    def forward(self, xs: Tensor) -> Tensor:
        """The last state after (steps, batch, width)."""
        h = c = xs.new_zeros(xs.shape[1], 32)
        for x in xs.unbind():
            h, c = self.cell(x, (h, c))
        return h


class ResidualNet(nn.Module):
    """Residual blocks that are mostly norms and pointwise operations."""

    def __init__(self, blocks: int = 4, width: int = 64) -> None:
        super().__init__()
        self.groups = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(blocks))
        self.layers = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        """The output for (batch, width)."""
        for group, layer, mix in zip(self.groups, self.layers, self.mix, strict=True):
            y = F.silu(group(x))
            x = x + mix(y) * torch.sigmoid(layer(x))
        return F.normalize(x, dim=-1)


@dataclass(frozen=True)
class Subject:
    """A module to train, and the shape of its input."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]


SUBJECTS = (
    Subject(
        "mlp",
        lambda: nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 8)),
        (64, 64),
    ),
    Subject("convolutional net", ConvNet, (8, 3, 16, 16)),
    Subject("transformer block", TransformerBlock, (4, 16, 64)),
    Subject("lstm loop", LstmLoop, (8, 16, 16)),
    Subject("residual net of norms", ResidualNet, (64, 64)),
)


# -- compiling ---------------------------------------------------------------------------------------


def _as_it_is(graph: Callable[..., Any], _: Sequence[Any]) -> Callable[..., Any]:
    boxed: Callable[..., Any] = functorch.compile.make_boxed_func(graph)
    return boxed


def eager(module: nn.Module) -> nn.Module:
    """The module itself."""
    return module


def ours(module: nn.Module) -> nn.Module:
    """The module compiled by this project."""
    return aotcheck.aot_module(module, fw_compiler=_as_it_is, bw_compiler=_as_it_is)


def torchs(module: nn.Module) -> nn.Module:
    """The module compiled by torch."""
    compiled: nn.Module = functorch.compile.aot_module(
        module, fw_compiler=_as_it_is, bw_compiler=_as_it_is, partition_fn=functorch.compile.default_partition
    )
    return compiled


# -- measuring ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """Bytes of one training step."""

    saved: int
    peak: int


def measure(subject: Subject, compile: Compile) -> Use:
    """What a training step of ``subject`` takes when it is compiled so, and was run before."""
    torch.manual_seed(0)
    module = subject.make()
    compiled = compile(module)
    x = torch.randn(subject.shape)
    for _ in range(2):
        compiled(x).square().mean().backward()
    for p in module.parameters():
        p.grad = None
    gc.collect()
    with torch.autograd.profiler.profile(profile_memory=True) as forward:
        loss = compiled(x).square().mean()
    saved, peak_of_forward = _total_and_peak(forward)
    with torch.autograd.profiler.profile(profile_memory=True) as backward:
        loss.backward()
    _, peak_of_backward = _total_and_peak(backward)
    return Use(saved - loss.nbytes, max(peak_of_forward, saved + peak_of_backward))


def _total_and_peak(profile: Any) -> tuple[int, int]:
    """What was allocated and not released in the profiled block, and the most that was alive at once."""
    changes = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    total = peak = 0
    for change in sorted(changes, key=lambda e: e.start_ns()):
        total += change.nbytes()
        peak = max(peak, total)
    return total, peak


# -- the report --------------------------------------------------------------------------------------


def report(results: Sequence[tuple[Subject, Use, Use, Use]]) -> str:
    """docs/memory.md."""
    lines = [
        "# Memory",
        "",
        "`python -m benchmarks.memory` wrote this page: bytes of tensors in one training step, of eager, of torch's",
        "`functorch.compile.aot_module` with its default partition, and of aotcheck. *Saved* counts tensors between",
        "forward and backward, without parameters, input and loss. *Peak* is the most bytes alive at any moment.",
        "",
        f"torch {torch.__version__}, Python {platform.python_version()}.",
        "",
        "| module | saved: eager | torch | aotcheck | peak: eager | torch | aotcheck |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for subject, plain, theirs, mine in results:
        cells = [plain.saved, theirs.saved, mine.saved, plain.peak, theirs.peak, mine.peak]
        lines.append(f"| {subject.name} | {' | '.join(f'{c:,}' for c in cells)} |")
    worse = [s.name for s, _, theirs, mine in results if mine.saved > theirs.saved or mine.peak > theirs.peak]
    lines += ["", f"Modules where aotcheck needs more than torch: {', '.join(worse) if worse else 'none'}.", ""]
    return "\n".join(lines)


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = [(s, measure(s, eager), measure(s, torchs), measure(s, ours)) for s in SUBJECTS]
    text = report(results)
    arguments.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
