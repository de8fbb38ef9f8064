"""Which layer of a stack of backends a difference comes from: the first, from below, that differs by itself.

Note [Layers]
torch's compilers do not let themselves be taken apart as ours does (Note [Ladder] of :mod:`aotcheck.blame.ladder`), but
each comes with simpler ones that have all of its layers but the topmost: Dynamo alone, Dynamo and the AOT autograd,
with decompositions and the min-cut partition, with a compiler. The program is run on each of them, every call compiled
anew, and the first that differs is to blame, whatever those above it show. If none differs, code that was used again
is.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aotcheck.backends import Backend, Expectations, resolve
from aotcheck.oracle import Outcome, Verdict, check
from aotcheck.program import Program


class Layer(enum.Enum):
    """What a backend adds to the one below it."""

    EAGER = "eager"
    DYNAMO = "Dynamo"
    AOT_AUTOGRAD = "AOT autograd"
    MIN_CUT = "min-cut partition"
    DECOMPOSITIONS = "decompositions and min-cut partition"
    COMPILER = "compiler"
    BACKEND = "backend"
    SECOND_CALL = "second call"


_DYNAMO = (Layer.DYNAMO, "dynamo_eager")
_AOT_EAGER = (_DYNAMO, (Layer.AOT_AUTOGRAD, "aot_eager"))
_DECOMPOSED = (*_AOT_EAGER, (Layer.DECOMPOSITIONS, "aot_eager_decomp_partition"))

STACKS: Mapping[str, tuple[tuple[Layer, str], ...]] = {
    "dynamo_eager": (_DYNAMO,),
    "dynamo+aotcheck": (_DYNAMO, (Layer.AOT_AUTOGRAD, "dynamo+aotcheck")),
    "aotcheck_inductor": ((Layer.AOT_AUTOGRAD, "aotcheck"), (Layer.COMPILER, "aotcheck_inductor")),
    "aot_function": ((Layer.AOT_AUTOGRAD, "aot_function"),),
    "aot_function_min_cut": ((Layer.AOT_AUTOGRAD, "aot_function"), (Layer.MIN_CUT, "aot_function_min_cut")),
    "aot_eager": _AOT_EAGER,
    "aot_eager_decomp_partition": _DECOMPOSED,
    "inductor": (*_DECOMPOSED, (Layer.COMPILER, "inductor")),
}
"""By backend, its layers from below and the backend that ends with each. One that is not listed is one layer."""


def layers_of(name: str) -> tuple[tuple[Layer, str], ...]:
    """The layers of a backend from below, each with the backend that ends with it."""
    return STACKS.get(name, ((Layer.BACKEND, name),))


@dataclasses.dataclass(frozen=True)
class Stacked:
    """A layer, the backend that ends with it, and what the oracles say of the program there."""

    layer: Layer
    backend: str
    verdict: Verdict


def climb_stack(
    program: Program, name: str, device: torch.device, expectations: Expectations | None = None
) -> tuple[Verdict, tuple[Stacked, ...]]:
    """What the oracles say of a program on a backend, and of its layers up to the first that differs; what is not
    expected of the backend is not expected of its layers.

    Raises:
        BackendError: a layer is not there.
    """
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _climb(program, name, device, expectations)
    finally:
        logging.disable(silenced)


def _climb(
    program: Program, name: str, device: torch.device, expectations: Expectations | None
) -> tuple[Verdict, tuple[Stacked, ...]]:
    found: list[Stacked] = []
    for layer, below in layers_of(name):  # from below: what is above may leave the process in no state to be judged
        found.append(Stacked(layer, below, check(program, anew(resolve(below, expectations)), device)))
        if found[-1].verdict.poisoned:
            return found[-1].verdict, tuple(found)
        if found[-1].verdict.outcome is Outcome.DIFFERS:
            break
    seen = check(program, resolve(name, expectations), device)
    if seen.outcome is not Outcome.DIFFERS:
        return seen, ()
    if found[-1].verdict.outcome is not Outcome.DIFFERS:
        found.append(Stacked(Layer.SECOND_CALL, name, seen))
    return seen, tuple(found)


def anew(backend: Backend) -> Backend:
    """The backend with each call compiled for itself, nothing of the calls before it in any cache."""

    def compile_each_call(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            backend.reset()
            return backend.compile(fn)(*args)

        return call

    return dataclasses.replace(backend, compile=compile_each_call)
