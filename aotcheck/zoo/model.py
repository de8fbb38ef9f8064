"""A model of the zoo as data: how it is built, what is compiled, and what a step does.

A model is a function that builds a :class:`Program` from a fixed seed: modules, optimizers, batches. The program names
one *target*, the module or function that a backend compiles once, and a *step* that calls the compiled target and does
the rest eagerly: loss, backward, optimizer. The runner (:mod:`aotcheck.zoo.run`) makes the steps of a schedule and
looks at everything afterwards.
"""

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from typing import Any, TypeVar, cast

import torch
from torch import nn

from aotcheck._torch import pytree
from aotcheck.backends import Promise

__all__ = [
    "LIBRARY_MODELS",
    "MODELS",
    "Compiled",
    "Kind",
    "Make",
    "Model",
    "Place",
    "Program",
    "Schedule",
    "UnknownModelError",
    "library_model",
    "model",
    "models_named",
]

T = TypeVar("T")

Compiled = Callable[..., Any]
"""The target of a program as a backend compiled it; eagerly, the target itself."""


class Kind(Enum):
    """What a model is an example of."""

    VISION = "vision"
    SEQUENCES = "sequences"
    GENERATION = "generation"
    GRAPHS = "graphs and recommendation"
    GENERATIVE = "generative"
    SECOND_ORDER = "second order"
    TRAINING = "training"
    CHECKPOINTS = "checkpoints"
    WRAPPERS = "wrappers"
    FUNCTIONS = "functions"
    CALLS = "calls"
    TORCHVISION = "torchvision"
    TIMM = "timm"
    TRANSFORMERS = "transformers"


class Schedule(Enum):
    """The sizes of a model's batches, one for each step; what a size counts, the model says."""

    STATIC = (4, 4, 4)
    """Each batch has the same size."""

    SMALLER_LAST_BATCH = (4, 4, 3)
    """A data set whose size is no multiple of the batch's."""

    GROWING_SEQUENCE = (3, 4, 5, 6)
    """Each sequence is longer than the one before."""

    MANY_LENGTHS = (2, 3, 5, 4, 7, 6, 9, 8, 11, 10)
    """Each sequence has a length of its own."""


@dataclass(frozen=True)
class Place:
    """Where and how precisely a program runs. Called with a module, a tensor or a pytree it moves tensors there.

    Programs draw everything in float32 on the CPU and move it: so the values are the same everywhere.

    Args:
        device: the device.
        wide: floating dtypes become float64, which inexact results are judged by.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    wide: bool = False

    def __call__(self, thing: T) -> T:
        """``thing`` moved: a module in place, tensors as new leaves."""
        if isinstance(thing, nn.Module):
            moved = thing.to(self.device)
            return cast(T, moved.double() if self.wide else moved)
        return cast(T, pytree.tree_map(self._moved, thing))

    def _moved(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().to(self.device, self.dtype(leaf.dtype)).requires_grad_(leaf.requires_grad)

    def dtype(self, dtype: torch.dtype) -> torch.dtype:
        """What stands for ``dtype`` here."""
        if not self.wide:
            return dtype
        return torch.float64 if dtype.is_floating_point else torch.complex128 if dtype.is_complex else dtype


@dataclass(frozen=True)
class Program:
    """A model that has been built.

    Args:
        target: the module or function that is compiled, once. A function may close over modules, tensors and
            optimizers.
        step: takes the compiled target and a batch, and returns what is compared with eager: a pytree of tensors and
            plain values.
        batches: one for each step.
        state: modules, optimizers, schedules, tensors and plain values that are compared after each step, by name.
    """

    target: Callable[..., Any]
    step: Callable[[Compiled, Any], Any]
    batches: Sequence[Any]
    state: Mapping[str, Any] = field(default_factory=dict)


Make = Callable[[Place, Sequence[int]], Program]
"""Builds a program at a place, with a batch for each of the sizes. The generators have been seeded."""


@dataclass(frozen=True)
class Model:
    """An entry of the zoo.

    Args:
        name: of the function that makes it.
        kind: what it is an example of.
        make: builds it.
        schedule: the sizes of its batches.
        at_most: how many compilations it may take; None where nobody has said.
        about: what it is, in a line.
        needs: what a backend must promise; one that does not has refused it.
    """

    name: str
    kind: Kind
    make: Make
    schedule: Schedule
    at_most: int | None
    about: str
    needs: frozenset[Promise] = frozenset()

    def program(self, place: Place) -> Program:
        """Build it."""
        return self.make(place, self.schedule.value)


class UnknownModelError(LookupError):
    """No model of that name, and the message names close ones; or the model's library is not installed."""


_models: dict[str, Model] = {}
_library_models: dict[str, Model] = {}

MODELS: Mapping[str, Model] = _models
"""Every model of our own by name, once :mod:`aotcheck.zoo.models` is imported."""

LIBRARY_MODELS: Mapping[str, Model] = _library_models
"""The same of models that libraries define, whether the libraries are installed or not; the kind is the library."""


def model(
    kind: Kind,
    schedule: Schedule = Schedule.SMALLER_LAST_BATCH,
    *,
    at_most: int | None = None,
    needs: Collection[Promise] = (),
) -> Callable[[Make], Make]:
    """Register the decorated function, which builds a program, under its name; the first line of its docstring says
    what it is. Gradients, and guards where sizes change, need not be named in ``needs``."""
    implied = frozenset({Promise.GRADIENTS} if kind is not Kind.GENERATION else {Promise.GUARDS})
    if schedule is not Schedule.STATIC:
        implied |= {Promise.GUARDS}

    def register(make: Make) -> Make:
        name = getattr(make, "__name__", "")
        if name in _models:
            raise ValueError(f"there are two models called '{name}'")
        about = next(iter((make.__doc__ or "").splitlines()), "")
        _models[name] = Model(name, kind, make, schedule, at_most, about, implied.union(needs))
        return make

    return register


def library_model(library: Kind, name: str, make: Make, about: str) -> None:
    """Register a model that a library defines, under the library's name and its own."""
    full = f"{library.value}.{name}"
    if full in _library_models:
        raise ValueError(f"there are two models called '{full}'")
    needs = frozenset({Promise.GRADIENTS, Promise.GUARDS, Promise.RANDOM})
    _library_models[full] = Model(full, library, make, Schedule.SMALLER_LAST_BATCH, 2, about, needs)


def models_named(names: Sequence[str], libraries: bool = False) -> tuple[Model, ...]:
    """The models of these names, each once; for no names all of our own, or all of libraries', by kind.

    Raises:
        UnknownModelError: there is no such model, or its library is not installed.
    """
    known = {**_models, **_library_models}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 3, 0.5)
            near, ours = " or ".join(f"'{one}'" for one in close), ", ".join(_models)
            hint = f"did you mean {near}?" if near else f"choose of {ours}"
            raise UnknownModelError(f"unknown model '{name}': {hint}")
    kinds = list(Kind)
    every = sorted((_library_models if libraries else _models).values(), key=lambda one: kinds.index(one.kind))
    chosen = [known[name] for name in dict.fromkeys(names)] if names else every
    for one in chosen:
        if one.name in _library_models and find_spec(one.kind.value) is None:
            raise UnknownModelError(f"'{one.name}' needs {one.kind.value}: pip install 'aotcheck[models]'")
    return tuple(chosen)
