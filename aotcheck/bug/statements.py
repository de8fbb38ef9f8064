"""Statements in plain torch: what stands in programs for wrappers, modules and custom Functions written out."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from aotcheck.bug.choices import Choices
from aotcheck.minimize.passes.ops import writes
from aotcheck.program import Block, OpCall, Program, Statement, TupleExpr, flat_calls, references
from aotcheck.program.called import functions
from aotcheck.program.called import wrapped as wrappers
from aotcheck.program.called.functions import Module
from aotcheck.program.called.objects import OBJECTS
from aotcheck.program.data.model import DeviceOf, Expr, Literal, Ref
from aotcheck.program.ops.functions import FUNCTIONS
from aotcheck.program.ops.registry import Form, find
from aotcheck.program.ops.subclasses import NAMESPACE, subclasses
from aotcheck.program.source.emit import show_expr, show_statement

__all__ = ["CannotBeWrittenError", "Spelling"]


class CannotBeWrittenError(ValueError):
    """A program, or what it shows, has no form in plain torch; the message says why."""


_FUNCTIONAL = {
    "Module.linear": "torch.nn.functional.linear({0}, {1}, {2})",
    "Module.conv": "torch.nn.functional.conv2d({0}, {1}, {2})",
    "Module.batch_norm": "torch.nn.functional.batch_norm({0}, {3}, {4}, {1}, {2}, {5})",
    "Module.layer_norm": "torch.nn.functional.layer_norm({0}, {0}.shape[-1:], {1}, {2})",
    "Module.embedding": "torch.nn.functional.embedding({0}, {1})",
    "Module.dropout": "torch.nn.functional.dropout({0}, 0.5, {1})",
}
"""What the suite's modules compute."""

_WRAPPED = {
    "two": ("TwoTensor({0}, {1})", "from torch.testing._internal.two_tensor import TwoTensor"),
    "constant": (
        "ConstantExtraMetadataTensor({0})",
        "from torch.testing._internal.custom_tensor import ConstantExtraMetadataTensor",
    ),
    "tagged": ('Tagged({0}, "tag")', ""),
    "differentiable": ("Wraps.apply({0})", "from torch.testing._internal.two_tensor import TwoTensor"),
    "jagged": ("torch.nested.nested_tensor_from_jagged({0}, torch.tensor([0, len({0}) // 2, len({0})]))", ""),
}
"""How the suite's wrappers are made, and what has to be imported for it."""


