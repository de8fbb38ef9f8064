"""How far a model's gradients are from a float64 run by eager's several kernels, and by a backend.

``python -m benchmarks.rounding MODEL --backend B [--seeds N] [--tensor NAME]``

The zoo allows a backend twice eager's distance from float64. Where a backend is further off, this says whether that is
rounding. If it is, eager with other kernels (channels-last memory, without oneDNN) is as far off. And the backend in
float64 comes nearer to eager by as much as float64 is finer than float32; a wrong formula does not.

MODEL has a module `net` in its state. Each seed draws weights and a batch, and one step is made. A Markdown table is
printed, a row for each kind of kernels:

- the largest distance of one tensor, as a multiple of eager's, in each seed;
- how many gradients are further off than the zoo allows, in each seed;
- the root mean square of the distances in a tensor, as a multiple of eager's: the median over tensors and seeds;
- the largest distance in any tensor, as a share of the largest gradient in any, in the worst seed.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from aotcheck._torch import pytree
from aotcheck.backends import resolve
from aotcheck.oracle.values import EQUAL, compare_values
from aotcheck.zoo import models as _models
from aotcheck.zoo.judge import TRAINED
from aotcheck.zoo.model import Compiled, Model, Place, Program, models_named
from aotcheck.zoo.run import Compile, compiler_of, uncompiled

T = TypeVar("T")

Gradients = Mapping[str, Tensor]
"""Of the parameters, by name."""


@dataclass(frozen=True)
class ChannelsLast(Place):
    """Modules and images are laid out channels-last."""

    def __call__(self, thing: T) -> T:
        """``thing`` moved and laid out so."""
        moved = super().__call__(thing)
        if isinstance(moved, nn.Module):
            return cast(T, moved.to(memory_format=torch.channels_last))  # type: ignore[call-overload]  # torch's own stub
        return cast(T, pytree.tree_map(_laid_out, moved))


def _laid_out(leaf: Any) -> Any:
    return leaf.contiguous(memory_format=torch.channels_last) if isinstance(leaf, Tensor) and leaf.ndim == 4 else leaf


class Kernels:
    """What makes a step of a model: kernels in a memory layout, of a dtype, perhaps compiled.

    Args:
        name: for the table.
        place: says layout and dtype.
        context: holds while a step is made.
        compile_target: what compiles; it does so once, whatever the seeds.
    """

    def __init__(
        self,
        name: str,
        place: Place,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        compile_target: Compile = uncompiled,
    ) -> None:
        self.name, self.place, self.context, self.compile_target = name, place, context, compile_target
        self.held: tuple[Program, Compiled] | None = None

    def gradients(self, model: Model, seed: int) -> Gradients:
        """Of the first step after ``seed``, in float64."""
        torch.manual_seed(seed)
        drawn = model.program(self.place)
        self.held = self.held or (drawn, self.compile_target(drawn.target))
        program, compiled = self.held
        net = program.state.get("net")
        if not isinstance(net, nn.Module):
            raise ValueError(f"'{model.name}' has no module `net` in its state, whose gradients could be compared")
        net.load_state_dict(drawn.state["net"].state_dict())
        torch.manual_seed(seed)
        with self.context():
            program.step(compiled, drawn.batches[0])
        return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


@dataclass
class Row:
    """What a kind of kernels showed: an entry for each seed, in `spread` for each seed and tensor.

    Of kernels of another dtype than eager's there is only `share`.

    Args:
        largest: the largest distance of the tensor that is looked at, as a multiple of eager's.
        over: how many gradients are further off than the zoo allows.
        share: the largest distance of any tensor, as a share of the largest gradient of all: some are zero but for
            rounding.
        spread: root mean squares of distances, as multiples of eager's.
    """

    largest: list[float] = field(default_factory=list)
    over: list[int] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)

    def add(self, eager: Gradients, found: Gradients, wide: Gradients, tensor: str) -> None:
        """Enter the gradients of a seed."""
        far = {name: (found[name].double() - wide[name]).abs() for name in wide}
        own = {name: (eager[name].double() - wide[name]).abs() for name in wide}
        self.share.append(_largest(far) / _largest(wide))
        if found[tensor].dtype is not eager[tensor].dtype:
            return
        self.largest.append(float(far[tensor].max() / own[tensor].max()))
        self.over.append(sum(_over_the_rule(eager[n], found[n], wide[n]) for n in wide))
        self.spread += [float(far[n].norm() / own[n].norm()) for n in wide]

    def text(self, name: str) -> str:
        """A line of the table."""
        largest = " ".join(f"{x:.1f}" for x in self.largest)
        spread = f"{median(self.spread):.2f}" if self.spread else ""
        return f"| {name} | {largest} | {' '.join(map(str, self.over))} | {spread} | {max(self.share):.0e} |"


def _largest(gradients: Gradients) -> float:
    return max(float(one.abs().max()) for one in gradients.values())


def _over_the_rule(eager: Tensor, found: Tensor, wide: Tensor) -> bool:
    told = compare_values(eager, found, reference=wide, exact=False, tolerance=TRAINED)
    return told.agreement is not EQUAL.agreement


def rows(model: Model, kernels: Sequence[Kernels], seeds: int, tensor: str = "") -> dict[str, Row]:
    """Measure kernels, by name; ``tensor`` is the one that is looked at, the first where it is empty."""
    wide = Kernels("float64", Place(wide=True))
    eager = Kernels("eager", Place())
    table = {one.name: Row() for one in kernels}
    for seed in range(seeds):
        reference, own = wide.gradients(model, seed), eager.gradients(model, seed)
        for one in kernels:
            found = one.gradients(model, seed)
            table[one.name].add(own, found, reference, tensor or next(iter(reference)))
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--tensor", default="", help="whose largest distance is told; the first parameter's")
    args = parser.parse_args()
    assert _models is not None
    (model,) = models_named([args.model])

    def without_onednn() -> AbstractContextManager[Any]:
        return cast(AbstractContextManager[Any], torch.backends.mkldnn.flags(enabled=False))

    backend = resolve(args.backend)
    kernels = [
        Kernels("eager", Place()),
        Kernels("eager, channels-last", ChannelsLast()),
        Kernels("eager without oneDNN", Place(), without_onednn),
        Kernels(f"`{args.backend}`", Place(), compile_target=compiler_of(backend)),
        Kernels(f"`{args.backend}` in float64", Place(wide=True), compile_target=compiler_of(backend)),
    ]
    table = rows(model, kernels, args.seeds, args.tensor)
    heads = (
        "kernels",
        "largest distance ÷ eager's",
        "gradients over the rule",
        "spread ÷ eager's",
        "of the largest gradient",
    )
    print(f"| {' | '.join(heads)} |", "| --- | --- | --- | ---: | ---: |", sep="\n")
    for name, row in table.items():
        print(row.text(name))


if __name__ == "__main__":
    main()
