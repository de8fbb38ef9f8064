"""Calls and their steps as dicts of plain data, the form in which scripts hold and run them.

:func:`plan_of` and :func:`fields_of` write that form, :func:`call_of` and :func:`step_of` read it.
"""

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar

from aotcheck.program.data.model import (
    Around,
    Backward,
    Call,
    Cotangent,
    Fill,
    GradMode,
    Graph,
    Hook,
    HookKind,
    Inputs,
    Of,
    Probe,
    Site,
    Step,
    Way,
    Write,
)

__all__ = ["call_of", "fields_of", "plan_of", "step_of"]

_DEFAULTS: Mapping[str, Any] = {"grad_mode": GradMode.ENABLED.value, "around": (), "before": (), "steps": ()}
"""The fields of a call beside its inputs, in the order in which they are written."""

_OLDER = {"grad_mode", "backward", "probes"}
E = TypeVar("E", bound=Enum)

_KINDS: Mapping[str, type[Step]] = {"backward": Backward, "probe": Probe, "hook": Hook}
_ENUMS: Mapping[str, type[Enum]] = {"of": Of, "way": Way, "graph": Graph, "site": Site, "how": Write, "kind": HookKind}
_LARGEST = 2**40


def fields_of(step: Step) -> dict[str, Any]:
    """A step as a dict of strings, integers and tuples, without fields that have their default, except where a probe
    writes and what."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(step, cls))
    found: dict[str, Any] = {"do": kind}
    for field in fields(step):
        value = getattr(step, field.name)
        if value != field.default or field.name == "seed":
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Cotangent):
        return value.fill.value, value.seed
    if isinstance(value, Enum):
        return value.value
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def plan_of(call: Call) -> dict[str, Any]:
    """A call without its inputs as a dict of plain data; fields that have their default are left out."""
    plan: dict[str, Any] = {
        "grad_mode": call.grad_mode.value,
        "around": _plain(call.around),
        "before": tuple(map(fields_of, call.before)),
        "steps": tuple(map(fields_of, call.steps)),
    }
    return {name: value for name, value in plan.items() if value != _DEFAULTS[name]}


def call_of(inputs: Inputs | None, given: Mapping[str, Any]) -> Call:
    """The call that :func:`plan_of` wrote, with these inputs; old scripts have a backward and probes in place of steps.

    Raises:
        ValueError: it describes none; the message says what is wrong, then what to do.
    """
    if set(given) == _OLDER:
        steps = _older_steps(given["backward"], given["probes"])
        return Call(inputs, enum_of(GradMode, given["grad_mode"]), steps)
    if odd := set(given) - set(_DEFAULTS):
        raise ValueError(f'a call has no {min(odd)[:40]!r}; use "inputs" and some of {", ".join(_DEFAULTS)}')
    plan = {**_DEFAULTS, **given}
    before = _steps_of(plan["before"])
    if any(isinstance(step, Backward) for step in before):
        raise ValueError("a backward before the call; put it among the steps of the call before")
    mode, around = enum_of(GradMode, plan["grad_mode"]), arounds_of(plan["around"])
    return Call(inputs, mode, _steps_of(plan["steps"]), before, around)


def _steps_of(given: Any) -> tuple[Step, ...]:
    if not isinstance(given, tuple) or not all(isinstance(step, Mapping) for step in given):
        raise ValueError('steps that are no dicts; write ({"do": "backward", "roots": (0,)},)')
    return tuple(map(step_of, given))


def _older_steps(backward: Any, probes: Any) -> tuple[Step, ...]:
    try:
        given = [] if backward is None else [{"roots": backward[0], "cotangents": (("pattern", backward[1]),)}]
        steps = [step_of({"do": "backward", **each}) for each in given]
        return (*steps, *(step_of({"do": "probe", "site": a, "index": b, "seed": c}) for a, b, c in probes))
    except (TypeError, IndexError):
        raise ValueError('an odd backward or probe; write "steps"') from None


def step_of(given: Mapping[str, Any]) -> Step:
    """The step that :func:`fields_of` wrote.

    Raises:
        ValueError: it is none; the message says what is wrong, then what to do.
    """
    rest = dict(given)
    kind = rest.pop("do", None)
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ValueError(f"{kind!r:.40} is no step; use one of {', '.join(_KINDS)}")
    known = {field.name for field in fields(cls)}
    for name in rest:
        if name not in known:
            raise ValueError(f"a {kind} has no {name[:40]!r}; use some of {', '.join(sorted(known))}")
    try:
        return cls(**{name: _typed(name, value) for name, value in rest.items()})
    except TypeError:
        raise ValueError(f"a {kind} that lacks something; give {', '.join(sorted(_required(cls)))}") from None


def _required(cls: type[Step]) -> set[str]:
    return {"roots"} if cls is Backward else {"site", "index"} | ({"kind"} if cls is Hook else set())


def _typed(name: str, value: Any) -> Any:
    if name in _ENUMS:
        return enum_of(_ENUMS[name], value)
    if name == "around":
        return arounds_of(value)
    if name == "cotangents":
        if not isinstance(value, tuple) or not value or not all(isinstance(v, tuple) and len(v) == 2 for v in value):
            raise ValueError('odd cotangents; write (("pattern", 0), ...)')
        return tuple(Cotangent(enum_of(Fill, fill), _integer(name, seed)) for fill, seed in value)
    if name in ("roots", "inputs"):
        if not isinstance(value, tuple):
            raise ValueError(f"odd {name}; write a tuple of indices")
        return tuple(_integer(name, index) for index in value)
    return _integer(name, value)


def arounds_of(value: Any) -> tuple[Around, ...]:
    """The contexts that a tuple of strings names."""
    if not isinstance(value, tuple):
        raise ValueError("odd contexts; write a tuple of strings")
    return tuple(enum_of(Around, one) for one in value)


def enum_of(cls: type[E], value: Any) -> E:
    """The member with a value."""
    try:
        return cls(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in cls)
        raise ValueError(f"{value!r:.40} is no {cls.__name__.lower()}; use one of {known}") from None


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError(f"odd {name}; write integers, not below 0")
    return value
