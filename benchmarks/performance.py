"""Writes docs/performance.md: what compiling and calling cost, against torch's ``aot_function``.

``python -m benchmarks.performance [--samples N] [--output FILE]``

Both compile the same functions with a compiler that looks at each node and returns the graph as it is, so what is
measured is the AOT autograd and nothing behind it. What counts is the time of the processor, and the two are
interleaved in one process, sample by sample, so that whatever else the machine does falls on both alike; the ratios
mean something, the microseconds do not.
"""

import argparse
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import functorch.compile
import torch
from torch import Tensor, fx

import aotcheck
from tests.behaviour.alias_free import ORDINARY

Function = Callable[..., Any]
Compile = Callable[[Function], Function]

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"

SLICE = 2e-3
"""Seconds that one timed batch of calls takes, roughly."""


@dataclass(frozen=True)
class Subject:
    """A function to compile, and how to make its arguments; those that require grad make it a training call."""

    name: str
    function: Function
    arguments: Callable[[], tuple[Tensor, ...]]


def update_buffer(buffer: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Mutates an input and returns an alias of an intermediate: the ordinary case of what is not functional."""
    y = torch.tanh(x @ w)
    buffer.mul_(0.9).add_(y.detach().sum(0), alpha=0.1)
    return y, y.view(-1)


def _subjects() -> tuple[Subject, ...]:
    chosen = ("mlp", "attention", "convolution block", "layer norm", "lstm cell")
    ordinary = {each.name: each for each in ORDINARY}
    generator = torch.Generator().manual_seed(0)
    return (
        *(Subject(name, ordinary[name].function, ordinary[name].arguments) for name in chosen),
        Subject(
            "buffer and alias",
            update_buffer,
            lambda: (
                torch.zeros(6),
                torch.randn(4, 8, generator=generator).requires_grad_(),
                torch.randn(8, 6, generator=generator).requires_grad_(),
            ),
        ),
    )


def _as_it_is(graph: fx.GraphModule, examples: Sequence[Any]) -> Function:
    """The graph, boxed: torch's runtime warns on every backward of one that is not, which would count.

    Looks at the example value of each node, as every compiler does: what is made only when somebody looks counts too.
    """
    for node in graph.graph.nodes:
        node.meta.get("val")
    boxed: Function = functorch.compile.make_boxed_func(graph)
    return boxed


def ours(function: Function) -> Function:
    """Compiled by aotcheck's ``aot_function``."""
    compiled: Function = aotcheck.aot_function(function, fw_compiler=_as_it_is, bw_compiler=_as_it_is)
    return compiled


def torchs(function: Function) -> Function:
    """Compiled by torch's."""
    compiled: Function = functorch.compile.aot_function(function, fw_compiler=_as_it_is, bw_compiler=_as_it_is)
    return compiled


def _fresh(function: Function) -> Function:
    """The function as an object that no cache has seen."""
    return lambda *arguments: function(*arguments)


def _train(function: Function, arguments: Sequence[Tensor]) -> None:
    outputs = function(*arguments)
    first = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
    torch.autograd.grad(first.sum(), [x for x in arguments if x.requires_grad], allow_unused=True)


def _seconds(action: Callable[[], object], times: int = 1) -> float:
    begin = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - begin) / times


@dataclass(frozen=True)
class Measured:
    """Seconds, ours and torch's."""

    ours: float
    torchs: float

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.torchs / self.ours

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x ({self.ours * 1e6:,.0f} / {self.torchs * 1e6:,.0f} us)"


def first_call(compile: Compile, function: Function, arguments: Callable[[], Sequence[Tensor]]) -> float:
    """Seconds of the first forward and backward of a fresh function: tracing, partitioning, generating the runtime."""
    given = arguments()
    compiled = compile(_fresh(function))
    return _seconds(lambda: _train(compiled, given))


def _first_calls(subject: Subject, samples: int) -> Measured:
    """The first call, in the median."""

    def sample(compile: Compile) -> float:
        return first_call(compile, subject.function, subject.arguments)

    for compile in (ours, torchs):
        sample(compile)
    pairs = [(sample(ours), sample(torchs)) for _ in range(samples)]
    return Measured(statistics.median(ours for ours, _ in pairs), statistics.median(torchs for _, torchs in pairs))


def _warm(subject: Subject, samples: int, run: Callable[[Function, Sequence[Tensor]], object]) -> Measured:
    """A call of what is compiled already: the minimum, which is what the call costs when nothing disturbs it."""
    arguments = subject.arguments()
    compiled = [compile(_fresh(subject.function)) for compile in (ours, torchs)]
    for each in compiled:
        for _ in range(5):
            run(each, arguments)
    times = max(1, int(SLICE / _seconds(lambda: run(compiled[1], arguments), 5)))

    def sample(each: Function) -> float:
        return _seconds(lambda: run(each, arguments), times)

    gc.collect()
    gc.disable()
    try:
        rows = [[sample(each) for each in compiled] for _ in range(samples)]
    finally:
        gc.enable()
    return Measured(min(row[0] for row in rows), min(row[1] for row in rows))


def _infer(function: Function, arguments: Sequence[Tensor]) -> None:
    with torch.no_grad():
        function(*arguments)


@dataclass(frozen=True)
class Row:
    """What was measured of one function."""

    name: str
    compile: Measured
    inference: Measured
    training: Measured


def measure(samples: int) -> list[Row]:
    """Measures every subject.

    Args:
        samples: how often each side is measured; three times as often for calls, which are short.
    """
    return [
        Row(
            subject.name,
            _first_calls(subject, samples),
            _warm(subject, 3 * samples, _infer),
            _warm(subject, 3 * samples, _train),
        )
        for subject in _subjects()
    ]


def report(rows: Sequence[Row], samples: int) -> str:
    """The page, in Markdown."""
    lines = [
        "# Performance",
        "",
        "`python -m benchmarks.performance` wrote this page: how many times faster aotcheck is than torch's own",
        "`functorch.compile.aot_function`, and microseconds (aotcheck's / torch's) in brackets. The compiler of both",
        "reads the example value of each node and returns the graph unchanged.",
        "",
        f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"{torch.get_num_threads()} thread; processor time; {samples} samples of each, interleaved in one process.",
        "",
        "| function | first call and backward (median) | inference call (minimum) | forward and backward (minimum) |",
        "| --- | --- | --- | --- |",
        *(f"| {row.name} | {row.compile} | {row.inference} | {row.training} |" for row in rows),
        "",
    ]
    for what, ratios in (
        ("Compiling", [row.compile.ratio for row in rows]),
        ("An inference call", [row.inference.ratio for row in rows]),
        ("Forward and backward", [row.training.ratio for row in rows]),
    ):
        lines.append(
            f"- {what}: {statistics.median(ratios):.2f}x torch's speed in the median, {min(ratios):.2f}x at worst."
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance", description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=15, help="samples of each side of each comparison")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    page = report(measure(options.samples), options.samples)
    _, more, kept = (
        options.output.read_text(encoding="utf-8").partition("\n## ") if options.output.exists() else ("",) * 3
    )
    options.output.write_text(page + more + kept, encoding="utf-8")  # sections that are written by hand stay
    print(page)


if __name__ == "__main__":
    main()
