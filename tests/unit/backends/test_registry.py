"""Backends by name."""

import pytest
import torch

from aotcheck.backends import (
    NAMES,
    Backend,
    BackendUnavailableError,
    DeviceUnavailableError,
    Promise,
    UnknownBackendError,
    require_device,
    resolve,
)

mine = Backend("mine", lambda fn: fn)


@pytest.mark.parametrize("name", NAMES)
def test_every_named_backend_compiles_a_function(name: str) -> None:
    try:
        backend = resolve(name)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    backend.reset()
    compiled = backend.compile(lambda x: x * 2)
    assert backend.name == name
    if not name.endswith("inductor"):  # a C++ compilation is no unit test
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


def test_the_min_cut_partition_gives_the_gradients_and_a_tuple_for_a_tuple() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return x * 2, [x + 1]

    x = torch.ones(3, requires_grad=True)
    doubled, _ = resolve("aot_function_min_cut").compile(both)(x)
    doubled.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0]
    assert type(resolve("aot_function_min_cut").compile(lambda x: (x * 2, x))(x)) is tuple


def test_inductor_draws_what_eager_draws() -> None:
    try:
        compiled = resolve("inductor").compile(torch.rand_like)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    drawn = []
    for function in (torch.rand_like, compiled):
        torch.manual_seed(5)
        drawn.append(torch.stack([function(torch.ones(3)), torch.rand(3)]))
    assert torch.equal(*drawn)


def test_eager_is_the_identity() -> None:
    assert resolve("eager").compile(resolve) is resolve


def test_torchs_aot_function_does_not_promise_guards() -> None:
    assert Promise.GUARDS not in resolve("aot_function").promises
    assert Promise.GUARDS in resolve("aot_eager").promises


def test_a_module_may_name_a_function_or_a_backend() -> None:
    assert resolve("tests.meta.planted:doubles").compile(lambda: torch.ones(1))() == 2
    assert resolve("tests.unit.backends.test_registry:mine").name == "tests.unit.backends.test_registry:mine"


@pytest.mark.parametrize("name", ["", ":", "eagre", "os:", "os:path.nothing", "os:sep"])
def test_what_names_no_backend_is_refused(name: str) -> None:
    with pytest.raises(UnknownBackendError):
        resolve(name)


def test_a_device_without_values_is_refused() -> None:
    assert require_device("cpu").type == "cpu"
    with pytest.raises(DeviceUnavailableError, match="meta"):
        require_device("meta")
