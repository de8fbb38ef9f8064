"""Reads a script back into a program with ``ast`` and a whitelist; nothing of the file is executed.

A corpus file may come from a stranger. Anything that is not on the whitelist is an error, which says where, what is
wrong and what to do. The size of the file, its nesting, its numbers and its names are checked first.
"""

import ast
import stat
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from aotcheck.program.called.objects import OBJECTS
from aotcheck.program.data.model import (
    Block,
    Call,
    Context,
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
    Storage,
    Strided,
    TupleExpr,
    references,
)
from aotcheck.program.data.plans import call_of
from aotcheck.program.ops.registry import Form, UnknownOpError, find, implementation, method_path
from aotcheck.program.source.emit import ENDING, FORMAT, IMPORT, is_name

__all__ = ["ParsedFile", "ProgramSyntaxError", "parse", "parse_file"]

HARNESS_MARK = "# -- harness 1: canonical text, ignored when the file is read back"
"""Where the program ends in a file of format 1, in which a comparison of its own followed."""

MAX_BYTES = 256 * 1024
MAX_DEPTH = 24
MAX_INT = 2**40
MAX_ELEMENTS = 100_000


class ProgramSyntaxError(ValueError):
    """A file is not a program. The message is one line: where, what is wrong, what to do."""

    def __init__(self, origin: str, line: int, what: str, advice: str) -> None:
        self.origin, self.line, self.what, self.advice = origin, line, what, advice
        super().__init__(f"{origin}:{line}: {what}; {advice}")


_GUARDED = f'if __name__ == "__main__":\n    {IMPORT}\n    {ENDING}'
_IMPORT, *_ENDINGS = (ast.dump(ast.parse(text).body[0]) for text in (IMPORT, ENDING, _GUARDED))


@dataclass(frozen=True)
class ParsedFile:
    """A program, and the TOML header of its file (``format`` included)."""

    program: Program
    header: Mapping[str, object]


