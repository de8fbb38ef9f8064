"""Programs that hold tensors of wrapper subclasses: named by key, registered, emitted, read back."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing._internal.custom_tensor import CustomTensorPlainOut

import aotcheck
from aotcheck.backends import Backend, resolve
from aotcheck.oracle import Outcome, check
from aotcheck.program import (
    Backward,
    Call,
    Inputs,
    OpCall,
    Program,
    ProgramSyntaxError,
    Ref,
    Storage,
    Strided,
    emit,
    parse,
)
from aotcheck.program.called.wrapped import wrapped
from aotcheck.program.ops import subclasses as registry
from aotcheck.program.ops.registry import _TABLE
from aotcheck.program.ops.subclasses import held
from aotcheck.program.running.harness import opened

BUILT_IN = ("two", "constant", "tagged", "differentiable", "jagged")


def program(key: str, tensors: int, grad: bool = True) -> Program:
    names = [f"a{k}" for k in range(tensors)]
    made = OpCall("w", f"wrapped.{key}", tuple(map(Ref, names)))
    required = (OpCall(None, "Tensor.requires_grad_", (Ref("w"),)),) if grad else ()
    inputs = Inputs(
        tuple(Storage(f"s{k}", "float32", (1, 2, 3)) for k in range(tensors)),
        tuple(Strided(name, f"s{k}", "float32", (3,), (1,)) for k, name in enumerate(names)),
        (made, *required),
        (Ref("w"),),
    )
    body = (OpCall("v0", "torch.mul", (Ref("x0"), Ref("x0"))),)
    return Program(("x0",), body, Ref("v0"), (Call(inputs, steps=(Backward((0,)),)),))


def arity(key: str) -> int:
    return next(s.tensors for s in registry.subclasses() if s.key == key)


@pytest.mark.parametrize("key", BUILT_IN)
def test_a_program_with_a_subclass_is_read_back(key: str) -> None:
    made = program(key, arity(key))
    assert parse(emit(made)).program == made


@pytest.mark.parametrize("key", BUILT_IN)
@pytest.mark.parametrize("backend", ["eager", "aotcheck"])
def test_backends_agree_on_a_subclass(key: str, backend: str) -> None:
    verdict = check(program(key, arity(key)), resolve(backend), torch.device("cpu"))
    assert verdict.outcome is Outcome.AGREES, [d.text for d in verdict.hard]
    assert not verdict.refusals


def test_a_script_with_a_subclass_runs(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(emit(program("tagged", 1), {"backend": "eager"}))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0 differences")


def test_a_key_that_nobody_registered_is_refused() -> None:
    source = emit(program("two", 2)).replace("wrapped.two", "wrapped.three")
    with pytest.raises(ProgramSyntaxError, match="no tensor subclass is registered as 'three'; register it with"):
        parse(source)


def make_plain_out(x: torch.Tensor, y: torch.Tensor) -> CustomTensorPlainOut:
    return CustomTensorPlainOut(x.detach(), y.detach())


def makes_nothing() -> None: ...


def makes_by_keyword(*, x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.fixture
def registered() -> object:
    aotcheck.register_subclass("plain_out", CustomTensorPlainOut, make_plain_out)
    yield
    del registry._REGISTERED["plain_out"], _TABLE["wrapped.plain_out"]
    del wrapped.plain_out  # type: ignore[attr-defined]


@pytest.mark.usefixtures("registered")
def test_a_registered_subclass_is_a_program_s_like_any_other() -> None:
    made = program("plain_out", 2)
    source = emit(made)
    assert f"\nimport {__name__}\n" in source
    assert parse(source).program == made
    verdict = check(made, resolve("aotcheck"), torch.device("cpu"))
    assert verdict.outcome is Outcome.AGREES, [d.text for d in verdict.hard]


@pytest.mark.usefixtures("registered")
def test_the_oracle_looks_into_a_registered_subclass() -> None:
    def faulty(fn):
        def compiled(x):
            x.elem2.add_(1)
            return fn(x)

        return compiled

    made = program("plain_out", 2, grad=False)
    verdict = check(made, Backend("planted", faulty), torch.device("cpu"))
    assert verdict.outcome is Outcome.DIFFERS
    assert any("w.elem2" in d.text or "a1" in d.text for d in verdict.hard)


@pytest.mark.parametrize(
    ("key", "cls", "make", "error"),
    [
        ("two", CustomTensorPlainOut, make_plain_out, ValueError),
        ("not a key", CustomTensorPlainOut, make_plain_out, ValueError),
        ("plain", torch.Tensor, make_plain_out, TypeError),
        ("nothing", CustomTensorPlainOut, makes_nothing, TypeError),
        ("keywords", CustomTensorPlainOut, makes_by_keyword, TypeError),
    ],
)
def test_what_cannot_be_registered_says_why(key, cls, make, error) -> None:
    with pytest.raises(error, match=r".{20,}"):
        aotcheck.register_subclass(key, cls, make)
    assert len(registry.subclasses()) == len(BUILT_IN)


def test_a_maker_that_scripts_cannot_import_is_refused() -> None:
    def inside(x: torch.Tensor, y: torch.Tensor) -> CustomTensorPlainOut:
        return make_plain_out(x, y)

    for make in (lambda x, y: make_plain_out(x, y), inside, functools.partial(make_plain_out)):
        with pytest.raises(TypeError, match=r"the maker of 'mine' is .* define a function with a name"):
            aotcheck.register_subclass("mine", CustomTensorPlainOut, make)
    assert len(registry.subclasses()) == len(BUILT_IN)


def test_what_a_wrapper_holds_is_seen_by_name() -> None:
    x = wrapped.two(wrapped.two(torch.ones(2), torch.zeros(2)), wrapped.two(torch.ones(2), torch.ones(2)))
    assert list(opened({"x": x})) == ["x", "x.a", "x.a.a", "x.a.b", "x.b", "x.b.a", "x.b.b"]
    assert held(torch.ones(2)) == []
