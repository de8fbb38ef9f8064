"""A file from a stranger: one clear error, and nothing of it runs."""

import os
from pathlib import Path

import pytest

from aotcheck.program import Backward, Cotangent, Fill, Probe, ProgramSyntaxError, Site, emit, parse, parse_file
from aotcheck.program.data.samples import ALIASED_VIEWS
from aotcheck.program.source.emit import ENDING, IMPORT
from aotcheck.program.source.parse import HARNESS_MARK

GOOD = emit(ALIASED_VIEWS)
HEADER = "# /// aotcheck\n# format = 2\n# ///\n"


def _with(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


HOSTILE = {
    "nothing": "",
    "no header": "import torch\n",
    "header without end": "# /// aotcheck\n# format = 2\n",
    "header that is not TOML": "# /// aotcheck\n# format = \n# ///\n",
    "another format": "# /// aotcheck\n# format = 2\n# ///\n",
    "true is not a format": "# /// aotcheck\n# format = true\n# ///\n",
    "not Python": HEADER + "def f(:\n",
    "nothing but a header": HEADER,
    "no CALLS": HEADER + "def f():\n    return 1\n",
    "null byte": HEADER + "\0",
    "surrogate": HEADER + "x = '\ud800'\n",
    "deep brackets": HEADER + "x = " + "[" * 5000 + "]" * 5000,
    "deep unary": HEADER + "x = " + "-" * 50000 + "1",
    "deep blocks": HEADER + "".join(" " * i + "if 1:\n" for i in range(90)),
    "deep attribute": _with("x0.add_(1)", "x0" + ".a" * 20000 + "(1)"),
    "deep operators": _with("x0.add_(1)", "x0.add_(" + "+".join(["1"] * 20000) + ")"),
    "huge integer": _with("x0.add_(1)", f"x0.add_({10**30})"),
    "more digits than Python reads": _with("x0.add_(1)", "x0.add_(" + "9" * 5000 + ")"),
    "huge file": HEADER + "#" * 2**20,
    "huge data": _with("[1, -2, 3, 0, 2, -1]", "[" + "1," * 110_000 + "]"),
    "statement at the top": GOOD.replace("CALLS =", "print(1)\nCALLS =", 1),
    "import inside": _with("    x0.add_(1)", "    import os"),
    "builtin": _with("x0.add_(1)", "exec('1')"),
    "dunder": _with("x0.add_(1)", "x0.__class__(1)"),
    "op that is not registered": _with("torch.mul(v0, 2)", "torch.load('x')"),
    "attribute as a value": _with("torch.mul(v0, 2)", "torch.mul(v0, torch.os)"),
    "assignment to an attribute": _with("x0.add_(1)", "x0.__class__ = x1"),
    "assignment to an attribute of torch": _with("x0.add_(1)", "torch.data = x1"),
    "call of a call": _with("x0.add_(1)", "x0.tolist().append(1)"),
    "call of a call with arguments": _with("x0.add_(1)", "x0.untyped_storage(1).resize_(1)"),
    "Function that there is not": _with("torch.mul(v0, 2)", "Nonsense.apply(v0)"),
    "method of a Function": _with("torch.mul(v0, 2)", "SavesTensors.vmap(v0)"),
    "Function as a name": _with("v1 = torch.mul", "SavesTensors = torch.mul"),
    "lambda": _with("torch.mul(v0, 2)", "torch.mul(v0, lambda: 1)"),
    "f-string": _with("torch.mul(v0, 2)", "torch.mul(v0, f'{x0}')"),
    "comprehension": _with("torch.mul(v0, 2)", "torch.stack([x for x in v0])"),
    "starred": _with("torch.mul(v0, 2)", "torch.mul(*v0)"),
    "double starred": _with("torch.mul(v0, 2)", "torch.mul(**v0)"),
    "undefined name": _with("torch.mul(v0, 2)", "torch.mul(v9, 2)"),
    "unicode lookalike": _with("torch.mul(v0, 2)", "torch.mul(v\uff10, 2)"),
    "shadowed torch": _with("v1 = torch.mul", "torch = torch.mul"),
    "decorator": _with("def f(", "@print\ndef f("),
    "default": _with("def f(x0, x1)", "def f(x0, x1=print())"),
    "annotation": _with("def f(x0, x1)", "def f(x0: print(), x1)"),
    "wrong number of parameters": _with("def f(x0, x1)", "def f(x0, x1, x2)"),
    "unknown context": _with("    x0.add_(1)", "    with open('x'):\n        x0.add_(1)"),
    "extra function": _with("def f(", "def g(device):\n    return 1\n\n\ndef f("),
    "unknown call key": _with('"inputs": None', '"inputs": None, "forward": None'),
    "steps that are no tuple": _with('"inputs": None', '"inputs": None, "steps": 3'),
    "step that is no dict": _with('"inputs": None', '"inputs": None, "steps": (3,)'),
    "step of no kind": _with('"inputs": None', '"inputs": None, "steps": ({"do": "exec"},)'),
    "step with an odd key": _with(
        '"inputs": None', '"inputs": None, "steps": ({"do": "backward", "roots": (), "code": 1},)'
    ),
    "step that lacks something": _with('"inputs": None', '"inputs": None, "steps": ({"do": "probe", "index": 1},)'),
    "step with a negative index": _with(
        '"inputs": None', '"inputs": None, "steps": ({"do": "backward", "roots": (-1,)},)'
    ),
    "step with an unknown word": _with(
        '"inputs": None', '"inputs": None, "steps": ({"do": "backward", "roots": (), "way": "x"},)'
    ),
    "step with no cotangent": _with(
        '"inputs": None', '"inputs": None, "steps": ({"do": "backward", "roots": (), "cotangents": ()},)'
    ),
    "step that calls": _with('"inputs": None', '"inputs": None, "steps": ({"do": exec("1")},)'),
    "unknown context around a call": _with('"inputs": None', '"inputs": None, "around": ("x",)'),
    "backward before a call": _with('"inputs": None', '"inputs": None, "before": ({"do": "backward", "roots": ()},)'),
    "negative stride": _with("(4,), (1,), 0", "(4,), (-1,), 0"),
    "dtype that is none": _with("torch.float32", "torch.nn"),
    "no return": _with("    return (v0, v1, x0, None)\n", ""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gives_one_clear_error(name: str) -> None:
    with pytest.raises(ProgramSyntaxError) as caught:
        parse(HOSTILE[name], "stranger.py")
    message = str(caught.value)
    assert message.startswith("stranger.py:")
    assert "\n" not in message and len(message) < 400
    assert caught.value.advice


def test_a_file_that_is_not_text_gives_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "binary.py"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ProgramSyntaxError, match="not UTF-8"):
        parse_file(path)


def test_windows_line_ends_and_a_byte_order_mark_are_read() -> None:
    assert parse("\ufeff" + GOOD.replace("\n", "\r\n")).program == ALIASED_VIEWS


def test_loading_runs_nothing(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    source = GOOD.replace("import torch\n", f"import torch\nimport {tmp_path.name.replace('-', '_')}\n", 1)
    assert parse(source).program == ALIASED_VIEWS
    attack = f"open({str(trap)!r}, 'w')\n"
    guard = f'if __name__ == "__main__":\n    {IMPORT}\n'
    program = source.removesuffix(ENDING)
    assert parse(f"{program}{guard}    {ENDING}") == parse(source)
    for ending in (
        f"{ENDING}{attack}",
        f"{attack}{ENDING}",
        f"{ENDING}{ENDING}",
        f"{guard}    {attack}    {ENDING}",
        f"{guard}    {ENDING}else:\n    {attack}",
        "from aotcheck.script import main as f\n",
        "main(1)\n",
    ):
        with pytest.raises(ProgramSyntaxError, match="unexpected statement"):
            parse(program + ending)
    first = program.replace("# format = 2", "# format = 1")
    assert parse(f"{first}{HARNESS_MARK}\n{attack}").program == ALIASED_VIEWS, "what follows the mark is not looked at"
    assert not trap.exists()


def test_a_script_from_before_there_were_steps_is_read() -> None:
    older = _with('"inputs": None', '"inputs": None, "backward": ((0, 1), 2), "probes": (("input", 1, 3),)')
    backward = Backward((0, 1), (Cotangent(Fill.PATTERN, 2),))
    assert parse(older).program.calls[1].steps == (backward, Probe(Site.INPUT, 1, 3))


@pytest.mark.parametrize("kind", ["link to a device", "pipe", "folder"])
def test_what_is_no_file_gives_one_clear_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "stranger.py"
    match kind:
        case "link to a device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    with pytest.raises(ProgramSyntaxError, match="cannot be read: not a regular file"):
        parse_file(path)
