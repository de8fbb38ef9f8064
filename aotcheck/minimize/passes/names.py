"""A pass over names: lets statements read earlier names, and in the end makes all names canonical."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from aotcheck.minimize.edit import Body, edited, inputs_of, mapped, renamed, renamed_call, with_inputs
from aotcheck.program import Expr, Inputs, OpCall, Program, Ref, flat_calls

__all__ = ["lower_names", "rename"]


def _lowered(expr: Expr, earlier: list[str]) -> Iterator[Expr]:
    """``expr`` with one of its names replaced by one that was defined before it."""
    for place, name in enumerate(_names(expr)):
        for other in earlier[: earlier.index(name)] if name in earlier else ():
            yield _with_name(expr, place, other)


def _names(expr: Expr) -> list[str]:
    found: list[str] = []

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Ref):
            found.append(node.name)
        return None

    mapped(expr, visit)
    return found


def _with_name(expr: Expr, place: int, name: str) -> Expr:
    count = -1

    def change(node: Expr) -> Expr | None:
        nonlocal count
        if isinstance(node, Ref):
            count += 1
            return Ref(name) if count == place else node
        return None

    return mapped(expr, change)


def _lowered_calls(body: Body, names: list[str]) -> Iterator[Body]:
    for index, call in enumerate(flat_calls(body)):
        for i, arg in enumerate(call.args):
            for lower in _lowered(arg, names):
                changed = replace(call, args=(*call.args[:i], lower, *call.args[i + 1 :]))
                yield _with_call(body, index, changed)
        names = [*names, *call.targets]


def _with_call(body: Body, index: int, changed: OpCall) -> Body:
    return edited(body, lambda i, call: changed if i == index else call)


def lower_names(program: Program) -> Iterator[Program]:
    """Each operand and output replaced by a value that is older."""
    for body in _lowered_calls(program.body, list(program.params)):
        yield replace(program, body=body)
    every = [*program.params, *(name for call in flat_calls(program.body) for name in call.targets)]
    for outputs in _lowered(program.outputs, every):
        yield replace(program, outputs=outputs)
    for index, inputs in inputs_of(program):
        names = [t.name for t in inputs.tensors]
        for derived in _lowered_calls(inputs.derived, names):
            yield with_inputs(program, {index: replace(inputs, derived=derived)})


def _numbered(names: list[str], letter: str) -> dict[str, str]:
    return {name: f"{letter}{index}" for index, name in enumerate(names)}


def _rebound(body: Body, names: Mapping[str, str]) -> Body:
    def change(_: int, call: OpCall) -> OpCall:
        call = renamed_call(call, names)
        match call.target:
            case None:
                return call
            case str() as name:
                return replace(call, target=names.get(name, name))
            case several:
                return replace(call, target=tuple(names.get(name, name) for name in several))

    return edited(body, change)


def rename(program: Program) -> Iterator[Program]:
    """Everything under the names that a program is drawn with: ``x0``, ``v0``, ``a0``, ``s0`` and so on."""
    names = _numbered(list(program.params), "x") | _numbered(
        [name for call in flat_calls(program.body) for name in call.targets], "v"
    )
    calls = (replace(c, inputs=None if c.inputs is None else _renamed_inputs(c.inputs)) for c in program.calls)
    yield replace(
        program,
        params=tuple(names[p] for p in program.params),
        body=_rebound(program.body, names),
        outputs=renamed(program.outputs, names),
        calls=tuple(calls),
    )


def _renamed_inputs(inputs: Inputs) -> Inputs:
    storages = _numbered([s.name for s in inputs.storages], "s")
    tensors = [t.name for t in inputs.tensors] + [n for call in flat_calls(inputs.derived) for n in call.targets]
    names = _numbered(tensors, "a")
    return replace(
        inputs,
        storages=tuple(replace(s, name=storages[s.name]) for s in inputs.storages),
        tensors=tuple(replace(t, name=names[t.name], storage=storages[t.storage]) for t in inputs.tensors),
        derived=_rebound(inputs.derived, names),
        args=tuple(renamed(arg, names) for arg in inputs.args),
    )
