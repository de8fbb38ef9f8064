"""What the second compiler costs against torch's ``aot_function``, for docs/performance.md.

``python -m benchmarks.second [--samples N] [--growth | --zoo]``

As in ``benchmarks.performance``: processor time, interleaved in one process, and only ratios mean something. Graphs run
as they are. ``--growth`` prints by which power of their size, from 200 to 2,400, the first calls of programs grow;
``--zoo`` measures the zoo's modules. The share in brackets is eager's time by torch's: what both spend on kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from functorch.compile import aot_function as torchs_function
from functorch.compile import aot_module as torchs_module
from functorch.compile import nop
from torch import Tensor
from torch.nn import functional as F

import aotcheck.zoo.models  # noqa: F401  # fills MODELS
from aotcheck.autograd2 import aot_function, aot_module
from aotcheck.zoo.model import MODELS, Place
from benchmarks.performance import _seconds

Function = Callable[..., Any]
Program = tuple[Function, tuple[Any, ...]]
Rows = Sequence[tuple[float, ...]]


def _mlp(x: Tensor, *weights: Tensor) -> Tensor:
    for w in weights:
        x = torch.relu(x @ w)
    return x


def _block(x: Tensor, qkv: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
    for _ in range(3):
        b, t, c = x.shape
        h = F.layer_norm(x, (c,)) @ qkv
        q, k, v = (y.view(b, t, 4, c // 4).transpose(1, 2) for y in h.split(c, 2))
        attended = (q @ k.transpose(-2, -1) * 0.3).softmax(-1) @ v
        x = x + attended.transpose(1, 2).reshape(b, t, c) @ out
        x = x + F.gelu(F.layer_norm(x, (c,)) @ up) @ down
    return x


def _views(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(10):
        y = x.view(8, 4, 8).transpose(0, 1).unsqueeze(0)[:, :, 1:].squeeze(0).permute(1, 0, 2)
        x = torch.cat([y.flatten(1), x[:1]]) * w
    return x


def _chain(n: int, step: Callable[[Tensor, Tensor], Tensor]) -> Program:
    def function(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(n):
            x = step(x, w)
        return x * w

    return function, (torch.randn(8, 8), *_weights((8,)))


def _mutate(xs: list[Tensor], w: Tensor) -> Tensor:
    for x in xs:
        x.add_(1)
    return xs[0] * w


def _weights(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.nn.Parameter(torch.randn(shape) / 8) for shape in shapes]


def _aliased() -> Program:
    base = torch.zeros(2, 8)
    return lambda a, b, w: (a.mul_(2) + b).tanh() * w, (base[0], base[1], *_weights((8,)))


SIZED: dict[str, Callable[[int], Program]] = {
    "mutated inputs": lambda n: (_mutate, ([torch.zeros(4) for _ in range(n)], *_weights((4,)))),
    "outputs": lambda n: (lambda x: [x * 2 for _ in range(n)], (*_weights((4,)),)),
    "parameters": lambda n: (lambda ws: sum(ws[1:], ws[0]), (_weights(*[(4,)] * n),)),
    "ops": lambda n: _chain(n, lambda x, w: x * w),
    "views": lambda n: _chain(n, lambda x, w: x.t()),
}
SMALL: dict[str, Callable[[], Program]] = {
    "eight linear layers": lambda: (_mlp, (torch.randn(16, 64), *_weights(*[(64, 64)] * 8))),
    "transformer": lambda: (_block, (torch.randn(2, 16, 32), *_weights((32, 96), (32, 32), (32, 128), (128, 32)))),
    "views": lambda: (_views, (torch.randn(8, 32), *_weights((32,)))),
    "pointwise ops": lambda: _chain(10, lambda x, w: torch.tanh(x * w).sigmoid() - w),
    "aliased arguments": _aliased,
}  # fmt: skip
LARGE = {"mutated inputs": 400, "outputs": 400, "parameters": 2400}


def train(function: Function, arguments: tuple[Any, ...]) -> None:
    """A call and its backward."""
    result = function(*arguments)
    total = torch.stack(result).sum() if isinstance(result, list) else result.sum()
    given = [*arguments, *function.parameters()] if isinstance(function, torch.nn.Module) else arguments
    flat = [x for a in given for x in (a if isinstance(a, list) else [a])]
    torch.autograd.grad(total, [x for x in flat if isinstance(x, Tensor) and x.requires_grad], allow_unused=True)


def infer(function: Function, arguments: tuple[Any, ...]) -> None:
    """A call without gradients."""
    with torch.no_grad():
        function(*arguments)


def _compiled(ours: bool, function: Function, dynamic: bool) -> Function:
    if isinstance(function, torch.nn.Module):
        module: Function = aot_module(function) if ours else torchs_module(function, nop)
        return module
    fresh = lambda *arguments: function(*arguments)  # noqa: E731  # an object that no cache has seen
    return aot_function(fresh, dynamic=dynamic) if ours else torchs_function(fresh, nop, dynamic=dynamic)


def first_call(ours: bool, program: Program, dynamic: bool = False) -> float:
    """Seconds of the first call and backward."""
    function = _compiled(ours, program[0], dynamic)
    return _seconds(lambda: train(function, program[1]))


def later_calls(run: Callable[..., None], program: Program, samples: int) -> Rows:
    """Seconds of later calls: ours, torch's and eager's."""
    functions = [*(_compiled(ours, program[0], False) for ours in (True, False)), program[0]]
    for function in functions * 3:
        run(function, program[1])
    times = max(1, int(2e-3 / _seconds(lambda: run(functions[1], program[1]), 3)))
    calls = [functools.partial(run, function, program[1]) for function in functions]
    return [tuple(_seconds(call, times) for call in calls) for _ in range(samples)]


def ratio(rows: Rows) -> str:
    """torch's median by ours; and eager's by torch's, if that was measured."""
    ours, torchs, *eagers = (statistics.median(column) for column in zip(*rows, strict=True))
    return f"{torchs / ours:.2f}x" + "".join(f" ({eager / torchs:.2f})" for eager in eagers)


