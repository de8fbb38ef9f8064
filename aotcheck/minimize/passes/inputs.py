"""A pass over the caller's arguments and how they are built."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from math import prod

import torch

from aotcheck.minimize.edit import (
    bypassed,
    edited,
    inputs_of,
    pruned,
    read_by,
    readers_removed,
    renamed,
    renamed_call,
    renamed_statements,
    with_inputs,
)
from aotcheck.minimize.passes.statements import without_readers
from aotcheck.minimize.size import contiguous
from aotcheck.program import (
    BuiltCall,
    DictExpr,
    Expr,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Ref,
    Storage,
    Strided,
    TupleExpr,
    build_call,
    flat_calls,
    references,
)
from aotcheck.program.ops.subclasses import leaves
from aotcheck.program.running.memory import address

__all__ = [
    "delete_arguments",
    "delete_derived",
    "delete_unused",
    "hoist_statements",
    "inline_views",
    "merge_arguments",
    "unnest_arguments",
]


def _without_parameter(program: Program, index: int) -> Program:
    """One parameter less, in every call, and what only it needed not built."""
    changed = {
        place: _cleared(replace(inputs, args=inputs.args[:index] + inputs.args[index + 1 :]), inputs)
        for place, inputs in inputs_of(program)
    }
    return replace(with_inputs(program, changed), params=program.params[:index] + program.params[index + 1 :])


def _cleared(inputs: Inputs, before: Inputs | None = None) -> Inputs:
    """``inputs`` without what nothing needs; what nothing needed ``before`` stays."""
    spared = _unneeded(before) if before is not None else frozenset[str]()
    dead = _unneeded(inputs) - spared
    return replace(
        inputs,
        storages=tuple(s for s in inputs.storages if s.name not in dead),
        tensors=tuple(t for t in inputs.tensors if t.name not in dead),
        derived=edited(inputs.derived, lambda _, c: None if c.targets and dead.issuperset(c.targets) else c),
    )


def _unneeded(inputs: Inputs) -> frozenset[str]:
    """The names that no argument needs; a statement without a result needs what it writes to be needed elsewhere."""
    needed = {name for arg in inputs.args for name in references(arg)}
    calls = list(flat_calls(inputs.derived))
    grew = True
    while grew:
        before = len(needed)
        for call in calls:
            if needed & set(call.targets) or not call.targets:
                needed |= read_by(call) | set(call.targets)
        grew = len(needed) > before
    every = {t.name for t in inputs.tensors} | {name for call in calls for name in call.targets}
    used = {t.storage for t in inputs.tensors if t.name in needed}
    return frozenset(every - needed) | frozenset(s.name for s in inputs.storages if s.name not in used)


def delete_arguments(program: Program) -> Iterator[Program]:
    """All arguments, then each; what reads it goes too, or reads another one."""
    if len(program.params) > 1:
        bare = without_readers(program, (), set(program.params))
        for _ in program.params:
            bare = _without_parameter(bare, 0)
        yield bare
    for index, param in reversed(list(enumerate(program.params))):
        yield _without_parameter(without_readers(program, (), {param}), index)
        for other in program.params:
            if other != param:
                names = {param: other}
                body = renamed_statements(program.body, names)
                merged = replace(program, body=body, outputs=renamed(program.outputs, names))
                yield _without_parameter(merged, index)


def merge_arguments(program: Program) -> Iterator[Program]:
    """The same tensor, where two were built."""
    for index, inputs in inputs_of(program):
        passed = list(dict.fromkeys(name for arg in inputs.args for name in references(arg)))
        for i, name in enumerate(passed):
            for other in passed[:i]:
                args = tuple(renamed(arg, {name: other}) for arg in inputs.args)
                yield with_inputs(program, {index: _cleared(replace(inputs, args=args), inputs)})


def delete_unused(program: Program) -> Iterator[Program]:
    """What no argument needs: bases that are not passed, storages without a tensor."""
    changed = {index: _cleared(inputs) for index, inputs in inputs_of(program)}
    yield with_inputs(program, changed)
    for index in changed:
        yield with_inputs(program, {index: changed[index]})


def delete_derived(program: Program) -> Iterator[Program]:
    """Statements that build inputs, all of them, then each; what reads them reads their operand."""
    for index, inputs in inputs_of(program):
        total = sum(1 for _ in flat_calls(inputs.derived))
        chosen = [range(total)] if total > 1 else []
        for removed in [*chosen, *([i] for i in reversed(range(total)))]:
            derived, names = bypassed(inputs.derived, removed)
            args = tuple(renamed(arg, names) for arg in inputs.args)
            yield with_inputs(program, {index: replace(inputs, derived=derived, args=args)})
            derived, gone = readers_removed(inputs.derived, removed)
            if any(pruned(arg, gone) != arg for arg in inputs.args):
                continue
            yield with_inputs(program, {index: replace(inputs, derived=derived)})


# -- view chains


def inline_views(program: Program) -> Iterator[Program]:
    """Tensors that a chain of statements made, as plain tensors instead: on the chain's storage, or on their own."""
    for index, inputs in inputs_of(program):
        if not inputs.derived:
            continue
        built = _built(program, index)
        if built is None:
            continue
        every: Inputs | None = inputs
        for call in reversed(list(flat_calls(inputs.derived))):
            for name in call.targets:
                for shared in (True, False):
                    plain = _plain(inputs, built, name, shared)
                    if plain is not None:
                        yield with_inputs(program, {index: plain})
                every = _plain(every, built, name, True) or _plain(every, built, name, False) if every else None
        if every is not None:
            yield with_inputs(program, {index: every})


