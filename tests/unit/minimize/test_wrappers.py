"""Programs with wrapper subclasses are minimized too."""

from aotcheck.minimize import minimize
from tests.unit.minimize.scripts import program, runs, text

WRAPPER = """
def make_inputs_0(device):
    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = wrapped.two(a0, a0)
    a2 = a1.view((2,))
    return (a1, a2), named(locals())
"""


def test_a_wrapper_that_is_not_needed_becomes_a_plain_tensor() -> None:
    wrapped = program("def f(x0, x1):\n    v0 = torch.neg(x1)\n    return (v0, x0)", WRAPPER)
    assert "wrapped" in text(wrapped)
    assert "wrapped" not in text(minimize(wrapped, runs))


def test_a_wrapper_that_is_needed_stays() -> None:
    wrapped = program("def f(x0, x1):\n    v0 = torch.neg(x1)\n    return (v0, x0)", WRAPPER)
    left = text(minimize(wrapped, lambda made: runs(made) and "wrapped" in text(made)))
    assert left.count("wrapped.") == 1
