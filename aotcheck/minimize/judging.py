"""A worker's answer about one program: the coarse key of its difference, and how eager behaved.

Note [Valid candidates]
    A candidate that fails under the same key is worth nothing if eager itself no longer gives it a well-defined
    outcome, or refuses it where it did not refuse the original: a message that happens to be the same is then another
    difference. So a candidate may only raise, in eager, what the original raises (phase, type and normalized message),
    and where the original's outcome is well defined by the inspection that strategies apply to what they draw, the
    candidate's must be too.
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
"""Runs a program in eager and raises where its outcome is not well defined."""


class InspectionError(Exception):
    """The inspection that was named cannot be imported. The message is one line, meant for the user."""


@dataclass(frozen=True)
class Subject:
    """What candidates are run on.

    Args:
        backend: as ``backends.resolve`` takes it.
        device: as ``torch.device`` takes it.
        inspection: ``module:attribute`` of an :data:`Inspection`; empty for none. A name, since workers import it
            themselves and this layer does not know strategies.
        expectations: what is not expected of the backend.
        baselines: backends whose differences do not count.
        held_to: the backend whose promises count, where that is another one: what a baseline does where nobody expects
            it to is the baseline's all the same.
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
        """Whether ``candidate`` behaves no odder than this, see Note [Valid candidates]."""
        return candidate.raises <= self.raises and (candidate.defined or not self.defined)


@dataclass(frozen=True)
class Judgement:
    """What a program shows.

    Args:
        key: the coarse key of its first hard difference; None where it has none.
        text: that difference for people; where there is none, why.
        eager: None where nobody could see it, since the worker died.
        shown: all coarse keys of the step that shows the first one, each with a difference for people.
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
    """How eager behaves on ``program``; raises what eager raises while the inputs are built."""
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
    """Run ``program`` and say what it shows, in a worker: a process that it has poisoned ends before the next one."""
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
