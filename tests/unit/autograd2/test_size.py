"""Terms: ints and expressions over symbols, asked without guards."""

import itertools

import pytest
import sympy
import torch

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.ir.size import contiguous_strides, is_contiguous, is_static, same, symbols_in, term, text

S, T = sympy.symbols("s t", integer=True, positive=True)
SHAPES = [shape for dims in range(4) for shape in itertools.product((0, 1, 2, 3), repeat=dims)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_contiguous_strides_are_torchs(shape):
    assert contiguous_strides(shape) == torch.empty(shape, device="meta").stride()


def test_contiguity_is_judged_as_torch_judges_it():
    for shape in SHAPES:
        if len(shape) < 3:
            for stride in itertools.product((0, 1, 2, 3), repeat=len(shape)):
                t = torch.empty_strided(shape, stride, device="meta")
                assert is_contiguous(shape, stride) == t.is_contiguous(), (shape, stride)


def test_contiguous_strides_of_symbols_hold_whatever_they_are():
    shape = (S, 3, T)
    strides = contiguous_strides(shape)
    assert is_contiguous(shape, strides)
    for values in ({S: 2, T: 5}, {S: 7, T: 2}):
        numbers = [[int(sympy.sympify(x).subs(values)) for x in xs] for xs in (shape, strides)]
        assert tuple(numbers[1]) == contiguous_strides(numbers[0])


def test_equal_terms_are_those_that_algebra_makes_equal():
    assert same(S * (T + 1), S * T + S)
    assert same((S + 1) ** 2 - S**2, 2 * S + 1)
    assert not same(S, T) and not same(S, 2) and not same(2, 3)
    assert same(3, 3) and same(sympy.Integer(3), 3)


def test_a_term_as_text_is_python_that_computes_it():
    for expression in (S * T + 1, S // 2, (S * T) % 3, sympy.Max(S, T)):
        for values in ({"s": 5, "t": 3}, {"s": 2, "t": 9}):
            computed = eval(text(expression), {"math": __import__("math"), "max": max}, dict(values))
            assert computed == int(expression.subs({S: values["s"], T: values["t"]}))
    assert text([S, 2, (T,)]) == "[s, 2, [t]]"


def test_symbols_are_found_in_lists_of_terms_and_numbers_are_static():
    assert symbols_in([S * T, [3, (T,)], "x"]) == ["s", "t"]
    assert symbols_in(3) == []
    assert is_static((1, 2, 3)) and not is_static((1, S))
    assert is_static(())


def test_terms_of_plain_numbers_are_themselves():
    assert term(5) == 5 and term("x") == "x"


def test_a_relation_is_guarded_once_and_not_where_ranges_tell() -> None:
    env = _torch.ShapeEnv(duck_shape=False)
    a, b = (_torch.new_symbol(env, n, name, is_size=True)[0] for n, name in ((8, "a"), (5, "b")))
    for _ in range(2):
        assert _torch.decided(env, a - 2 * b + 2 >= 0)
        assert not _torch.decided(env, b - a >= 0)
        assert _torch.decided(env, a + b - 4 >= 0)
    assert [guard.expr for guard in env.guards] == [a - 2 * b + 2 >= 0, b - a < 0]
