"""A torch that lacks a private name: other backends are fuzzed as ever, and our own says what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]

NAMES = [
    "torch._C._set_meta_in_tls_dispatch_include",  # one that modules which the suite imports look up
    "torch.fx._lazy_graph_module._LazyGraphModule",  # one that our AOT autograd alone derives a class from
]


def _run(folder: Path, missing: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where every process of the interpreter finds a torch without the name ``missing``."""
    owner, _, name = missing.rpartition(".")
    (folder / "sitecustomize.py").write_text(f"import torch\nimport {owner} as owner\ndelattr(owner, {name!r})\n")
    path = os.pathsep.join((str(folder), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.by_day(1)
@pytest.mark.parametrize("missing", NAMES)
def test_the_suite_runs_another_backend_without_it(tmp_path: Path, missing: str):
    options = ["--backend", "eager", "--examples", "3", "--jobs", "1", "--no-minimize", "--out", str(tmp_path / "run")]
    done = _run(tmp_path, missing, "-m", "aotcheck.cli", "fuzz", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 programs" in done.stdout


@pytest.mark.parametrize("missing", NAMES)
def test_our_own_backend_says_what_is_missing_where_and_what_to_do(tmp_path: Path, missing: str):
    done = _run(tmp_path, missing, "-m", "aotcheck.cli", "fuzz", "--backend", "aotcheck", "--examples", "3")
    assert done.returncode == 2
    message = done.stdout + done.stderr
    assert missing.rpartition(".")[2] in message
    assert f"torch {torch.__version__} lacks" in message
    assert "install one of these" in message and "Traceback" not in message


def test_in_python_the_package_imports_and_our_compiler_raises(tmp_path: Path):
    lines = ["import aotcheck", "try:", "    aotcheck.aot_function", "except ImportError as e:", "    print(e)"]
    done = _run(tmp_path, NAMES[0], "-c", "\n".join(lines))
    assert NAMES[0] in done.stdout and "fuzz another backend" in done.stdout
