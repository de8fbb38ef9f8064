"""The zoo: its models are as eager's on eager, and a wrong backend shows on the models that use what is wrong."""

import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aotcheck.backends import EVERY_PROMISE, Backend, Promise, resolve
from aotcheck.zoo import (
    MODELS,
    Kind,
    Model,
    Outcome,
    Place,
    Program,
    Result,
    Schedule,
    UnknownModelError,
    judged,
    model,
    models_named,
)
from aotcheck.zoo import models as _models
from aotcheck.zoo.isolated import Zoo, judge_models
from aotcheck.zoo.model import LIBRARY_MODELS
from aotcheck.zoo.models.libraries import _BATCHES, ENTRIES
from aotcheck.zoo.run import NOT_PROMISED
from tests.unit.zoo import planted

assert _models is not None
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_process_group() -> Iterator[None]:
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def on(backend: Backend, name: str) -> Result:
    return judged(MODELS[name], backend, CPU)


def own(make: Callable[[Place, Sequence[int]], Program]) -> Model:
    return Model("own", Kind.CALLS, make, Schedule.STATIC, 1, "")


# ---- what there is ----


def test_there_are_models_of_every_kind() -> None:
    kinds = Counter(one.kind for one in MODELS.values())
    assert set(kinds) == set(Kind) - {one.kind for one in LIBRARY_MODELS.values()}
    assert sum(kinds.values()) >= 30
    assert all(one.about.endswith(".") for one in MODELS.values())


def test_each_schedule_is_used() -> None:
    assert {one.schedule for one in MODELS.values()} == set(Schedule)


def test_a_model_cannot_be_registered_twice() -> None:
    def conv_net(place: Place, sizes: Sequence[int]) -> Program:
        raise NotImplementedError

    with pytest.raises(ValueError, match="two models called 'conv_net'"):
        model(Kind.VISION)(conv_net)


def test_models_are_chosen_by_name_and_a_wrong_name_brings_close_ones() -> None:
    assert [one.name for one in models_named(["maml", "conv_net", "maml"])] == ["maml", "conv_net"]
    assert len(models_named([])) == len(MODELS)
    with pytest.raises(UnknownModelError, match=r"unknown model 'conv_nett': did you mean 'conv_net'"):
        models_named(["conv_nett"])
    with pytest.raises(UnknownModelError, match=r"choose of .*maml"):
        models_named(["xyzzy"])


# ---- models of libraries ----


def test_the_table_of_libraries_has_models_of_each_library_and_each_kind_of_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["aotcheck.zoo.model"], "find_spec", lambda name: name)  # as if they were installed
    assert len({(one.library, one.constructor, one.batch, str(one.sizes)) for one in ENTRIES}) == len(ENTRIES) >= 40
    assert {one.batch for one in ENTRIES} == set(_BATCHES)
    assert list(models_named([], libraries=True)) == list(LIBRARY_MODELS.values())


def test_a_library_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    for names in (["maml", "timm.deit"], []):
        with pytest.raises(UnknownModelError, match=r"needs \w+: pip install 'aotcheck\[models\]'"):
            models_named(names, libraries=True)


@pytest.mark.parametrize("name", ["timm.deit", "transformers.gpt_neox"])
def test_a_model_of_a_library_is_judged_as_ours_are(name: str) -> None:
    pytest.importorskip(LIBRARY_MODELS[name].kind.value, reason="pip install 'aotcheck[models]'")
    assert judged(LIBRARY_MODELS[name], resolve("aotcheck"), CPU).outcome is Outcome.EQUAL
    assert judged(LIBRARY_MODELS[name], planted.doubled_gradient, CPU).outcome is Outcome.DIFFERS


# ---- the null test ----


@pytest.mark.parametrize("name", MODELS)
def test_eager_is_equal_to_itself(name: str) -> None:
    found = on(resolve("eager"), name)
    assert found.outcome is Outcome.EQUAL, found.text
    assert not found.rounding


@pytest.mark.parametrize("name", ["conv_net", "lstm_language_model", "tied_weights", "gaussian_process"])
def test_a_backend_of_functions_gets_a_function_of_parameters_and_buffers(name: str) -> None:
    found = on(planted.of_functions, name)
    assert found.outcome is Outcome.EQUAL, found.text


