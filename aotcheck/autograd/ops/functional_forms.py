"""Functional forms of ops that write arguments and have no twin of the same arguments: custom ops above all.

A form gives what the op itself returns that is new, and then the new value of each argument that it writes. torch has
such forms of some ops of its own, and the higher-order op ``auto_functionalized`` for most custom ones, which
compilers know. For any other a form is registered as an op of the namespace ``aotcheck``: it copies what the op
writes, and runs it.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Form:
    """How to call the functional form of an op: ``call`` with ``first``, then the op's arguments by name.

    ``own`` says for each of its results before the written ones which result of the op itself it is, None if none.
    """

    call: Any
    first: tuple[Any, ...]
    own: tuple[int | None, ...]


_forms: dict[Any, Form] = {}
_library = torch.library.Library("aotcheck", "FRAGMENT")


def form_of(op: Any) -> Form:
    """The functional form of ``op``, made if need be."""
    form = _forms.get(op)
    if form is None:
        form = _forms[op] = _make(op)
    return form


def original_of(op: Any) -> Any:
    """The op of which ``op`` is the functional form, or itself."""
    return next((original for original, form in _forms.items() if form.call is op and not form.first), op)


WRITES_UNSAID = {aten.cudnn_batch_norm.default: ["running_mean", "running_var"]}
"""Ops that write arguments of which their schemas do not say so."""


def written_names(op: Any) -> list[str]:
    """The arguments that ``op`` writes."""
    if op in WRITES_UNSAID:
        return WRITES_UNSAID[op]
    arguments = _torch.schema_of(op).arguments
    return [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]


def _make(op: Any) -> Form:
    fresh = tuple(k for k, r in enumerate(_torch.schema_of(op).returns) if r.alias_info is None)
    built_in = _built_in(op, len(fresh))
    if built_in is not None:
        return Form(built_in, (), fresh)
    if _torch.can_auto_functionalize(op):
        return Form(_torch.auto_functionalized, (op,), fresh or (None,))
    return Form(_register(op, fresh), (), fresh)


def _built_in(op: Any, fresh: int) -> Any:
    """torch's own form of an op of its own, if there is one."""
    if op.namespace != "aten":
        return None
    name = _torch.op_name(op).rstrip("_")
    arguments = [(a.name, str(a.type)) for a in _torch.schema_of(op).arguments]
    for candidate in (f"{name}_functional", name):
        form = getattr(getattr(aten, candidate, None), _torch.overload_name(op), None)
        schema = None if form is None else _torch.schema_of(form)
        if (
            schema is not None
            and not schema.is_mutable
            and [(a.name, str(a.type)) for a in schema.arguments] == arguments
            and len(schema.returns) == fresh + len(written_names(op))
        ):
            return form
    return None


def _register(op: Any, fresh: tuple[int, ...]) -> Any:
    schema = _torch.schema_of(op)
    written = written_names(op)
    taken, arguments, returns = _declared(schema)
    returned = [returns[k] for k in fresh] + [arguments[name].rstrip("?") for name in written]
    name = re.sub(r"\W", "_", f"functional_{op.namespace}_{_torch.op_name(op)}_{_torch.overload_name(op)}")
    tags = tuple([tag for tag in op.tags if tag.name != "out"])  # it writes nothing
    _library.define(f"{name}(*, {', '.join(taken)}) -> ({', '.join(returned)})", tags=tags)

    def run(**given: Any) -> Any:
        copies = {name: _copied(a) if name in written else a for name, a in given.items()}
        out = op(**copies)
        results = list(out) if len(schema.returns) > 1 else [out]
        made = (*[results[k] for k in fresh], *[copies[name] for name in written])
        return made if len(made) > 1 else made[0]

    _library.impl(name, run, "CompositeExplicitAutograd")
    return getattr(torch.ops.aotcheck, name).default


def _declared(schema: Any) -> tuple[list[str], dict[str, str], list[str]]:
    """The arguments, their types by name, and the types of results, without what the schema says of aliases."""
    text = re.sub(r"Tensor\([^()]*\)", "Tensor", str(schema))
    given, _, gives = text[text.index("(") + 1 :].rpartition(") -> ")
    gives = gives[1:-1] if gives.startswith("(") else gives
    arguments = [a.strip() for a in _split(given) if a.strip() not in ("", "*")]
    types = [a.partition("=")[0].rsplit(" ", 1) for a in arguments]
    return arguments, {name: kind for kind, name in types}, [r.strip() for r in _split(gives) if r.strip()]


def _split(text: str) -> list[str]:
    """The parts between the commas that are in no brackets and no string."""
    parts, depth, quoted = [""], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += (c in "([") - (c in ")]") if not quoted else 0
        if c == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _copied(a: Any) -> Any:
    if isinstance(a, Tensor):
        return _copied_window(a)
    return [_copied(x) for x in a] if isinstance(a, (list, tuple)) else a


def _copied_window(t: Tensor) -> Tensor:
    """A copy that lies in its memory as ``t`` does, overlapping elements included."""
    span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    return t.as_strided((span,), (1,)).clone().as_strided(t.shape, t.stride(), 0)
