"""Every behaviour holds on every device."""

from __future__ import annotations

import pytest

from tests.behaviour import harness


@pytest.fixture(autouse=True)
def on_device(device: str) -> None:
    harness.set_device(device)
