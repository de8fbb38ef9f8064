"""Which layer of a stack of backends a difference comes from: the first, from below, that differs by itself.

Note [Layers]
torch's compilers cannot be taken apart as ours can (Note [Ladder] of :mod:`aotcheck.blame.ladder`), but torch has
backends with fewer layers: Dynamo alone; with the AOT autograd; with decompositions and the min-cut partition; with a
compiler. The program runs on each of them, from the simplest on, every call compiled anew. The first one that differs
is to blame, whatever the others show. If none differs, the reuse of compiled code is to blame.

The inside of a user's backend is not known, but Dynamo counts traced frames. If there are any while the program runs,
it is a backend of ``torch.compile``, and Dynamo alone is the layer below it. If its graphs go through an AOT autograd,
torch's is the next layer.
"""

import dataclasses
import enum
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aotcheck._torch import dynamo_counts
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
"""By backend, its layers from below and the backend that ends with each. Of one that is not listed, what is below it is
seen when it runs."""


def layers_of(name: str) -> tuple[tuple[Layer, str], ...]:
    """The layers of a backend from below, each with the backend that ends with it."""
    return STACKS.get(name, ((Layer.BACKEND, name),))


@dataclasses.dataclass(frozen=True)
class Stacked:
    """A layer, the backend that ends with it, and what the oracles say of the program there."""

    layer: Layer
    backend: str
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Climbed:
    """What the oracles say of a program on a backend, and of its layers.

    Args:
        seen: what they say on the backend itself.
        stacked: the layers up to the first that differs; empty where the backend does not differ.
        layers: all layers, from below.
    """

    seen: Verdict
    stacked: tuple[Stacked, ...]
    layers: tuple[Layer, ...]


def climb_stack(program: Program, name: str, device: torch.device, expectations: Expectations | None = None) -> Climbed:
    """Run a program on a backend and on its layers, up to the first that differs; what is not expected of the backend
    is not expected of its layers.

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


def _climb(program: Program, name: str, device: torch.device, expectations: Expectations | None) -> Climbed:
    stack, known = layers_of(name), dict[str, Verdict]()
    if name not in STACKS:
        before = dynamo_counts()
        known[name] = check(program, anew(resolve(name, expectations)), device)
        stack = (*_below(before), *stack) if not known[name].poisoned else stack
    layers = tuple(layer for layer, _ in stack)
    found: list[Stacked] = []
    for layer, below in stack:  # from below: what is above may leave the process in no state to be judged
        verdict = known[below] if below in known else check(program, anew(_layer(below, name, expectations)), device)
        found.append(Stacked(layer, below, verdict))
        if verdict.poisoned:
            return Climbed(verdict, tuple(found), layers)
        if verdict.outcome is Outcome.DIFFERS:
            break
    seen = check(program, resolve(name, expectations), device)
    if seen.outcome is not Outcome.DIFFERS:
        return Climbed(seen, (), layers)
    if found[-1].verdict.outcome is not Outcome.DIFFERS:
        found.append(Stacked(Layer.SECOND_CALL, name, seen))
    return Climbed(seen, tuple(found), layers)


def _below(before: tuple[int, int]) -> tuple[tuple[Layer, str], ...]:
    """The layers below a backend, by what Dynamo has counted since it had counted ``before``."""
    frames, graphs = dynamo_counts()
    if frames == before[0]:
        return ()
    return _AOT_EAGER if graphs > before[1] else (_DYNAMO,)


def _layer(below: str, name: str, expectations: Expectations | None) -> Backend:
    """The backend ``below``; no more is expected of it than of the user's that is called ``name``."""
    layer = resolve(below, expectations)
    if name in STACKS:
        return layer
    whole = resolve(name, expectations)
    promises, ignored = layer.promises & whole.promises, layer.ignored | whole.ignored
    return dataclasses.replace(layer, promises=promises, ignored=ignored, rtol=max(layer.rtol, whole.rtol))


def anew(backend: Backend) -> Backend:
    """The backend with each call compiled for itself, nothing of the calls before it in any cache."""

    def compile_each_call(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            backend.reset()
            return backend.compile(fn)(*args)

        return call

    return dataclasses.replace(backend, compile=compile_each_call)
