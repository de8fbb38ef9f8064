"""Writes a program as its canonical script, and compiles the function of a program from that source.

A script has a fixed layout: a TOML header in a comment block, imports, ``make_inputs_k`` for each call with inputs of
its own, ``f``, the literal ``CALLS``, and a call of :func:`aotcheck.script.main`, which judges the file when it runs.
A blank line stands before the inputs and before ``f``.
:mod:`aotcheck.program.source.parse` reads the script back.
"""

import keyword
import linecache
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from types import FunctionType
from typing import Any

import torch

from aotcheck.program.called.objects import OBJECTS
from aotcheck.program.called.wrapped import wrapped
from aotcheck.program.data.model import (
    Block,
    Call,
    DeviceOf,
    DictExpr,
    DType,
    Expr,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Ref,
    SliceExpr,
    Statement,
    TupleExpr,
    flat_calls,
)
from aotcheck.program.data.plans import plan_of
from aotcheck.program.ops.functions import FUNCTIONS
from aotcheck.program.ops.registry import Form, find
from aotcheck.program.ops.subclasses import NAMESPACE, subclasses

__all__ = ["FORMAT", "body_source", "emit", "function_of", "show_expr", "show_statement"]

FORMAT = 2
"""The format that is written. Format 1, which is still read, had a harness in every file.

Before the first release format 2 was longer: tables in the header, every field of a call, a guard around the ending.
That form is read too. It has no number of its own, since no release reads only that form.
"""

IMPORT = "from aotcheck.script import main"
ENDING = "main(__file__)\n"
"""The last line of a script, and the import that it needs."""

WIDTH = 120
"""The longest line, in columns; a longer call plan is written on several lines."""


@lru_cache(maxsize=1024)
def quote(text: str) -> str:
    """A string as Python and TOML both write it, in ASCII."""
    return '"' + "".join(c if " " <= c < "\x7f" and c not in '"\\' else _escape(c) for c in text) + '"'


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"


def show_literal(value: object) -> str:
    """A constant as Python; infinities and NaN through ``float``."""
    if value is Ellipsis:
        return "..."
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({show_literal(value.real)}, {show_literal(value.imag)})"
    if isinstance(value, str):
        return quote(value)
    return repr(value)


def show_expr(expr: Expr) -> str:
    """An expression as Python."""
    match expr:
        case Ref(name):
            return name
        case Literal(value):
            return show_literal(value)
        case DType(name):
            return f"torch.{name}"
        case DeviceOf(name):
            return f"{name}.device"
        case SliceExpr(start, stop, step):
            parts = ["None" if p is None else str(p) for p in (start, stop, step)]
            return f"slice({', '.join(parts)})"
        case TupleExpr((one,)):
            return f"({show_expr(one)},)"
        case TupleExpr(items):
            return f"({', '.join(map(show_expr, items))})"
        case ListExpr(items):
            return f"[{', '.join(map(show_expr, items))}]"
        case DictExpr(pairs, of) if of:
            return f"{of}({', '.join(f'{name}={show_expr(value)}' for name, value in pairs)})"
        case DictExpr(pairs):
            return "{" + ", ".join(f"{quote(k)}: {show_expr(v)}" for k, v in pairs) + "}"


def show_index(expr: Expr) -> str:
    """An expression inside ``[...]``, where slices are written with colons."""
    if isinstance(expr, TupleExpr) and expr.items:
        return ", ".join(map(_show_slice, expr.items)) + ("," if len(expr.items) == 1 else "")
    return _show_slice(expr)


def _show_slice(expr: Expr) -> str:
    if not isinstance(expr, SliceExpr):
        return show_expr(expr)
    shown = ["" if p is None else str(p) for p in (expr.start, expr.stop)]
    return ":".join(shown if expr.step is None else [*shown, str(expr.step)])


def show_call(call: OpCall) -> str:
    """An op call's right-hand side."""
    form = find(call.path)[0].form
    args = [show_expr(a) for a in call.args]
    if form is Form.GETITEM:
        return f"{args[0]}[{show_index(call.args[1])}]"
    if form is Form.SETITEM:
        return f"{args[0]}[{show_index(call.args[1])}] = {args[2]}"
    method = call.path.partition(".")[2]
    if form is Form.ATTRIBUTE:
        return f"{args[0]}.{method}"
    if form is Form.ASSIGN:
        return f"{args[0]}.{method.removesuffix('=')} = {args[1]}"
    keywords = [f"{name}={show_expr(value)}" for name, value in call.kwargs]
    if form is Form.METHOD:
        return f"{args[0]}.{method}({', '.join(args[1:] + keywords)})"
    return f"{call.path}({', '.join(args + keywords)})"


def show_statement(statement: Statement, indent: str = "    ") -> Iterator[str]:
    """A statement's lines."""
    if isinstance(statement, Block):
        yield f"{indent}with {statement.context.value}:"
        for inner in statement.body:
            yield from show_statement(inner, indent + "    ")
        return
    shown = show_call(statement)
    match statement.target:
        case None:
            yield f"{indent}{shown}"
        case str() as name:
            yield f"{indent}{name} = {shown}"
        case names:
            yield f"{indent}{', '.join(names)}{',' if len(names) == 1 else ''} = {shown}"


def body_source(program: Program) -> str:
    """``def f(...)`` alone."""
    lines = [f"def f({', '.join(program.params)}):"]
    for statement in program.body:
        lines.extend(show_statement(statement))
    return "\n".join([*lines, f"    return {show_expr(program.outputs)}", ""])


