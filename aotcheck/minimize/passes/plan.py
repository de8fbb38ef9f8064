"""A pass over what the caller does: calls, their steps, and whether they share inputs."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from typing import Any

from aotcheck.program import Call, Inputs, Program

__all__ = ["delete_calls", "delete_steps", "same_inputs", "simplify_steps"]


def _effective(calls: tuple[Call, ...], index: int) -> Inputs | None:
    """The inputs of a call, or of the call whose arguments it reuses."""
    return next((c.inputs for c in reversed(calls[: index + 1]) if c.inputs is not None), None)


def _with_calls(program: Program, kept: list[int]) -> Program:
    """Some of the calls; one that reused the arguments of a call that is gone gets inputs of its own."""
    made: list[Call] = []
    for place, index in enumerate(kept):
        call = program.calls[index]
        if call.inputs is None and (place == 0 or kept[place - 1] != index - 1):
            call = replace(call, inputs=_effective(program.calls, index))
        made.append(call)
    return replace(program, calls=tuple(made))


def delete_calls(program: Program) -> Iterator[Program]:
    """Each call alone, then all but each."""
    count = len(program.calls)
    if count > 1:
        for index in range(count):
            yield _with_calls(program, [index])
    if count > 2:
        for index in range(count):
            yield _with_calls(program, [i for i in range(count) if i != index])


def _with_call(program: Program, index: int, call: Call) -> Program:
    return replace(program, calls=(*program.calls[:index], call, *program.calls[index + 1 :]))


def _defaults(call: Call) -> dict[str, object]:
    """The fields of a call that are not at their default, with it."""
    return {
        f.name: f.default
        for f in fields(Call)
        if f.name != "inputs" and f.default is not MISSING and getattr(call, f.name) != f.default
    }


def delete_steps(program: Program) -> Iterator[Program]:
    """Nothing but the call; then all of a kind, and each step on its own."""
    for index, call in enumerate(program.calls):
        defaults = _defaults(call)
        if len(defaults) > 1:
            yield _with_call(program, index, replace(call, **defaults))  # type: ignore[arg-type]  # its own defaults
        for name, default in defaults.items():
            yield _with_call(program, index, replace(call, **{name: default}))  # type: ignore[arg-type]
            value = getattr(call, name)
            for i in range(len(value) if isinstance(value, tuple) else 0):
                yield _with_call(program, index, replace(call, **{name: value[:i] + value[i + 1 :]}))


def same_inputs(program: Program) -> Iterator[Program]:
    """A later call on the same arguments again, or on equal ones."""
    for index, call in enumerate(program.calls[1:], 1):
        before = _effective(program.calls, index - 1)
        if call.inputs is not None and before is not None:
            yield _with_call(program, index, replace(call, inputs=None))
            yield _with_call(program, index, replace(call, inputs=before))


def simplify_steps(program: Program) -> Iterator[Program]:
    """Each entry of a step or a call at its default, or smaller: fewer roots, plainer cotangents, first indices."""
    for index, call in enumerate(program.calls):
        for name in _defaults(call):
            for value in _simpler(getattr(call, name)):
                yield _with_call(program, index, replace(call, **{name: value}))


def _simpler(value: Any) -> Iterator[Any]:
    """What is simpler than a part of the plan, of the same kind: a number, a choice, several, an entry."""
    match value:
        case bool() | None:
            return
        case int():
            yield from range(value)
        case Enum():
            yield from list(type(value))[: list(type(value)).index(value)]
        case tuple():
            if len(value) > 1:
                yield from ((item,) for item in value)
                yield from (value[:i] + value[i + 1 :] for i in range(len(value)))
            for i, item in enumerate(value):
                for simpler in _simpler(item):
                    yield (*value[:i], simpler, *value[i + 1 :])
        case _ if is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                old = getattr(value, field.name)
                if field.default is not MISSING and old != field.default:
                    yield replace(value, **{field.name: field.default})
                for simpler in _simpler(old):
                    yield replace(value, **{field.name: simpler})
