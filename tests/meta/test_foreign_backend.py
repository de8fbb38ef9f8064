"""A backend that lies in the user's folder, outside this repository: every process of a run finds it there."""

import subprocess
import sys
from pathlib import Path

from aotcheck.program import Ref, emit, parse_file
from tests.meta.small import X, op, program

MINE = """
import torch


def compile(fn):
    def compiled(*args):
        with torch.no_grad():
            return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, fn(*args))

    return compiled
"""


def test_a_backend_of_the_working_directory_is_found_by_the_workers_that_minimize_on_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    found = program(op("v0", "torch.neg", X), op("v1", "torch.exp", Ref("v0")), outputs=X)
    (tmp_path / "found.py").write_text(emit(found, {"format": 2, "backend": "mine:compile"}))
    command = [sys.executable, "-m", "aotcheck.cli", "minimize", "found.py", "--jobs", "1", "--time", "2m"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    small = parse_file(tmp_path / "found.min.py")
    assert small.header["backend"] == "mine:compile"
    assert small.program.statements == 0, ran.stdout
