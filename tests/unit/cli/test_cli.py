"""The command line: what it prints and what it returns."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from aotcheck.cli import main, seconds
from aotcheck.program import emit
from aotcheck.program.data.samples import ALIASED_VIEWS, REFUSED_COPY
from aotcheck.program.ops.registry import _TABLE, find


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def assert_one_line(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(emit(ALIASED_VIEWS))
    return path


def test_an_unknown_backend_is_named_with_those_there_are() -> None:
    assert_one_line(run("fuzz", "--backend", "aot_egaer"), "unknown backend 'aot_egaer'", "did you mean 'aot_eager'?")
    assert_one_line(run("fuzz", "--backend", "no_such_module:f"), "no_such_module")
    assert_one_line(run("fuzz", "--backend", "json:nothing"), "no callable 'nothing'")


def test_a_device_that_is_not_there_is_named() -> None:
    assert_one_line(run("fuzz", "--backend", "eager", "--device", "cuda:99"), "cuda:99")
    assert_one_line(run("fuzz", "--backend", "eager", "--device", "abacus"), "abacus")
    assert_one_line(run("fuzz", "--backend", "eager", "--device", "meta"), "meta")


def test_a_folder_that_cannot_be_written_is_named() -> None:
    assert_one_line(run("fuzz", "--backend", "eager", "--out", "/proc/nowhere"), "/proc/nowhere", "--out")


def test_a_strategy_that_is_not_there_is_named() -> None:
    assert_one_line(run("fuzz", "--backend", "eager", "--strategy", "nowhere:x"), "nowhere")


def test_what_a_backend_may_leave_out_is_named() -> None:
    fuzz = ("fuzz", "--backend", "eager")
    assert_one_line(run(*fuzz, "--without", "gradients,guard"), "--without", "'guard'", "guards", "input-mutation")
    assert_one_line(run(*fuzz, "--ignore", "strides"), "unknown kind of difference 'strides'", "stride")
    assert_one_line(run(*fuzz, "--ignore", "crash"), "unknown kind of difference 'crash'")
    assert_one_line(run(*fuzz, "--rtol", "much"), "rtol")


def test_a_duration_is_read_with_its_unit() -> None:
    assert (seconds("90"), seconds("90s"), seconds("10m"), seconds("2h")) == (90, 90, 600, 7200)
    assert run("fuzz", "--time", "soon").exit_code == 2
    assert run("fuzz", "--time", "-1").exit_code == 2


@pytest.mark.parametrize("command", ["fuzz", "replay", "minimize"])
@pytest.mark.parametrize("memory", ["nan", "inf", "0.1", "-6", "much"])
def test_memory_is_a_number_of_gibibytes(command: str, memory: str, script: Path) -> None:
    arguments = ("--backend", "eager") if command == "fuzz" else (script,)
    assert_one_line(run(command, *arguments, "--memory", memory), f"'{memory}' is not a number of GiB", "0.5 or more")


def test_replay_says_that_a_program_agrees(script: Path) -> None:
    result = run("replay", script, "--backend", "eager")
    assert (result.exit_code, result.output) == (0, f"{script}: eager: agrees\n")


def test_replay_says_how_a_program_differs(script: Path) -> None:
    result = run("replay", script, "--backend", "tests.meta.planted:doubles")
    assert result.exit_code == 1
    assert f"{script}: tests.meta.planted:doubles: new" in result.output
    assert "aliasing of output[0]" in result.output


def test_replay_takes_a_folder(script: Path) -> None:
    (script.parent / "other.py").write_text(emit(REFUSED_COPY))
    result = run("replay", script.parent, "--backend", "eager")
    assert (result.exit_code, len(result.output.splitlines())) == (0, 3)
    assert result.output.endswith("2 agrees\n")


def test_replay_says_where_a_malformed_file_is_wrong_and_goes_on(script: Path) -> None:
    bad = script.parent / "a_bad_one.py"
    bad.write_text(script.read_text().replace("torch.mul", "torch.load"))
    result = run("replay", script.parent, "--backend", "eager")
    assert_one_line(result, str(bad))
    assert f"{script}: eager: agrees" in result.stdout
    bad.write_bytes(b"\xff\xfe\x00")
    assert_one_line(run("replay", bad), str(bad))
    bad.write_text("import os\nos.remove('/')\n")
    assert_one_line(run("replay", bad), str(bad))


def test_replay_of_nothing_is_named(tmp_path: Path) -> None:
    assert_one_line(run("replay", tmp_path / "none.py"), "none.py")
    assert_one_line(run("replay", tmp_path), "no program files")


def test_replay_of_a_device_that_is_not_there_is_named(script: Path) -> None:
    assert_one_line(run("replay", script, "--device", "cuda:99"), "cuda:99")
    assert_one_line(run("replay", script, "--backend", "nope"), "unknown backend 'nope'")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "no_such_package.module:compile",
            "importing 'no_such_package.module' failed: No module named 'no_such_package'",
        ),
        ("refuses_to_load:compile", "importing 'refuses_to_load' failed: no compiler here"),
    ],
)
def test_replay_on_a_backend_that_cannot_be_imported_is_a_usage_error(
    spec: str, said: str, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = script.parent / "modules"
    modules.mkdir()
    (modules / "refuses_to_load.py").write_text("raise OSError('no compiler here')\n")
    monkeypatch.syspath_prepend(modules)
    asked = run("replay", script, "--backend", spec)
    assert_one_line(asked, f"backend '{spec}': {said}")
    assert asked.stdout == "", "no word of the file: it was not judged"
    script.write_text(emit(ALIASED_VIEWS, {"backend": spec}))
    in_header = run("replay", script)
    assert_one_line(in_header, str(script), f"backend '{spec}': {said}")
    assert in_header.stdout == ""


def test_replay_names_an_op_that_is_not_registered(script: Path) -> None:
    script.write_text(script.read_text().replace("torch.mul", "torch.special.erfcx"))
    assert_one_line(run("replay", script), f"{script}:", "torch.special.erfcx", "not in the op table")


def test_replay_names_an_op_that_this_torch_lacks(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_TABLE, "torch.gone_since", [replace(find("torch.mul")[0], path="torch.gone_since")])
    script.write_text(script.read_text().replace("torch.mul", "torch.gone_since"))
    assert_one_line(
        run("replay", script), f"{script}:", "torch.gone_since", f"does not exist in torch {torch.__version__}"
    )


def test_replay_names_inputs_that_cannot_be_built(script: Path) -> None:
    script.write_text(script.read_text().replace("(4,), (1,), 2)", "(40,), (1,), 2)"))
    assert_one_line(run("replay", script), f"{script}: the inputs of call 1", "does not fit its storage")


def test_replay_names_the_file_whose_header_names_no_backend_and_goes_on(script: Path) -> None:
    other = script.parent / "a_bad_one.py"
    other.write_text(emit(ALIASED_VIEWS, {"backend": "nope"}))
    script.write_text(emit(ALIASED_VIEWS, {"backend": "eager"}))
    result = run("replay", script.parent)
    assert_one_line(result, str(other), "unknown backend 'nope'")
    assert f"{script}: eager: agrees" in result.stdout


def test_replay_honours_what_a_corpus_file_expects(script: Path) -> None:
    doubles = "tests.meta.planted:doubles"
    script.write_text(emit(ALIASED_VIEWS, {"expect": {name: {"*": "differs"} for name in ("eager", doubles)}}))
    known = run("replay", script, "--backend", doubles)
    assert (known.exit_code, known.output) == (0, f"{script}: {doubles}: known (as expected)\n")
    fixed = run("replay", script, "--backend", "eager")
    assert (fixed.exit_code, fixed.output) == (1, f"{script}: eager: fixed (expected to differ; update {script})\n")


@pytest.mark.parametrize(
    "arguments",
    [("replay",), ("fuzz", "--examples", "0"), ("fuzz", "--nonsense"), ("nonsense",), ("fuzz", "--jobs", "x")],
)
def test_a_mistyped_command_line_is_one_line(arguments: tuple[str, ...]) -> None:
    assert_one_line(run(*arguments), "--help")


def test_scripts_of_an_older_format_are_refreshed(script: Path) -> None:
    canonical = emit(ALIASED_VIEWS)
    script.write_text(canonical.replace("# format = 2", "# format = 1"), encoding="utf-8")
    checked = run("refresh", "--check", script)
    assert (checked.exit_code, checked.output) == (1, f"{script}: out of date\n")
    assert script.read_text(encoding="utf-8") != canonical, "only checked"
    refreshed = run("refresh", script.parent)
    assert (refreshed.exit_code, refreshed.output) == (0, f"{script}: refreshed\n")
    assert script.read_text(encoding="utf-8") == canonical
    assert (run("refresh", "--check", script).exit_code, run("refresh", script).output) == (0, "")


def test_a_script_that_cannot_be_refreshed_is_named(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.py"
    stranger.write_text("print(1)\n")
    assert_one_line(run("refresh", stranger), "stranger.py", "no header")
    assert stranger.read_text() == "print(1)\n"


SMALL = ("--backend", "eager", "--strategy", "tests.meta.small:drawn", "--examples", "1", "--jobs", "1")


def test_a_folder_that_holds_a_run_is_not_mixed_with_another(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("fuzz", *SMALL, "--out", out).exit_code == 0
    before = (out / "run.jsonl").read_bytes()
    assert_one_line(run("fuzz", *SMALL, "--seed", "2", "--out", out), "holds a run already", f"--resume {out}")
    for option, value in (("--seed", "2"), ("--backend", "aotcheck"), ("--memory", "2"), ("--out", str(tmp_path))):
        assert_one_line(run("fuzz", "--resume", out, option, value), option, value)
    assert (out / "run.jsonl").read_bytes() == before
    again = run("fuzz", "--resume", out, "--seed", "0", "--backend", "eager", "--out", out, "--jobs", "1")
    assert again.exit_code == 0, again.output


def test_a_bug_of_ours_is_not_taken_for_findings(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    def is_stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aotcheck.campaign.corpus.replay.Replay.results", fails)
    result = run("replay", script)
    assert result.exit_code == 3
    assert "planted" in result.output
    monkeypatch.setattr("aotcheck.campaign.corpus.replay.Replay.results", is_stopped)
    assert run("replay", script).exit_code == 3


def test_findings_are_told_of_though_no_report_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr("aotcheck.report.html.write_html", fails)
    wrong = ("--backend", "tests.meta.unruly:is_garbled", *SMALL[2:], "--no-minimize", "--no-scripts")
    result = run("fuzz", *wrong, "--out", tmp_path / "wrong")
    assert result.exit_code == 1, result.output
    assert "No space left on device" in result.stderr
    assert run("fuzz", *SMALL, "--out", tmp_path / "right").exit_code == 3


def test_replay_knows_the_ops_that_a_strategy_registers(tmp_path: Path) -> None:
    (tmp_path / "mylib.py").write_text(
        "import torch\n"
        "from aotcheck.program.ops.registry import Group, entry\n"
        "from strategies import programs\n\n\n"
        "def double(x):\n    return x * 2\n\n\n"
        'entry("mylib.double", "self", Group.POINTWISE, function=double)\n'
        "stream = programs()\n"
    )
    source = emit(ALIASED_VIEWS, {"backend": "eager"})
    body = source.index("def f(")
    used = source[:body] + source[body:].replace("    return ", "    w0 = mylib.double(x0)\n    return ", 1)
    (tmp_path / "file.py").write_text(used)

    def replayed(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "aotcheck.cli", "replay", "file.py", "--jobs", "1", *options]
        path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        return done.returncode, done.stdout + done.stderr

    unknown = run("replay", tmp_path / "file.py")
    assert (unknown.exit_code, "'mylib.double' is not in the" in unknown.output) == (2, True)
    status, said = replayed("--strategy", "mylib:stream")
    assert (status, said) == (0, "file.py: eager: agrees\n")