def _inputs_source(inputs: Inputs, index: int) -> str:
    lines = [f"def make_inputs_{index}(device):"]
    for s in inputs.storages:
        lines.append(f"    {s.name} = storage({list(s.data)}, torch.{s.dtype}, device)")
    for t in inputs.tensors:
        grad = ", requires_grad=True" if t.requires_grad else ""
        lines.append(f"    {t.name} = strided({t.storage}, torch.{t.dtype}, {t.size}, {t.stride}, {t.offset}{grad})")
    for statement in inputs.derived:
        lines.extend(show_statement(statement))
    return "\n".join([*lines, f"    return {show_expr(TupleExpr(inputs.args))}, named(locals())", ""])


def _calls_source(calls: tuple[Call, ...]) -> str:
    """``CALLS`` on one line if it fits, otherwise on a line for each call."""
    shown = [_call_source(call, index) for index, call in enumerate(calls)]
    line = f"CALLS = [{', '.join(shown)}]"
    if len(line) <= WIDTH and "\n" not in line:
        return line
    return "\n".join(["CALLS = [", *(f"    {call}," for call in shown), "]"])


def _call_source(call: Call, index: int) -> str:
    """A call on one line if it fits, otherwise with a line for each step."""
    inputs = "None" if call.inputs is None else f"make_inputs_{index}"
    plan = plan_of(call)
    entries = [f'"inputs": {inputs}', *(f"{quote(name)}: {_data(value)}" for name, value in plan.items())]
    if len(", ".join(entries)) + len("    {},") > WIDTH:
        entries[1:] = [
            f"{quote(name)}: {_steps_source(value) if name in ('before', 'steps') else _data(value)}"
            for name, value in plan.items()
        ]
    return f"{{{', '.join(entries)}}}"


def _steps_source(steps: tuple[object, ...]) -> str:
    lines = "".join(f"        {_data(step)},\n" for step in steps)
    return f"(\n{lines}    )"


def _data(value: object) -> str:
    """Nested tuples and dicts of constants as Python."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_data, value))}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote(key)}: {_data(inner)}" for key, inner in value.items()) + "}"
    return show_literal(value)


def _toml(header: Mapping[str, object], within: str = "") -> Iterator[str]:
    """A line for each value; the keys of tables are dotted."""
    for key, value in header.items():
        name = within + _toml_key(key)
        if isinstance(value, Mapping) and value:
            yield from _toml(value, f"{name}.")
        else:
            yield f"{name} = {_toml_value(value)}"


def _toml_key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else quote(key)


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):  # an empty one: others are dotted keys
        return "{}"
    return quote(str(value))


def _paths(program: Program) -> set[str]:
    paths = {c.path for c in flat_calls(program.body)}
    for call in program.calls:
        paths |= {c.path for c in flat_calls(call.inputs.derived)} if call.inputs else set()
    return paths


def _roots(program: Program) -> set[str]:
    paths = _paths(program)
    return {p.rsplit(".", 1)[0] for p in paths if find(p)[0].form is Form.FUNCTION}


def _modules(program: Program) -> list[str]:
    """The modules of the functions that the program calls, except torch's."""
    return sorted(r for r in _roots(program) - {*FUNCTIONS, NAMESPACE} if r != "torch" and not r.startswith("torch."))


def _makers(program: Program) -> list[str]:
    """The modules of the makers of tensor subclasses that the program uses, except built-in ones."""
    paths = _paths(program)
    return sorted({s.make.__module__ for s in subclasses() if s.path in paths and not s.built_in})


def emit(program: Program, header: Mapping[str, object] | None = None) -> str:
    """Write a program as its canonical script.

    ``python FILE``, where aotcheck is installed, compares eager with the backend that the header names.

    Args:
        program: the program to write.
        header: further TOML entries for the header (strings, numbers, booleans, lists, tables).
    """
    entries: dict[str, object] = {"format": FORMAT, **(header or {})} | {"format": FORMAT}
    top = ["# /// aotcheck", *(f"# {line}" for line in _toml(entries)), "# ///", "import torch"]
    top += [f"import {module}" for module in dict.fromkeys([*_modules(program), *_makers(program)])]
    inputs = [_inputs_source(c.inputs, i) for i, c in enumerate(program.calls) if c.inputs is not None]
    head = "\n".join([*top, IMPORT, ""])
    function = f"{body_source(program)}{_calls_source(program.calls)}\n{ENDING}"
    return "\n".join([head, "".join(inputs), function])


@lru_cache(maxsize=512)
def _compiled(source: str, modules: tuple[str, ...]) -> FunctionType:
    filename = f"<aotcheck program {sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"torch": torch, "__name__": "aotcheck_program", NAMESPACE: wrapped, **FUNCTIONS}
    for module in modules:
        scope[module.split(".")[0]] = import_module(module.split(".")[0])
        import_module(module)
    exec(compile(source, filename, "exec"), scope)
    function: FunctionType = scope["f"]
    return function


def function_of(program: Program) -> Callable[..., Any]:
    """Compile a program's function from its source, which tracebacks show and Dynamo traces; a new function each time.

    Raises:
        UnknownOpError: the program calls an op that is not registered.
    """
    made = _compiled(body_source(program), tuple(_modules(program)))
    return FunctionType(made.__code__, made.__globals__, made.__code__.co_name)


def is_name(text: str) -> bool:
    """True if a program may use ``text`` as a name."""
    reserved = {"torch", "device", "storage", "strided", "named", "f", NAMESPACE, *FUNCTIONS, *OBJECTS}
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and text not in reserved
