"""Lists and dicts among the arguments: what a program may do to them, and how that is shown."""

import pytest

from aotcheck.program import (
    Call,
    DictExpr,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Ref,
    Storage,
    Strided,
    build_call,
    emit,
    function_of,
    parse,
    scene_of,
)
from aotcheck.program.data.model import Expr, Statement
from aotcheck.program.running import harness

SIX = Storage("s0", "float32", (1, -2, 3, 0, 2, -1))


def given(container: Expr, *body: Statement, outputs: Expr) -> Program:
    tensors = tuple(Strided(f"a{i}", "s0", "float32", (2,), (1,), 2 * i) for i in range(3))
    inputs = Inputs((SIX,), tensors, (), (container, Ref("a2")))
    return Program(("x0", "x1"), body, outputs, (Call(inputs),))


LIST, DICT = ListExpr((Ref("a0"), Ref("a1"))), DictExpr((("k0", Ref("a0")),))
STATE, SETTINGS = (DictExpr((("hidden", Ref("a0")), ("scale", Literal(0.5))), of) for of in ("State", "Settings"))


def op(path: str, *args: Expr | int | str, target: str | None = None) -> OpCall:
    return OpCall(target, path, tuple(a if not isinstance(a, int | str) else Literal(a) for a in args))


CASES = {
    "list[0] = x": (LIST, op("setitem", Ref("x0"), 0, Ref("x1")), "(list(a2, a1), a2)"),
    "append": (LIST, op("list.append", Ref("x0"), Ref("x1")), "(list(a0, a1, a2), a2)"),
    "insert": (LIST, op("list.insert", Ref("x0"), 0, Ref("x1")), "(list(a2, a0, a1), a2)"),
    "pop": (LIST, op("list.pop", Ref("x0"), -1, target="v0"), "(list(a0), a2)"),
    "reverse": (LIST, op("list.reverse", Ref("x0")), "(list(a1, a0), a2)"),
    "dict[new] = x": (DICT, op("setitem", Ref("x0"), "n", Ref("x1")), "(dict('k0': a0, 'n': a2), a2)"),
    "dict[old] = x": (DICT, op("setitem", Ref("x0"), "k0", Ref("x1")), "(dict('k0': a2), a2)"),
    "update": (DICT, op("dict.update", Ref("x0"), DictExpr((("n", Ref("x1")),))), "(dict('k0': a0, 'n': a2), a2)"),
    "object.hidden = x": (STATE, op("object.hidden=", Ref("x0"), Ref("x1")), "(State(a2, 0.5), a2)"),
    "object.scale = n": (STATE, op("object.scale=", Ref("x0"), 3), "(State(a0, 3), a2)"),
    "frozen": (SETTINGS, op("object.hidden", Ref("x0"), target="v0"), "(Settings(a0, 0.5), a2)"),
    "setdefault": (DICT, op("dict.setdefault", Ref("x0"), "k0", Ref("x1"), target="v0"), "(dict('k0': a0), a2)"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_write_to_a_container_is_read_back_and_shown(name: str) -> None:
    container, statement, shown = CASES[name]
    program = given(container, statement, outputs=Ref("x0"))
    assert parse(emit(program)).program == program
    scene = scene_of(build_call(program, 0))
    scene.returned(function_of(program)(*scene.args))
    result, _, arguments = scene.words().partition("; given ")
    assert arguments == f"tuple{shown}"
    assert result.partition("@argument[0](")[0] in ("list", "dict", "State", "Settings")


def test_a_new_tensor_in_a_container_is_looked_at() -> None:
    made = op("torch.neg", Ref("x1"), target="v0")
    program = given(LIST, made, op("setitem", Ref("x0"), 0, Ref("v0")), outputs=Literal(None))
    scene = scene_of(build_call(program, 0))
    assert not scene.held()
    function_of(program)(*scene.args)
    assert [(name, t.tolist()) for name, t in scene.held().items()] == [("argument[0][0]", [-2, 1])]
    assert scene.words().endswith("; given tuple(list(Tensor, a1), a2)")


def test_arguments_that_are_only_tensors_and_tuples_are_not_shown() -> None:
    program = given(Ref("a0"), outputs=Ref("x0"))
    scene = scene_of(build_call(program, 0))
    scene.returned(function_of(program)(*scene.args))
    assert scene.words() == "Tensor"


def test_contents_leave_out_which_container_it_is() -> None:
    assert harness.contents("tuple(list@argument[0](Tensor), Tensor); given tuple(list(a0))") == harness.contents(
        "list(list(Tensor), Tensor)"
    )
    assert harness.contents("list(Tensor)") != harness.contents("list(Tensor, Tensor)")
