"""What the nodes of autograd's graph keep for their backward.

Note [Formulas that read more]
The second derivative by a result of ``svd`` or ``slogdet`` comes by the others, and the formula for those reads more of
what the node keeps. Linear algebra is also differentiated by other formulas where gradients are to have a graph: by the
matrix, not its factors. No trace of a first backward shows it, nor one of a second what a third reads. So of what such
nodes keep, all is saved. And so it is of a custom Function with several results, whose backward may read other things
where one of them has no gradient, and of one that asked for nothing, but may where gradients are to have a graph.

Note [Looked up once]
To compile a function is to ask its nodes several times over what they keep, and each time they unpack it. Of a function
that only computes, as Note [Plain functions] says, they are asked once: from when that is known until it is compiled.
What was found is good as long as nothing of it was written since, by a custom backward, say.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from torch import Tensor
from torch.autograd.function import BackwardCFunction

from aotcheck import _torch
from aotcheck.autograd.replicas.kernel_state import KernelState
from aotcheck.autograd.replicas.replicas import Replica
from aotcheck.autograd.tensors.captured import reachable
from aotcheck.autograd.tensors.subclasses import leaves_of

_fields: dict[type, tuple[str, ...]] = {}
_EXPECTED = re.compile(r"expected version (\d+)")


class _Found(threading.local):
    """What was found of nodes, by node: see Note [Looked up once]. None where it is to be looked up each time."""

    is_compiling = False
    is_packed = True  # whether hooks may have packed anything
    packed: dict[Any, bool] | None = None
    kept: dict[Any, tuple[list[Tensor], list[int]]] | None = None


_found = _Found()


class Compiling:
    """A function is compiled inside, so ``look_up_once`` may be called; what is found is forgotten at the end."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _found.is_compiling, _found.is_packed, _found.packed, _found.kept
        _found.is_compiling, _found.is_packed, _found.packed, _found.kept = True, True, None, None

    def __exit__(self, *exception: object) -> None:
        _found.is_compiling, _found.is_packed, _found.packed, _found.kept = self._before


def look_up_once(is_packed: bool = True) -> None:
    """From now on nobody but a backward writes: see Note [Looked up once].

    ``is_packed``: whether hooks may have packed what nodes keep; of a custom Function they may in any case.
    """
    if _found.is_compiling and _found.kept is None:
        _found.packed, _found.kept, _found.is_packed = {}, {}, is_packed


def look_up_again() -> None:
    """Take ``look_up_once`` back."""
    _found.packed = _found.kept = None
    _found.is_packed = True


def holds_saved(node: Any, near: Tensor) -> bool:
    """Whether an autograd node, in the graph of the replica ``near``, keeps what its first backward frees.

    That is saved tensors, or the function of a write through a view; a custom Function that asks for what it saved does
    so in vain, even if it saved nothing, and of one that does not ask nobody knows that it is freed.
    """
    if not _raw_fields(type(node)) and _torch.tells_what_it_keeps(node):
        return False
    if isinstance(node, BackwardCFunction):
        kernels = kernels_of(near)
        if kernels.has_asked(node):
            return True
        if kernels.has_run(node):
            return False
    elif _torch.is_write_through_view(node):
        return True
    if has_packed(node):  # to unpack it here may run the user's program again, outside the trace
        return True
    try:
        return bool(saved_by(node, near))
    except RuntimeError:  # one was written since: eager will say so in the backward
        return True


def never_asks(node: Any, near: Tensor) -> bool:
    """Whether ``node`` is of a custom Function whose backward, as far as it ran, asks for nothing that it saved."""
    if not isinstance(node, BackwardCFunction):
        return False
    kernels = kernels_of(near)
    return kernels.has_run(node) and not kernels.has_asked(node)


def kernels_of(near: Tensor) -> KernelState:
    """What is known of the trace of the replica ``near``, a wrapper of replicas or a sparse one too."""
    kernels: KernelState = leaves_of(near)[0].kernels  # type: ignore[attr-defined]  # replicas of each kind have it
    return kernels


def saved_by(node: Any, near: Tensor) -> list[Tensor]:
    """The tensors that ``node``, in the graph of the replica ``near``, keeps.

    Raises:
        RuntimeError: one was written since, and the node's backward will say so.
    """
    found = _found.kept
    known = None if found is None else found.get(node)
    if known is not None and list(map(_torch.version_of, known[0])) == known[1]:
        return known[0]
    kept = _unpacked(node, near)
    if found is not None:
        found[node] = kept, list(map(_torch.version_of, kept))
    return kept


def _unpacked(node: Any, near: Tensor) -> list[Tensor]:
    names = _raw_fields(type(node))
    if not names:
        return _kept_by_opaque(node, near) if _torch.is_opaque(node) else []
    kept: list[Tensor] = []
    # Unpacking an output of the node detaches it; what unpacks for the user runs as the rest of the user's program.
    with contextlib.nullcontext() if has_packed(node) else _torch.meta_kernels():
        for name in names:
            custom = name == "_raw_saved_tensors"
            saved = _torch.saved_by_custom(node) if custom else getattr(node, name.replace("_raw", "", 1))
            kept += [s for s in (saved if isinstance(saved, (tuple, list)) else (saved,)) if isinstance(s, Tensor)]
    return kept


