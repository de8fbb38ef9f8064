"""Workers and the supervisor get SIGKILL at random, and every planted finding is told of once."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tools.torture import torture


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds workers in /proc")
def test_nothing_is_lost_and_nothing_told_twice(tmp_path: Path) -> None:
    found = torture(tmp_path / "run", programs=400, every=3.0, supervisors=1, chance=random.Random(3))
    assert {kind for _, _, kind in found.planted} == {"crash", "timeout", "values"}, "choose another seed"
    assert found.supervisors_killed == 1 and found.workers_killed >= 1
    assert found.wrong == []
