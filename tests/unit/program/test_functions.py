"""The custom Functions: what autograd makes of each, and that a script carries them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aotcheck.program import Backward, Call, Inputs, OpCall, Program, Ref, Storage, Strided, TupleExpr, emit, parse
from aotcheck.program.called.functions import (
    MarksDirty,
    MarksDirtyAndMore,
    Module,
    NonDifferentiable,
    OnceDifferentiable,
    ReturnsInput,
    ReturnsView,
    SavesOutput,
    SavesTensors,
    Unmaterialized,
    WritesUnmarked,
)
from aotcheck.program.ops.functions import FUNCTIONS


def _leaf() -> torch.Tensor:
    return torch.tensor([1.0, -2.0], requires_grad=True)


def test_gradients_are_those_of_the_definitions() -> None:
    for function, gradient in (
        (SavesOutput, [2, -4]),
        (ReturnsView, [1, 1]),
        (ReturnsInput, [3, 3]),
        (OnceDifferentiable, [2, -4]),
        (WritesUnmarked, [2, 2]),
    ):
        x = _leaf()
        function.apply(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == gradient, function
    x, y = _leaf(), _leaf()
    SavesTensors.apply(x, y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == y.tolist()


def test_dirty_inputs_are_the_same_objects_and_written() -> None:
    x = _leaf().clone()
    assert MarksDirty.apply(x) is x
    assert x.tolist() == [2, -4] and x.grad_fn is not None
    same, product = MarksDirtyAndMore.apply(x, x.detach().clone())
    assert same is x and product.tolist() == [4, 16] and x.tolist() == [-2, 4]


def test_recurrent_modules_refuse_a_bias_of_another_size_by_which_kernels_read_beyond_it() -> None:
    x, weight = torch.ones(4, 3), torch.ones(3, 3, requires_grad=True)
    assert Module.lstm(x, weight, torch.ones(3))[0].shape == (4, 3)
    with pytest.raises(RuntimeError, match="other sizes"):
        Module.lstm(x, weight, torch.ones(2))


def test_views_made_by_a_function_are_guarded() -> None:
    base = _leaf().clone()
    view = ReturnsView.apply(base)
    assert view.data_ptr() == base.data_ptr()
    with pytest.raises(RuntimeError, match="custom Function"):
        view.add_(1)


def test_an_output_may_have_no_gradient_and_a_gradient_may_be_none() -> None:
    doubled, more = NonDifferentiable.apply(_leaf())
    assert doubled.requires_grad and not more.requires_grad
    x = _leaf()
    Unmaterialized.apply(x)[1].sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5, 5]


def test_a_backward_without_a_backward() -> None:
    x = _leaf()
    seed = torch.ones(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(OnceDifferentiable.apply(x), x, seed, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def _program(name: str) -> Program:
    inputs = Inputs(
        (Storage("s0", "float32", (1, -2)),),
        (Strided("a0", "s0", "float32", (2,), (1,), 0, True),),
        (OpCall("a1", "Tensor.clone", (Ref("a0"),)),),
        (Ref("a1"),),
    )
    arguments = (Ref("x0"), Ref("x0")) if name in ("SavesTensors", "MarksDirtyAndMore") else (Ref("x0"),)
    outputs = TupleExpr((Ref("v0"), Ref("x0")))
    return Program(
        ("x0",), (OpCall("v0", f"{name}.apply", arguments),), outputs, (Call(inputs, steps=(Backward((0,)),)),)
    )


@pytest.mark.parametrize("name", [name for name, made in FUNCTIONS.items() if hasattr(made, "apply")])
def test_a_program_that_calls_one_is_read_back(name: str) -> None:
    program = _program(name)
    source = emit(program)
    assert parse(source).program == program
    assert f"v0 = {name}.apply(x0" in source


@pytest.mark.parametrize("name", ["MarksDirty", "NonDifferentiable"])
def test_a_script_that_calls_one_runs(name: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(emit(_program(name), {"backend": "eager"}), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.startswith("0 differences between eager and eager"), done.stdout + done.stderr
