"""The ladder: it names the stage in which a fault was planted, and is silent where there is none."""

from __future__ import annotations

import pytest
import torch

from aotcheck.blame import Standing, blame
from tests.unit.blame.faults import FAULTS, Fault

CPU = torch.device("cpu")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_in_its_stage(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert blame(fault.shown_by, CPU).rung is None
    fault.plant(monkeypatch)
    found = blame(fault.shown_by, CPU)
    assert found.rung is fault.rung, found.text
    assert fault.wrong in found.text
    assert [judged.standing for judged in found.rungs].count(Standing.DIFFERS) == 1
