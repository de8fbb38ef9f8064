"""A worker's answer about one program: the coarse key of its difference, and how eager behaved.

Note [Valid candidates]
    A candidate with the same key is of no use if its outcome in eager is not well defined, or if eager refuses the
    candidate and not the original: then the same message belongs to another difference. So in eager a candidate may
    raise only what the original raises (phase, type and normalized message). And if the original passes the inspection
    that strategies apply to the programs they draw, so must the candidate.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from aotcheck.backends import EVERYTHING, Backend, Expectations, require_device, resolve
from aotcheck.named import module_of
from aotcheck.oracle import CoarseKey, check
from aotcheck.oracle.execute import observe
from aotcheck.program import Program
from aotcheck.workers import POISONED

__all__ = ["Eager", "InspectionError", "Judgement", "Subject", "eager_behaviour", "judge", "load_inspection"]

Inspection = Callable[[Program], object]
"""Runs a program in eager and raises if its outcome is not well defined."""


class InspectionError(Exception):
    """The inspection that was named cannot be imported. The message is one line, meant for the user."""


@dataclass(frozen=True)
class Subject:
    """The backend and the device on which candidates run.

    Args:
        backend: as ``backends.resolve`` takes it.
        device: as ``torch.device`` takes it.
        inspection: ``module:attribute`` of an :data:`Inspection`; empty for none. A name, since workers import it
            themselves and this layer does not know strategies.
        expectations: what is not expected of the backend.
        baselines: backends whose differences do not count.
        held_to: the backend whose promises count, if it is another one: for a baseline it is the backend under test,
            since a difference is the baseline's even if the baseline does not promise the fact.
    """

    backend: str
    device: str = "cpu"
    inspection: str = ""
    expectations: Expectations = EVERYTHING
    baselines: tuple[str, ...] = ()
    held_to: str = ""

    def beside(self, baseline: str) -> Subject:
        """The same with a baseline in place of the backend, asked all that the backend is asked."""
        return replace(self, backend=baseline, inspection="", baselines=(), held_to=self.backend)


@dataclass(frozen=True)
class Eager:
    """How eager behaves on a program.

    Args:
        raises: phase, type and normalized message of all that it raises.
        defined: whether its outcome is well defined.
    """

    raises: frozenset[str]
    defined: bool

    def allows(self, candidate: Eager) -> bool:
        """True if ``candidate`` may take the place of a program that behaves so, see Note [Valid candidates]."""
        return candidate.raises <= self.raises and (candidate.defined or not self.defined)


@dataclass(frozen=True)
class Judgement:
    """What a program shows.

    Args:
        key: the coarse key of its first hard difference; None if it has none.
        text: that difference as text, or the reason why there is none.
        eager: how eager behaves; None if the worker died before that was known.
        shown: all coarse keys of the step with the first difference, each with a difference as text.
    """

    key: CoarseKey | None
    text: str = ""
    eager: Eager | None = None
    shown: tuple[tuple[CoarseKey, str], ...] = ()


def load_inspection(spec: str) -> Inspection:
    """The inspection that ``module:attribute`` names.

    Raises:
        InspectionError: there is no such thing.
    """
    if not spec:
        return lambda program: None
    try:
        found: Any = getattr(module_of(spec), spec.partition(":")[2])
    except (ImportError, AttributeError, ValueError) as error:
        raise InspectionError(f"inspection '{spec}' cannot be imported: {error}") from error
    if not callable(found):
        raise InspectionError(f"inspection '{spec}' is a {type(found).__name__}, not a function")
    inspection: Inspection = found
    return inspection


@cache
def _tools(subject: Subject) -> tuple[Backend, torch.device, Inspection]:
    backend = resolve(subject.backend, subject.expectations)
    if subject.held_to:
        asked = resolve(subject.held_to, subject.expectations)
        backend = replace(
            backend, promises=asked.promises, ignored=asked.ignored, rtol=asked.rtol, refuses=asked.refuses
        )
    return backend, require_device(subject.device), load_inspection(subject.inspection)


def eager_behaviour(program: Program, subject: Subject) -> Eager:
    """How eager behaves on ``program``. Raises what eager raises while the inputs are built."""
    _, device, inspection = _tools(subject)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            inspection(program)
            defined = True
        except Exception:  # that it raises is its answer
            defined = False
        seen = observe(program, _identity, device)
        return Eager(frozenset(f"{o.phase.value}: {o.raised.key}" for o in seen if o.raised is not None), defined)


def _identity(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


_poisoned = False


def judge(program: Program, subject: Subject) -> Judgement:
    """In a worker: run ``program`` and say what it shows. If the program spoils the process, the worker ends."""
    global _poisoned
    if _poisoned:
        os._exit(POISONED)
    eager = eager_behaviour(program, subject)
    backend, device, _ = _tools(subject)
    verdict = check(program, backend, device)
    _poisoned = verdict.poisoned
    if verdict.hard:
        return Judgement(verdict.hard[0].key, verdict.hard[0].text, eager, verdict.shown)
    return Judgement(None, ", ".join((verdict.outcome.value, *verdict.refusals)), eager)