def test_a_function_that_closes_over_a_module_is_not_given_to_a_backend_of_functions() -> None:
    found = on(planted.of_functions, "sgd_step_inside")
    assert (found.outcome, found.reason) == (Outcome.REFUSED, NOT_PROMISED)


def test_a_model_that_needs_more_than_a_backend_promises_is_refused_by_it() -> None:
    no_derivatives = replace(planted.of_functions, promises=EVERY_PROMISE - {Promise.DOUBLE_BACKWARD, Promise.GUARDS})
    found = on(no_derivatives, "forces_by_a_derivative")
    assert (found.outcome, found.step) == (Outcome.REFUSED, 0)
    assert found.reason == "needs guards, double backward, which the backend does not promise"
    assert Promise.GRADIENTS in MODELS["kalman_filter"].needs
    assert Promise.GUARDS not in MODELS["kalman_filter"].needs  # its sizes do not change
    assert Promise.GRADIENTS not in MODELS["sampling"].needs


# ---- planted faults ----

NETWORKS = ("conv_net", "decoder_language_model", "message_passing", "ppo_loss", "weight_norm", "checkpointed_stack")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_doubled_gradient_is_seen_by_whatever_is_trained(name: str) -> None:
    found = on(planted.doubled_gradient, name)
    assert found.outcome is Outcome.DIFFERS
    assert found.step == 1


def test_a_doubled_gradient_is_not_seen_where_there_is_none() -> None:
    found = on(planted.doubled_gradient, "generation_at_a_position")
    assert found.outcome is Outcome.EQUAL, found.text


@pytest.mark.parametrize("name", ["conv_net", "spectral_norm", "contrastive_with_a_queue", "buffer_that_counts"])
def test_a_lost_buffer_update_is_seen_by_modules_that_write_buffers(name: str) -> None:
    found = on(planted.lost_buffer, name)
    assert found.outcome is Outcome.DIFFERS


@pytest.mark.parametrize("name", ["resnet_channels_last", "low_rank_adapters", "variational_autoencoder", "sampling"])
def test_another_mask_is_seen_by_models_that_draw(name: str) -> None:
    found = on(planted.other_mask, name)
    assert found.outcome is Outcome.DIFFERS
    assert found.reason.startswith("values"), found.text


@pytest.mark.parametrize("name", ["gaussian_process", "maml", "forces_by_a_derivative"])
def test_another_mask_is_not_seen_by_models_that_do_not_draw(name: str) -> None:
    assert on(planted.other_mask, name).outcome is Outcome.EQUAL


@pytest.mark.parametrize("name", ["conv_net", "last_batch_is_smaller"])
def test_a_second_size_answered_with_the_first_is_seen_in_the_last_batch(name: str) -> None:
    found = on(planted.first_size_only, name)
    assert (found.outcome, found.step) == (Outcome.DIFFERS, 3), found.text


# ---- values that are nearly eager's ----


def test_a_unit_in_the_last_place_is_rounding() -> None:
    found = on(planted.rounds, "diffusion")
    assert found.outcome is Outcome.EQUAL, found.text
    assert found.rounding
    assert found.text == "within rounding"


def test_a_thousandth_is_not() -> None:
    assert on(planted.is_off, "diffusion").outcome is Outcome.DIFFERS


def test_a_unit_of_bfloat16_is_rounding_where_a_model_computes_in_it() -> None:
    found = on(planted.rounds_in_half, "autocast_step")
    assert found.outcome is Outcome.EQUAL, found.text
    assert found.rounding
    assert on(planted.is_off_in_half, "autocast_step").outcome is Outcome.DIFFERS


# ---- other outcomes ----


