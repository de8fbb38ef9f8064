"""One function of the user's own under every variation."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from rich.console import Console

import aotcheck
from aotcheck.backends import EVERY_PROMISE, Backend, Promise
from aotcheck.checking import CHANGES, VARIATIONS, DifferenceError, Report, Standing, Variation, isolated
from aotcheck.checking.inputs import InputsSyntaxError, inputs_from
from aotcheck.checking.strategy import variations
from aotcheck.cli import main
from aotcheck.report.checking import print_report
from tests.unit.checking import subjects
from tools.faulty import FAULTS

SUBJECTS = [
    (subjects.scale, subjects.pair),
    (subjects.rows, subjects.pair),
    (subjects.accumulate, subjects.plain_pair),
    (subjects.accumulate, subjects.pair),
    (subjects.dropped, subjects.pair),
    (subjects.of_nested, subjects.nested),
    (subjects.mlp, lambda: (torch.randn(2, 3),)),
    (subjects.norm, lambda: (torch.randn(4, 2, requires_grad=True),)),
    (torch.ops.aten.mul.Tensor, subjects.pair),
]


def standings(report: Report) -> dict[str, Standing]:
    return {result.variation.name: result.standing for result in report.results}


@pytest.mark.parametrize(("function", "make"), SUBJECTS)
def test_eager_agrees_with_itself_under_every_variation(function: Any, make: Callable[[], Any]) -> None:
    report = aotcheck.check(function, make, "eager", exact=True)
    assert len(report.results) == len(VARIATIONS) >= 35
    assert set(standings(report).values()) <= {Standing.AGREES, Standing.NOT_APPLICABLE}
    assert len(report.of(Standing.AGREES)) >= 25


@pytest.mark.parametrize(("function", "make"), [SUBJECTS[0], SUBJECTS[2], SUBJECTS[5], SUBJECTS[6]])
def test_our_own_compiler_does_as_eager_does(function: Any, make: Callable[[], Any]) -> None:
    report = aotcheck.check(function, make)
    assert report.agrees, str(report)
    assert len(report.of(Standing.REFUSED)) <= 2, str(report)


@pytest.mark.parametrize(
    ("fault", "function", "make", "shown_by"),
    [
        ("alias-of-an-input-is-a-copy", subjects.rows, subjects.pair, "as given"),
        ("write-to-an-aliased-argument-is-lost", subjects.accumulate, subjects.plain_pair, "neighbours"),
        ("write-to-a-strided-argument-is-lost", subjects.accumulate, subjects.plain_pair, "transposed"),
        ("expanded-cotangent-is-read-once", subjects.scale, subjects.pair, "expanded cotangent"),
        ("strided-cotangent-is-read-in-order", subjects.scale, subjects.pair, "strided cotangent"),
        ("second-derivative-is-doubled", subjects.rows, subjects.pair, "double backward"),
        ("aliasing-is-not-in-the-key", subjects.accumulate, subjects.plain_pair, "again, overlapping"),
        ("requires-grad-is-not-in-the-key", subjects.scale, subjects.plain_pair, "again, with grad"),
        ("grad-mode-is-not-in-the-key", subjects.scale, subjects.pair, "again, under no_grad"),
        ("values-are-not-read-again", subjects.scale, subjects.plain_pair, "again, other values"),
        ("backward-works-once", subjects.scale, subjects.pair, "backward twice"),
        ("inference-tensor-is-an-ordinary-one", subjects.scale, subjects.pair, "under inference_mode"),
        ("random-numbers-repeat", subjects.dropped, subjects.pair, "as given"),
    ],
)
def test_a_faulty_backend_is_shown_by_the_variation_that_is_there_for_it(
    fault: str, function: Any, make: Callable[[], Any], shown_by: str
) -> None:
    report = aotcheck.check(function, make, Backend(fault, FAULTS[fault].compile))
    assert standings(report)[shown_by] is Standing.DIFFERS, str(report)
    assert report.of(Standing.AGREES), "other variations do not meet the fault"


def test_a_module_is_checked_with_its_parameters_and_buffers() -> None:
    def forgets_buffers(fn: Any) -> Any:
        return lambda p, b, *args: fn(p, {name: t.clone() for name, t in b.items()}, *args)

    report = aotcheck.check(subjects.norm, lambda: (torch.randn(4, 2),), subjects_backend(forgets_buffers))
    places = {d.place.name for result in report.of(Standing.DIFFERS) for d in result.differences}
    assert "running_mean" in places
    assert subjects.norm.running_mean is not None and not subjects.norm.running_mean.any(), "the module is left alone"


def test_a_front_end_is_given_the_module_itself() -> None:
    """What torch gets wrong of this one, it gets right of the same module as a function of its buffers."""
    net = subjects.CountsCalls()
    names = ["as given", "again, other values"]
    report = aotcheck.check(net, lambda: (torch.ones(1, 2),), "aot_eager", variations=names)
    assert all(
        "values of linear." in result.text and ".grad after backward" in result.text for result in report.results
    )
    assert aotcheck.check(net, lambda: (torch.ones(1, 2),), "dynamo_eager", variations=names).agrees
    assert aotcheck.check(net, lambda: (torch.ones(1, 2),), "dynamo+aotcheck", variations=names).agrees
    assert not net.calls.any() and net.tied is net.linear, "the module is left alone"


def subjects_backend(compile_function: Any) -> Backend:
    return Backend("planted", compile_function)


def test_what_a_backend_does_not_promise_is_not_asked_of_it() -> None:
    backend = Backend("less", lambda fn: fn, EVERY_PROMISE - {Promise.DOUBLE_BACKWARD, Promise.GUARDS})
    names = ["as given", "double backward", "again, with grad"]
    found = standings(aotcheck.check(subjects.scale, subjects.pair, backend, variations=names))
    assert list(found.values()) == [Standing.AGREES, Standing.NOT_PROMISED, Standing.NOT_PROMISED]


def test_an_example_is_copied_and_variations_can_be_chosen() -> None:
    x, y = torch.ones(3), torch.ones(3)
    report = aotcheck.check(subjects.accumulate, (x, y), "eager", variations=["as given", "the same object"])
    assert [result.variation.name for result in report.results] == ["as given", "the same object"]
    assert x.tolist() == [1, 1, 1]


def test_an_example_keeps_its_aliases() -> None:
    x, leaf, whole = torch.ones(3), torch.ones(3, requires_grad=True), torch.arange(12.0)
    example = (x, x, [leaf, leaf], whole[2:6], whole[4:].view(4, 2).t(), {"k": whole})
    seen: list[Any] = []

    def look(*args: Any) -> torch.Tensor:
        a, b, (c, d), e, f, given = args
        a.add_(1)
        given["k"].mul_(2)
        seen.append((a is b, c is d, c.requires_grad, b.tolist(), e.tolist(), f.tolist(), f.stride()))
        return a + c

    report = aotcheck.check(look, example, "eager", variations=["as given"])
    assert report.agrees, str(report)
    assert seen[0] == (
        *(True, True, True),
        [2.0] * 3,
        (whole * 2)[2:6].tolist(),
        (whole * 2)[4:].view(4, 2).t().tolist(),
        (1, 2),
    )
    assert whole.tolist() == list(range(12)), "what was given is left alone"


def test_a_backend_that_spoils_the_process_differs_and_nothing_more_is_tried() -> None:
    from tests.meta import planted

    made: list[Any] = []

    def spoils(function: Any) -> Any:
        made.append(torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        return planted.identity(function)

    try:
        report = aotcheck.check(subjects.scale, subjects.pair, Backend("spoils", spoils))
    finally:
        torch.set_default_dtype(torch.float32)
    assert not report.agrees
    assert len(made) == len(report.results) == 1
    assert "process" in str(report)


def test_a_difference_is_raised_with_the_table() -> None:
    report = aotcheck.check(subjects.accumulate, subjects.plain_pair, subjects_backend(subjects.forgets))
    with pytest.raises(DifferenceError, match=r"accumulate on planted: .*differs") as raised:
        report.raise_for_differences()
    assert "as given" in str(raised.value) and "values of argument[0]" in str(raised.value)


def test_a_call_that_eager_refuses_must_be_refused() -> None:
    report = aotcheck.check(subjects.accumulate, subjects.pair, subjects_backend(lambda fn: lambda x, y: x * y))
    assert standings(report)["as given"] is Standing.DIFFERS
    report = aotcheck.check(subjects.accumulate, subjects.pair, "eager", variations=["as given"])
    assert report.results[0].text.startswith("both raise: raises RuntimeError")


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_says_what_it_does(name: str) -> None:
    assert CHANGES[name].text.endswith(".")


@settings(max_examples=25)
@given(variations())
def test_drawn_variations_agree_in_eager(variation: Variation) -> None:
    aotcheck.check(subjects.rows, subjects.pair, "eager", variations=[variation], exact=True).raise_for_differences()


def test_the_fixture_raises_what_differs(check_compiled: Callable[..., Report]) -> None:
    check_compiled(subjects.scale, subjects.pair, backend="eager")
    with pytest.raises(DifferenceError):
        check_compiled(subjects.accumulate, subjects.plain_pair, backend=subjects_backend(subjects.forgets))


def test_inputs_are_described_in_a_line() -> None:
    x, y, z = inputs_from("float32[2, 3]+grad int64[4] bool[]")()
    assert (x.shape, x.dtype, x.requires_grad) == ((2, 3), torch.float32, True)
    assert (y.shape, y.dtype, z.shape, z.dtype) == ((4,), torch.int64, (), torch.bool)


@pytest.mark.parametrize("text", ["", "float31[2]", "float32[2", "int64[2]+grad", "float32[2]+more", "float32[2,,3x]"])
def test_odd_descriptions_are_told_in_a_line(text: str) -> None:
    with pytest.raises(InputsSyntaxError) as raised:
        inputs_from(text)
    assert "\n" not in str(raised.value)


HERE = "tests.unit.checking.subjects"


def test_the_command_prints_a_table_and_its_exit_code_says_the_rest() -> None:
    run = CliRunner().invoke(main, ["check", f"{HERE}:scale", "--inputs", f"{HERE}:pair", "--backend", "eager"])
    assert run.exit_code == 0 and "as given" in run.output and "scale on eager" in run.output
    arguments = ["check", f"{HERE}:accumulate", "--inputs", "float32[3] float32[3]", "--backend", f"{HERE}:forgets"]
    run = CliRunner().invoke(main, [*arguments, "--only", "as given"])
    assert run.exit_code == 1 and "differs" in run.output


def test_only_takes_several_variations_whose_names_may_hold_commas() -> None:
    arguments = ["check", f"{HERE}:scale", "--inputs", f"{HERE}:pair", "--backend", "eager"]
    run = CliRunner().invoke(main, [*arguments, "--only", "as given, again, under no_grad,transposed"])
    assert run.exit_code == 0, run.output
    names = ("as given", "again, under no_grad", "transposed")
    assert all(name in run.output for name in names) and len(run.output.splitlines()) == 5
    same = CliRunner().invoke(main, [*arguments, *(part for name in names for part in ("--only", name))])
    assert same.output == run.output
    wrong = CliRunner().invoke(main, [*arguments, "--only", "as given,transposd"])
    assert (wrong.exit_code, wrong.output) == (
        2,
        "aotcheck: no variation is called 'transposd'; did you mean 'transposed'?\n",
    )


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([f"{HERE}:nothing", "--inputs", "float32[2]"], "no callable"),
        ([f"{HERE}:not_callable", "--inputs", "float32[2]"], "no callable"),
        (["nowhere_at_all:f", "--inputs", "float32[2]"], "importing"),
        (["scale", "--inputs", "float32[2]"], "package.module:function"),
        ([f"{HERE}:scale", "--inputs", "floats"], "describes no tensor"),
        ([f"{HERE}:scale", "--inputs", "float32[2] float32[2]", "--backend", "none"], "unknown backend"),
        ([f"{HERE}:scale", "--inputs", "float32[2]", "--only", "backwards"], "no variation"),
        ([f"{HERE}:scale", "--inputs", "float32[2]"], "cannot be called with these 1 inputs"),
        ([f"{HERE}:norm", "--inputs", "float32[2,2] float32[2]"], "cannot be called with these 2 inputs"),
        ([f"{HERE}:scale", "--inputs", f"{HERE}:no_tuple"], "must return a tuple of arguments, not Tensor"),
    ],
)
def test_what_the_user_can_put_right_is_one_line(arguments: list[str], word: str) -> None:
    run = CliRunner().invoke(main, ["check", *arguments])
    assert run.exit_code == 2
    assert word in run.output and len(run.output.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (subjects.writes, "the schema of aotcheck_tests.writes.default lies: it writes its argument 'x'"),
        (subjects.returns_itself, "the schema of aotcheck_tests.returns_itself.default lies: a result is an alias"),
        (subjects.calls_an_op_that_lies, "the schema of aotcheck_tests_too.alias.default lies: a result is an alias"),
    ],
)
def test_an_op_whose_schema_lies_is_named(function: Any, said: str) -> None:
    report = aotcheck.check(function, subjects.one, "eager", variations=["as given"])
    assert not report.agrees
    assert report.lies[0].startswith(said)
    with pytest.raises(DifferenceError, match="lies"):
        report.raise_for_differences()


def test_an_op_that_declares_what_it_writes_does_not_lie() -> None:
    report = aotcheck.check(subjects.honest, subjects.one, "eager", variations=["as given"])
    assert report.agrees and not report.lies


def test_a_check_in_which_eager_nearly_always_raises_proves_nothing() -> None:
    report = aotcheck.check(subjects.accumulate, subjects.one, "eager")
    assert set(standings(report).values()) <= {Standing.AGREES, Standing.NOT_APPLICABLE}
    assert not report.agrees
    assert "so nothing is proved: raises TypeError" in report.unchecked
    few = aotcheck.check(subjects.accumulate, subjects.plain_pair, "eager")
    assert any(result.raised for result in few.results)
    assert few.agrees


def test_what_is_raised_names_each_kind_of_difference_once() -> None:
    report = aotcheck.check(subjects.accumulate, subjects.plain_pair, subjects_backend(subjects.forgets))
    assert len(report.of(Standing.DIFFERS)) > 30
    assert len(report.short.splitlines()) < 10
    assert len(str(report).splitlines()[1]) <= 80


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["crashes", "one", "eager"], 2, ("eager ends the process", "killed by SIGSEGV", "nothing is proved")),
        (["hangs", "one", "eager", "--timeout", "0.1"], 2, ("eager ends the process", "no end after")),
        (["doubled", "one", f"{HERE}:crashes_when_compiled"], 1, ("differs", "agrees", "killed by SIGSEGV")),
        (["writes", "one", "eager"], 1, ("the schema of aotcheck_tests.writes.default lies",)),
        (["returns_itself", "one", "eager"], 1, ("aotcheck_tests.returns_itself.default", "nothing is proved")),
    ],
)
def test_a_function_that_ends_the_process_or_lies_is_told(
    arguments: list[str], status: int, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, inputs, backend, *more = arguments
    monkeypatch.setattr(isolated, "START_ALLOWANCE", 8.0 if function == "hangs" else 20.0)
    command = ["check", f"{HERE}:{function}", "--inputs", f"{HERE}:{inputs}", "--backend", backend, *more]
    run = CliRunner().invoke(main, [*command, "--only", "as given", "--only", "with grad", "--jobs", "2"])
    assert run.exit_code == status, run.output
    for word in words:
        assert word in run.output


def test_rows_fit_80_columns() -> None:
    console = Console(width=80, file=io.StringIO())
    report = aotcheck.check(subjects.accumulate, subjects.plain_pair, subjects_backend(subjects.forgets))
    print_report(report, console)
    told = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    rows = told[: told.index("(1)")].splitlines()
    assert len(rows) == 1 + len(report.tried)
    assert max(map(len, rows)) <= 80


def test_pytest_ends_at_the_line_of_the_users_test(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "from tests.unit.checking import subjects\n\n\n"
        "def test_doubled(check_compiled):\n"
        f"    check_compiled(subjects.doubled, subjects.one, backend='{HERE}:fails_behind_dynamo')\n\n\n"
        "def test_a_typo(check_compiled):\n"
        "    check_compiled(subjects.doubled, subjects.one, variations=['as givn'])\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert len(lines) < 40, done.stdout
    assert any(line.startswith(">") and "check_compiled(subjects.doubled" in line for line in lines)
    assert "this compiler fails" in done.stdout and "Captured" not in done.stdout
    assert "no variation is called 'as givn'; there are: as given" in done.stdout
