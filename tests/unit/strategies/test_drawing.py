"""Each choice shrinks to something simple; writes whose order matters are told apart."""

from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, settings

from aotcheck.campaign.setup.generate import load_strategy, programs_of_block
from aotcheck.minimize import minimize, size
from aotcheck.program import Feature, Inputs, ListExpr, Literal, OpCall, Program, Ref, Storage, Strided, difficulty
from aotcheck.program.ops.registry import Form, Group, Kind, Op, Param, implementation, ops
from aotcheck.program.running.memory import Saved
from strategies import programs
from strategies.kinds import ints
from strategies.state import Ended, Outcome, State, hazardous, overlaps_itself, perilous, tidy

_SETTINGS = settings(
    max_examples=600,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)


def _minimal(condition, calls: int = 1, steps: int = 0, statements: int = 3) -> Program:
    """One that is as short as that, of a few tries: shrinking may end in a local minimum."""
    for k in range(6):
        program = find(programs(), condition, settings=_SETTINGS, random=Random(k))
        done = sum(len(call.before) + len(call.steps) for call in program.calls)
        if len(program.calls) <= calls and done <= steps and program.statements <= statements:
            return program
    raise AssertionError(f"no such program is short: {program}")


def test_the_simplest_program_is_one_statement_on_one_argument() -> None:
    assert len(_minimal(lambda p: True, statements=1).params) == 1


BY_NIGHT = pytest.mark.by_day(0)
"""For tests that each take a twentieth of the time of all the others together."""

SHORT = (
    Feature.MUTATES_INPUT,
    Feature.RETURNS_ALIAS,
    Feature.EAGER_REFUSES,
    pytest.param(Feature.METADATA_MUTATION, marks=BY_NIGHT),
    Feature.INPUTS_SHARE_STORAGE,
    Feature.SUBCLASS,
)


@pytest.mark.parametrize("feature", SHORT)
def test_minimal_programs_with_a_feature_are_short(feature: Feature) -> None:
    _minimal(lambda p: feature in difficulty(p))


@BY_NIGHT
def test_minimal_plans_and_further_calls_are_short_too() -> None:
    _minimal(lambda p: Feature.HOOK in difficulty(p), steps=2, statements=1)
    _minimal(lambda p: Feature.SECOND_CALL_OTHER_KEY in difficulty(p), calls=2, steps=2)


FEATURES = (Feature.MUTATES_INPUT, Feature.RETURNS_ALIAS, Feature.HOOK)


@pytest.mark.by_day(1)
@pytest.mark.parametrize("feature", FEATURES)
def test_minimizing_leaves_no_more_than_hypothesis(feature: Feature) -> None:
    """Of the first program with the feature, as it was drawn, which is larger."""

    def has_it(program: Program) -> bool:
        try:
            return feature in difficulty(program)
        except Exception:  # a candidate whose inputs cannot be built
            return False

    drawn = (p for block in range(4) for p in programs_of_block(load_strategy("strategies:programs"), 3, block))
    first = next(p for p in drawn if has_it(p) and p.statements > 3)
    assert size(minimize(first, has_it)) <= size(_minimal(has_it, steps=2))


@pytest.mark.parametrize(
    ("size", "stride", "overlapping"),
    [
        ((2, 3), (3, 1), False),
        ((2, 3), (1, 2), False),
        ((3,), (0,), True),
        ((2, 2), (1, 1), True),
        ((3, 2), (2, 3), False),
        ((0, 3), (0, 0), False),
    ],
)
def test_overlap_is_found(size: tuple[int, ...], stride: tuple[int, ...], overlapping: bool) -> None:
    assert overlaps_itself(torch.zeros(16).as_strided(size, stride)) == overlapping


def test_a_write_through_overlap_is_hazardous_unless_it_stores_one_value() -> None:
    env = {"x0": torch.zeros(2, 2).as_strided((2, 2), (1, 1)), "x1": torch.ones(2, 2)}
    assert hazardous(OpCall(None, "Tensor.copy_", (Ref("x0"), Ref("x1"))), env)
    assert not hazardous(OpCall(None, "Tensor.zero_", (Ref("x0"),)), env)
    assert not hazardous(OpCall(None, "Tensor.copy_", (Ref("x1"), Ref("x0"))), {**env, "x0": torch.ones(2, 2)})


def test_a_write_is_left_out_that_makes_torch_hang_a_retaining_hook_on_an_output_that_a_node_does_not_have() -> None:
    _, vectors = torch.linalg.eigh(torch.eye(2).requires_grad_())
    (value,) = torch.linalg.eigh(torch.eye(2).requires_grad_())[:1]
    for t in (vectors, value):
        t.retain_grad()
    calls = [OpCall(None, "Tensor.mul_", (Ref(name), Literal(2))) for name in ("x", "row")]
    for call in calls:
        assert perilous(call, {"x": vectors, "row": vectors[0]}, Saved())
        assert not perilous(call, {"x": value, "row": value[0]}, Saved())
        assert not perilous(replace(call, path="torch.mul", target="y"), {"x": vectors, "row": vectors[0]}, Saved())


def test_values_that_would_round_are_not_tidy() -> None:
    assert tidy(torch.tensor([1.0, -3.0]))
    assert not tidy(torch.tensor([float("nan")]))
    assert not tidy(torch.tensor([2.0**30]))