@pytest.mark.parametrize(
    ("backend", "outcome", "said"),
    [
        (planted.refuses, Outcome.REFUSED, "planted reason"),
        (planted.refuses_by_class, Outcome.REFUSED, "planted error"),
        (planted.fails, Outcome.ERROR, "ValueError: planted error"),
        (planted.hands_over, Outcome.RAN_EAGERLY, "planted fallback"),
        (planted.compiles_nothing, Outcome.RAN_EAGERLY, "nothing was compiled"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_outcomes(backend: Backend, outcome: Outcome, said: str) -> None:
    found = on(backend, "last_batch_is_smaller")
    assert found.outcome is outcome
    assert said in found.text
    assert found.failed == (outcome is Outcome.ERROR)


def test_our_compiler_is_counted() -> None:
    found = on(resolve("aotcheck"), "gradient_accumulation")
    assert found.outcome is Outcome.EQUAL, found.text
    assert found.compilations == 1
    assert not found.recompiled
    assert found.seconds > 0
    assert found.eager_seconds > 0
    assert found.peak > 2**20


def test_more_compilations_than_the_model_may_take_are_told() -> None:
    few = Result("x", "calls", Outcome.EQUAL, compilations=3, at_most=2)
    assert few.recompiled
    assert not Result("x", "calls", Outcome.EQUAL, compilations=2, at_most=2).recompiled
    assert not Result("x", "calls", Outcome.EQUAL, compilations=None, at_most=2).recompiled


def test_a_model_on_which_eager_differs_from_itself_is_no_difference() -> None:
    calls = [0]

    def make(place: Place, sizes: Sequence[int]) -> Program:
        def target(x: torch.Tensor) -> torch.Tensor:
            calls[0] += 1
            return x + calls[0]

        return Program(target, lambda call, x: call(x), place([torch.zeros(n) for n in sizes]))

    assert judged(own(make), resolve("eager"), CPU).outcome is Outcome.UNSTABLE


def test_a_model_that_eager_fails_on_says_so() -> None:
    def make(place: Place, sizes: Sequence[int]) -> Program:
        return Program(nn.Linear(2, 2), lambda call, x: call(x), [torch.zeros(3)])

    found = judged(own(make), resolve("eager"), CPU)
    assert (found.outcome, found.step) == (Outcome.ERROR, 1)
    assert found.reason.startswith("eager raises RuntimeError")


def test_a_target_is_compiled_once() -> None:
    made: list[Any] = []

    def compile_target(target: Any) -> Any:
        made.append(target)
        return target

    judged(MODELS["conv_net"], Backend("counts", compile_target, planted.fails.promises), CPU)
    assert [type(target).__name__ for target in made] == ["Sequential"]


def test_a_wide_place_has_the_same_values_in_float64() -> None:
    place = Place(wide=True)
    torch.manual_seed(0)
    narrow = nn.Linear(2, 2)
    torch.manual_seed(0)
    wide = place(nn.Linear(2, 2))
    assert wide.weight.dtype is torch.float64
    assert torch.equal(wide.weight.float(), narrow.weight)
    moved = place({"x": torch.ones(2, requires_grad=True), "n": torch.ones(2, dtype=torch.long), "s": 3})
    assert (moved["x"].dtype, moved["n"].dtype, moved["s"]) == (torch.float64, torch.int64, 3)
    assert moved["x"].requires_grad


# ---- processes ----


def zoo(backend: str, timeout: float = 120.0) -> Zoo:
    return Zoo(f"tests.unit.zoo.planted:{backend}", "cpu", jobs=1, timeout=timeout, memory=4 * 2**30)


def test_a_process_that_ends_is_an_outcome_and_the_next_model_is_judged() -> None:
    told: list[Result] = []
    results = judge_models(models_named(["maml", "diffusion"]), zoo("ends_the_process"), told.append)
    assert [(r.model, r.outcome, r.reason) for r in results] == [
        ("maml", Outcome.ERROR, "the process ends: exited with status 3"),
        ("diffusion", Outcome.ERROR, "the process ends: exited with status 3"),
    ]
    assert told == list(results)


def test_a_model_without_an_end_is_an_outcome() -> None:
    (found,) = judge_models(models_named(["diffusion"]), zoo("hangs", timeout=10.0))
    assert (found.outcome, found.reason) == (Outcome.ERROR, "no end after 10 s")


REFUSED_FIRST = tomllib.loads((Path(__file__).parents[2] / "refused_first.toml").read_text())


@pytest.mark.parametrize("name", REFUSED_FIRST["zoo"])
def test_what_the_first_compiler_is_said_to_refuse_it_refuses(name: str):
    (model,) = models_named([name])
    result = judged(model, resolve("aotcheck"), CPU)
    assert REFUSED_FIRST["zoo"][name].startswith(f"{result.outcome.value}: {result.reason.partition(':')[0]}")


def test_what_is_said_of_the_first_compiler_is_said_of_models():
    assert {*REFUSED_FIRST["zoo"], *REFUSED_FIRST["too_often"]} <= MODELS.keys()
    assert REFUSED_FIRST["libraries"].keys() <= LIBRARY_MODELS.keys()