def kept_though_written(node: Any, candidates: Sequence[Tensor], cut: Sequence[Tensor]) -> list[Tensor]:
    """What ``node`` keeps as the object that it is, some of it written since.

    That only if it is one of ``candidates`` or a view of one; ``cut`` are those that were detached in place.
    """
    found: list[Tensor | None] = []
    with _torch.meta_kernels():
        for name, s in _raw_kept(node):
            if not isinstance(s, _torch.SavedTensor) or _torch.is_packed(s):
                continue
            try:
                found.append(_torch.unpack(s))
            except RuntimeError as error:
                version = expected_version(error)
                t = None if version is None else _unpacked_at(s, version, candidates)
                found.append(t)
                if t is None and len(cut) == 1 and _says_it_is_cut(node, name, cut[0], version):
                    found += cut
    return [t for t in found if t is not None]


def _says_it_is_cut(node: Any, name: str, cut: Tensor, version: int | None) -> bool:
    """Whether what ``node`` keeps by this name, at that ``version`` ago, is ``cut``, which was detached in place.

    What is its own result is known to the node alone.
    """
    now = _torch.version_of(cut)
    try:
        with _torch.as_if_written(cut, 0 if version is None else version - now):
            getattr(node, name.replace("_raw", "", 1))
    except (RuntimeError, AttributeError) as error:
        return "detached in-place" in str(error)
    return False


def expected_version(error: object) -> int | None:
    """At which version something was saved that was written since, where ``error`` says so."""
    found = _EXPECTED.search(str(error))
    return None if found is None else int(found[1])


def _unpacked_at(saved: Any, version: int, candidates: Sequence[Tensor]) -> Tensor | None:
    """What is ``saved``, at a ``version`` ago, if it counts versions with one of ``candidates``."""
    for t in candidates:
        with _torch.as_if_written(t, version - _torch.version_of(t)), contextlib.suppress(RuntimeError):
            return cast("Tensor | None", saved.unpack())
    return None


def objection(node: Any, near: Tensor) -> str | None:
    """What the node's backward raises because what it keeps was written since; None if nothing was."""
    if _torch.is_write_through_view(node) or has_packed(node) or never_asks(node, near):
        return None
    try:
        saved_by(node, near)
    except RuntimeError as error:
        return str(error)
    return None


def kept_in_vain(node: Any) -> RuntimeError | None:
    """What a node, of whichever graph, raises when it is asked for what it keeps; None if nothing."""
    try:
        for name in _raw_fields(type(node)):
            custom = name == "_raw_saved_tensors"
            _torch.saved_by_custom(node) if custom else getattr(node, name.replace("_raw", "", 1))
    except RuntimeError as error:
        return error
    return None


def keeps_itself(output: Tensor) -> bool:
    """Whether the node that made ``output`` keeps it, so that gradients of its gradients come by ``output``."""
    return output.output_nr in kept_results(_torch.grad_fn_of(output), output)


def kept_results(node: Any, near: Tensor) -> set[int]:
    """Which of its own results ``node``, in the graph of the replica ``near``, keeps."""
    if node is None or _torch.is_opaque(node):
        return set()
    if has_packed(node):  # of an op with a single result the name says that it is that which was packed
        return {0} if getattr(getattr(node, "_raw_saved_result", None), "unpack_hook", None) is not None else set()
    try:
        kept = saved_by(node, near)
    except RuntimeError:
        return set()
    return {t.output_nr for t in kept if t.grad_fn is node}


def _kept_by_opaque(node: Any, near: Tensor) -> list[Tensor]:
    """What a node keeps that tells nobody: the tensors that it misses when they have been written.

    Run without gradients it computes nothing, but looks whether what it keeps is as it was. Where torch takes a view
    for written whose base was cut from its history since, it fails to find one anew, and forgets that of the view.
    """
    near = leaves_of(near)[0]
    assert isinstance(near, Replica)
    if (packed := near.kernels.packed.get(_torch.sequence_number(node))) is not None:
        return packed  # hooks did, and what they gave nobody writes
    there: list[Tensor] = [*near.kernels.alive, *near.kernels.wrappers]
    alive = [t for t in there if _torch.version_of(t) >= 0]
    cut = [t for t in alive if t.requires_grad and _base_is_cut(t)]
    if cut:
        alive = [t for t, k in zip(alive, _torch.counted_by(alive, cut), strict=True) if k is None]
    views = [t for t in alive if t.requires_grad and _follows_its_base(t)]
    with _torch.meta_kernels():
        _torch.run_without_gradients(node)
        kept: list[Tensor] = []
        with _keeping_histories(views):
            for t in alive:
                with _torch.as_if_written(t):
                    try:
                        _torch.run_without_gradients(node)
                    except RuntimeError:
                        kept.append(t)
    return kept


