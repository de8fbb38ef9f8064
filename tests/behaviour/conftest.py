"""Every behaviour holds on every device and for every compiler, and every graph made on the way is functional."""

from collections.abc import Iterator

import pytest

from tests.behaviour import harness, inputs
from tests.behaviour.compilers import KEPT, aotcheck


@pytest.fixture(autouse=True)
def on_device(device: str, request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("on_the_cpu")
    if device != "cpu" and marker:
        pytest.skip(*(marker.args or ["this has nothing to do with devices"]))
    inputs.set_device(device)
    harness.soft.clear()
    if aotcheck.name in KEPT:
        harness.soft.update(kind for mark in request.node.iter_markers("soft") for kind in mark.args)


@pytest.fixture(autouse=True)
def functional_graphs() -> Iterator[None]:
    """Debug mode checks the graphs that no recorder of the harness sees, those of ``torch.compile`` among them."""
    with aotcheck.patch_config(debug=True):
        yield
