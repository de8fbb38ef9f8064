"""What the wheel holds, and what works beside a project of a user's own."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from aotcheck.campaign.setup.declared import undrawn_by
from aotcheck.campaign.setup.generate import load_strategy
from aotcheck.campaign.setup.settings import SettingsError
from aotcheck.named import module_of
from tests.meta.small import X, op, program
from tests.meta.test_nightly import entry, four, run

ROOT = Path(__file__).parents[2]
SOURCES = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "aotcheck", "strategies")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as far as wheels are made of it."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def installed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the wheel unpacked in it."""
    folder = tmp_path_factory.mktemp("site")
    _run([*_PIP, "wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(folder), str(sources)], folder)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    wheel.unlink()
    return folder


PYTEST = (sys.executable, "-c", "import sys, pytest; sys.path.remove(''); sys.exit(pytest.main())")
"""The command ``pytest``, which does not look for modules in the working directory as ``python -m pytest`` does."""

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def _run(command: list[str], folder: Path, path: Path | None = None) -> str:
    """The output of a command in a folder, where packages in ``path`` come before those of this environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project with a ``strategies.py``, and a conftest whose options are called like ours."""
    (tmp_path / "strategies.py").write_text(
        "from aotcheck_strategies import Profile, programs\n\n\n"
        "def mine():\n    return programs(Profile(inside=0, wrappers=0))\n\n\n"
        "settled = mine\n"
    )
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    for name in ('--backend', '--device', '--seed'):\n"
        "        parser.addoption(name, default='theirs')\n"
    )
    (tmp_path / "test_fuzz.py").write_text("from aotcheck.fuzzing import test_random_programs_agree_with_eager\n")
    return tmp_path


def test_the_wheel_holds_the_packages_and_nothing_under_a_name_that_a_user_may_have(installed: Path) -> None:
    there = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert there == {"aotcheck", "aotcheck_strategies"}
    for name, folder in {"aotcheck": "aotcheck", "aotcheck_strategies": "strategies"}.items():
        kinds = ("*.py", "*.j2", "*.toml", "*.json", "py.typed")
        ours = {path.relative_to(ROOT / folder) for kind in kinds for path in (ROOT / folder).rglob(kind)}
        assert {path.relative_to(installed / name) for path in (installed / name).rglob("*.*")} == ours


def test_a_strategies_module_of_a_users_own_and_ours_are_side_by_side(installed: Path, project: Path) -> None:
    names = ("strategies:mine", "strategies:settled", "strategies:backwards", "strategies.calls:inspect")
    program = (
        "from aotcheck.cli import INSPECTION\nfrom aotcheck.minimize import load_inspection\n"
        "from aotcheck.campaign.setup.generate import load_strategy\nfrom aotcheck.named import module_of\n"
        f"for name in {names}: print(module_of(name).__name__)\n"
        "print(load_inspection(INSPECTION).__module__, load_strategy('strategies:storages') is not None)\n"
    )
    said = _run([sys.executable, "-c", program], project, installed)
    assert said.split() == ["strategies"] * 2 + ["aotcheck_strategies", "aotcheck_strategies.calls"] + [
        "aotcheck_strategies.calls",
        "True",
    ]


def test_the_fuzz_test_and_its_options_are_there_for_a_users_project(installed: Path, project: Path) -> None:
    ours = ["--aotcheck-backend", "eager", "--aotcheck-fuzz-examples", "3", "--aotcheck-fuzz-out", str(project / "out")]
    command = [*PYTEST, "-q", "-p", "no:cacheprovider", "--backend", "mine", *ours]
    assert "1 passed" in _run([*command, "--aotcheck-fuzz-strategy", "strategies:mine"], project, installed)
    assert (project / "out" / "findings").is_dir()


def test_a_backend_that_lies_where_pytest_is_run_is_found(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "my_backend.py").write_text("def compile(function):\n    return function\n")
    ours = ["--aotcheck-backend", "my_backend:compile", "--aotcheck-fuzz-examples", "3"]
    assert "1 passed" in _run([*PYTEST, "-q", "--pyargs", "aotcheck.fuzzing", *ours], tmp_path, installed)


def test_an_editable_install_is_found_where_a_folder_has_its_name(sources: Path, tmp_path: Path) -> None:
    build = "import setuptools.build_meta as build; print(build.build_editable({!r}))"
    _run([sys.executable, "-c", build.format(str(tmp_path))], sources)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (pth,) = (name for name in archive.namelist() if name.endswith(".pth"))
        archive.extract(pth, tmp_path)
    assert (tmp_path / pth).read_text().split() == [str(sources / ".packages")]
    assert {path.name for path in (sources / ".packages").iterdir() if path.suffix != ".egg-info"} == {
        "aotcheck",
        "aotcheck_strategies",
    }
    (tmp_path / "aotcheck").mkdir()
    program = f"import site; site.addsitedir({str(tmp_path)!r}); import aotcheck; print(aotcheck.aot_function.__name__)"
    assert _run([sys.executable, "-c", program], tmp_path).split() == ["aot_function"]


def test_in_this_repository_both_names_are_those_of_the_folder() -> None:
    for name in ("strategies:programs", "aotcheck_strategies:programs"):
        assert module_of(name) is sys.modules["strategies"]
        assert load_strategy(name) is not None
    assert undrawn_by("aotcheck_strategies:storages") == undrawn_by("strategies:storages")
    with pytest.raises(SettingsError, match="module 'strategies' has no attribute 'nothing'"):
        load_strategy("strategies:nothing")


def test_a_users_strategies_that_cannot_be_imported_are_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strategies.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "strategies"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SettingsError, match="nowhere_at_all"):
        load_strategy("strategies:programs")


def test_a_corpus_elsewhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four(tmp_path / "bugs")
    monkeypatch.chdir(tmp_path)
    assert "1 new, 1 known, 1 fixed, 1 flaky" in run("replay", "--corpus", "bugs").output
    assert run("replay").exit_code == 2
    for command in ("replay", "fuzz", "nightly"):
        (tmp_path / "nightly.toml").write_text("[[backend]]\nname = 'eager'\nexamples = 1\n")
        said = run(command, "--corpus", "nowhere")
        assert (said.exit_code, said.output) == (2, "aotcheck: --corpus nowhere: no such folder\n")


def test_bugs_of_a_corpus_elsewhere_are_known_to_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, minimal = "tests.meta.planted:doubles", program(op("v0", "Tensor.clone", X), size=(1,))
    entry(tmp_path / "bugs", "everything-is-doubled", backend, "differs", minimal)
    monkeypatch.chdir(tmp_path)
    arguments = ("--backend", backend, "--strategy", "tests.meta.small:drawn", "--examples", 3, "--jobs", 1)
    known = run("fuzz", *arguments, "--corpus", "bugs", "--no-scripts")
    assert known.exit_code == 0, known.output
    assert "everything-is-doubled" in known.output
