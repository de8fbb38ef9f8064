"""Layers of backends: the first that differs is to blame, whichever it is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from aotcheck.backends import NAMES, Backend, resolve
from aotcheck.blame import STAGED, Layer, Rung, Standing, blame, layers
from aotcheck.campaign.results.triage import stage_of
from aotcheck.cli import main
from aotcheck.program import emit
from tests.meta import planted
from tests.meta.small import DOUBLE, X, op, program
from tests.meta.test_oracles_fire import second_call_wrong

CPU = torch.device("cpu")
CORPUS = Path(__file__).parents[3] / "corpus"
TWO_CALLS = program(op("v0", "torch.mul", X, 2), calls=2)
COMPILERS = ("dynamo_eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


def planted_in(
    monkeypatch: pytest.MonkeyPatch, faults: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]
) -> None:
    """Backends that are the identity, but for some."""
    monkeypatch.setattr(
        layers, "resolve", lambda name, expectations=None: Backend(name, faults.get(name, planted.identity))
    )


@pytest.mark.parametrize("lowest", range(4))
def test_the_lowest_layer_that_differs_is_to_blame(lowest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    planted_in(monkeypatch, dict.fromkeys(COMPILERS[lowest:], planted.doubles))
    found = blame(DOUBLE, CPU, "inductor")
    layer, name = layers.layers_of("inductor")[lowest]
    assert (found.rung, name) == (layer, COMPILERS[lowest])
    standings = [judged.standing for judged in found.rungs]
    agree, wrong, rest = Standing.AGREES, Standing.DIFFERS, Standing.NOT_REACHED
    assert standings == [agree] * (lowest + 1) + [wrong] + [rest] * (4 - lowest)
    assert found.text.startswith(f"{layer.value}: {name}: values of output")


@pytest.mark.parametrize("name", ["inductor", "aot_function", "somebody:elses"])
def test_code_that_is_used_again_is_to_blame_where_every_layer_is_right(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted_in(monkeypatch, {name: second_call_wrong})
    assert blame(TWO_CALLS, CPU, name).rung is Layer.SECOND_CALL
    assert blame(DOUBLE, CPU, name).rung is None


def test_what_a_layer_below_shows_is_not_the_backends_if_it_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    planted_in(monkeypatch, {"aot_eager": planted.doubles})
    assert blame(DOUBLE, CPU, "inductor").rung is None


def test_nothing_is_run_in_a_process_that_a_layer_has_poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    planted_in(monkeypatch, dict.fromkeys(COMPILERS[1:], planted.leaks_mode))
    try:
        assert blame(DOUBLE, CPU, "inductor").rung is Layer.AOT_AUTOGRAD
        assert len(planted.LEAKED) == 1
    finally:
        while planted.LEAKED:
            planted.LEAKED.pop().__exit__(None, None, None)


def test_stacks_are_of_backends_that_there_are_and_end_with_their_own() -> None:
    assert {"inductor", "aot_eager", "aotcheck", "dynamo+aotcheck"} <= STAGED <= set(NAMES)
    for name, stack in layers.STACKS.items():
        assert stack[-1][1] == name
        assert {below for _, below in stack} <= set(NAMES)


@pytest.mark.parametrize(
    ("stem", "backend", "layer"),
    [
        ("zero-through-an-expanded-input", "aot_eager", Layer.AOT_AUTOGRAD),
        ("inputs-that-alias-in-the-first-call-only", "aot_eager", Layer.SECOND_CALL),
        ("zero-through-an-expanded-input", "aot_function_min_cut", Layer.AOT_AUTOGRAD),
    ],
)
def test_bugs_of_torchs_are_told_by_layer(stem: str, backend: str, layer: Layer) -> None:
    result = CliRunner().invoke(main, ["blame", str(CORPUS / f"{stem}.py"), "--backend", backend])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1].startswith(f"blame: {layer.value}: ")


def test_a_file_of_the_corpus_is_judged_on_what_it_expects_to_differ() -> None:
    result = CliRunner().invoke(main, ["blame", str(CORPUS / "zero-through-an-expanded-input.py")])
    assert result.exit_code == 0, result.output
    assert "aot_function: values of a0" in result.output
    ours = CliRunner().invoke(
        main, ["blame", str(CORPUS / "zero-through-an-expanded-input.py"), "--backend", "aotcheck"]
    )
    assert (ours.exit_code, "nothing to blame" in ours.output) == (1, True)


def test_our_own_backend_has_rungs_not_layers() -> None:
    assert all(isinstance(judged.rung, Rung) for judged in blame(DOUBLE, CPU).rungs)


def _doubling(module: Any, examples: Any) -> Callable[..., Any]:
    """A backend of ``torch.compile`` that is wrong."""
    return lambda *args: tuple(t * 2 for t in module(*args))


def through_dynamo(fn: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(fn, backend=_doubling, dynamic=False)
    return compiled


def through_aot_autograd(fn: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd

    compiled: Callable[..., Any] = torch.compile(fn, backend=aot_autograd(fw_compiler=_doubling), dynamic=False)
    return compiled


@pytest.mark.parametrize(
    ("name", "below"),
    [("through_dynamo", [Layer.DYNAMO]), ("through_aot_autograd", [Layer.DYNAMO, Layer.AOT_AUTOGRAD])],
)
def test_what_is_below_a_users_backend_is_seen_when_it_runs(
    name: str, below: list[Layer], monkeypatch: pytest.MonkeyPatch
) -> None:
    users = f"{__name__}:{name}"
    found = blame(DOUBLE, CPU, users)
    assert [judged.rung for judged in found.rungs] == [Layer.EAGER, *below, Layer.BACKEND, Layer.SECOND_CALL]
    assert found.rung is Layer.BACKEND
    assert stage_of(emit(DOUBLE), "cpu", users) == "backend"
    wrong_below = Backend("dynamo_eager", planted.doubles)
    monkeypatch.setattr(
        layers, "resolve", lambda given, told=None: wrong_below if given == "dynamo_eager" else resolve(given, told)
    )
    assert blame(DOUBLE, CPU, users).rung is Layer.DYNAMO
    assert stage_of(emit(DOUBLE), "cpu", users) == "Dynamo"


def test_a_backend_in_one_piece_has_no_stage() -> None:
    doubles = "tests.meta.planted:doubles"
    assert blame(DOUBLE, CPU, doubles).rung is Layer.BACKEND
    assert stage_of(emit(DOUBLE), "cpu", doubles) == ""
