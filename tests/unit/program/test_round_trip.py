"""What is emitted is read back as it was, and runs on its own."""

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotcheck.program import (
    Around,
    Backward,
    Block,
    Call,
    Context,
    Cotangent,
    DeviceOf,
    DictExpr,
    DType,
    Expr,
    Fill,
    GradMode,
    Graph,
    Hook,
    HookKind,
    Inputs,
    ListExpr,
    Literal,
    Of,
    OpCall,
    Probe,
    Program,
    Ref,
    Site,
    SliceExpr,
    Storage,
    TupleExpr,
    Way,
    Write,
    emit,
    parse,
)
from aotcheck.program.called.objects import OBJECTS
from aotcheck.program.data.samples import ALIASED_VIEWS, SAMPLES
from strategies import programs

_literals = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.just(...),
).map(Literal)
_leaves = _literals | st.just(Ref("x0")) | st.just(DType("float32")) | st.just(DeviceOf("x0"))
_ends = st.none() | st.integers(-9, 9)
_exprs: st.SearchStrategy[Expr] = st.recursive(
    _leaves | st.builds(SliceExpr, _ends, _ends, _ends),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda e: TupleExpr(tuple(e)))
        | st.lists(inner, max_size=3).map(lambda e: ListExpr(tuple(e)))
        | st.lists(st.tuples(st.text(max_size=3), inner), max_size=2).map(lambda e: DictExpr(tuple(e)))
        | st.builds(
            lambda h, s, of: DictExpr((("hidden", h), ("scale", s)), of), inner, inner, st.sampled_from(sorted(OBJECTS))
        )
    ),
    max_leaves=5,
)

_indices = st.lists(st.integers(0, 9), max_size=3).map(tuple)
_backwards = st.builds(
    Backward,
    _indices,
    st.lists(st.builds(Cotangent, st.sampled_from(Fill), st.integers(0, 9)), min_size=1, max_size=2).map(tuple),
    st.sampled_from(Of),
    st.sampled_from(Way),
    st.none() | _indices,
    st.sampled_from(Graph),
    st.lists(st.sampled_from(Around), max_size=2).map(tuple),
    st.integers(0, 2),
)
_probes = st.builds(Probe, st.sampled_from(Site), st.integers(0, 9), st.integers(0, 9), st.sampled_from(Write))
_befores = _probes | st.builds(Hook, st.sampled_from(HookKind), st.sampled_from(Site), st.integers(0, 9))
_steps = _befores | _backwards


@st.composite
def _any_program(draw: st.DrawFn) -> Program:
    """Programs no eager would run, of every shape the data model has."""
    indexed = OpCall("v0", "getitem", (Ref("x0"), draw(_exprs)))
    stored = OpCall(None, "setitem", (Ref("x0"), draw(_exprs), draw(_exprs)))
    called = OpCall(
        draw(st.sampled_from([None, "v1", ("v1",), ("v1", "v2")])),
        "torch.add",
        (draw(_exprs),),
        (("alpha", draw(_exprs)),),
    )
    shown = OpCall("v3", "Tensor.T", (Ref("x0"),))
    assigned = OpCall(None, "Tensor.data=", (Ref("x0"), draw(_exprs)))
    resized = OpCall(None, "Tensor.untyped_storage().resize_", (Ref("x0"), draw(_exprs)))
    further = draw(st.sampled_from([(), (assigned, resized), (OpCall("v4", "list.pop", (Ref("x0"), draw(_exprs))),)]))
    body = (
        indexed,
        Block(draw(st.sampled_from(Context)), (stored, Block(Context.NO_GRAD, (called,)))),
        shown,
        *further,
    )
    storage = Storage("s0", "complex64", tuple(draw(st.lists(st.integers(-9, 9), max_size=4))))
    inputs = Inputs((storage,), (), (), (draw(_exprs.filter(lambda e: "x0" not in repr(e))),))
    steps, before = (tuple(draw(st.lists(kind, max_size=3))) for kind in (_steps, _befores))
    around = tuple(draw(st.lists(st.sampled_from(Around), max_size=2)))
    call = Call(inputs, draw(st.sampled_from(GradMode)), steps, before, around)
    return Program(("x0",), body, draw(_exprs), (call, Call(None)))


@given(_any_program())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_program_is_read_back_as_it_was(program: Program) -> None:
    assert parse(emit(program)).program == program


@given(programs())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_drawn_programs_are_read_back_as_they_were(program: Program) -> None:
    source = emit(program)
    assert parse(source).program == program
    assert emit(parse(source).program) == source, "canonical"


@given(
    st.dictionaries(
        st.text(max_size=6), st.text() | st.integers(-9, 9) | st.booleans() | st.lists(st.text()), max_size=3
    )
)
@settings(max_examples=60, deadline=None)
def test_headers_are_read_back_as_they_were(entries: dict[str, object]) -> None:
    entries.pop("format", None)
    header = {**entries, "expect": {"aot_eager": "known bug", "eager": "agree"}}
    assert parse(emit(ALIASED_VIEWS, header)).header == {"format": 2, **header}