@pytest.mark.parametrize(
    "call",
    [
        OpCall(None, "Tensor.addmm_", (Ref("x"), Ref("x"), Ref("m"))),
        OpCall(None, "Tensor.addmm_", (Ref("x"), Ref("m"), Ref("x"))),
        OpCall(None, "Tensor.copy_", (Ref("x"), Ref("turned"))),
        OpCall(None, "Tensor.add_", (Ref("row"), Ref("other_row"))),
        OpCall(None, "Tensor.index_copy_", (Ref("x"), Literal(0), Ref("i"), Ref("turned"))),
        OpCall(None, "Tensor.scatter_", (Ref("x"), Literal(0), Ref("i"), Ref("x"))),
        OpCall(None, "setitem", (Ref("x"), ListExpr((Literal(0), Literal(1))), Ref("turned"))),
        OpCall(None, "torch._foreach_add_", (ListExpr((Ref("x"),)), ListExpr((Ref("turned"),)))),
        OpCall(None, "torch.cumsum", (Ref("turned"), Literal(0)), (("out", Ref("x")),)),
    ],
    ids=lambda call: call.path,
)
def test_an_operand_that_overlaps_what_is_written_is_hazardous(call: OpCall) -> None:
    assert hazardous(call, _overlapping())
    apart = {name: t.clone() for name, t in _overlapping().items()}
    assert not hazardous(call, apart) or call.args[0] in call.args[1:]


def _overlapping() -> dict[str, torch.Tensor]:
    memory = torch.arange(6.0)
    x = memory[:4].view(2, 2)
    rows = {"row": memory[:4], "other_row": memory[1:5]}
    return {"x": x, "turned": x.t(), "m": torch.ones(2, 2), "i": torch.tensor([0, 1]), **rows}


POINTWISE_WRITES = [
    op
    for op in ops()
    if op.group in (Group.INPLACE, Group.FILL)
    and any(p.kind in (Kind.FIT, Kind.FIT_TENSOR, Kind.SAME, Kind.MASK) for p in op.params)
    and op.path != "setitem"
    and op.form is not Form.ASSIGN  # to the real part of a tensor: no operand of its dtype lies there
]


@pytest.mark.parametrize("op", POINTWISE_WRITES, ids=lambda op: op.key)
def test_pointwise_writes_read_each_element_before_they_write_it(op: Op) -> None:
    """So an operand that lies exactly where the written tensor does may be drawn: a copy of it gives the same."""
    dtype = next(d for d in (torch.float32, torch.int64, torch.complex64) if op.dtypes.accepts(d))
    dtype = torch.bool if Kind.MASK in {p.kind for p in op.params} else dtype
    results = []
    for copied in (False, True):
        written = torch.tensor([[2, -1], [0, 3]]).to(dtype)
        other = written.clone() if copied else written
        args = [literal_of(p) if p.kind is Kind.CONSTANT else other for p in op.params[1:] if not p.keyword]
        args = [1 if p.kind is Kind.SCALAR else a for p, a in zip(op.params[1:], args, strict=False)]
        implementation(op.path)(written, *args)
        results.append(written)
    torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)


def literal_of(param: Param) -> object:
    return param.choices[0]


def test_a_body_that_raises_when_it_runs_without_a_break_ends_there() -> None:
    storage = Storage("s0", "float32", (1, 2, 3, 4, 5, 6))
    leaf = Strided("a0", "s0", "float32", (2, 3), (3, 1), 0, True)
    clone = OpCall("a1", "Tensor.clone", (Ref("a0"),))
    state = State(Inputs((storage,), (leaf,), (clone,), (Ref("a1"),)))
    view = OpCall("v0", "getitem", (Ref("x0"), Literal(0)))
    of_view = (Ref("v0"), Ref("x0"), Ref("v2"))
    grad = OpCall("v3", "torch.autograd.grad", of_view, (("retain_graph", Literal(True)),))
    statements = [
        view,
        OpCall(None, "Tensor.mul_", (Ref("x0"), Literal(2))),
        OpCall("v1", "torch.ones", (ints((1,)),)),
        OpCall("v2", "torch.ones", (ints((3,)),)),
        OpCall(None, "Tensor.data=", (Ref("x0"), Ref("v1"))),
        grad,
        OpCall("v4", "torch.neg", (Ref("v2"),)),
    ]
    for statement in statements:
        assert state.attempt(statement) is Outcome.DONE
        _ = state.env["x0"].is_leaf, [t.is_leaf for _, t in state.tensors()]  # as drawing looks at them
    with pytest.raises(Ended):
        state.attempt(OpCall(None, "Tensor.squeeze_", (Ref("v2"), Literal(5))))  # refused: all is made again
    assert state.refused and state.body[-1] == grad and "v3" not in state.env


def test_calls_at_other_sizes_follow_each_plan_that_can_take_them() -> None:
    drawn = programs_of_block(load_strategy("strategies:realistic?sizes=2"), 3, 0)
    shapes = [[tuple(t.size for t in c.inputs.tensors) for c in p.calls if c.inputs is not None] for p in drawn]
    resized = [s for s in shapes if len(s) >= 3 and len({s[0], s[-2], s[-1]}) == 3]
    assert len(resized) > len(drawn) / 4
