"""The comparison behind docs/op_coverage.md, on planted differences, and what it keeps on disk."""

import pytest
import torch

from tools.op_coverage import compare
from tools.op_coverage.compare import Side, check
from tools.op_coverage.report import document, second_page
from tools.op_coverage.store import Store
from tools.op_coverage.subjects import Kind, Sample, Subject, subjects
from tools.op_coverage.worker import Outcome


class _Fault(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * 2


def _drawing(f):
    return lambda *a: (torch.rand(1), f(*a))[1]


def _raising(f):
    def raising(*a):
        raise ValueError("not today")

    return raising


def _on_the_second_call(f):
    calls = []

    def run(*a):
        calls.append(a)
        return f(*a) + (len(calls) > 1)

    return run


FAULTS = {
    "no fault": (lambda f: f, None),
    "a value": (lambda f: lambda *a: f(*a) + 1, "output 0: values differ"),
    "a gradient": (lambda f: lambda *a: _Fault.apply(f(*a)), "gradient 0: values differ"),
    "strides": (lambda f: lambda *a: f(*a).t().clone(memory_format=torch.contiguous_format).t(), "output 0: strides"),
    "a dtype": (lambda f: lambda *a: f(*a).double(), "output 0: dtype"),
    "no gradient": (lambda f: lambda *a: f(*a).detach(), "output 0: requires_grad"),
    "a number drawn": (_drawing, "generator's state: differs"),
    "an input written": (lambda f: lambda *a: (f(*a), a[1].add_(1))[0], "input 1: values differ"),
    "an error": (_raising, "raises ValueError: not today"),
    "the second call": (_on_the_second_call, "second call: output 0: values differ"),
}


@pytest.mark.parametrize(("plant", "expected"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_told(plant, expected, monkeypatch):
    monkeypatch.setattr(compare, "compile_with", lambda side, f: f if side is None else plant(f))
    calls = tuple([torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)] for _ in range(2))
    said = check(Sample(lambda x, y: x * 2 + y, calls, lambda out: out), Side.OURS)
    assert said == expected if expected is None else said is not None and said.startswith(expected)


class _FaultOfTheSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * _Fault.apply(3 * x**2)  # right itself, its derivative is not


def _cubed(plant, derivatives):
    calls = tuple([torch.rand(2, 3, requires_grad=True, dtype=torch.float64)] for _ in range(2))
    return Sample(plant, calls, lambda out: out, derivatives=derivatives)


@pytest.mark.parametrize(("derivatives", "expected"), [(1, None), (3, "derivative 2 by 0: values differ")])
def test_a_fault_of_the_second_derivative_is_told_by_three_and_not_by_one(derivatives, expected, monkeypatch):
    monkeypatch.setattr(compare, "compile_with", lambda side, f: f if side is None else _FaultOfTheSecond.apply)
    assert check(_cubed(lambda x: x**3, derivatives), Side.OURS) == expected


def test_three_derivatives_are_compared(monkeypatch):
    (first, _) = compare.observe(_cubed(lambda x: x**4, 3), None)
    names = [name for name, _ in first.things]
    assert [f"derivative {k} by 0" in names for k in (1, 2, 3, 4)] == [True, True, True, False]


def test_torchs_refuses_second_derivatives_and_ours_does_not():
    assert "double backward" in str(check(_cubed(torch.exp, 3), Side.TORCHS))
    assert check(_cubed(torch.exp, 3), Side.OURS) is None


def test_subjects_with_three_derivatives_are_of_ops_that_have_two():
    of = {s.key for s in subjects(["float32", "float64"]) if s.kind is Kind.DERIVATIVES}
    assert "op, three derivatives: mul float64" in of
    assert not any(key.endswith("float32") or ": nonzero " in key for key in of)


def test_an_error_that_eager_raises_too_is_no_difference():
    calls = tuple([torch.randn(2, 3), torch.randn(5)] for _ in range(2))
    assert check(Sample(lambda x, y: x + y, calls, lambda out: out), Side.OURS) is None


def test_a_refusal_is_a_failure_with_its_reason():
    calls = tuple([torch.randn(3)] for _ in range(2))
    said = check(Sample(lambda x: x.nonzero(), calls, lambda out: out), Side.OURS)
    assert said is not None
    assert said.startswith("raises UnsupportedError: data-dependent")


def test_what_eager_itself_leaves_open_is_not_compared(monkeypatch):
    monkeypatch.setattr(compare, "compile_with", lambda side, f: f)
    numbers = iter(range(100))
    calls = tuple([torch.ones(3)] for _ in range(2))
    assert check(Sample(lambda x: x * next(numbers), calls, lambda out: out), Side.OURS) is None


def test_results_outlive_a_run_that_was_cut_off(tmp_path):
    path = tmp_path / "results.jsonl"
    store = Store(path)
    store.put(Side.OURS, "op: add float32", Outcome(3, {1: "values differ"}, 0.1))
    store.put(Side.OURS, "op: mul float32", Outcome(3, {}, 0.1))
    with path.open("a") as file:
        file.write('{"side": "ours", "key": "op: s')
    again = Store(path)
    assert again.holds(Side.OURS, "op: add float32")
    assert not again.holds(Side.TORCHS, "op: add float32")
    assert again.failures(Side.OURS, ["op: add float32", "op: mul float32"]) == {"op: add float32": "values differ"}


def test_the_page_says_who_fails_and_why(tmp_path):
    store = Store(tmp_path / "results.jsonl")
    every = [Subject(Kind.OP, name, "float32") for name in ("add", "mul", "sub")]
    ours = {"op: mul float32": "a|b", "op: sub float32": "both"}
    torchs = {"op: sub float32": "both as well"}
    for s in every:
        for side, failing in ((Side.OURS, ours), (Side.TORCHS, torchs)):
            store.put(side, s.key, Outcome(2, {0: failing[s.key]} if s.key in failing else {}, 0.1))
    page = document(store, every)
    assert "| op, float32 | 3 | 6 | 1 | 2 |" in page
    assert "## Ours fails, torch's does not: 1" in page
    assert "| op: mul float32 | a\\|b |" in page
    assert "| op: sub float32 | both | both as well |" in page


def test_what_fails_often_for_one_reason_is_told_once(tmp_path):
    store = Store(tmp_path / "results.jsonl")
    every = [Subject(Kind.DERIVATIVES, f"op{k}", "float64") for k in range(30)]
    for k, s in enumerate(every):
        store.put(Side.OURS, s.key, Outcome(2, {}, 0.1))
        store.put(Side.TORCHS, s.key, Outcome(2, {0: "no double backward" if k else "another"}, 0.1))
    page = document(store, every)
    assert "| op, three derivatives: 29 subjects | no double backward |" in page
    assert "| op, three derivatives: op0 float64 | another |" in page
    assert "op7 float64" not in page


@pytest.mark.parametrize("side", [Side.SECOND, Side.SECOND_DYNAMIC, Side.TORCHS_DYNAMIC])
def test_the_second_compiler_runs_with_sizes_that_are_symbols_too(side):
    calls = tuple([torch.randn(2, 3, requires_grad=True)] for _ in range(2))
    assert check(Sample(lambda x: x.reshape(-1) * x.shape[0], calls, lambda out: out), side) is None


def test_the_page_of_the_second_compiler_names_what_only_torchs_can_do(tmp_path):
    store, every = Store(tmp_path / "results"), [Subject(Kind.OP, name, "float32") for name in ("add", "sub", "mul")]
    for subject, side, failures in (
        (every[0], Side.SECOND, {}),
        (every[1], Side.SECOND, {0: "values differ"}),
        (every[1], Side.TORCHS, {}),
        (every[2], Side.SECOND, {0: "refused"}),
        (every[2], Side.TORCHS, {0: "refused"}),
    ):
        store.put(side, subject.key, Outcome(1, failures, 0.0))
    page = second_page(store, every)
    assert (
        "3 subjects (float32), 1 equal to eager; 1 fail on both" in page
        and "| op: sub float32 | values differ |" in page
    )
