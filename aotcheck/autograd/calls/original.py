"""Runs what is compiled, the user's own function, once on replicas, and says what it gave."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.containers import ContainerResult, Held, Structure, Watched, flattened
from aotcheck.autograd.calls.escapes import Unkept
from aotcheck.autograd.calls.kept import Kept, PutBack
from aotcheck.autograd.calls.module_state import ModuleState
from aotcheck.autograd.calls.specialize import PLAIN_LEAVES
from aotcheck.autograd.errors import RETRACES, RunsAsItIs, UnsupportedError, is_lack_of_data
from aotcheck.autograd.replicas.replicas import attribute_set
from aotcheck.autograd.tensors.plain_values import plain_key
from aotcheck.autograd.tracing.presented_types import PresentingTypes

pytree = _torch.pytree


class UserError(Exception):
    """The traced program raised; its own error is the cause."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How what a traced function gave is put together.

    ``slots`` of the module were assigned; their new values come after the other flat results, and then those of what
    was ``kept``.

    ``containers`` where the function wrote or returned a container that it was passed.
    """

    spec: Any
    slots: tuple[int, ...]
    containers: ContainerResult | None
    kept: PutBack | None = None


def run_original(
    original: Callable[..., Any],
    state: ModuleState | None,
    asking_types: Sequence[dict[str, Any]],
    replicas: Sequence[Any],
    explicit: int,
    spec: Any,
    reassigned: list[tuple[int, Any]],
) -> tuple[list[Any], int, Outcome]:
    """The user's function on replicas: flat outputs, so many, then what it put into containers and slots.

    ``replicas``, of which the first ``explicit`` are of what it is called with, laid out as ``spec`` says; those of the
    slots of a module's ``state`` follow, and ``reassigned`` is to hold which of these it assigned, and what.

    ``asking_types`` are the globals of code that calls ``type``.

    Raises :class:`UserError` from what the function raises, and what the trace itself raises.
    """
    if not isinstance(spec, Structure):
        args, kwargs, watched = tuple(replicas[:explicit]), {}, None
    else:
        args, kwargs = pytree.tree_unflatten(list(replicas[:explicit]), spec.spec)
        watched = Watched(spec, args, kwargs)
    types, kept = PresentingTypes(asking_types), list[Kept]()
    try:
        if state is not None:
            with state.swapped(replicas[explicit:], reassigned, kept), types:
                out = original(*args, **kwargs)
        else:
            with Unkept(original, kept=kept), types:
                out = original(*args, **kwargs)
    except (UnsupportedError, *RETRACES):
        raise
    except Exception as error:
        if is_lack_of_data(error):
            raise UnsupportedError("data-dependent", "code of torch's reads values at trace time") from error
        # A guard that its frames hold, as Dynamo's code does of inference mode, puts the state back when it ends:
        # that is to be before ours is put back.
        traceback.clear_frames(error.__traceback__)
        raise UserError from error
    containers = None
    contents: list[Any] = []
    if watched is None:
        flat_out, out_spec = flattened(out)
    else:
        flat_out, out_spec = watched.flatten(out)
        contents, writes = watched.writes()
        if writes or any(isinstance(o, Held) for o in flat_out):
            containers = ContainerResult(out_spec, len(flat_out), writes)
    count = len(flat_out)
    flat_out += contents
    for t in (*replicas, *flat_out):
        if (name := attribute_set(t)) is not None:
            raise RunsAsItIs(f"it sets the attribute {name!r} of a tensor")
    left = [flattened(k.value) for k in kept]
    put_back = PutBack(tuple(kept), tuple([left_spec for _, left_spec in left])) if kept else None
    tail = [t for flat_left, _ in left for t in flat_left]
    for o in (*flat_out, *tail):
        if not isinstance(o, (Tensor, Held)) and type(o) not in PLAIN_LEAVES and plain_key(o) is None:
            raise UnsupportedError("unregistered container", f"the function returns a {type(o).__name__}")
    slots = tuple([k for k, _ in reassigned])
    outcome = Outcome(out_spec, slots, containers, put_back)
    return [*flat_out, *[t for _, t in reassigned], *tail], count, outcome