def zoo() -> Iterator[tuple[str, Program]]:
    """The zoo's modules that torch compiles and that return a tensor, each with the arguments of its first call."""
    for name, model in MODELS.items():
        torch.manual_seed(0)
        program = model.program(Place())
        called: list[Any] = []
        if isinstance(net := program.target, torch.nn.Module):
            with contextlib.suppress(_Called):
                program.step(functools.partial(_noted, called), program.batches[0])
            try:
                trained = (net, called[0])
                for ours in (False, True):
                    train(_compiled(ours, net, False), trained[1])
            except Exception as error:  # one of the two cannot, or the result is no tensor
                print(f"not measured: {name}: {type(error).__name__}", flush=True)
                continue
            yield name, trained


class _Called(Exception):
    """Ends a step where its model is called."""


def _noted(called: list[Any], *arguments: Any, **_: Any) -> Any:
    called.append(arguments)
    raise _Called


def row(name: str, program: Program, samples: int) -> str:
    """A row of the table. What is large is compiled less often, and with fixed sizes only."""
    cells, large = [name], name in LARGE or isinstance(program[0], torch.nn.Module)
    for dynamic in (False,) if large else (False, True):
        pairs = range(1 + (3 if large else samples))
        seconds = [(first_call(True, program, dynamic), first_call(False, program, dynamic)) for _ in pairs]
        cells.append(ratio(seconds[1:]))
    cells += [""] * large + [ratio(later_calls(run, program, samples)) for run in (infer, train)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second", description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=7, help="of each side")
    parser.add_argument("--growth", action="store_true", help="print how first calls grow")
    parser.add_argument("--zoo", action="store_true", help="measure the zoo's modules")
    options = parser.parse_args()
    torch.set_num_threads(1)
    gc.freeze()
    for name, make in SIZED.items() if options.growth else ():
        small, large = (statistics.median(first_call(True, make(n)) for _ in range(3)) for n in (200, 2400))
        print(f"{name}: n^{math.log(large / small, 12):.2f}", flush=True)
    for name, program in zoo() if options.zoo else ():
        print(row(name, program, options.samples), flush=True)
    programs = SMALL | {name: functools.partial(SIZED[name], n) for name, n in LARGE.items()}
    for name, made in programs.items() if not options.growth and not options.zoo else ():
        print(row(name, made(), options.samples), flush=True)


if __name__ == "__main__":
    main()
