"""A lint: torch's private names stay in one place, and its AOT autograd stays out of ours.

Every private name is a promise torch did not make, so all of them live in ``aotcheck/_torch``, where a torch that
lacks one is dealt with once. import-linter sees modules of the project and the roots of external packages, so neither
``torch._subclasses`` nor ``tensor._version`` is within its sight; this lint reads the syntax tree instead.

Run as ``python -m tools.private_names``; prints one line per finding and exits 1 if there is any.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

PACKAGES = ("aotcheck", "strategies")
"""What is linted."""

THE_ONE_PLACE = ("aotcheck/_torch/", "aotcheck/_torch2/")
"""Where torch's private names may be touched."""

WITHOUT_TORCHS_AOT_AUTOGRAD = ("aotcheck/autograd/", "aotcheck/autograd2/", *THE_ONE_PLACE)
"""Where torch's own AOT autograd may not even be named: it is the peer that ours is compared with."""

TORCHS_AOT_AUTOGRAD = (
    "torch._functorch.aot_autograd",
    "torch._functorch._aot_autograd",
    "torch._functorch.partitioners",
    "functorch.compile",
)

DEFINES_SUBCLASSES = ("aotcheck/program/called/wrapped.py", "aotcheck/zoo/models/wrappers.py")
"""The suite's own tensor subclasses, written as an author of one outside writes them."""

ALLOWED_IN_SUBCLASSES = (
    "torch.utils._pytree",
    "torch.utils._python_dispatch",
    "torch.testing._internal",
    "_make_wrapper_subclass",
)
"""What every author of a tensor subclass uses."""

OPS_WITH_UNDERSCORES = ("_foreach_",)
"""Ops that torch offers under a private name only; they are operators to test, not internals."""


def _private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__")) and name != "_"


def _private_attributes() -> frozenset[str]:
    """The private attributes of the torch classes whose instances pass through the project's hands."""
    classes: tuple[type, ...] = (
        torch.Tensor,
        torch.nn.Module,
        torch.UntypedStorage,
        torch.Generator,
        torch.autograd.Function,
        torch.fx.Graph,
        torch.fx.GraphModule,
        torch.fx.Node,
        type(torch.ops.aten.add.Tensor),
        type(torch.ops.aten.add),
    )
    of_instances = {"_parameters", "_buffers", "_modules", "_schema", "_op", "_overloads_packet"}
    # How a compiler says that it takes its arguments in a list: a protocol, for all its underscore.
    protocol = {"_boxed_call"}
    return (frozenset(name for cls in classes for name in dir(cls) if _private(name)) | of_instances) - protocol


PRIVATE_ATTRIBUTES = _private_attributes()
_A_PATH = re.compile(r"torch(\.\w+)+")


@dataclass(frozen=True)
class Finding:
    """A private name where none may be."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def _private_part(dotted: str) -> bool:
    """Whether a dotted path below torch goes through a private name; operators under ``torch.ops`` do not count."""
    parts = dotted.split(".")
    if parts[:2] == ["torch", "ops"]:
        return False
    return any(_private(part) and not part.startswith(OPS_WITH_UNDERSCORES) for part in parts[1:])


def _torch_names(tree: ast.AST) -> dict[str, str]:
    """The names a module binds to something of torch, with the dotted path each stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    if alias.name.split(".")[0] == "torch":
                        names[alias.asname or "torch"] = alias.name if alias.asname else "torch"
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] == "torch":
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{module}.{alias.name}"
            case _:
                pass
    for node in ast.walk(tree):
        match node:
            # `aten = torch.ops.aten`
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value):
                if (parts := _dotted(value)) is not None and parts[0] in names:
                    names.setdefault(name, ".".join((names[parts[0]], *parts[1:])))
            case _:
                pass
    return names


def _dotted(node: ast.expr) -> tuple[str, ...] | None:
    """``a.b.c`` as its parts, or None for anything else."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (head := _dotted(node.value)) is not None:
        return (*head, node.attr)
    return None


def _private_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    names = _torch_names(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    if alias.name.split(".")[0] == "torch" and _private_part(alias.name):
                        yield node.lineno, f"imports the private module {alias.name}"
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] == "torch":
                for alias in node.names:
                    if _private_part(f"{module}.{alias.name}"):
                        yield node.lineno, f"imports the private name {module}.{alias.name}"
            case ast.Attribute(attr=attr, value=value):
                parts = _dotted(node)
                if parts is not None and parts[0] in names:
                    path = ".".join((names[parts[0]], *parts[1:]))
                    if id(node) not in inner and _private_part(path):
                        yield node.lineno, f"uses the private name {path}"
                elif attr in PRIVATE_ATTRIBUTES and not (isinstance(value, ast.Name) and value.id in ("self", "cls")):
                    yield node.lineno, f"uses the private attribute .{attr}"
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=str(attr)), *_]
            ):
                if attr in PRIVATE_ATTRIBUTES:
                    yield node.lineno, f"uses the private attribute .{attr}"
            case ast.Constant(value=str(text)) if _A_PATH.fullmatch(text) and _private_part(text):
                yield node.lineno, f"names {text}"
            case _:
                pass


def _names_of_torchs_aot_autograd(source: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.splitlines(), 1):
        if not line.lstrip().startswith("#"):
            yield from ((number, f"names {name}") for name in TORCHS_AOT_AUTOGRAD if name in line)
    for node in ast.walk(tree):
        # `from torch._functorch import aot_autograd` spells none of the names in one piece.
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if f"{node.module}.{alias.name}" in TORCHS_AOT_AUTOGRAD:
                    yield node.lineno, f"imports {node.module}.{alias.name}"


def lint(path: str, source: str) -> list[Finding]:
    """The findings in one file.

    Args:
        path: where the file lies, relative to the repository's root, in forward slashes; decides which rules apply.
        source: its text.
    """
    try:
        tree = ast.parse(source, path)
    except SyntaxError as error:
        return [Finding(path, error.lineno or 0, f"is no Python: {error.msg}")]
    found: list[tuple[int, str]] = []
    if not path.startswith(THE_ONE_PLACE):
        uses = _private_uses(tree)
        if path in DEFINES_SUBCLASSES:
            uses = (use for use in uses if not any(name in use[1] for name in ALLOWED_IN_SUBCLASSES))
        found += [(line, f"{what}; move it to aotcheck/_torch") for line, what in uses]
    if path.startswith(WITHOUT_TORCHS_AOT_AUTOGRAD):
        found += _names_of_torchs_aot_autograd(source, tree)
    return [Finding(path, line, what) for line, what in sorted(set(found))]


def main() -> int:
    """Lint the packages of the repository that this file lies in."""
    root = Path(__file__).resolve().parent.parent
    files = [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]
    findings = [
        finding
        for file in files
        for finding in lint(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    ]
    for finding in findings:
        print(finding)
    print(f"private names: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
