"""Which differences are soft because the backend does not promise that there are none.

A kind of difference is spelled as its oracle is, alone (``aliasing``: wherever it is seen) or of one role (``stride of
output``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from aotcheck.backends import Backend, ExpectationsError, Promise
from aotcheck.oracle.kinds import OracleKind, Role

__all__ = ["IGNORABLE", "SOFT_WITHOUT", "is_soft", "soft_kinds"]

_K = OracleKind

IGNORABLE = tuple(k.value for k in OracleKind if k not in (_K.POISONING, _K.CRASH, _K.TIMEOUT, _K.MEMORY))
"""The kinds that a run may ignore: all but those that end or spoil the process."""


def _of_output(*kinds: OracleKind) -> frozenset[str]:
    return frozenset(f"{kind.value} of {Role.OUTPUT.value}" for kind in kinds)


def _anywhere(*kinds: OracleKind) -> frozenset[str]:
    return frozenset(kind.value for kind in kinds)


SOFT_WITHOUT: Mapping[Promise, frozenset[str]] = {
    Promise.GRADIENTS: _anywhere(_K.REQUIRES_GRAD, _K.LEAFNESS, _K.GRAD_FN, _K.GRADIENT_NONE, _K.HOOK),
    Promise.ALIASING: _anywhere(_K.IDENTITY, _K.ALIASING)
    | _of_output(_K.STORAGE_OFFSET, _K.LEAFNESS, _K.GRAD_FN, _K.CONJ, _K.NEG, _K.INFERENCE),
    Promise.EFFECTS: _anywhere(_K.EFFECTS),
    Promise.STRIDES: _of_output(_K.STRIDE, _K.STORAGE_OFFSET, _K.STORAGE_SIZE, _K.CONJ, _K.NEG),
}
"""By promise, the differences that are soft where it is not given. That of containers needs both structures
(``compare.structures``)."""


def soft_kinds(backend: Backend) -> frozenset[str]:
    """The kinds of differences that are soft on ``backend``.

    Raises:
        ExpectationsError: the backend ignores something that is no kind of difference; the message lists those.
    """
    return _soft(backend.promises, backend.ignored)


@lru_cache(maxsize=64)
def _soft(promises: frozenset[Promise], ignored: frozenset[str]) -> frozenset[str]:
    for kind in sorted(ignored):
        if kind.partition(" of ")[0] not in IGNORABLE:
            raise ExpectationsError(f"unknown kind of difference '{kind}': choose of {', '.join(IGNORABLE)}")
    return ignored.union(*(kinds for promise, kinds in SOFT_WITHOUT.items() if promise not in promises))


def is_soft(kind: OracleKind, role: Role, soft: frozenset[str]) -> bool:
    """Whether a difference of ``kind`` seen in a thing of ``role`` is among ``soft`` kinds."""
    return kind.value in soft or f"{kind.value} of {role.value}" in soft