def _built(program: Program, index: int) -> BuiltCall | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build_call(program, index)
    except Exception:  # whatever eager says of inputs that cannot be built
        return None


def _fresh(letter: str, taken: set[str]) -> str:
    return next(name for name in (f"{letter}{i}" for i in count()) if name not in taken)


def _plain(inputs: Inputs, built: BuiltCall, name: str, shared: bool) -> Inputs | None:
    """``inputs`` with ``name`` a tensor of its own in place of a derived one; None where it cannot be."""
    t = built.named.get(name)
    if t is None or t.layout is not torch.strided or not _readable(t):
        return None
    dtype = str(t.dtype).removeprefix("torch.")
    storage, size, stride, offset = None, tuple(t.shape), tuple(t.stride()), int(t.storage_offset())
    storages = inputs.storages
    if shared:
        place = address(t)
        home = (u for u in inputs.tensors if u.name in built.named)
        storage = next((u.storage for u in home if address(built.named[u.name]) == place), None)
        if storage is None or not place:
            return None
    else:
        data = _integers(t)
        if data is None:
            return None
        storage, stride, offset = _fresh("s", {s.name for s in storages}), contiguous(size), 0
        storages = (*storages, Storage(storage, dtype, data))
    made = Strided(name, storage, dtype, size, stride, offset, t.requires_grad)
    derived = edited(inputs.derived, lambda _, c: None if name in c.targets else c)
    if any(name in c.targets and len(c.targets) > 1 for c in flat_calls(inputs.derived)):
        return None
    return _cleared(replace(inputs, storages=storages, tensors=(*inputs.tensors, made), derived=derived), inputs)


def _readable(t: torch.Tensor) -> bool:
    last = t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return not t.numel() or (last + 1) * t.itemsize <= t.untyped_storage().nbytes()


def _integers(t: torch.Tensor) -> tuple[int, ...] | None:
    """The values of a tensor as whole numbers, complex ones in two; None where they are none, or too many.

    Those of a wrapper are those of the first tensor that it is made of.
    """
    leaf = leaves(t)[0]
    if prod(t.shape) > 4096 or leaf.shape != t.shape or leaf.dtype != t.dtype:
        return None
    values = leaf.detach().resolve_conj().resolve_neg()
    values = torch.view_as_real(values) if values.is_complex() else values
    found = values.reshape(-1).tolist()
    if any(v != v or abs(v) > 2**40 for v in found):
        return None
    return tuple(int(v) for v in found)


