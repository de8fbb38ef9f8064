"""Other people's compilers: those that come with torch agree where they promise to; missing packages are named."""

import importlib.util
import tomllib
from pathlib import Path

import pytest
import torch

from aotcheck.backends import BackendUnavailableError, Expectations, Promise, foreign, recorded, resolve
from aotcheck.oracle import Outcome, check
from tests.meta.small import DOUBLE, MUTATES, TRAINED, VIEW, X, op, pair, program

CPU = torch.device("cpu")
TWO = program(op("v0", "torch.mul", X, 2), op("v1", "torch.neg", X), outputs=pair("v0", "v1"))


@pytest.mark.parametrize("name", ["jit_trace", "torch_export"])
@pytest.mark.parametrize("made", [DOUBLE, MUTATES, TRAINED, VIEW, TWO], ids=["double", "write", "train", "view", "two"])
def test_compilers_that_come_with_torch_agree_on_what_they_promise(name: str, made: object) -> None:
    verdict = check(made, resolve(name), CPU)  # type: ignore[arg-type]
    assert verdict.outcome is Outcome.AGREES, verdict


@pytest.mark.parametrize("name", sorted(foreign.MAKERS))
def test_a_missing_package_is_named_with_its_extra(name: str) -> None:
    missing = [
        module for module in foreign.PACKAGES[name] if importlib.util.find_spec(module.partition(".")[0]) is None
    ]
    if not missing:
        verdict = check(DOUBLE, resolve(name), CPU)
        assert verdict.outcome in (Outcome.AGREES, Outcome.REFUSED)
        return
    with pytest.raises(BackendUnavailableError, match=rf"pip install 'aotcheck\[{name}\]'") as caught:
        resolve(name)
    assert "\n" not in str(caught.value)


def test_each_package_is_in_an_extra_of_the_backends_name() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert {name for name, modules in foreign.PACKAGES.items() if modules} <= set(project["optional-dependencies"])


def test_headers_say_what_an_adapter_does_not_promise() -> None:
    said = recorded(resolve("jit_trace"), Expectations())
    assert Promise.GUARDS in said.without, "the package may be missing where the header is read"
    assert recorded(resolve("aot_function"), Expectations()) == Expectations()


def test_openvino_is_asked_for_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default it computes float32 in bfloat16 where the processor can, which is no bug of its."""
    asked: dict[str, object] = {}
    monkeypatch.setattr(foreign, "_packages", lambda name: ())
    monkeypatch.setattr(foreign, "_count_openvinos_fallbacks", lambda: None)
    monkeypatch.setattr(torch, "compile", lambda fn, **options: asked.update(options) or fn)
    foreign.openvino(torch.neg)
    assert asked["options"] == {"config": {"INFERENCE_PRECISION_HINT": "f32"}}