def _base_is_cut(view: Tensor) -> bool:
    """Whether ``view`` has a history, and its base none that would give it one anew; no leaf ever gets one."""
    base = _torch.base_of(view)
    if base is None or base.requires_grad or _torch.leafness(view):
        return False
    return _follows_its_base(view)


def _follows_its_base(t: Tensor) -> bool:
    """Whether ``t`` is a view whose history autograd makes again where it was written."""
    return _torch.base_of(t) is not None and bool(_torch.creation_meta(t) == _torch.CreationMeta.DEFAULT)


@contextlib.contextmanager
def _keeping_histories(views: Sequence[Tensor]) -> Iterator[None]:
    """Inside, autograd raises where it would make the histories of ``views`` again, for a version that moved."""
    for t in views:
        _torch.set_creation_meta(t, _torch.CreationMeta.NO_GRAD_MODE)
    try:
        yield
    finally:
        for t in views:
            _torch.set_creation_meta(t, _torch.CreationMeta.DEFAULT)


def held_by_hooks(node: Any) -> list[Tensor] | None:
    """What hooks that packed what the node keeps have saved themselves to unpack it; None if none packed it.

    A checkpoint, say, computes it once more from what it was given.

    Raises:
        RuntimeError: one of these was written since.
    """
    if not has_packed(node):
        return None
    hooks = {id(hook): hook for _, s in _raw_kept(node) if (hook := getattr(s, "unpack_hook", None)) is not None}
    found = {id(x): x for hook in hooks.values() for x in reachable(hook)}.values()
    held = [x for x in found if isinstance(x, _torch.SavedTensor) and not _torch.is_packed(x)]
    with _torch.meta_kernels():
        unpacked = [_torch.unpack(x) for x in held]
        return unpacked + [t for x in found for t in _torch.saved_for_checkpoint(x)]


def saved_tensors(output: Tensor, stop: Iterable[Any], *, packed: bool = True) -> list[Tensor]:
    """What the nodes behind ``output`` keep; the search ends at the nodes ``stop``.

    What hooks of the user's packed is unpacked by them only if ``packed``, and left out else.
    """
    behind = nodes_behind_output(output, stop)
    return [t for node in behind if packed or not has_packed(node) for t in saved_by(node, output)]


def kept_for_derivatives(nodes: Iterable[Any], near: Tensor) -> list[Tensor]:
    """What ``nodes``, in the graph of ``near``, keep of which a first derivative may read less than a later one.

    See Note [Formulas that read more].
    """
    found: list[Tensor] = []
    for node in nodes:
        reads_more = bool(_raw_fields(type(node))) and (_reads_more_later(node) or never_asks(node, near))
        if reads_more and not has_packed(node):
            with contextlib.suppress(RuntimeError):  # written since: the backward raises
                found += saved_by(node, near)
    return found


def _reads_more_later(node: Any) -> bool:
    if isinstance(node, BackwardCFunction) and _torch.outputs_of(node) == 1:
        return False
    return _torch.outputs_of(node) > 1 or type(node).__name__.startswith("Linalg")


def unpack_snapshot(t: Tensor) -> Tensor:
    """What a trace kept where the caller has hooks around the call: see ``Capture._saving``."""
    return t


def has_packed(node: Any) -> bool:
    """Whether hooks of the user's packed what the node keeps, which to unpack may run more of the program."""
    if not _raw_fields(type(node)) or not (_found.is_packed or isinstance(node, BackwardCFunction)):
        return False
    found = _found.packed
    known = None if found is None else found.get(node)
    if known is None:
        known = any(getattr(s, "unpack_hook", None) not in (None, unpack_snapshot) for _, s in _raw_kept(node))
        if found is not None:
            found[node] = known
    return known


def _raw_kept(node: Any) -> Iterator[tuple[str, Any]]:
    """What the node keeps, by name, as it is kept; a custom Function whose backward has freed that does not tell."""
    for name in _raw_fields(type(node)):
        try:
            kept = getattr(node, name)
        except RuntimeError:
            return
        for s in kept if isinstance(kept, (tuple, list)) else (kept,):
            yield name, s


def _raw_fields(kind: type) -> tuple[str, ...]:
    """The attributes of such nodes that hold what they keep as it is kept."""
    names = _fields.get(kind)
    if names is None:
        names = _fields[kind] = tuple(n for n in dir(kind) if n.startswith("_raw_saved_"))
    return names


def nodes_behind_output(output: Tensor, stop: Iterable[Any]) -> list[Any]:
    """The nodes behind ``output``, its own first; the search ends at the nodes ``stop``."""
    start = _torch.grad_fn_of(output)
    seen = set(stop) - {start}
    found: list[Any] = []
    todo = [start]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found.append(node)
            for n, _ in node.next_functions:
                if n is not None and n not in seen:
                    todo.append(n)
    return found
