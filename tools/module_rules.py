"""A lint: the second compiler stays small, in files that can be read alone.

The rules, of ``aotcheck/autograd2`` and ``aotcheck/_torch2``: a budget of lines for all and for each file; no circle of
imports, those under ``TYPE_CHECKING`` and inside functions included; no constructor of many parameters; and ``id`` is
called in ``IDS_IN`` alone, as a dict that is keyed by ids of objects hides a fact that belongs on the objects. And
ARCHITECTURE.md names each file.

Run as ``python -m tools.module_rules``; prints one line per finding and exits 1 if there is any.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("aotcheck/autograd2", "aotcheck/_torch2")
"""What is linted."""

LINES_IN_ALL = 10_500
LINES_OF_A_FILE = 500
PARAMETERS = 8

IDS_IN = ("aotcheck/autograd2/frontend/bind.py",)
"""Where the user's objects, which may have no hash, are told apart by their ids."""

_DATA = ("dataclass", "NamedTuple")


@dataclass(frozen=True)
class Finding:
    """A rule that is broken."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def lint(sources: Mapping[str, str]) -> list[Finding]:
    """What breaks the rules in these files, by their paths from the root of the repository."""
    found: list[Finding] = []
    trees = {path: ast.parse(source) for path, source in sources.items()}
    for path, source in sources.items():
        if (count := len(source.splitlines())) > LINES_OF_A_FILE:
            found.append(Finding(path, 1, f"{count} lines, more than {LINES_OF_A_FILE}"))
        found += _constructors(path, trees[path])
        if path not in IDS_IN:
            found += _ids(path, trees[path])
    in_all = sum(len(source.splitlines()) for source in sources.values())
    if in_all > LINES_IN_ALL:
        found.append(Finding(PACKAGES[0], 1, f"{in_all} lines in all, more than {LINES_IN_ALL}"))
    return found + _circles(trees)


def unnamed(paths: Iterable[str], page: str) -> list[Finding]:
    """The files that the page of the architecture does not name."""
    names = [(path, path.rsplit("/", 1)[-1]) for path in paths]
    return [
        Finding(p, 1, f"ARCHITECTURE.md does not name {n}") for p, n in names if n != "__init__.py" and n not in page
    ]


def _constructors(path: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and (count := _parameters(node)) > PARAMETERS:
            yield Finding(path, node.lineno, f"{node.name} is made of {count} parameters, more than {PARAMETERS}")


def _parameters(cls: ast.ClassDef) -> int:
    """How many parameters the constructor that the class itself defines has."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "__new__"):
            a = node.args
            named = len(a.posonlyargs) + len(a.args) - 1 + len(a.kwonlyargs)
            return named + (a.vararg is not None) + (a.kwarg is not None)
    if not any(name in ast.unparse(x) for x in (*cls.decorator_list, *cls.bases) for name in _DATA):
        return 0
    return sum(isinstance(node, ast.AnnAssign) and _is_parameter(node) for node in cls.body)


def _is_parameter(field: ast.AnnAssign) -> bool:
    if ast.unparse(field.annotation).startswith(("ClassVar", "typing.ClassVar")):
        return False
    keywords = field.value.keywords if isinstance(field.value, ast.Call) else []
    return not any(k.arg == "init" and ast.unparse(k.value) == "False" for k in keywords)


def _ids(path: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "id":
            yield Finding(path, node.lineno, "the id of an object is a key; key by the object, or store the fact on it")


def _circles(trees: Mapping[str, ast.Module]) -> list[Finding]:
    """One circle of imports, if there is any."""
    paths = {_module(path): path for path in trees}
    imports = {
        name: {m for m in _imported(name, path, trees[path], paths) if m != name} for name, path in paths.items()
    }
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        circle: list[str] = error.args[1][::-1]  # each is imported by the one before it
        return [Finding(paths[circle[0]], 1, "a circle of imports: " + " -> ".join(circle))]
    return []


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(name: str, path: str, tree: ast.Module, known: Mapping[str, str]) -> Iterator[str]:
    """The modules that a file names in imports, wherever these stand. That a package is run too does not count."""
    package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                if inner in known or source in known:
                    yield inner if inner in known else source


def main() -> None:
    """Lint the repository that holds this file."""
    root = Path(__file__).parent.parent
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    sources = {path.relative_to(root).as_posix(): path.read_text() for path in paths}
    found = lint(sources) + unnamed(sources, (root / "ARCHITECTURE.md").read_text())
    for finding in found:
        print(finding)
    lines = sum(len(source.splitlines()) for source in sources.values())
    print(f"module rules: {len(sources)} files, {lines} lines of {LINES_IN_ALL}, {len(found)} findings")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
