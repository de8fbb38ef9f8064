"""Every behaviour holds on every device, and every graph made on the way is functional."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aotcheck
from tests.behaviour import harness


@pytest.fixture(autouse=True)
def on_device(device: str) -> None:
    harness.set_device(device)


@pytest.fixture(autouse=True)
def functional_graphs() -> Iterator[None]:
    """Debug mode checks the graphs that no recorder of the harness sees, those of ``torch.compile`` among them."""
    with aotcheck.patch_config(debug=True):
        yield