class Spelling:
    """How the statements of a program are written in plain torch; ``imports`` and ``definitions`` are what they need.

    Args:
        program: with readable names.
        choices: how to write what can be written in several ways.
    """

    def __init__(self, program: Program, choices: Choices) -> None:
        self.program, self.choices = program, choices
        self.imports: dict[str, None] = {}
        self.definitions: dict[str, None] = {}

    def function(self) -> list[str]:
        """``def f(...)``."""
        body, outputs = _returned_at_once(self.choices.among("result", _with_last(self.program)))
        lines = [line for statement in body for line in self.statement(statement)]
        if isinstance(outputs, str):
            lines.append(f"    return {outputs}")
        elif not (isinstance(outputs, Literal) and outputs.value is None and lines):
            lines.append(f"    return {_bare(outputs)}")
        return [f"def f({', '.join(self.program.params)}):", *lines]

    def statements(self, body: Iterable[Statement]) -> list[str]:
        """Statements of the caller's, without indentation."""
        return [line.removeprefix("    ") for statement in body for line in self.statement(statement)]

    def statement(self, statement: Statement, indent: str = "    ") -> Iterator[str]:
        """A statement's lines."""
        if isinstance(statement, Block):
            yield f"{indent}with {statement.context.value}:"
            for inner in statement.body:
                yield from self.statement(inner, indent + "    ")
            return
        statement = self._on_the_device(statement)
        special = self._special(statement)
        if special is None:
            self._import(statement)
            yield from show_statement(statement, indent)
            return
        targets = statement.targets
        bound = f"{', '.join(targets)}{',' * (isinstance(statement.target, tuple) and len(targets) == 1)} = "
        yield f"{indent}{bound if targets else ''}{special}"

    def _on_the_device(self, call: OpCall) -> OpCall:
        """Without ``device=x.device``, which a person leaves out where everything is on the CPU."""
        plain = replace(
            call, kwargs=tuple((key, value) for key, value in call.kwargs if not isinstance(value, DeviceOf))
        )
        return call if plain == call else self.choices.among(f"device {call.path} {call.targets}", [plain, call])

    def _special(self, call: OpCall) -> str | None:
        """The right-hand side where the program's own would need this project."""
        root, _, name = call.path.rpartition(".")
        shown = [show_expr(arg) for arg in call.args]
        if root == NAMESPACE:
            return self._wrapper(name, call, shown)
        if root == "Module":
            ways = [f"{call.path}({', '.join(shown)})"]
            if call.path in _FUNCTIONAL:
                ways.insert(0, _FUNCTIONAL[call.path].format(*shown))
            chosen = self.choices.among(f"module {call.path}", ways)
            if chosen == ways[-1]:
                self.define(Module)
            return chosen
        if call.path in ("Inside.doubles", "Inside.negates_after", "Inside.checkpointed"):
            return self._inside(name, shown)
        if root in FUNCTIONS:
            self.define(FUNCTIONS[root])
        return None

    def _wrapper(self, name: str, call: OpCall, shown: list[str]) -> str:
        if name == "inner":
            which = call.args[1].value if isinstance(call.args[1], Literal) else 0
            ways = [f"{shown[0]}.a", f"{shown[0]}.b"][int(str(which)) % 2 :]
            ways = [ways[0], f"getattr({shown[0]}, {shown[0]}.__tensor_flatten__()[0][{which}])"]
            return self.choices.among(f"inner {call.targets}", ways)
        if name not in _WRAPPED:
            made = next(one for one in subclasses() if one.key == name).make
            self.imports[f"import {made.__module__}"] = None
            return f"{made.__module__}.{made.__qualname__}({', '.join(shown)})"
        template, needed = _WRAPPED[name]
        if needed:
            self.imports[needed] = None
        if name == "tagged":
            self.imports["from torch.utils import _pytree as pytree"] = None
            self.imports["from torch.utils._python_dispatch import return_and_correct_aliasing"] = None
            self.define(wrappers.Tagged)
        if name == "differentiable":
            self.define(wrappers.Wraps)
            return template.format(*shown)
        held = self.choices.among(f"held {shown}", [shown, [f"{one}.detach()" for one in shown]])
        return template.format(*held)

    def _inside(self, name: str, shown: list[str]) -> str:
        if name == "doubles":
            return f"{shown[0]}.register_hook(lambda g: g * 2)"
        if name == "negates_after":
            return f'{shown[0]}.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", -p.grad))'
        self.imports["import torch.utils.checkpoint"] = None
        self.define(functions._checkpointed)
        return f"torch.utils.checkpoint.checkpoint(_checkpointed, {', '.join(shown)}, use_reentrant=False)"

    def define(self, made: Any) -> None:
        """Have the source of a class or function stand in the script, after what it names of its module.

        Docstrings are left out, and so are the structured forms of the class that the program does not call.
        """
        tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        (top,) = tree.body
        if made in OBJECTS.values():
            self.imports["from dataclasses import dataclass"] = None
        elif isinstance(top, ast.ClassDef) and not issubclass(made, torch.autograd.Function | torch.Tensor):
            top.body = self._called(top)
        beside = vars(import_module(made.__module__))
        for node in ast.walk(tree):
            other = beside.get(node.id) if isinstance(node, ast.Name) else None
            if other is not made and getattr(other, "__module__", "") == made.__module__:
                self.define(other)
        self.definitions[ast.unparse(tree)] = None

    def _called(self, made: ast.ClassDef) -> list[ast.stmt]:
        """The members of a class of forms that the program needs."""
        paths = {call.path for call in flat_calls(self.program.body)}
        kept: list[ast.stmt] = [m for m in made.body if f"{made.name}.{getattr(m, 'name', '')}" in paths]
        for member in kept:  # which grows
            attributes = (node for node in ast.walk(member) if isinstance(node, ast.Attribute))
            names = {node.attr for node in attributes if getattr(node.value, "id", "") in ("cls", made.name)}
            kept += [m for m in made.body if m not in kept and names & _names_of(m)]
        return [member for member in made.body if member in kept]

    def _import(self, call: OpCall) -> None:
        """Import the module of a user's op."""
        if call.path.partition(".")[0] in ("torch", *FUNCTIONS) or find(call.path)[0].form is not Form.FUNCTION:
            return
        module = call.path.rpartition(".")[0]
        import_module(module)
        self.imports[f"import {module}"] = None


def _names_of(member: ast.stmt) -> set[str]:
    """What a member of a class is called."""
    return {getattr(member, "name", "") or getattr(getattr(member, "target", None), "id", "")}


def _bare(outputs: Expr) -> str:
    """What is returned; a tuple without parentheses."""
    if isinstance(outputs, TupleExpr) and outputs.items:
        return ", ".join(map(show_expr, outputs.items)) + "," * (len(outputs.items) == 1)
    return show_expr(outputs)


def _with_last(program: Program) -> list[Program]:
    """``program`` returning the result of its last statement, if nothing is returned and that is dropped, and as it
    is: a reader wonders about what is computed for nothing."""
    last = program.body[-1] if program.body else None
    if program.outputs != Literal(None) or not isinstance(last, OpCall):
        return [program]
    if last.target is None and (writes(last) or find(last.path)[0].form in (Form.SETITEM, Form.ASSIGN)):
        return [program]
    if last.target is None:
        last = replace(last, target="out")
    if not isinstance(last.target, str):
        return [program]
    return [replace(program, body=(*program.body[:-1], last), outputs=Ref(last.target)), program]


def _returned_at_once(program: Program) -> tuple[tuple[Statement, ...], Expr | str]:
    """The body and what is returned; where the last value is all that is returned, its expression."""
    body, outputs = program.body, program.outputs
    last = body[-1] if body else None
    if not (isinstance(last, OpCall) and isinstance(outputs, Ref) and last.target == outputs.name):
        return body, outputs
    read = [name for call in flat_calls(body) for arg in call.args for name in references(arg)]
    root = last.path.partition(".")[0]
    if outputs.name in read or outputs.name in program.params or root in (NAMESPACE, *FUNCTIONS):
        return body, outputs
    (line,) = show_statement(last, "")
    return body[:-1], line.partition(" = ")[2]
