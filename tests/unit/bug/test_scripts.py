"""Scripts of plain torch: each shows the difference of its program, reads as a person would write it, and is silent
with eager in place of the backend."""

from dataclasses import replace

import pytest
import torch

from aotcheck.backends import Backend, resolve
from aotcheck.bug import Bug, document
from aotcheck.bug.choices import Choices
from aotcheck.bug.control import control
from aotcheck.bug.make import _ends_as, _Search, _Tried
from aotcheck.bug.script import Script, write
from aotcheck.bug.statements import CannotBeWrittenError
from aotcheck.bug.steps import hook_lines
from aotcheck.bug.trial import Fresh, _last, shows
from aotcheck.minimize import Limits, Subject
from aotcheck.oracle import Difference, OracleKind, Place, Role, Severity, check
from aotcheck.program import Program, parse
from aotcheck.program.data.model import HookKind

CPU = torch.device("cpu")

START = """# /// aotcheck
# format = 2
# ///

import torch
from aotcheck.script import main


def make_inputs_0(device):
{inputs}


def f({params}):
{body}


CALLS = [
{calls}
]

main(__file__)
"""

TWO = """    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0{grad})
    return (a0,), named(locals())"""


def program(
    *body: str,
    inputs: str = TWO,
    params: str = "x0",
    steps: str = "",
    mode: str = "enabled",
    grad: bool = False,
    more: str = "",
) -> Program:
    """A program from its lines."""
    if body[-1].startswith(("return x0.", "return torch.")):
        body = (*body[:-1], body[-1].replace("return", "v9 =", 1), "return v9")
    call = f'    {{"inputs": make_inputs_0, "grad_mode": "{mode}", "steps": ({steps})}},'
    text = START.format(
        inputs=inputs.format(grad=", requires_grad=True" if grad else ""),
        params=params,
        body="\n".join(f"    {line}" for line in body),
        calls="\n".join(filter(None, [call, more])),
    )
    return parse(text).program


def planted(name: str) -> Backend:
    """A backend of tests/unit/bug/planted.py."""
    return resolve(f"tests.unit.bug.planted:{name}")


def difference(what: Program, backend: str) -> Difference:
    """The first hard difference that the oracle finds."""
    return check(what, planted(backend), CPU).hard[0]


def script(what: Program, backend: str, choices: Choices | None = None) -> tuple[Script, Difference]:
    """The script of the first difference."""
    found = difference(what, backend)
    return write(what, found, f"tests.unit.bug.planted:{backend}", CPU, choices or Choices()), found


BACKWARD = '{"do": "backward", "roots": (0,), "cotangents": (("pattern", 0),)},'
SHARED = """    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = strided(s0, torch.float32, (1,), (1,), 1)
    return (a0, a1), named(locals())"""
WRAPPER = """    s0 = storage([1, 2], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    a1 = wrapped.two(a0, a0)
    return (a1,), named(locals())"""
OBJECT = """    s0 = storage([1], torch.float32, device)
    s1 = storage([2], torch.float32, device)
    a0 = strided(s0, torch.float32, (1,), (1,), 0)
    a1 = strided(s1, torch.float32, (1,), (1,), 0)
    return (State(hidden=a0, scale=2), a1), named(locals())"""
SQUARE = """    s0 = storage([1, 2, 3, 4, 5, 6], torch.float64, device)
    a0 = strided(s0, torch.float64, (2, 3), (3, 1), 0)
    return (a0,), named(locals())"""
REFUSING = """    s0 = storage([0], torch.float32, device)
    a0 = strided(s0, torch.float32, (), (), 0, requires_grad=True)
    with torch.inference_mode():
        a1 = a0.t()
    return (a1,), named(locals())"""
AGAIN = '    {"inputs": None, "grad_mode": "enabled", "steps": ()},'

