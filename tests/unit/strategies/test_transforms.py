"""Which calls are put under a transform."""

import pytest
import torch

from aotcheck.program import Around, parse
from strategies import transforms
from strategies.transforms import draw_transform

PROGRAM = """
import torch
from aotcheck.script import main

def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return ({{"k0": a0}}, a0), named(locals())

def f(x0, x1):
    v0 = torch.mul(x1, 2)
    {statement}
    return v0

CALLS = [{{"inputs": make_inputs_0}}]

main(__file__)
"""


class Jvp:
    """Chooses the first call and a jvp."""

    def below(self, _: int) -> int:
        return 0

    def one(self, _: object) -> Around:
        return Around.JVP


@pytest.mark.parametrize(("statement", "around"), [('x0["k0"] = v0', ()), ('v1 = x0["k0"]', (Around.JVP,))])
def test_a_call_that_leaves_its_tensors_in_the_callers_container_is_under_no_transform(statement, around) -> None:
    program = parse("# /// aotcheck\n# format = 2\n# ///\n" + PROGRAM.format(statement=statement)).program
    assert draw_transform(Jvp(), program).calls[0].around == around  # type: ignore[arg-type]


def test_a_call_whose_result_outlives_its_transform_is_under_none(monkeypatch) -> None:
    left: list[torch.Tensor] = []
    torch.func.vmap(lambda t: (left.append(t), t)[1])(torch.ones(2))
    monkeypatch.setattr(transforms, "make_call", lambda *_: left[0])
    program = parse("# /// aotcheck\n# format = 2\n# ///\n" + PROGRAM.format(statement='v1 = x0["k0"]')).program
    assert draw_transform(Jvp(), program).calls[0].around == ()  # type: ignore[arg-type]
