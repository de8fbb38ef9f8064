"""Controls: finds lines of a script without which eager and the backend agree."""

import ast
import time
from collections.abc import Iterator
from dataclasses import replace

from aotcheck.bug.script import Script
from aotcheck.bug.trial import AGREE, NO_ERROR, raising_lines, shows

__all__ = ["control"]

_SECONDS, _MOST = 8.0, 2


def control(script: Script, error: str, *, later: bool) -> str:
    """What was seen without parts of a script that shows its difference, in a sentence or two; empty for nothing.

    Scripts are run in this process, which is of no use afterwards. The whole one is run again at last: where that no
    longer shows its difference, the process is to blame for what was seen, and nothing is said.

    Args:
        script: it.
        error: where an exception differs, its key.
        later: the difference shows in a later call.
    """
    deadline = time.monotonic() + _SECONDS
    parsed = {node.name: node for node in ast.parse(script.text).body if isinstance(node, ast.FunctionDef)}
    agree = "there is no error" if script.raises else "both agree"
    raising = raising_lines(script)  # without one of these there is nothing to compare

    def without(node: ast.stmt) -> str:
        """Why the script does not show its difference without ``node``; empty where it does."""
        return shows(replace(script, text=_cut(script.text, node), identity=_cut(script.identity, node)), error)

    said = []
    calls = [node for node in parsed["run"].body if _calls(node)]
    if later and len(calls) > 1 and time.monotonic() < deadline:
        match without(calls[0]):
            case "":
                said.append("It shows without the first call too.")
            case reason if reason in (AGREE, NO_ERROR):
                said.append(f"Without the first call {agree}.")
    for function in ("f", "run"):
        needed: list[str] = []
        for node in _inside(parsed["f"]) if function == "f" else _around(parsed["run"]):
            if node.lineno in raising or len(needed) == _MOST or time.monotonic() >= deadline:
                continue
            if without(node) in (AGREE, NO_ERROR):
                needed.append(f"`{ast.get_source_segment(script.text, node)}`")
        if needed:
            said.append(f"Without the line {' or '.join(needed)} {agree}.")
            break
    return " ".join(said) if said and not shows(script, error) else ""


def _inside(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """Statements of the function that bind no name, in order, where something else is left that computes."""
    lines = [node for node in ast.walk(function) if isinstance(node, ast.Expr | ast.Assign | ast.Return)]
    lines = [node for node in lines if any(isinstance(part, _COMPUTING) for part in ast.walk(node))]
    yield from sorted(filter(_binds_nothing, lines if len(lines) > 1 else ()), key=lambda node: node.lineno)


def _around(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """Statements of the caller that bind no name, before its last call. What hooks see is nothing without the hook."""
    *before, last = [k for k, node in enumerate(function.body) if _calls(node)] or [0]
    for k, node in enumerate(function.body[:last]):
        if k not in before and _binds_nothing(node) and "hook" not in ast.unparse(node):
            yield node


_COMPUTING = (ast.Call, ast.Attribute, ast.Subscript, ast.BinOp)


def _binds_nothing(node: ast.stmt) -> bool:
    writes = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    return writes or isinstance(node, ast.Expr)


def _calls(node: ast.stmt) -> bool:
    """Whether it calls ``f``."""
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "f" for n in ast.walk(node))


def _cut(text: str, node: ast.stmt) -> str:
    lines = text.splitlines()
    lines[node.lineno - 1 : node.end_lineno] = [f"{' ' * node.col_offset}pass"]
    return "\n".join([*lines, ""])