CASES = {
    "values of an output": (program("return torch.add(x0, 1)"), "doubled"),
    "values of an output that is one of several": (program("v0 = torch.add(x0, 1)", "return (7, v0)"), "doubled"),
    "a lost mutation": (program("x0.add_(1)", "return None"), "copies"),
    "a lost mutation in an inner block": (
        program("with torch.no_grad():", "    x0.mul_(3)", "return None", grad=True),
        "copies",
    ),
    "a mutation that shows in an alias": (program("x0.zero_()", "return x1", inputs=SHARED, params="x0, x1"), "copies"),
    "a gradient": (program("return torch.sin(x0)", grad=True, steps=BACKWARD), "doubled"),
    "a gradient that is returned": (
        program(
            "return torch.mul(x0, 3)",
            grad=True,
            steps='{"do": "backward", "roots": (0,), "way": "grad", "cotangents": (("pattern", 1),)},',
        ),
        "doubled",
    ),
    "an alias that is none": (program("return x0.view((2,))"), "freed"),
    "an object that is another one": (program("return x0"), "freed"),
    "strides": (program("return torch.mul(x0, 2)", inputs=SQUARE), "strided"),
    "a shape of an input": (program("return None"), "resized"),
    "an error": (program("return torch.add(x0, 1)"), "fails"),
    "no error": (program("return x0.view((7,))"), "deaf"),
    "a later call": (program("x0.add_(1)", "v8 = x0.clone()", "return v8", more=AGAIN), "remembers"),
    "a write after the call": (
        program("return x0", steps='{"do": "probe", "site": "output", "index": 0, "seed": 5},'),
        "freed",
    ),
    "under no_grad": (program("return torch.add(x0, 1)", grad=True, mode="no_grad"), "doubled"),
    "a hook": (
        program(
            "return torch.mul(x0, 2)",
            grad=True,
            steps='{"do": "hook", "kind": "watch", "site": "input", "index": 0}, ' + BACKWARD,
        ),
        "doubled",
    ),
    "what a wrapper holds": (program("x0.add_(1)", "return None", inputs=WRAPPER), "copies"),
    "a custom Function": (program("v0 = SavesOutput.apply(x0)", "return v0", grad=True, steps=BACKWARD), "doubled"),
    "a fact that eager refuses": (program("v0 = x0.detach()", "v0.t_()", "return None", inputs=REFUSING), "copies"),
    "what an object holds": (program("x0.hidden = x1", "return None", inputs=OBJECT, params="x0, x1"), "forgets"),
    "what is printed": (program('Control.prints(x0, "a", 2)', "return None"), "prints"),
    "a form with a Function": (program("v0 = Transform.generated_rule(x0)", "return v0", grad=True), "doubled"),
    "a module": (program("v0 = Module.layer_norm(x0, x0, x0)", "return v0"), "doubled"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_script_shows_its_difference_and_is_silent_on_eager(name: str) -> None:
    made, found = script(*CASES[name])
    assert shows(made, found.error) == "", made.text


@pytest.mark.parametrize("name", CASES)
def test_a_script_needs_torch_and_the_backend_alone(name: str) -> None:
    made, _ = script(*CASES[name])
    for word in ("aotcheck", "named(", "= strided(", "make_inputs", "CALLS"):
        assert word not in made.text


@pytest.mark.parametrize("name", CASES)
def test_the_exact_form_shows_it_too(name: str) -> None:
    made, found = script(*CASES[name], Choices(exact=True))
    assert shows(made, found.error) == "", made.text


def test_a_lost_mutation_reads_as_a_person_would_write_it() -> None:
    made, _ = script(program("x0.add_(1)", "return None"), "copies")
    assert (
        made.text
        == """import torch
from tests.unit.bug.planted import copies


def f(x):
    x.add_(1)


def run(f):
    x = torch.tensor([1.0, 2.0])
    f(x)
    return x.tolist()


eager = run(f)
compiled = run(copies(f))
print("eager: ", eager)
print("copies:", compiled)
assert eager == compiled
"""
    )


def test_an_error_is_let_through() -> None:
    made, _ = script(program("v0 = torch.add(x0, 1)", "return v0", grad=True), "fails")
    assert (
        made.text
        == """import torch
from tests.unit.bug.planted import fails


def f(x):
    return torch.add(x, 1)


def run(f):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    f(x)


run(f)  # eager: no error
run(fails(f))  # ValueError
"""
    )


def test_methods_of_containers_need_no_import() -> None:
    made, _ = script(
        program("v0 = x0[0]", "x0.append(v0)", "return None", inputs=TWO.replace("(a0,)", "([a0],)")), "fails"
    )
    assert ".append(" in made.text
    assert "import list" not in made.text


def test_steps_after_the_difference_are_left_out() -> None:
    twice = program("x0.add_(1)", "return None", steps=BACKWARD, more=AGAIN)
    made, _ = script(twice, "copies")
    assert made.text.count("    f(x)") == 1
    assert "backward" not in made.text


def test_a_script_that_shows_nothing_says_so() -> None:
    what = program("return torch.add(x0, 1)")
    found = difference(what, "doubled")
    made = write(what, found, "tests.unit.bug.planted:freed", CPU, Choices())
    assert shows(made, found.error) == "eager and the backend agree in it"


def test_a_script_that_shows_another_error_says_so() -> None:
    what = program("return torch.add(x0, 1)")
    found = difference(what, "fails")
    made = write(what, found, "tests.unit.bug.planted:fails", CPU, Choices())
    assert shows(made, found.error) == ""
    for other in ("KeyError: 'X'", "ValueError: something else"):
        assert shows(made, other) == "it raises ValueError(\"no 7 of 'x'\")"


def test_a_fresh_process_that_ends_in_another_way_is_not_believed() -> None:
    found = difference(program("return torch.add(x0, 1)"), "fails")
    raising, comparing = Script("", "", True), Script("", "", False)
    failed = Fresh(1, "ModuleNotFoundError: No module named 'functorch'")
    assert not _ends_as(raising, found, failed) and not _ends_as(comparing, found, failed)
    assert _ends_as(raising, found, Fresh(1, "ValueError: no 7 of 'x'"))
    assert _ends_as(comparing, found, Fresh(1, "eager: 1\nAssertionError"))


def test_memory_that_is_not_shown_is_written_where_it_matters() -> None:
    inputs = """    s0 = storage([1, 2, 3, 4], torch.float32, device)
    a0 = strided(s0, torch.float32, (2,), (1,), 0)
    return (a0,), named(locals())"""
    what = program("return torch.add(x0, 1)", inputs=inputs)
    natural, found = script(what, "picky")
    assert "x = torch.tensor([1.0, 2.0])" in natural.text
    assert shows(natural, found.error) == "eager and the backend agree in it"
    exact, _ = script(what, "picky", Choices(exact=True))
    assert shows(exact, found.error) == ""


def test_a_hang_has_no_script() -> None:
    ended = Difference(OracleKind.TIMEOUT, Severity.HARD, Place(Role.PROCESS), "ends", "does not")
    with pytest.raises(CannotBeWrittenError, match="timeout"):
        write(program("return x0"), ended, "eager", CPU, Choices())


def test_a_report_says_which_other_backends_show_it() -> None:
    found = difference(program("return torch.add(x0, 1)"), "doubled")
    text = document(Bug((found,), beside=(("aot_eager", True), ("inductor", False))), "a title", "aot_function", "cpu")
    said = '`torch.compile(backend="aot_eager")` shows it too, `torch.compile` does not show it.'
    assert f"The same script: {said}" in text


def test_a_hook_without_a_gradient_is_written_where_it_matters() -> None:
    x = torch.ones(1, requires_grad=True)
    texts = [hook_lines(HookKind.DOUBLE, x, "x", 0, Choices(exact=exact))[0][1] for exact in (False, True)]
    assert "append(g) or g * 2)" in texts[0] and "append(g) or (g if g is None else g * 2))" in texts[1]


def test_a_script_that_misses_no_error_says_so() -> None:
    what = program("return x0.view((7,))")
    made, found = script(what, "deaf")
    assert shows(made, found.error) == "" and found.error.startswith("missing ")
    other = write(what, found, "tests.unit.bug.planted:fails", CPU, Choices())
    assert "the backend gives ValueError" in shows(other, found.error), "no error was to be shown"


CONTROLS = {
    "a line": (("x0.add_(1)", "return torch.mul(x0, 2)"), "", "copies", "Without the line `x.add_(1)` both agree."),
    "a line that is all there is": (("x0.add_(1)", "return x0"), "", "copies", ""),
    "a line that raises": (("x0.add_(1)", "x0.view((7,))", "return x0"), "", "deaf", ""),
    "no line": (("v0 = torch.add(x0, 1)", "return torch.mul(v0, 2)"), "", "doubled", ""),
    "the first call": (
        ("x0.add_(1)", "v8 = x0.clone()", "return v8"),
        AGAIN,
        "remembers",
        "Without the first call both agree. Without the line `x.add_(1)` both agree.",
    ),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_a_line_without_which_both_agree(name: str) -> None:
    body, more, backend, said = CONTROLS[name]
    made, found = script(program(*body, more=more), backend)
    assert control(made, found.error, later=bool(more)) == said


def test_a_control_says_that_the_first_call_is_not_needed() -> None:
    what = program("x0.add_(1)", "return None", more=AGAIN)
    found = difference(what, "copies")
    later = replace(found, place=replace(found.place, call=1))
    made = write(what, later, "tests.unit.bug.planted:copies", CPU, Choices())
    assert control(made, "", later=True) == "It shows without the first call too."


def test_of_a_traceback_the_users_line_the_innermost_frames_and_the_whole_message_are_told() -> None:
    own = ['  File "bug.py", line 6, in f', "    x.detach()"]
    torchs = [f'  File "/v/site-packages/torch/a.py", line {n}, in call' for n in range(20)]
    message = ["RuntimeError: " + "long " * 200, "", '  File "kept", line 1, in f', "the end"]
    frames, error = _last("\n".join(["Traceback (most recent call last):", *own, *torchs, *message]))
    shown = [f'  File "torch/a.py", line {n}, in call' for n in range(13, 20)]
    assert frames == [*own, "  ...", *shown] and error == message
    assert _last("\n".join(["Traceback (most recent call last):", *own, "AssertionError"])) == ([], ["AssertionError"])


def test_what_promises_no_guards_is_not_asked_about_a_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Search, "call", lambda *args: _Tried(""))
    search = _Search(None, "", Subject("inductor", "cpu", ""), Limits(1, 1.0))  # type: ignore[arg-type]
    for call, names in ((0, ["aot_function", "aot_eager"]), (1, ["aot_eager"])):
        found = Difference(OracleKind.VALUES, Severity.HARD, Place(Role.OUTPUT, "output", call), "1", "2")
        assert [name for name, _ in search.beside(found, _Tried(""))] == names
