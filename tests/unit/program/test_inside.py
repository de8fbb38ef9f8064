"""What a function may do while it runs: differentiate, hang hooks, compute again, cast, call modules."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aotcheck.backends import Backend, resolve
from aotcheck.campaign.setup.generate import programs_of_block
from aotcheck.oracle import OracleKind, Outcome, check
from aotcheck.program import (
    Backward,
    Block,
    Call,
    Context,
    Feature,
    Inputs,
    ListExpr,
    Literal,
    OpCall,
    Program,
    Ref,
    Storage,
    Strided,
    TupleExpr,
    difficulty,
    emit,
    exact,
    flat_calls,
    function_of,
    parse,
    traits_of,
)
from aotcheck.program.called.functions import Inside, Module
from aotcheck.program.ops.registry import INSIDE, Kind, Op, Work, ops
from strategies import Profile, programs, settled

CPU = torch.device("cpu")
X, Y, W = Ref("x0"), Ref("x1"), Ref("x2")
TRUE = Literal(True)
GRAD = OpCall(
    ("v1",),
    "torch.autograd.grad",
    (ListExpr((Ref("v0"),)), ListExpr((X,)), ListExpr((Ref("v0"),))),
    (("create_graph", TRUE), ("allow_unused", TRUE)),
)


def program(*body: OpCall | Block, outputs: str = "v1") -> Program:
    """Two matrices and a vector that require grad; a backward."""
    inputs = Inputs(
        (
            Storage("s0", "float32", (1, -2, 3, 0)),
            Storage("s1", "float32", (2, 2, -1, 1)),
            Storage("s2", "float32", (1, -1)),
        ),
        (
            Strided("a0", "s0", "float32", (2, 2), (2, 1), 0, True),
            Strided("a1", "s1", "float32", (2, 2), (2, 1), 0, True),
            Strided("a2", "s2", "float32", (2,), (1,), 0, True),
        ),
        (),
        (Ref("a0"), Ref("a1"), Ref("a2")),
    )
    return Program(("x0", "x1", "x2"), body, Ref(outputs), (Call(inputs, steps=(Backward((0,)),)),))


MUL = OpCall("v0", "torch.mul", (X, Y))
ONES = OpCall("v2", "torch.ones", (TupleExpr((Literal(2),)),))
ZEROS = OpCall("v3", "torch.zeros", (TupleExpr((Literal(2),)),))
PROGRAMS = {
    "grad": program(MUL, GRAD),
    "backward": program(MUL, OpCall(None, "Tensor.backward", (Ref("v0"), Y), (("retain_graph", TRUE),)), outputs="v0"),
    "hook": program(MUL, OpCall(None, "Inside.doubles", (Ref("v0"),)), outputs="v0"),
    "post-accumulate hook": program(OpCall(None, "Inside.negates_after", (X,)), MUL, outputs="v0"),
    "checkpoint": program(OpCall("v1", "Inside.checkpointed", (X, Y))),
    "autocast": program(Block(Context.AUTOCAST, (OpCall("v1", "torch.mm", (X, Y)),))),
    "linear": program(OpCall("v1", "Module.linear", (X, Y, W))),
    "batch norm": program(ONES, ZEROS, OpCall("v1", "Module.batch_norm", (X, W, W, Ref("v3"), Ref("v2"), TRUE))),
    "layer norm": program(OpCall("v1", "Module.layer_norm", (X, W, W))),
    "dropout": program(OpCall("v1", "Module.dropout", (X, TRUE))),
    "embedding": program(
        OpCall("v0", "torch.tensor", (ListExpr((Literal(1), Literal(0))),)),
        OpCall("v1", "Module.embedding", (Ref("v0"), X)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_agrees_with_itself_and_the_program_is_read_back(name: str) -> None:
    made = PROGRAMS[name]
    assert parse(emit(made)).program == made
    assert Feature.EAGER_REFUSES not in difficulty(made)
    assert check(made, resolve("eager"), CPU).outcome is Outcome.AGREES


_BY_KIND = {
    Kind.SELF: X,
    Kind.SAME: Y,
    Kind.MAT_T: Y,
    Kind.MAT: Y,
    Kind.BIAS: W,
    Kind.VEC: W,
    Kind.FLAG: TRUE,
    Kind.NUMBER: Literal(2),
}
_KINDS = {*_BY_KIND, Kind.CONSTANT}
FORMS = [op for op in ops() if op.group in INSIDE and op.weight and {p.kind for p in op.params} <= _KINDS]


@pytest.mark.parametrize("op", [op for op in FORMS if op.ndim[0] <= 2], ids=lambda op: op.path)
def test_every_form_is_read_back_and_eager_agrees_with_itself(op: Op) -> None:
    if op.path.startswith("Control."):  # eager runs some by Dynamo, which gives up where a process has compiled much
        torch.compiler.reset()
    plain = OpCall("v4", "torch.mul", (X, Literal(1)))
    of_kind = {**_BY_KIND, Kind.SELF: W if op.ndim[1] < 2 else Ref("v4") if "vmap" in op.path else X}
    args = [Literal(p.choices[-1]) if p.kind is Kind.CONSTANT else of_kind[p.kind] for p in op.params]
    target = None if op.results == 0 else "v1"
    made = program(plain, OpCall(target, op.path, tuple(args)), outputs=target or "x0")
    assert parse(emit(made)).program == made
    assert Feature.EAGER_REFUSES not in difficulty(made)
    verdict = check(made, resolve("eager"), CPU)
    assert verdict.outcome is Outcome.AGREES and (op.work is Work.INEXACT or exact(made))


ALONE = {"distributed": program(OpCall("v1", "Control.distributed", (X, Y)))}
"""Programs that leave something in their process."""


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", ["grad", "hook", "checkpoint", "autocast", "batch norm", *ALONE])
def test_a_script_of_it_runs(name: str, tmp_path: Path) -> None:
    path, made = tmp_path / "script.py", {**PROGRAMS, **ALONE}[name]
    path.write_text(emit(made, {"backend": "eager"}))
    assert parse(path.read_text()).program == made
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_happens_inside_is_observed() -> None:
    x, y = torch.tensor([1.0, -2.0], requires_grad=True), torch.tensor([3.0, 1.0], requires_grad=True)
    v = x * 3
    Inside.doubles(v)
    Inside.negates_after(y)
    (v.sum() + y.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [6, 6]
    assert y.grad is not None and y.grad.tolist() == [-1, -1]
    x.grad = None
    Inside.checkpointed(x, y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [12, -8]


@pytest.mark.parametrize(
    ("name", "lost"),
    [("backward", "Tensor.backward"), ("hook", "Inside.doubles"), ("post-accumulate hook", "Inside.negates_after")],
)
def test_a_backend_that_loses_it_differs(name: str, lost: str) -> None:
    made = PROGRAMS[name]
    without = function_of(replace(made, body=tuple(c for c in made.body if getattr(c, "path", "") != lost)))
    verdict = check(made, Backend("loses it", lambda fn: without), CPU)
    assert verdict.hard[0].oracle is (OracleKind.GRADIENT_NONE if name == "backward" else OracleKind.VALUES)


def test_what_a_hook_appends_to_a_list_of_the_caller_is_compared() -> None:
    made = program(MUL, OpCall(None, "Inside.logs", (W, Ref("v0"))), outputs="v0")
    inputs = made.calls[0].inputs
    assert inputs is not None
    inputs = replace(inputs, args=(Ref("a0"), Ref("a1"), ListExpr((Ref("a2"),))))
    made = replace(made, calls=(replace(made.calls[0], inputs=inputs),))
    assert check(made, resolve("eager"), CPU).outcome is Outcome.AGREES
    without = function_of(replace(made, body=made.body[:1]))
    assert check(made, Backend("appends nothing", lambda fn: without), CPU).hard[0].oracle is OracleKind.STRUCTURE


def test_modules_use_what_they_are_given_and_keep_nothing() -> None:
    x, w, b = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True), torch.zeros(4)
    assert torch.equal(Module.linear(x, w, b), torch.nn.functional.linear(x, w, b))
    mean, variance = torch.zeros(3), torch.ones(3)
    Module.batch_norm(torch.arange(6.0).view(2, 3), torch.ones(3), torch.zeros(3), mean, variance, True)
    assert mean.tolist() != [0, 0, 0] and variance.tolist() != [1, 1, 1]
    before = mean.clone()
    Module.batch_norm(torch.arange(6.0).view(2, 3), torch.ones(3), torch.zeros(3), mean, variance, False)
    assert torch.equal(mean, before)
    assert torch.equal(Module.dropout(x, False), x)
    assert all(p.is_meta for module in Module.made.values() for p in module.parameters())


def test_a_block_under_autocast_is_not_exact() -> None:
    assert not exact(PROGRAMS["autocast"])
    assert "context:block-autocast" in traits_of(PROGRAMS["autocast"])
    assert exact(PROGRAMS["linear"])


def test_the_stream_has_all_of_it_and_the_settled_stream_has_none() -> None:
    seen: Counter[str] = Counter()
    aiming = programs(Profile(inside=100, inexact=100), wanted=(("op:module", "op:autograd"),))
    for block in range(6):
        for drawn in programs_of_block(aiming, 3, block):
            seen.update({call.path for call in flat_calls(drawn.body)})
            seen.update("autocast" for s in drawn.body if isinstance(s, Block) and s.context is Context.AUTOCAST)
            seen.update(trait for trait in traits_of(drawn) if trait == "call:other-constant")
    wanted = {"torch.autograd.grad", "Tensor.backward", "Inside.doubles", "Inside.checkpointed", "Module.linear"}
    assert wanted <= set(seen), wanted - set(seen)
    assert seen["autocast"]
    assert len({path for path in seen if path.startswith("Module.")}) >= 4
    for drawn in programs_of_block(settled(), 3, 0):
        assert not {Feature.AUTOGRAD_INSIDE, Feature.MODULE_CALLED} & difficulty(drawn)