@pytest.mark.parametrize("program", SAMPLES)
def test_a_script_agrees_with_eager_when_it_is_run(program: Program, tmp_path) -> None:
    script = tmp_path / "program.py"
    script.write_text(emit(program, {"backend": "eager"}), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("0 differences between eager and eager")


def test_a_script_shows_each_difference_and_exits_1(tmp_path) -> None:
    (tmp_path / "broken.py").write_text(
        "def twice(f):\n    return lambda *args: (f(*args), 1)[0][:1]\n", encoding="utf-8"
    )
    script = tmp_path / "program.py"
    script.write_text(emit(ALIASED_VIEWS, {"backend": "broken:twice"}), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1
    assert "DIFFERENT structure of output after forward of call 1" in done.stdout


def test_a_script_in_another_folder_finds_a_backend_that_lies_where_it_is_run(tmp_path) -> None:
    (tmp_path / "broken.py").write_text("def nothing(f):\n    return lambda *args: None\n", encoding="utf-8")
    script = tmp_path / "run" / "findings" / "program.py"
    script.parent.mkdir(parents=True)
    script.write_text(emit(ALIASED_VIEWS, {"backend": "broken:nothing"}), encoding="utf-8")
    command = [sys.executable, "run/findings/program.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(("backend", "said"), [("nobody:knows", "importing 'nobody'"), ("egaer", "did you mean")])
def test_a_script_whose_backend_is_not_there_is_a_usage_error(backend: str, said: str, tmp_path) -> None:
    script = tmp_path / "program.py"
    script.write_text(emit(ALIASED_VIEWS, {"backend": backend}), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_script_holds_a_header_a_program_and_a_call() -> None:
    source = emit(ALIASED_VIEWS, {"backend": "eager"})
    kinds = [type(node).__name__ for node in ast.parse(source).body]
    assert kinds == ["Import", "ImportFrom", *["FunctionDef"] * 3, "Assign", "Expr"]
    assert "\n# ///\nimport torch\nfrom aotcheck.script import main\n\ndef" in source
    assert source.endswith("]\nmain(__file__)\n")


HEADER = {
    "found": "by hand",
    "expectations": {"without": ["guards"], "rtol": 0.5},
    "keys": {"aot_eager": "(values, output)", "my_compiler.api:compile": "(crash)"},
    "expect": {"aotcheck": {"*": "agree"}, "aot_eager": {"2.13.0": "differs", "2.14.0": "agree"}},
    "empty": {},
}


def test_a_header_has_a_line_for_each_value() -> None:
    source = emit(ALIASED_VIEWS, HEADER)
    assert source.partition("# ///\nimport")[0].splitlines()[2:] == [
        '# found = "by hand"',
        '# expectations.without = ["guards"]',
        "# expectations.rtol = 0.5",
        '# keys.aot_eager = "(values, output)"',
        '# keys."my_compiler.api:compile" = "(crash)"',
        '# expect.aotcheck."*" = "agree"',
        '# expect.aot_eager."2.13.0" = "differs"',
        '# expect.aot_eager."2.14.0" = "agree"',
        "# empty = {}",
    ]
    assert parse(source).header == {"format": 2, **HEADER}


OLDER = """# /// aotcheck
# format = 2
# found = "by hand"
# [keys]
# aot_eager = "(values, output)"
# "my_compiler.api:compile" = "(crash)"
# [expect.aotcheck]
# "*" = "agree"
# [expect.aot_eager]
# "2.13.0" = "differs"
# "2.14.0" = "agree"
# [expectations]
# without = ["guards"]
# rtol = 0.5
# [empty]
# ///

import torch


def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0, requires_grad=True)
    return (a0,), named(locals())


def f(x0):
    v0 = torch.mul(x0, 2)
    return v0


CALLS = [
    {"inputs": make_inputs_0, "grad_mode": "enabled", "steps": (
        {"do": "backward", "roots": (0,)},
    )},
    {"inputs": None, "grad_mode": "enabled", "steps": ()},
]


if __name__ == "__main__":
    from aotcheck.script import main

    main(__file__)
"""


def test_a_file_with_tables_all_fields_and_a_guard_is_read_as_the_shorter_one_that_is_written_now() -> None:
    older = parse(OLDER)
    assert older.header == {"format": 2, **HEADER}
    shorter = emit(older.program, older.header)
    assert parse(shorter) == older
    calls = '{"inputs": make_inputs_0, "steps": ({"do": "backward", "roots": (0,)},)}, {"inputs": None}'
    assert f"\nCALLS = [{calls}]\nmain(__file__)\n" in shorter


def test_calls_that_need_more_than_a_line_have_one_each_and_those_that_need_more_one_for_each_step() -> None:
    backward = Backward((0,), (Cotangent(Fill.PATTERN, 2),), way=Way.RETURN, inputs=(0,))
    first, second = parse(OLDER).program.calls
    several = replace(ALIASED_VIEWS, calls=(replace(first, steps=(backward,) * 2), second, second))
    lines = emit(several).partition("CALLS = ")[2].splitlines()
    step = '{"do": "backward", "roots": (0,), "cotangents": (("pattern", 2),), "way": "grad", "inputs": (0,)},'
    again = '    {"inputs": None},'
    plan = ["[", '    {"inputs": make_inputs_0, "steps": (', *[f"        {step}"] * 2, "    )},", again, again, "]"]
    assert lines == [*plan, "main(__file__)"]


def test_a_script_that_is_imported_does_nothing(tmp_path: Path) -> None:
    """A backend that spawns processes has each of them import the script."""
    (tmp_path / "spawns.py").write_text(
        "import multiprocessing\n\n\ndef ask(f):\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        pool.apply(abs, (-1,))\n"
        "    return f\n",
        encoding="utf-8",
    )
    script = tmp_path / "program.py"
    script.write_text(emit(ALIASED_VIEWS, {"backend": "spawns:ask"}), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_file_of_the_first_format_is_read_without_its_harness() -> None:
    old = OLDER.replace("# format = 2", "# format = 1").partition("if __name__")[0]
    harness = "# -- harness 1: canonical text, ignored when the file is read back\nimport os\n\nos.abort()\n"
    assert parse(old + harness).program == parse(OLDER).program
