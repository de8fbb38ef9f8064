"""The lint that keeps the second compiler small and its modules apart."""

import itertools
import subprocess
import sys

import pytest

from tools.module_rules import IDS_IN, LINES_IN_ALL, LINES_OF_A_FILE, PARAMETERS, lint, unnamed

A, B, C = "aotcheck/autograd2/ir/a.py", "aotcheck/autograd2/ir/b.py", "aotcheck/autograd2/c.py"
MANY = [f"x{k}" for k in range(PARAMETERS + 1)]


def said(**sources):
    return [finding.what for finding in lint({{"a": A, "b": B, "c": C}[name]: s for name, s in sources.items()})]


def test_the_second_compiler_keeps_the_rules():
    assert subprocess.run([sys.executable, "-m", "tools.module_rules"], capture_output=True).returncode == 0


def test_a_file_may_have_so_many_lines_and_no_more():
    assert said(a="x = 1\n" * LINES_OF_A_FILE) == []
    (what,) = said(a="x = 1\n" * (LINES_OF_A_FILE + 1))
    assert what.startswith(f"{LINES_OF_A_FILE + 1} lines")


def test_all_files_together_have_a_budget():
    count = LINES_IN_ALL // LINES_OF_A_FILE
    full = {f"aotcheck/autograd2/m{k}.py": "x = 1\n" * LINES_OF_A_FILE for k in range(count)}
    assert lint(full) == []
    assert len(lint({**full, A: "x = 1\n"})) == 1


def test_the_page_of_the_architecture_names_each_file():
    assert unnamed([A, B, "aotcheck/autograd2/__init__.py"], "`a.py`, b.py") == []
    assert [f.path for f in unnamed([A, B], "a.py")] == [B]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("import aotcheck.autograd2.ir.b", "import aotcheck.autograd2.ir.a"),
        ("from aotcheck.autograd2.ir.b import f", "from aotcheck.autograd2.ir import a"),
        ("from aotcheck.autograd2.ir import b as c", "from . import a"),
        ("from .b import f", "from ..ir.a import g"),
        ("from aotcheck.autograd2.ir.b import f", "def g():\n    from aotcheck.autograd2.ir.a import h"),
        ("from aotcheck.autograd2.ir.b import f", "if TYPE_CHECKING:\n    from aotcheck.autograd2.ir.a import G"),
    ],
)
def test_two_modules_that_import_each_other_are_a_circle(a, b):
    (what,) = said(a=a, b=b)
    assert what.startswith("a circle of imports")
    assert said(a=a, b="") == said(a="", b=b) == []


def test_a_circle_is_named_in_the_order_of_its_imports():
    (what,) = said(
        a="import aotcheck.autograd2.ir.b", b="import aotcheck.autograd2.c", c="import aotcheck.autograd2.ir.a"
    )
    steps = what.removeprefix("a circle of imports: ").replace("aotcheck.autograd2.", "").split(" -> ")
    assert steps[0] == steps[-1]
    assert set(itertools.pairwise(steps)) == {("ir.a", "ir.b"), ("ir.b", "c"), ("c", "ir.a")}


def test_that_a_package_names_its_modules_is_no_circle():
    package = {"aotcheck/autograd2/ir/__init__.py": "from aotcheck.autograd2.ir.a import f"}
    assert lint({**package, A: "from aotcheck.autograd2.ir.b import g", B: ""}) == []
    assert len(lint({**package, A: "from aotcheck.autograd2.ir import g"})) == 1


@pytest.mark.parametrize(
    "source",
    [
        f"class A:\n    def __init__(self, {', '.join(MANY)}): ...",
        f"class A:\n    def __init__(self, *, {', '.join(MANY)}): ...",
        f"class A:\n    def __init__(self, {', '.join(MANY[2:])}, *args, **kwargs): ...",
        "@dataclass(frozen=True)\nclass A:\n" + "".join(f"    {x}: int\n" for x in MANY),
        "@dataclasses.dataclass\nclass A:\n" + "".join(f"    {x}: int = 0\n" for x in MANY),
        "class A(NamedTuple):\n" + "".join(f"    {x}: int\n" for x in MANY),
    ],
)
def test_a_constructor_of_too_many_parameters_is_found(source):
    assert said(a=source) == [f"A is made of {len(MANY)} parameters, more than {PARAMETERS}"]


@pytest.mark.parametrize(
    "source",
    [
        f"class A:\n    def __init__(self, {', '.join(MANY[1:])}): ...",
        "@dataclass\nclass A:\n" + "".join(f"    {x}: int\n" for x in MANY[1:]),
        "@dataclass\nclass A:\n    x: list = field(default_factory=list, init=False)\n"
        + "".join(f"    {x}: int\n" for x in MANY[1:]),
        "@dataclass\nclass A:\n    limit: ClassVar[int] = 3\n" + "".join(f"    {x}: int\n" for x in MANY[1:]),
        "class A(Enum):\n" + "".join(f"    {x}: int\n" for x in MANY),
    ],
)
def test_other_constructors_pass(source):
    assert said(a=source) == []


@pytest.mark.parametrize(
    "source", ["{id(x): x for x in y}", "y[id(x)]", "y.get(id(x))", "id(x) in y", "y.update(zip(map(id, x), x))"]
)
def test_ids_of_objects_are_taken_in_named_modules_only(source):
    assert len(said(a=source)) == 1
    assert lint({IDS_IN[0]: source}) == []


def test_what_is_only_called_id_passes():
    assert said(a="x.id(y)\nnode.id = 3\ngrid = grid_of(x)") == []
