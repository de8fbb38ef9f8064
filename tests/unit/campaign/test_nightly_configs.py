"""The configurations that the nightly workflow names are there and say what they are to run."""

import re
from pathlib import Path

import pytest

import strategies
from aotcheck.backends.foreign import MAKERS
from aotcheck.campaign.nightly.config import load_config
from aotcheck.cli import seconds
from tools.backend_environments import RECIPES

ROOT = Path(__file__).resolve().parents[3]
WORKFLOW = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
OTHERS = [name.strip() for name in re.search(r"backend: \[(.*)\]", WORKFLOW)[1].split(",")]  # type: ignore[index]


@pytest.mark.parametrize("backend", OTHERS)
def test_each_of_the_others_runs_its_streams_in_an_environment_of_its_own(backend: str) -> None:
    config = load_config(ROOT / "nightly" / f"{backend}.toml", seconds)
    assert backend in MAKERS and {job.backend for job in config.jobs} == {backend}
    assert all(job.examples == 300 for job in config.jobs)
    streams = [(job.strategy or "").removeprefix("strategies:") for job in config.jobs]
    assert streams[0] == "inference" and "local_writes" in streams
    assert ("functional_training" in streams) == (backend == "thunder"), "the others promise no gradients"
    assert set(streams) <= set(strategies.__all__)
    assert f'{backend} = ["' in (ROOT / "pyproject.toml").read_text(), "the extra that installs it"


def test_the_others_are_installed_by_their_recipes() -> None:
    job = WORKFLOW.partition("  others:")[2]
    assert "python -m tools.backend_environments .backends ${{ matrix.backend }}" in job
    assert ".backends/${{ matrix.backend }}/bin/aotcheck nightly" in job
    assert "constraints.txt" not in job, "thunder wants another torch than the pinned one"
    assert set(OTHERS) == set(RECIPES)
