"""Tensors for the behaviour tests, on the device that the tests run on, and the arguments of a call.

All hold small integers, so that equality can be bitwise whatever the order of additions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_device = "cpu"


def set_device(device: str) -> None:
    """Chooses where the tensors of this module's factories lie."""
    global _device
    _device = device


def chosen_device() -> str:
    """Where they lie."""
    return _device


def plain(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor that requires no gradient, of small integers none of which is zero."""
    values = [((7 * i + 3 * seed) % 11 - 5) or 6 for i in range(math.prod(shape))]
    # reshape gives a view, and a view is another kind of input: see the tests of aliases for those.
    return torch.tensor(values, dtype=dtype, device=_device).reshape(shape).clone()


def to_device(made: Any) -> Any:
    """A module or tensor that a test made by itself, where these factories make theirs: on the CPU the same object."""
    return made.to(_device)


def generator(seed: int) -> torch.Generator:
    """A generator for random numbers on the device of these factories."""
    return torch.Generator(_device).manual_seed(seed)


def random_state() -> torch.Tensor:
    """The states of the default generators, that of the CPU and that of the device of these factories."""
    states = [torch.get_rng_state()]
    return torch.cat(states if _device == "cpu" else [*states, torch.cuda.get_rng_state(_device)])


def leaf(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A leaf that requires grad."""
    return plain(*shape, seed=seed, dtype=dtype).requires_grad_()


@dataclass(frozen=True)
class Given:
    """Arguments, and tensors that are not passed but looked at all the same: the base of a view, the leaf behind it."""

    args: tuple[Any, ...]
    also: tuple[torch.Tensor, ...] = ()


def given(*args: Any, also: Sequence[torch.Tensor] = ()) -> Given:
    """Arguments of one call."""
    return Given(args, tuple(also))


def non_leaf(*shape: int, seed: int = 0) -> Given:
    """A tensor with a history, and the leaf behind it."""
    root = leaf(*shape, seed=seed)
    return given(root.clone(), also=[root])


def overlap(offset: int) -> Callable[[], Given]:
    """Two windows of four on eight numbers, the second so far behind the first."""

    def make() -> Given:
        base = plain(8)
        return given(base[:4], base[offset : offset + 4], also=[base])

    return make


def given_of(base: torch.Tensor, args: Callable[[torch.Tensor], tuple[Any, ...]]) -> Given:
    """Arguments that are made of ``base``, which is not passed but looked at all the same."""
    return given(*args(base), also=[base])