def hoist_statements(program: Program) -> Iterator[Program]:
    """A statement that only reads parameters made by the caller instead, who passes its result: in place of what it
    read, or besides."""
    params = {name: index for index, name in enumerate(program.params)}
    for index, call in enumerate(flat_calls(program.body)):
        read = read_by(call)
        if not isinstance(call.target, str) or not read or not read <= set(params):
            continue
        if all(isinstance(inputs.args[params[name]], Ref) for _, inputs in inputs_of(program) for name in read):
            hoisted = _hoisted(program, index, call, call.target)
            for name in read:
                place = hoisted.params.index(name)
                body = renamed_statements(hoisted.body, {name: call.target})
                outputs = renamed(hoisted.outputs, {name: call.target})
                yield _without_parameter(replace(hoisted, body=body, outputs=outputs), place)
            yield hoisted


def _hoisted(program: Program, index: int, call: OpCall, target: str) -> Program:
    changed = {}
    for place, inputs in inputs_of(program):
        passed = {name: arg.name for name, arg in zip(program.params, inputs.args, strict=True) if isinstance(arg, Ref)}
        taken = {t.name for t in inputs.tensors} | {n for c in flat_calls(inputs.derived) for n in c.targets}
        name = _fresh("a", taken)
        made = replace(renamed_call(call, passed), target=name)
        changed[place] = replace(inputs, derived=(*inputs.derived, made), args=(*inputs.args, Ref(name)))
    body = edited(program.body, lambda i, c: None if i == index else c)
    return replace(with_inputs(program, changed), params=(*program.params, target), body=body)


# -- pytrees


def unnest_arguments(program: Program) -> Iterator[Program]:
    """The elements of an argument that is a container as arguments of their own."""
    for index in range(len(program.params)):
        keys = _keys([inputs.args[index] for _, inputs in inputs_of(program)])
        if keys is not None:
            yield _unnested(program, index, keys)


def _unnested(program: Program, index: int, keys: list[Literal]) -> Program:
    param = program.params[index]
    taken = {*program.params, *(n for c in flat_calls(program.body) for n in c.targets)}
    fresh: list[str] = []
    for _ in keys:
        fresh.append(_fresh("x", taken | set(fresh)))
    names: dict[str, str] = {}

    def change(_: int, call: OpCall) -> OpCall | None:
        key = _key_read(call) if call.args[:1] == (Ref(param),) else None
        if isinstance(call.target, str) and isinstance(key, Literal) and key in keys:
            names[call.target] = fresh[keys.index(key)]
            return None
        return renamed_call(call, names)

    def spread(inputs: Inputs) -> Inputs:
        args = inputs.args
        return replace(inputs, args=(*args[:index], *_items(args[index]), *args[index + 1 :]))

    body = edited(program.body, change)
    return replace(
        with_inputs(program, {place: spread(inputs) for place, inputs in inputs_of(program)}),
        params=(*program.params[:index], *fresh, *program.params[index + 1 :]),
        body=body,
        outputs=renamed(program.outputs, names),
    )


def _key_read(call: OpCall) -> Expr | None:
    """What a container is indexed with, or the attribute that is read of an object."""
    if call.path == "getitem":
        return call.args[1]
    owner, _, name = call.path.partition(".")
    return Literal(name) if owner == "object" and not name.endswith("=") else None


def _items(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case TupleExpr(items) | ListExpr(items):
            return items
        case DictExpr(pairs):
            return tuple(item for _, item in pairs)
        case _:
            return ()


def _keys(args: list[Expr]) -> list[Literal] | None:
    """What an argument is indexed with, where it is a container in every call, and the same one."""
    found: list[list[Literal]] = []
    for arg in args:
        match arg:
            case TupleExpr(items) | ListExpr(items):
                found.append([Literal(i) for i in range(len(items))])
            case DictExpr(pairs):
                found.append([Literal(key) for key, _ in pairs])
            case _:
                return None
    return found[0] if found and all(keys == found[0] for keys in found) else None
