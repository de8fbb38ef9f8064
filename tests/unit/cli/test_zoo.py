"""``aotcheck zoo``: what it prints and what it returns."""

import io
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from aotcheck.cli import main
from aotcheck.report.zoo import print_results, summary
from aotcheck.zoo import Outcome
from aotcheck.zoo import Result as Shown


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["zoo", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--models", "conv_nett,maml"), "unknown model 'conv_nett': did you mean 'conv_net'"),
        (("--backend", "aot_egaer"), "unknown backend 'aot_egaer': did you mean 'aot_eager'"),
        (("--device", "abacus"), "device 'abacus' is not available"),
        (("--timeout", "soon"), "'soon' is not a duration"),
    ],
)
def test_a_usage_error_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = run("--models", "maml", *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert words in result.stderr


def test_the_results_as_json() -> None:
    result = run("--backend", "eager", "--models", "diffusion,maml", "--jobs", "1", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["backend"], told["device"], told["outcomes"]) == ("eager", "cpu", {"equal": 2})
    assert [one["model"] for one in told["models"]] == ["diffusion", "maml"]
    expected = {"kind", "outcome", "reason", "step", "eager", "compiled", "rounding", "compilations", "at_most"}
    assert expected | {"model", "seconds", "eager_seconds", "peak"} == set(told["models"][0])


def test_a_difference_is_told_and_exits_with_1() -> None:
    result = run("--backend", "tests.unit.zoo.planted:doubled_gradient", "--models", "diffusion", "--jobs", "1")
    assert result.exit_code == 1, result.output
    assert "diffusion" in result.stdout
    assert "1 differs" in result.stdout


def test_the_table_has_a_row_for_each_model_and_counts_outcomes() -> None:
    equal = Shown("conv_net", "vision", Outcome.EQUAL, compilations=3, at_most=2, seconds=1.25, peak=2**20)
    refused = replace(equal, model="maml", outcome=Outcome.REFUSED, reason="data-dependent", step=2, compilations=0)
    console = Console(file=io.StringIO(), record=True, width=100)
    print_results("mine", [equal, refused], console)
    rows = console.export_text().splitlines()
    assert rows[1].split() == ["conv_net", "equal", "3", ">", "2", "1.2", "1"]
    assert rows[2].split() == ["maml", "refused", "0", "1.2", "1", "data-dependent", "(step", "2)"]
    assert rows[3] == "2 models on mine: 1 equal, 1 refused, 1 compiled too often"
    assert summary([equal]) == "1 equal, 1 compiled too often"
