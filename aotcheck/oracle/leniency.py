"""Which kinds of differences are soft, since the backend does not promise the fact or the run ignores the kind.

A kind is the name of its oracle, alone (``aliasing``: wherever it is seen) or with one role (``stride of output``).
"""

from collections.abc import Mapping
from functools import lru_cache

from aotcheck.backends import Backend, ExpectationsError, Promise
from aotcheck.oracle.kinds import OracleKind, Role

__all__ = ["IGNORABLE", "SOFT_WITHOUT", "is_soft", "soft_kinds"]

_K = OracleKind

IGNORABLE = tuple(k.value for k in OracleKind if k not in (_K.POISONING, _K.CRASH, _K.TIMEOUT, _K.MEMORY))
"""The kinds that a run may ignore: all that do not end or spoil the process."""


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
"""By promise, the differences that are soft without it. Those of containers depend on both structures
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
    """True if a difference of ``kind`` in a thing of ``role`` is among the ``soft`` kinds."""
    return kind.value in soft or f"{kind.value} of {role.value}" in soft
