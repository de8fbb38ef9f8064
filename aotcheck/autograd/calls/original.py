"""Runs what is compiled, the user's own function, once on replicas, and says what it gave."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.calls.containers import ContainerResult, Held, Structure, Watched, has_tensor_keys, shared_again
from aotcheck.autograd.calls.contents import has_tensor
from aotcheck.autograd.calls.escapes import Unkept
from aotcheck.autograd.calls.kept import Kept, Leaves, PutBack
from aotcheck.autograd.calls.module_state import ModuleState
from aotcheck.autograd.calls.places import Reached, There
from aotcheck.autograd.calls.specialize import PLAIN_LEAVES
from aotcheck.autograd.errors import RETRACES, RunsAsItIs, UnsupportedError, is_lack_of_data
from aotcheck.autograd.replicas.replicas import Replica, attribute_set
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

    ``containers`` where the function wrote or returned a container that it was passed, or returned one from around it.

    ``left`` is what was kept, as the trace left it.
    """

    spec: Any
    slots: tuple[int, ...]
    containers: ContainerResult | None
    kept: PutBack | None = None
    left: tuple[Kept, ...] = ()


def run_original(
    original: Callable[..., Any],
    state: ModuleState | None,
    asking_types: Sequence[dict[str, Any]],
    replicas: Sequence[Any],
    explicit: int,
    spec: Any,
    reassigned: list[tuple[int, Any]],
    reached: Reached,
) -> tuple[list[Any], int, Outcome]:
    """The user's function on replicas: flat outputs, so many, then what it put into containers and slots.

    ``replicas``, of which the first ``explicit`` are of what it is called with, laid out as ``spec`` says; those of the
    slots of a module's ``state`` follow, and ``reassigned`` is to hold which of these it assigned, and what.

    ``asking_types`` are the globals of code that calls ``type``, ``reached`` is what is around the original.

    Raises :class:`UserError` from what the function raises, and what the trace itself raises.
    """
    if not isinstance(spec, Structure):
        args, kwargs, watched = tuple(replicas[:explicit]), {}, None
    else:
        args, kwargs = pytree.tree_unflatten(list(replicas[:explicit]), spec.spec)
        if spec.shared is not None:
            args, kwargs = shared_again((args, kwargs), spec)
        watched = Watched(spec, args, kwargs)
    types, kept = PresentingTypes(asking_types), list[Kept]()
    try:
        if state is not None:
            with state.swapped(replicas[explicit:], reassigned, kept, reached), types:
                out = original(*args, **kwargs)
        else:
            with Unkept(original, kept=kept, reached=reached), types:
                out = original(*args, **kwargs)
    except Exception as error:
        # A guard that its frames hold, as Dynamo's code does of inference mode, puts the state back when it ends:
        # that is to be before ours is put back.
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, (UnsupportedError, *RETRACES)):
            raise
        if is_lack_of_data(error):
            raise UnsupportedError("data-dependent", "code of torch's reads values at trace time") from error
        raise UserError from error
    leaves = Leaves({} if watched is None else watched.held, reached, kept)
    flat_out, out_spec = leaves.of(out)
    contents, writes = ([], ()) if watched is None else watched.writes(leaves.of)
    in_result, leaves.there = tuple(leaves.there), []
    keyed, tail, put_back = has_tensor_keys(out_spec, Replica), list[Any](), None
    if writes:
        keyed = keyed or has_tensor([k for w in writes for k in w.keys or ()], Replica)
        keyed = keyed or any(has_tensor_keys(w.spec, Replica) for w in writes)
    if kept:
        left = [leaves.of(k.value, k) for k in kept]
        keyed = keyed or has_tensor([x for k in kept for x in k.keys_set()], Replica)
        keyed = keyed or any(has_tensor_keys(spec, Replica) for _, spec in left)
        tail = [t for flat_left, _ in left for t in flat_left]
        done = tuple([dataclasses.replace(k, holder=None, value=None, was=None) for k in kept])
        put_back = PutBack(done, tuple([spec for _, spec in left]), tuple(leaves.there))
    if keyed:
        raise RunsAsItIs("kept tensor", "it returns or leaves a dictionary that has a tensor for a key")
    count, containers = len(flat_out), None
    if writes or any(isinstance(o, (Held, There)) for o in flat_out) or any(isinstance(o, Held) for o in tail):
        keep = put_back if any(isinstance(o, Held) for o in tail) else None
        containers = ContainerResult(out_spec, count, writes, in_result, keep)
    flat_out += contents
    for t in (*replicas, *flat_out):
        if isinstance(t, Replica) and (name := attribute_set(t)) is not None:
            raise RunsAsItIs("attribute of a tensor", f"it sets the attribute {name!r} of a tensor")
    for o in (*flat_out, *tail):
        if not isinstance(o, (Tensor, Held, There)) and type(o) not in PLAIN_LEAVES and plain_key(o) is None:
            raise UnsupportedError("unregistered container", f"the function returns a {type(o).__name__}")
    slots = tuple([k for k, _ in reassigned])
    outcome = Outcome(out_spec, slots, containers, put_back, tuple(kept))
    assigned = [t for _, t in reassigned]
    rest = [*assigned, *tail] if containers is None or containers.keep is None else [*tail, *assigned]
    return [*flat_out, *rest], count, outcome
