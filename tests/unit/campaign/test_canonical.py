"""Programs that differ only in the order of what is independent, and in names, have one canonical form."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from aotcheck.campaign.corpus.files import entries
from aotcheck.campaign.findings.canonical import canonical
from aotcheck.campaign.findings.signature import KnownBug, cause, is_known, skeleton
from aotcheck.minimize.edit import closed
from aotcheck.oracle import CoarseKey
from aotcheck.program import (
    Backward,
    Block,
    Call,
    Context,
    GradMode,
    Inputs,
    Literal,
    OpCall,
    Program,
    Ref,
    Statement,
    Storage,
    Strided,
    TupleExpr,
)
from tests.meta.small import DOUBLE, TRAINED, X, op

CORPUS = Path(__file__).parents[3] / "corpus"
Y = Ref("x1")
SHARE = {"a0": "s0", "a1": "s0"}
APART = {"a0": "s0", "a1": "s1"}


def two(
    *body: Statement, memory: dict[str, str] = APART, given: tuple[str, ...] = ("a0", "a1"), trained: str = ""
) -> Program:
    """A program of two arguments."""
    storages = tuple(Storage(name, "float32", (1, 2)) for name in sorted(set(memory.values())))
    tensors = tuple(Strided(n, s, "float32", (2,), (1,), 0, n == trained) for n, s in memory.items())
    inputs = Inputs(storages, tensors, (), tuple(map(Ref, given)))
    return Program(("x0", "x1"), body, Literal(None), (Call(inputs),))


def written(name: str) -> OpCall:
    return op(None, "Tensor.zero_", Ref(name))


def said(call: OpCall) -> str:
    return str(replace(call, target=None))


SAME = [
    (two(op("v0", "torch.neg", X), op("v1", "torch.sin", Y)), two(op("v0", "torch.sin", X), op("v1", "torch.neg", Y))),
    (two(written("x0"), op("v0", "torch.neg", Y)), two(op("v9", "torch.neg", X), written("x1"))),
    (two(written("x0"), memory=SHARE), two(written("x1"), memory=SHARE)),
    (two(written("x0"), trained="a0"), two(written("x1"), trained="a1")),
    (two(written("x0"), trained="a0"), two(written("x0"), trained="a1", given=("a1", "a0"))),
    (two(op("v0", "torch.add", X, Y), trained="a0"), two(op("v0", "torch.add", Y, X), trained="a1")),
    (
        two(Block(Context.NO_GRAD, (op("v0", "torch.neg", X), op("v1", "torch.sin", Y)))),
        two(Block(Context.NO_GRAD, (op("v1", "torch.sin", X), op("v0", "torch.neg", Y)))),
    ),
]
OTHER = [
    (two(written("x0"), op("v0", "torch.neg", X)), two(op("v0", "torch.neg", X), written("x0"))),
    (
        two(written("x0"), op("v0", "torch.neg", Y), memory=SHARE),
        two(op("v0", "torch.neg", Y), written("x0"), memory=SHARE),
    ),
    (
        two(op("v0", "torch.rand_like", X), op("v1", "torch.bernoulli", Y)),
        two(op("v1", "torch.bernoulli", Y), op("v0", "torch.rand_like", X)),
    ),
    (two(written("x0"), memory=SHARE), two(written("x0"))),
    (two(written("x0"), trained="a0"), two(written("x0"), trained="a1")),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_order_and_names_that_are_chance_are_not_in_a_skeleton(one: Program, other: Program) -> None:
    assert one != other
    assert skeleton(one) == skeleton(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_order_that_means_something_is_in_a_skeleton(one: Program, other: Program) -> None:
    assert skeleton(one) != skeleton(other)


def renamed_at_random(program: Program, random: Random) -> Program:
    """The parameters in another order, with their arguments, under other names; and so the tensors."""
    from aotcheck.campaign.findings.canonical import _renamed
    from aotcheck.minimize.edit import inputs_of, renamed, with_inputs

    order = random.sample(range(len(program.params)), len(program.params))
    names = {name: f"p{number}" for number, name in enumerate(random.sample(program.params, len(program.params)))}
    changed = {}
    for at, inputs in inputs_of(program):
        if len(inputs.args) != len(order):
            return program
        others = {t.name: f"t{number}" for number, t in enumerate(random.sample(inputs.tensors, len(inputs.tensors)))}
        tensors = tuple(replace(t, name=others[t.name]) for t in inputs.tensors)
        args = tuple(renamed(inputs.args[i], others) for i in order)
        derived = _renamed(inputs.derived, others)
        changed[at] = replace(inputs, tensors=tensors[::-1], derived=derived, args=args)
    params = tuple(names[program.params[i]] for i in order)
    body, outputs = _renamed(program.body, names), renamed(program.outputs, names)
    return replace(with_inputs(program, changed), params=params, body=body, outputs=outputs)


def test_every_program_of_the_corpus_has_one_canonical_form_that_holds_together() -> None:
    random = Random(0)
    for entry in list(entries(CORPUS))[::5]:
        form = canonical(entry.program, said)
        assert closed(form) and form.statements == entry.program.statements, entry.path
        assert canonical(form, said) == form, entry.path
        other = renamed_at_random(entry.program, random)
        assert skeleton(other) == skeleton(entry.program), entry.path


def test_what_is_seen_of_one_bug_in_two_places_has_one_cause() -> None:
    seen_twice = (DOUBLE, TRAINED, replace(DOUBLE, outputs=TupleExpr((Ref("v0"), X))))
    assert len({cause(program) for program in seen_twice}) == 1
    assert len({skeleton(program) for program in seen_twice}) == 3
    later = replace(TRAINED, calls=(DOUBLE.calls[0], replace(TRAINED.calls[0], inputs=None)))
    assert cause(later) == cause(TRAINED)
    without = replace(DOUBLE.calls[0], inputs=None, grad_mode=GradMode.NO_GRAD)
    assert cause(replace(later, calls=(DOUBLE.calls[0], without))) != cause(TRAINED)
    assert cause(two(written("x0"), memory=SHARE)) != cause(two(written("x0")))


def test_a_program_of_ops_that_stand_for_any_is_a_cause_of_its_own() -> None:
    cleared = two(written("x0"))
    differentiated = replace(cleared, calls=(replace(cleared.calls[0], steps=(Backward((0,)),)),))
    assert cause(cleared) != cause(differentiated)


def test_a_known_bug_is_known_in_any_order_and_under_its_old_key() -> None:
    key = CoarseKey("exception", "forward", "AssertionError: Node V was invalid, but is output")
    (one, other), *_ = SAME
    for old in ("neg_N", "V", "squeeze"):
        words = f"(exception, forward, AssertionError: Node {old} was invalid, but is output)"
        assert is_known(key, one, KnownBug(words, "", other))
    assert not is_known(key, one, KnownBug("(exception, forward, AssertionError: Node)", "", other))
