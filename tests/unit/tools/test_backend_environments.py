"""Recipes of environments for other people's backends."""

from pathlib import Path

import pytest

from aotcheck.backends import PACKAGES
from tools.backend_environments import RECIPES, commands, main


def test_each_backend_with_packages_has_a_recipe() -> None:
    assert set(RECIPES) == {name for name, modules in PACKAGES.items() if modules}
    for name in RECIPES:
        make, install = commands(name, Path("/envs"), "uv")
        assert make[-1] == f"/envs/{name}"
        assert {*RECIPES[name], "-e"} <= set(install)
        assert any(package.startswith("torch==") for package in install)


def test_what_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in RECIPES:
        script = tmp_path / name / "bin" / "aotcheck"
        script.parent.mkdir(parents=True)
        script.touch()
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("there already") == len(RECIPES)
    assert main([str(tmp_path), "nothing"]) == 2
