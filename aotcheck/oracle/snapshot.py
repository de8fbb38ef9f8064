"""A copy of everything observable at one moment, which later steps cannot change.

A storage or an object has the name of the first place where it is found, in an order that is the same in every run of a
program. So two runs have the same sharing iff these names are equal, and a difference says which tensors share.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from aotcheck._torch import is_view, storage_key, version_of
from aotcheck.oracle.kinds import Role
from aotcheck.program.ops.subclasses import held
from aotcheck.program.running.harness import addressing, metadata, opened, plain


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """The observable facts of one tensor.

    ``is_leaf`` and ``grad_fn`` are as :func:`_history` says. ``addressing`` has the strides of sizes other than 1.
    ``storage`` and ``identity`` name the first place with the same storage or the same object. ``metadata`` is the
    context of a wrapper, whose inner tensors have facts of their own. ``value`` is a dense copy, or None if the tensor
    cannot be read (freed storage) or the copy of its storage has the values.
    """

    name: str
    role: Role
    type: str
    dtype: torch.dtype
    device: str
    shape: tuple[int | str, ...]
    stride: tuple[int | str, ...]
    addressing: tuple[int | str, ...]
    offset: int
    nbytes: int
    requires_grad: bool
    is_leaf: bool | str
    grad_fn: bool | str
    conj: bool
    neg: bool
    inference: bool
    version: int
    is_view: bool
    storage: str
    identity: str
    readable: bool
    value: torch.Tensor | None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GradientFacts:
    """A gradient: accumulated (``a0.grad``), returned (``result[0]``) or passed to a hook (``hook[0][1]``).

    ``value`` is None if there is no gradient, which is not the same as zeros.
    """

    name: str
    role: Role
    type: str
    dtype: torch.dtype | None
    shape: tuple[int | str, ...]
    stride: tuple[int | str, ...]
    requires_grad: bool
    value: torch.Tensor | None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All tensors of a call at one moment: inputs with the whole contents of their storages, outputs, gradients."""

    tensors: tuple[TensorFacts, ...]
    storages: tuple[tuple[str, torch.Tensor], ...]
    gradients: tuple[GradientFacts, ...]


def _extent(tensor: torch.Tensor) -> int:
    """The bytes of storage that reading ``tensor`` touches."""
    if tensor.numel() == 0:
        return 0
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return int(last + 1) * tensor.element_size()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """A dense copy, read from the storage: even ``detach`` raises on a view whose history autograd refuses."""
    plain = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    plain.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
    copied = plain.clone(memory_format=torch.contiguous_format)
    if tensor.is_conj():
        copied = copied.conj_physical()
    return copied.neg() if tensor.is_neg() else copied


def _contents(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of ``tensor``, in its dtype as far as that divides it, the rest in bytes left out."""
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    whole.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
    return whole.clone()


def snapshot(
    inputs: Iterable[tuple[str, torch.Tensor]],
    outputs: Iterable[tuple[str, torch.Tensor]],
    further: Iterable[tuple[Role, str, torch.Tensor | None]] = (),
) -> Snapshot:
    """Copy all that is observable of ``inputs``, ``outputs``, their gradients and ``further`` gradients."""
    with torch.no_grad():
        first_storage: dict[int, str] = {}
        first_object: dict[int, str] = {}
        facts: list[TensorFacts] = []
        storages: list[tuple[str, torch.Tensor]] = []
        gradients: list[GradientFacts] = []
        for role, group in ((Role.INPUT, inputs), (Role.OUTPUT, outputs)):
            for name, tensor in opened(dict(group)).items():
                key = storage_key(tensor)
                wraps = bool(held(tensor))
                nbytes = tensor.untyped_storage().nbytes()
                is_leaf, grad_fn = _history(tensor)
                readable = not wraps and _extent(tensor) <= nbytes
                if key not in first_storage and not wraps:
                    first_storage[key] = name
                    if role is Role.INPUT:
                        storages.append((name, _contents(tensor)))
                if id(tensor) not in first_object:
                    first_object[id(tensor)] = name
                    if tensor.requires_grad and is_leaf != "refused":
                        gradients.extend(_gradient(Role.GRADIENT, f"{name}.grad", tensor.grad))
                facts.append(
                    TensorFacts(
                        name=name,
                        role=role,
                        type=type(tensor).__qualname__,
                        dtype=tensor.dtype,
                        device=str(tensor.device),
                        shape=plain(tensor.shape),
                        stride=plain(tensor.stride()),
                        addressing=addressing(tensor),
                        offset=int(tensor.storage_offset()),
                        nbytes=nbytes,
                        requires_grad=tensor.requires_grad,
                        is_leaf=is_leaf,
                        grad_fn=grad_fn,
                        conj=tensor.is_conj(),
                        neg=tensor.is_neg(),
                        inference=tensor.is_inference(),
                        version=version_of(tensor),
                        is_view=is_view(tensor),
                        storage=name if wraps else first_storage[key],
                        identity=first_object[id(tensor)],
                        readable=readable,
                        value=_dense(tensor) if role is Role.OUTPUT and readable else None,
                        metadata=metadata(tensor),
                    )
                )
        for each in further:
            gradients.extend(_gradient(*each))
    return Snapshot(tuple(facts), tuple(storages), tuple(gradients))


def _history(tensor: torch.Tensor) -> tuple[bool | str, bool | str]:
    """Leafness, and whether there is a grad_fn.

    Both are "refused" for a view made under no_grad whose base was then written with grad enabled, and "asserted" where
    torch fails an assertion of its own: asked a second time it answers, so no backend need fail it too.
    """
    try:
        return tensor.is_leaf, tensor.grad_fn is not None
    except Exception as error:
        said = "asserted" if "INTERNAL ASSERT FAILED" in str(error) else "refused"
        return said, said


def _gradient(role: Role, name: str, gradient: torch.Tensor | None) -> Iterator[GradientFacts]:
    if gradient is None:
        yield GradientFacts(name, role, "None", None, (), (), False, None)
        return
    kind, shape, stride = type(gradient).__qualname__, plain(gradient.shape), plain(gradient.stride())
    if held(gradient):
        nothing = torch.empty(0, dtype=gradient.dtype)
        requires_grad = gradient.requires_grad
        yield GradientFacts(name, role, kind, gradient.dtype, shape, stride, requires_grad, nothing, metadata(gradient))
        for inner, t in held(gradient):
            yield from _gradient(role, f"{name}.{inner}", t)
        return
    dense = gradient.clone(memory_format=torch.contiguous_format)  # zeros may have no memory to read
    value = dense.resolve_conj().resolve_neg()
    yield GradientFacts(name, role, kind, gradient.dtype, shape, stride, gradient.requires_grad, value)