def parse_file(path: Path) -> ParsedFile:
    """Read and :func:`parse` a file.

    Raises:
        ProgramSyntaxError: the file is not a program.
        OSError: the file cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a link to a device has no end, a pipe perhaps no beginning
        raise ProgramSyntaxError(str(path), 1, "cannot be read: not a regular file", "name a script")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        return parse(data.decode("utf-8"), str(path))
    except UnicodeDecodeError:
        raise ProgramSyntaxError(str(path), 1, "the file is not UTF-8 text", "save it as UTF-8") from None


def parse(source: str, origin: str = "<string>") -> ParsedFile:
    """Read the program and the header of a canonical script.

    Args:
        source: a script as :func:`aotcheck.program.emit` writes it.
        origin: the name of the script in errors, usually a path.

    Raises:
        ProgramSyntaxError: the text is no such script.
    """
    return _Parser(origin).file(source)


class _Parser:
    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.elements = 0

    def error(self, at: ast.AST | int, what: str, advice: str) -> ProgramSyntaxError:
        line = at if isinstance(at, int) else getattr(at, "lineno", 1)
        return ProgramSyntaxError(self.origin, line, what, advice)

    # -- the file

    def file(self, source: str) -> ParsedFile:
        if len(source) > MAX_BYTES:
            raise self.error(1, f"the file is longer than {MAX_BYTES} characters", "minimize the program first")
        if "\0" in source:
            at = source[: source.index("\0")].count("\n") + 1
            raise self.error(at, "a null byte", "save the file as plain UTF-8 text")
        source = source.removeprefix("\ufeff").replace("\r\n", "\n")
        header = self.header(source)
        text = source.split(HARNESS_MARK, 1)[0] if header["format"] == 1 else source
        for number, line in enumerate(text.split("\n"), 1):
            if not line.isascii() and not line.startswith("#"):
                raise self.error(
                    number, "a character that is not ASCII", "escape it inside a string, rename it elsewhere"
                )
        self.depth(text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except SyntaxError as e:
            raise self.error(
                e.lineno or 1, f"not Python ({e.msg})", "compare with the output of aotcheck.program.emit"
            ) from None
        except (RecursionError, MemoryError, ValueError, OverflowError) as e:
            raise self.error(
                1, f"not readable ({type(e).__name__})", "compare with the output of aotcheck.program.emit"
            ) from None
        return ParsedFile(self.module(tree), header)

    def depth(self, text: str) -> None:
        deep = 0
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) - len(line.lstrip(" ")) > 4 * MAX_DEPTH:
                raise self.error(number, "blocks are nested too deep", f"use at most {MAX_DEPTH} levels")
            run = 0
            for character in line:
                deep += (character in "([{") - (character in ")]}")
                run = run + 1 if character in "-+~ \t" else 0
                if deep > MAX_DEPTH or (run > MAX_DEPTH and character != " "):
                    raise self.error(number, "expressions are nested too deep", f"use at most {MAX_DEPTH} levels")

    def header(self, source: str) -> Mapping[str, object]:
        lines = source.split("\n")
        advice = "start the file with '# /// aotcheck', TOML in comments, '# ///'"
        if lines[0].rstrip() != "# /// aotcheck":
            raise self.error(1, "no header", advice)
        toml: list[str] = []
        for number, line in enumerate(lines[1:], 2):
            if line.rstrip() == "# ///":
                break
            if not line.startswith("#"):
                raise self.error(number, "the header does not end", advice)
            toml.append(line[1:].removeprefix(" "))
        else:
            raise self.error(1, "the header does not end", advice)
        try:
            header = tomllib.loads("\n".join(toml))
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as e:
            raise self.error(
                2, f"the header is not TOML ({e})", "see the TOML between '# /// aotcheck' and '# ///'"
            ) from None
        if header.get("format") not in (1, FORMAT) or isinstance(header["format"], bool):
            raise self.error(2, f"format is {header.get('format')!r}", f"this version reads format = {FORMAT} and 1")
        return header

    def module(self, tree: ast.Module) -> Program:
        functions: dict[str, ast.FunctionDef] = {}
        calls: ast.expr | None = None
        for node in tree.body:
            match node:
                case ast.FunctionDef(name=name) if name not in functions:
                    functions[name] = node
                case ast.Assign(targets=[ast.Name(id="CALLS")], value=value) if calls is None:
                    calls = value
                case ast.Import() | ast.Expr(value=ast.Constant(value=str())):
                    pass  # imports are never carried out: what the ops need is looked up in the registry
                case _ if ast.dump(node) == _IMPORT or (node is tree.body[-1] and ast.dump(node) in _ENDINGS):
                    pass  # what the script does when it is run
                case _:
                    raise self.error(node, "unexpected statement", "keep to imports, make_inputs_*, f and CALLS")
        if "f" not in functions:
            raise self.error(1, "no function f", "define def f(...)")
        if not isinstance(calls, ast.List):
            raise self.error(calls or 1, "no list CALLS", "describe the calls as CALLS = [...]")
        made = tuple(self.call(c, functions, i) for i, c in enumerate(calls.elts))
        used = {f"make_inputs_{i}" for i, c in enumerate(made) if c.inputs is not None} | {"f"}
        for name, node in functions.items():
            if name not in used:
                raise self.error(node, f"function {name} is not used by CALLS", "remove it")
        params, body, outputs = self.function(functions["f"])
        if not made or made[0].inputs is None:
            raise self.error(calls, "the first call has no inputs", 'give it "inputs": make_inputs_0')
        for c in made:
            if c.inputs is not None and len(c.inputs.args) != len(params):
                raise self.error(
                    functions["f"], "make_inputs and f disagree on the number of arguments", "make them equal"
                )
        return Program(params, body, outputs, made)

    # -- functions

    def function(self, node: ast.FunctionDef) -> tuple[tuple[str, ...], tuple[Statement, ...], Expr]:
        params = self.parameters(node)
        scope = set(params)
        result, body = self.returned(node)
        statements = tuple(self.statement(s, scope, 0) for s in body)
        return params, statements, self.scoped(result, scope)

    def parameters(self, node: ast.FunctionDef) -> tuple[str, ...]:
        a = node.args
        if node.decorator_list or node.returns or a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults:
            raise self.error(node, f"{node.name} is more than a plain function", "use plain positional parameters")
        params = tuple(p.arg for p in a.args)
        if len(set(params)) != len(params) or any(p.annotation for p in a.args):
            raise self.error(node, "odd parameters", "use distinct plain names")
        return tuple(self.name(p, node) for p in params)

    def returned(self, node: ast.FunctionDef) -> tuple[ast.expr, list[ast.stmt]]:
        match node.body[-1]:
            case ast.Return(value=ast.expr() as value):
                return value, node.body[:-1]
        raise self.error(node.body[-1], f"{node.name} does not end in return", "end it with return ...")

    def name(self, text: str, at: ast.AST) -> str:
        if not is_name(text) or len(text) > 64:
            raise self.error(at, f"{text[:64]!r} cannot be a name here", "use short ASCII names such as v0")
        return text

    def plain_name(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise self.odd(node)
        return self.name(node.id, node)

    def statement(self, node: ast.stmt, scope: set[str], depth: int) -> Statement:
        match node:
            case ast.With(items=[ast.withitem(context_expr=context, optional_vars=None)], body=body):
                if depth > MAX_DEPTH:
                    raise self.error(node, "blocks are nested too deep", f"use at most {MAX_DEPTH} levels")
                return Block(self.context(context), tuple(self.statement(s, scope, depth + 1) for s in body))
            case ast.Expr(value=value):
                return self.op_call(None, value, scope)
            case ast.Assign(targets=[ast.Subscript(value=base, slice=index)], value=value):
                args = tuple(self.scoped(e, scope) for e in (base, index, value))
                self.known("setitem", Form.SETITEM, node)
                return OpCall(None, "setitem", args)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr=attr)], value=value):
                path = method_path(f"{attr}=")
                self.known(path, Form.ASSIGN, node)
                return OpCall(None, path, (self.ref(name, node, scope), self.scoped(value, scope)))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                call = self.op_call(self.name(name, node), value, scope)
            case ast.Assign(targets=[ast.Tuple(elts=elts)], value=value) if elts:
                names = tuple(self.plain_name(e) for e in elts)
                call = self.op_call(names, value, scope)
            case _:
                raise self.odd(node)
        scope.update(call.targets)
        return call

    def context(self, node: ast.expr) -> Context:
        shown = ast.unparse(node) if isinstance(node, ast.Call) else ""
        try:
            return Context(shown)
        except ValueError:
            raise self.error(node, "unknown context", f"use one of {', '.join(c.value for c in Context)}") from None

    def odd(self, node: ast.AST) -> ProgramSyntaxError:
        return self.error(
            node, f"{type(node).__name__} is not allowed here", "keep to what aotcheck.program.emit writes"
        )

    # -- op calls

    def op_call(self, target: str | tuple[str, ...] | None, node: ast.expr, scope: set[str]) -> OpCall:
        match node:
            case ast.Subscript(value=value, slice=index):
                self.known("getitem", Form.GETITEM, node)
                return OpCall(target, "getitem", (self.scoped(value, scope), self.scoped(index, scope)))
            case ast.Call(func=func, args=args, keywords=keywords):
                path, first = self.callee(func, scope)
                self.known(path, Form.METHOD if first else Form.FUNCTION, node)
                values = tuple(self.scoped(a, scope) for a in args)
                named = tuple((self.keyword(k), self.scoped(k.value, scope)) for k in keywords)
                return OpCall(target, path, (*first, *values), named)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name != "torch":
                path = method_path(attr)
                self.known(path, Form.ATTRIBUTE, node)
                return OpCall(target, path, (self.ref(name, node, scope),))
        raise self.odd(node)

    def callee(self, node: ast.expr, scope: set[str]) -> tuple[str, tuple[Expr, ...]]:
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < 8:
            parts.append(node.attr)
            node = node.value
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not (node.args or node.keywords):
                node = ast.Attribute(node.func.value, f"{node.func.attr}()")
        if not isinstance(node, ast.Name):
            raise self.odd(node)
        if node.id in scope:
            method = ".".join(reversed(parts))
            return method_path(method), (Ref(node.id),)
        return ".".join([node.id, *reversed(parts)]), ()

    def known(self, path: str, form: Form, at: ast.AST) -> None:
        try:
            found = find(path)[0].form
            if found in (Form.FUNCTION, Form.METHOD):
                implementation(path)
        except UnknownOpError as e:
            what, _, advice = str(e).partition("; ")
            raise self.error(at, what, advice) from None
        if found is not form:
            raise self.error(at, f"{path} is written as {found.name.lower()}", "write it as aotcheck.program.emit does")

    def keyword(self, node: ast.keyword) -> str:
        if node.arg is None:
            raise self.error(node, "**arguments are not allowed", "name the keywords")
        if not node.arg.isascii():
            raise self.error(node, "a keyword that is not ASCII", "write the op's own keyword")
        return node.arg

    # -- expressions

    def ref(self, name: str, at: ast.AST, scope: set[str]) -> Ref:
        if name not in scope:
            raise self.error(at, f"name {name[:64]!r} is not defined", "use a parameter or an earlier value")
        return Ref(name)

    def scoped(self, node: ast.expr, scope: set[str]) -> Expr:
        expr = self.expr(node)
        for name in references(expr):
            self.ref(name, node, scope)
        return expr

    def expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Name(id=name):
                return Ref(self.name(name, node))
            case ast.Attribute(value=ast.Name(id="torch"), attr=attr):
                if not isinstance(torch.__dict__.get(attr), torch.dtype):
                    raise self.error(
                        node, f"torch.{attr[:64]} is not a dtype", "as a value only dtypes of torch may be named"
                    )
                return DType(attr)
            case ast.Attribute(value=ast.Name(id=name), attr="device"):
                return DeviceOf(self.name(name, node))
            case ast.Tuple(elts=elts):
                return TupleExpr(tuple(self.expr(e) for e in elts))
            case ast.List(elts=elts):
                return ListExpr(tuple(self.expr(e) for e in elts))
            case ast.Dict(keys=keys, values=values):
                return DictExpr(tuple((self.string(k, node), self.expr(v)) for k, v in zip(keys, values, strict=True)))
            case ast.Call(func=ast.Name(id=of), args=[], keywords=keywords) if of in OBJECTS:
                if [k.arg for k in keywords] != [field.name for field in fields(OBJECTS[of])]:
                    raise self.error(node, f"{of} with odd fields", "name each field once, in order")
                return DictExpr(tuple((self.keyword(k), self.expr(k.value)) for k in keywords), of)
            case ast.Slice(lower=lower, upper=upper, step=step):
                return SliceExpr(*(None if p is None else self.integer(p) for p in (lower, upper, step)))
            case ast.Call(func=ast.Name(id="slice"), args=[start, stop, step], keywords=[]):
                return SliceExpr(*(self.optional_integer(p) for p in (start, stop, step)))
        return Literal(self.constant(node))

    def string(self, node: ast.expr | None, at: ast.AST) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise self.error(at, "a dict key that is not a string", "use string keys")

    def constant(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None | bool() | str() as value):
                return value
            case ast.Constant(value=value) if value is Ellipsis:
                return value
            case ast.Constant(value=int() | float() as value):
                return self.number(value, node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if value is not True:
                return -self.number(value, node)
            case ast.Call(
                func=ast.Name(id="float"), args=[ast.Constant(value="inf" | "-inf" | "nan" as text)], keywords=[]
            ):
                return float(text)
            case ast.Call(func=ast.Name(id="complex"), args=[real, imag], keywords=[]):
                parts = [self.constant(p) for p in (real, imag)]
                if all(isinstance(p, float) for p in parts):
                    return complex(*parts)
        raise self.odd(node)

    def number(self, value: int | float, at: ast.AST) -> int | float:
        if isinstance(value, int) and value > MAX_INT:
            raise self.error(at, "a huge integer", f"use at most {MAX_INT}")
        return value

    def integer(self, node: ast.expr) -> int:
        value = self.constant(node)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(node, "not an integer", "write an integer")
        return value

    def optional_integer(self, node: ast.expr) -> int | None:
        return None if isinstance(node, ast.Constant) and node.value is None else self.integer(node)

    def integers(self, node: ast.expr) -> tuple[int, ...]:
        if not isinstance(node, ast.Tuple | ast.List):
            raise self.error(node, "not a list of integers", "write integers in brackets")
        self.elements += len(node.elts)
        if self.elements > MAX_ELEMENTS:
            raise self.error(node, "too much data", f"keep below {MAX_ELEMENTS} numbers")
        return tuple(self.integer(e) for e in node.elts)

    # -- inputs and calls

    def inputs(self, node: ast.FunctionDef) -> Inputs:
        if [p.arg for p in node.args.args] != ["device"] or node.decorator_list or node.args.defaults:
            raise self.error(node, f"{node.name} has odd parameters", f"write def {node.name}(device)")
        result, body = self.returned(node)
        storages: list[Storage] = []
        tensors: list[Strided] = []
        derived: list[Statement] = []
        scope: set[str] = set()
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="storage")) as value):
                    storages.append(self.storage(self.name(name, statement), value))
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="strided")) as value):
                    tensors.append(self.strided(self.name(name, statement), value, {s.name for s in storages}))
                    scope.add(name)
                case _:
                    derived.append(self.statement(statement, scope, 0))
        match result:
            case ast.Tuple(elts=[ast.Tuple(elts=args), ast.Call(func=ast.Name(id="named"))]):
                return Inputs(
                    tuple(storages), tuple(tensors), tuple(derived), tuple(self.scoped(a, scope) for a in args)
                )
        raise self.error(result, "odd return", "write return (arguments...), named(locals())")

    def storage(self, name: str, node: ast.Call) -> Storage:
        match node:
            case ast.Call(args=[data, dtype, ast.Name(id="device")], keywords=[]):
                return Storage(name, self.dtype(dtype), self.integers(data))
        raise self.error(node, "odd storage", "write storage([data], torch.float32, device)")

    def strided(self, name: str, node: ast.Call, storages: set[str]) -> Strided:
        match node:
            case ast.Call(args=[ast.Name(id=base), dtype, size, stride, offset], keywords=keywords) if base in storages:
                grad = False
                for k in keywords:
                    if k.arg != "requires_grad" or not isinstance(k.value, ast.Constant) or k.value.value is not True:
                        raise self.error(node, "odd keyword", "write requires_grad=True or nothing")
                    grad = True
                sizes, strides = self.integers(size), self.integers(stride)
                if len(sizes) != len(strides) or min((*sizes, *strides, 0)) < 0 or self.integer(offset) < 0:
                    raise self.error(node, "odd geometry", "give a stride per size, nothing negative")
                return Strided(name, base, self.dtype(dtype), sizes, strides, self.integer(offset), grad)
        raise self.error(node, "odd tensor", "write strided(s0, torch.float32, size, stride, offset)")

    def dtype(self, node: ast.expr) -> str:
        expr = self.expr(node)
        if not isinstance(expr, DType):
            raise self.error(node, "not a dtype", "write torch.float32 or another dtype")
        return expr.name

    def call(self, node: ast.expr, functions: Mapping[str, ast.FunctionDef], index: int) -> Call:
        if not isinstance(node, ast.Dict):
            raise self.error(node, "a call that is not a dict", "compare with the output of aotcheck.program.emit")
        fields = {self.string(k, node): v for k, v in zip(node.keys, node.values, strict=True)}
        if "inputs" not in fields:
            raise self.error(node, "a call with odd keys", 'give "inputs": make_inputs_0 or None')
        match fields["inputs"]:
            case ast.Constant(value=None):
                inputs = None
            case ast.Name(id=name) if name == f"make_inputs_{index}" and name in functions:
                inputs = self.inputs(functions[name])
            case other:
                raise self.error(other, "odd inputs", f"give make_inputs_{index} or None")
        plan = {key: self.data(value) for key, value in fields.items() if key != "inputs"}
        try:
            return call_of(inputs, plan)
        except ValueError as e:
            raise self.error(node, *str(e).split("; ", 1)) from None

    def data(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Dict):
            return {self.string(k, node): self.data(v) for k, v in zip(node.keys, node.values, strict=True)}
        if isinstance(node, ast.Tuple):
            self.elements += len(node.elts)
            if self.elements > MAX_ELEMENTS:
                raise self.error(node, "too much data", f"keep below {MAX_ELEMENTS} numbers")
            return tuple(self.data(e) for e in node.elts)
        return self.constant(node)
