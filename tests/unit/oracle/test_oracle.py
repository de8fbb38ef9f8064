"""Parts of the oracle by themselves."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotcheck._torch import zeros_without_memory
from aotcheck.backends import Backend
from aotcheck.oracle import Deviation, Outcome, check
from aotcheck.oracle.raised import normalized, raised
from aotcheck.oracle.snapshot import snapshot
from aotcheck.oracle.state import canary, global_state
from aotcheck.oracle.undefined import (
    LARGE,
    MONOTONE,
    NEGATIVE,
    ODD,
    PLAIN,
    RANDOM,
    STEEP,
    UNEVEN,
    Pattern,
    undefined_memory,
)
from aotcheck.oracle.values import CAST, FUZZED, Agreement, compare_values
from aotcheck.oracle.widen import widened
from aotcheck.program import Literal, Program, Ref, TupleExpr
from aotcheck.program.called.forms import Control, Transform
from aotcheck.program.called.wrapped import wrapped
from aotcheck.program.running import harness
from tests.meta.small import X, op, program

nan = float("nan")
inf = float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_values_are_compared_bitwise_but_for_the_kind_of_nan(dtype: torch.dtype) -> None:
    a = torch.tensor([1, nan, 0.0], dtype=dtype)
    assert compare_values(a, a.clone()).agreement is Agreement.EQUAL
    assert compare_values(a, torch.tensor([1, nan, -0.0], dtype=dtype)).agreement is Agreement.SIGNED_ZEROS
    assert compare_values(a, torch.tensor([1, 1, 0.0], dtype=dtype)).agreement is Agreement.DIFFERENT
    assert compare_values(a, torch.tensor([nan, nan, 0.0], dtype=dtype)).agreement is Agreement.DIFFERENT
    other_nan = torch.tensor([nan]).view(torch.int32).add(1).view(torch.float32).to(dtype)
    assert compare_values(a[1:2], other_nan).agreement is Agreement.EQUAL


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.complex64])
def test_scalars_and_nothing_compare(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    a = torch.ones(shape, dtype=dtype)
    assert compare_values(a, a.clone()).agreement is Agreement.EQUAL
    expected = Agreement.DIFFERENT if a.numel() else Agreement.EQUAL
    assert compare_values(a, torch.zeros_like(a)).agreement is expected


def test_sums_of_halves_under_autocast_may_differ_by_the_order() -> None:
    """Eager's sum of what a result that is used besides gets, and that of a path which adds the result's last."""
    first, *rest = (torch.tensor([n]).bfloat16() for n in (0.7, 0.0011, 0.0013))
    eager, path = ((first + rest[0]) + rest[1]).float(), (first + (rest[0] + rest[1])).float()
    cases = (
        (path, CAST, Agreement.EQUAL),
        (path, FUZZED, Agreement.DIFFERENT),
        (path * 1.1, CAST, Agreement.DIFFERENT),
    )
    for compiled, tolerance, agreement in cases:
        assert compare_values(eager, compiled, exact=False, tolerance=tolerance).agreement is agreement


def test_where_nothing_is_defined_nothing_differs() -> None:
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])
    assert compare_values(a, b, defined=torch.tensor([True, False])).agreement is Agreement.EQUAL
    assert compare_values(a, b, defined=torch.tensor([False, True])).agreement is Agreement.DIFFERENT


def test_an_inexact_value_is_judged_by_eagers_own_error() -> None:
    eager, reference = torch.tensor([1.0]), torch.tensor([1.001], dtype=torch.float64)
    near, far = torch.tensor([1.005]), torch.tensor([1.02])
    assert compare_values(eager, near, reference=reference, exact=False).agreement is Agreement.EQUAL
    assert compare_values(eager, far, reference=reference, exact=False).agreement is Agreement.DIFFERENT
    assert compare_values(eager, near, exact=False).agreement is Agreement.DIFFERENT


_BIG = 2**40 + 3


@pytest.mark.parametrize(
    ("eager", "compiled", "expected"),
    [
        (torch.tensor([_BIG, 5]), torch.tensor([3, 5]), Deviation.NARROWED),  # wrapped around in 32 bits
        (torch.tensor([_BIG, -_BIG]), torch.tensor([2**31 - 1, -(2**31)]), Deviation.NARROWED),
        (torch.tensor([300], dtype=torch.int16), torch.tensor([44], dtype=torch.int16), Deviation.NARROWED),
        (torch.tensor([_BIG, 5]), torch.tensor([3, 6]), Deviation.PLAIN),
        (torch.tensor([_BIG]), torch.tensor([2**40]), Deviation.ROUNDING),  # computed in float32
        (torch.tensor([5]), torch.tensor([6]), Deviation.PLAIN),
        (torch.tensor([True]), torch.tensor([False]), Deviation.PLAIN),
        (torch.tensor([2.0, inf]), torch.tensor([2.0000002, inf]), Deviation.ROUNDING),
        (torch.tensor([8.0], dtype=torch.bfloat16), torch.tensor([8.125], dtype=torch.bfloat16), Deviation.ROUNDING),
        (torch.tensor([1.0]).double(), torch.tensor([1.1]).double(), Deviation.PLAIN),
        (torch.tensor([1.0 + 1j]), torch.tensor([1.0 - 1j]), Deviation.PLAIN),
        (torch.tensor([1.0, inf]), torch.tensor([1.0, nan]), Deviation.NOT_FINITE),
        (torch.tensor([1.0, 2.0]), torch.tensor([nan, 3.0]), Deviation.PLAIN),
        (torch.tensor([0.0, -1.0]), torch.tensor([inf, -1.0]), Deviation.NOT_FINITE),
    ],
)
def test_a_difference_of_values_has_a_class(eager: torch.Tensor, compiled: torch.Tensor, expected: Deviation) -> None:
    assert compare_values(eager, compiled).deviation is expected


def test_integers_cut_short_and_floats_rounded_have_keys_of_their_own() -> None:
    def keys(program: Program, compute: Callable[[torch.Tensor], torch.Tensor]) -> str:
        backend = Backend("narrow", lambda fn: lambda x: compute(fn(x)))
        return str(check(program, backend, torch.device("cpu")).hard[0].key)

    cut = program(op("v0", "torch.mul", X, 2**40), dtype="int64")
    assert keys(cut, lambda t: t.to(torch.int32).to(t.dtype)) == "(values, output, narrowed)"
    rounded = program(op("v0", "torch.neg", X), dtype="float64")
    assert keys(rounded, lambda t: t * (1 + 1e-7)) == "(values, output, rounding)"
    assert keys(rounded, lambda t: t * 2) == "(values, output)"


def test_messages_are_normalized_to_their_kind() -> None:
    one = normalized("shape '[2, 2]' is invalid for input of size 6")
    assert one == normalized("shape '[3, 1]' is invalid for input of size 17") != ""
    assert normalized("at 0x7f00 of primals_3") == normalized("at 0x1 of primals_12")


def test_an_exception_is_remembered_by_type() -> None:
    assert raised(ValueError("x")).type == "ValueError"
    assert raised(torch.OutOfMemoryError("x")).type.endswith("OutOfMemoryError")


def test_dynamos_wrappers_are_taken_off() -> None:
    compiled = torch.compile(lambda x, y: x.add_(y), backend="eager", fullgraph=True)
    try:
        compiled(torch.zeros(3), torch.zeros(2, 3))
    except Exception as error:
        assert raised(error).type == "RuntimeError"
    else:
        pytest.fail("eager refuses this")


def test_leaves_have_the_names_by_which_a_user_finds_them() -> None:
    t = torch.ones(1)
    structure, tensors, constants = harness.leaves((t, [t, None], {"a": t, "b": 3}))
    assert structure == "tuple(Tensor, list(Tensor, NoneType), dict('a': Tensor, 'b': int))"
    assert list(tensors) == ["output[0]", "output[1][0]", "output[2]['a']"]
    assert constants == {"output[1][1]": "None", "output[2]['b']": "3"}


def test_a_snapshot_names_storages_by_the_first_that_shows_them() -> None:
    x = torch.ones(4)
    facts = snapshot([("x", x)], [("output[0]", x[1:]), ("output[1]", x), ("output[2]", x.clone())]).tensors
    assert [f.storage for f in facts] == ["x", "x", "x", "output[2]"]
    assert [f.identity for f in facts] == ["x", "output[0]", "x", "output[2]"]


def test_a_snapshot_of_freed_and_lazy_tensors_reads_nothing_that_is_not_there() -> None:
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    lazy = torch.ones(2, dtype=torch.complex64).conj()
    facts = snapshot([], [("output[0]", freed), ("output[1]", lazy), ("output[2]", lazy.imag)]).tensors
    assert [f.readable for f in facts] == [False, True, True]
    assert facts[0].value is None
    assert facts[2].neg


def test_a_snapshot_of_a_ragged_tensor_whose_values_have_got_another_shape() -> None:
    ragged = torch.nested.nested_tensor_from_jagged(torch.ones(3, 2), torch.tensor([0, 1, 3]))
    vars(ragged)["_values"].resize_(())  # as out= does with a tensor that is too large or too small
    facts = snapshot([("x", ragged)], []).tensors
    assert facts[0].addressing == ("ragged", 2, 1)  # the strides that it says itself


def test_a_snapshot_reads_the_memory_between_and_behind_a_view() -> None:
    base = torch.arange(6.0)
    ((_, contents),) = snapshot([("x", base[1:3])], []).storages
    assert torch.equal(contents, base)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(3),
        lambda: torch.empty(3, dtype=torch.int32),
        lambda: torch.empty(3, dtype=torch.bool),
        lambda: torch.empty_like(torch.ones(3)),
        lambda: torch.ones(1).new_empty(3),
        lambda: torch.empty_strided((3,), (1,)),
        lambda: torch.ones(1).resize_(3)[1:],
        lambda: _regrown(),
        lambda: torch.nn.functional.mse_loss(torch.ones(3), torch.ones(3)).as_strided((2,), (1,), 1),
        lambda: torch.nn.functional.smooth_l1_loss(torch.ones(3), torch.ones(3)).as_strided((2,), (1,), 1),
    ],
)
def test_undefined_memory_differs_everywhere_between_the_patterns(make: object) -> None:
    found = []
    for pattern in (PLAIN, ODD):
        with undefined_memory(pattern) as mode:
            found.append(make())  # type: ignore[operator]
        assert mode.filled
    assert not (found[0] == found[1]).any()


def _regrown() -> torch.Tensor:
    t = torch.ones(2)
    t.untyped_storage().resize_(0)
    t.untyped_storage().resize_(8)
    return t


@pytest.mark.parametrize("inference", [False, True])
def test_filling_leaves_autocast_to_composite_ops(inference: bool) -> None:
    """In inference mode a mode gets ``einsum`` whole, below autocast."""

    def product() -> torch.Tensor:
        x = torch.empty(2, 2)
        return torch.einsum("ij,kj->ik", x, x)

    with torch.inference_mode(inference), torch.autocast("cpu", torch.bfloat16):
        eager = product()
        with undefined_memory(PLAIN) as mode:
            filled = product()
    assert mode.filled
    assert filled.dtype is eager.dtype is torch.bfloat16


def test_filling_leaves_composite_ops_of_wrappers_to_their_class() -> None:
    """In inference mode their results do not share version counters, which taking the op apart would ask for."""
    x = torch.ones(1)
    with torch.inference_mode(), undefined_memory(PLAIN):
        assert wrapped.tagged(x).flatten().elem.tolist() == [1]
        assert wrapped.constant(wrapped.tagged(x)).reshape(1, 1).elem.elem.tolist() == [[1]]


@pytest.mark.parametrize("name", ["cond_on_data", "while_loop", "scanned", "associated", "mapped"])
def test_ops_of_higher_order_run_while_memory_is_filled(name: str) -> None:
    """Else no fill tells which values a program with such an op leaves undefined, and chance decides what they are."""
    x = torch.ones(2, 3)
    args = (x, x) if name == "mapped" else (x,)
    expected = getattr(Control, name)(*args)
    with undefined_memory(ODD):
        found = getattr(Control, name)(*args)
    torch.testing.assert_close(found, expected)


def test_gradients_of_a_batched_backward_that_outlive_it_are_compared() -> None:
    """``retain_grad`` of an argument keeps what a backward with ``is_grads_batched`` inside the function computes."""

    def kept(factor: int) -> torch.Tensor:
        x = torch.ones(2, 3, requires_grad=True) * factor
        x.retain_grad()
        Transform.batched(x, x)
        assert x.grad is not None
        return x.grad

    assert compare_values(kept(1), kept(1)).agreement is Agreement.EQUAL
    assert compare_values(kept(1), kept(2)).agreement is Agreement.DIFFERENT
    assert compare_values(kept(1), torch.ones(2, 3)).agreement is Agreement.DIFFERENT


def test_growing_keeps_what_was_there() -> None:
    with undefined_memory(ODD):
        t = torch.ones(2).resize_(4)
    assert t[:2].tolist() == [1, 1]
    assert t[2:].isnan().all()


def test_a_healthy_process_passes_the_canary() -> None:
    assert canary() == ""
    with torch.inference_mode():
        assert canary() != ""
        inside = global_state()
    assert global_state().changes(inside)[0].startswith("grad_mode")


def test_a_program_is_widened_unless_that_changes_its_meaning() -> None:
    wide = widened(program(op("v0", "torch.exp", X)))
    assert wide is not None
    assert wide.calls[0].inputs is not None
    assert wide.calls[0].inputs.storages[0].dtype == "float64"
    assert widened(program(op("v0", "torch.argsort", X))) is None
    assert widened(program(op("v0", "Tensor.resize_", X, TupleExpr((Literal(1),))), outputs=Ref("v0"))) is None


_RESIZE = "Tensor.untyped_storage().resize_"


@pytest.mark.parametrize("number", [1, 3])
def test_a_comparison_of_memory_that_nobody_has_written_is_not_compared(number: int) -> None:
    """Neither pattern equals the number, so the two fills agree; memory that is back may hold what the input did."""
    regrown = program(
        op(None, _RESIZE, X, 0),
        op(None, _RESIZE, X, 16),
        op("v1", "Tensor.clone", X),
        op(None, "Tensor.eq_", Ref("v1"), number),
        outputs=Ref("v1"),
    )
    for held in (0.0, 1.0, 2.0, 3.0):

        def holding(fn: Any, held: float = held) -> Any:
            return lambda x: fn(x).fill_(float(held == number))

        assert check(regrown, Backend("holding", holding), torch.device("cpu")).outcome is Outcome.AGREES


@pytest.mark.parametrize("order", [(1, 0, 3, 2), (3, 2, 1, 0), (0, 2, 1, 3), (2, 0, 1, 3)])
def test_a_sort_of_memory_that_nobody_has_written_is_not_compared(order: tuple[int, ...]) -> None:
    """However it was filled, some numbers may be where a sort of it leaves them."""
    argsort = program(
        op(None, _RESIZE, X, 0), op(None, _RESIZE, X, 16), op("v1", "torch.argsort", X), outputs=Ref("v1")
    )

    def sorting(fn: Any) -> Any:
        return lambda x: fn(x).copy_(torch.tensor(order))

    assert check(argsort, Backend("sorting", sorting), torch.device("cpu")).outcome is Outcome.AGREES


@pytest.mark.parametrize("sign", [1, -1])
def test_where_memory_that_nobody_has_written_is_largest_is_not_compared(sign: int) -> None:
    """Cut off at zero, numbers of one sign are all equal, and the first of those is taken; others may rise."""
    argmax = program(
        op(None, _RESIZE, X, 0),
        op(None, _RESIZE, X, 16),
        op("v1", "torch.mul", X, sign),
        op(None, "Tensor.clamp_min_", Ref("v1"), 0),
        op("v2", "torch.argmax", Ref("v1")),
        outputs=Ref("v2"),
    )
    last = Backend("last", lambda fn: lambda x: fn(x).fill_(3))
    assert check(argmax, last, torch.device("cpu")).outcome is Outcome.AGREES


def test_what_is_written_there_is_compared() -> None:
    written = program(
        op(None, _RESIZE, X, 0), op(None, _RESIZE, X, 16), op(None, "Tensor.fill_", X, 1), op("v0", "torch.mul", X, 2)
    )
    verdict = check(written, Backend("off by one", lambda fn: lambda x: fn(x).add_(1)), torch.device("cpu"))
    assert verdict.outcome is Outcome.DIFFERS


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_zeros_without_memory_are_computed_with_under_a_pattern(op: str) -> None:
    """As in second derivatives of ``_foreach`` ops; torch itself ends the process there below a mode."""
    zeros = zeros_without_memory((2,), torch.float32, torch.device("cpu"))
    with undefined_memory(PLAIN):
        found = getattr(torch.ops.aten, op).Scalar(zeros, 2)
    assert (found + torch.zeros(2)).tolist() == getattr(torch.zeros(2), op)(2).tolist()


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64]
)
def test_a_closer_look_changes_what_comparisons_and_sorts_make_of_undefined_memory(dtype: torch.dtype) -> None:
    def filled(pattern: Pattern) -> torch.Tensor:
        with undefined_memory(pattern):
            return torch.empty(12, dtype=dtype)

    assert bool((filled(LARGE) > 1000).all()) and bool((filled(NEGATIVE) < -1000).all())
    assert filled(UNEVEN).argsort(stable=True).tolist() != list(range(12))
    runs = [filled(run)[:4] for run in MONOTONE]
    kinds = {(bool((run.diff() > 0).all()), bool((run.diff() < 0).all()), bool((run < 0).all())) for run in runs}
    assert kinds == {(rising, not rising, below_zero) for rising in (True, False) for below_zero in (True, False)}
    assert filled(STEEP)[:2].argsort(stable=True).tolist() == [1, 0]
    for row in range(4):  # of a run that falls, what is in the middle has the rank that it has in one that rises
        ranks = torch.stack([filled(p)[3 * row : 3 * row + 3].argsort(stable=True) for p in RANDOM])
        assert [len(rank.unique()) > 1 for rank in ranks.T] == [True, True, True]
