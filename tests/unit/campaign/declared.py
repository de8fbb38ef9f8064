"""A strategy of somebody else's, and what its module says about it."""

from hypothesis import strategies as st

from aotcheck.program import Program
from tests.meta.small import V0, X, op, program

UNINITIALIZED = program(op("v1", "torch.empty_like", X), op("v0", "torch.mul", X, 2), op("v2", "torch.sin", V0))


def quiet() -> st.SearchStrategy[Program]:
    """One program, again and again."""
    return st.just(program(op("v0", "torch.mul", X, 2)))


def inspect(program: Program) -> None:
    """An inspection that nothing passes."""
    raise ValueError(program)


FLOORS = {"demanding": {"MUTATES_INPUT": 0.25}}
