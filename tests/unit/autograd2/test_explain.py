"""What ``explain`` says of a call, held against what eager does with the function."""

import dataclasses
import inspect
import logging

import pytest
import torch

from aotcheck.autograd2 import UnsupportedError, aot_function, aot_module, counters, explain
from aotcheck.autograd2.config import STAGES
from aotcheck.autograd2.runtime.compile import nop


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def ran(text, *inputs):
    """What the printed graph gives when it runs as Python."""
    scope = {"torch": torch, "device": torch.device, "inf": float("inf")}
    exec(text, scope)
    (function,) = (v for v in scope.values() if inspect.isfunction(v))
    return function(None, *inputs)


def layer(x, w):
    y = x.sin()
    return y @ w


def test_the_forward_graph_runs_as_python_and_gives_what_eager_gives():
    x, w = leaf(3, 4), leaf(4, 2)
    result, *_ = ran(explain(aot_function(layer), x, w).forward, x, w)
    assert torch.equal(result, layer(x, w))


def test_a_backward_graph_runs_as_python_on_what_the_forward_graph_saves():
    x, w = leaf(3, 4), leaf(4, 2)
    said = explain(aot_function(layer), x, w)
    (backward,) = said.backwards
    _, *saved = ran(said.forward, x.detach(), w.detach())
    tangent = torch.randn(3, 2)
    expected = torch.autograd.grad(layer(x, w), (x, w), tangent)
    assert all(map(torch.equal, ran(backward, *saved, tangent), expected))


def test_results_that_share_nothing_have_a_backward_each():
    said = explain(aot_function(lambda x, y: (x.sin(), y.cos())), leaf(2), leaf(3))
    assert len(said.backwards) == 2
    assert len(explain(aot_function(lambda x: x.sin()), torch.ones(2)).backwards) == 0


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_each_op_stands_under_the_line_of_the_user_that_it_comes_from(direction):
    said = explain(aot_function(layer), leaf(3, 4), leaf(4, 2))
    lines, first = inspect.getsourcelines(layer)
    text = said.forward if direction == "forward" else said.backwards[0]
    under, above = {}, ""
    for line in text.splitlines()[1:-1]:
        if line.strip().startswith("#"):
            above = line
        else:
            under.setdefault(above, []).append(line)
    for op, offset in (("sin" if direction == "forward" else "cos", 1), ("mm", 2)):
        (above,) = [line for line, ops in under.items() if any(f"aten.{op}." in call for call in ops)]
        assert f"test_explain.py:{first + offset} in layer: {lines[offset].strip()}" in above


def test_inputs_are_named_as_the_user_names_them():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)
            self.register_buffer("scale", torch.ones(2))

        def forward(self, batch, *, shift):
            return self.inner(batch["x"]) * self.scale + shift

    said = explain(aot_module(Scaled()), {"x": torch.ones(3, 4)}, shift=torch.ones(2))
    inputs = [line.split(": ")[1].split(", ")[0] for line in said.signature if line.startswith("input ")]
    expected = ["parameter inner.weight", "parameter inner.bias", "buffer scale", "args[0]['x']", "shift"]
    assert sorted(inputs) == sorted(expected)


def test_tensors_of_a_closure_have_its_names():
    captured = torch.ones(3)
    said = explain(aot_function(lambda x: x * captured), torch.ones(3))
    assert {"captured", "args[0]"} == {line.split(": ")[1].split(", ")[0] for line in said.signature[:2]}


def only(said, word):
    (line,) = [line for line in said.signature if line.startswith(word)]
    return line


def test_a_write_says_which_input_and_whether_autograd_records_it():
    def write(x, y):
        y.mul_(x)

    said = explain(aot_function(write), torch.ones(2), torch.ones(2))
    assert "a1 =" in only(said, "written") and "does not record" in only(said, "written")
    y = leaf(2) * 1
    assert only(explain(aot_function(write), torch.ones(2), y), "written").endswith("autograd records it")
    assert not any(
        line.startswith("written") for line in explain(aot_function(layer), leaf(3, 4), leaf(4, 2)).signature
    )


def test_an_input_whose_shape_changes_is_moved():
    said = explain(aot_function(lambda x: x.t_()), torch.ones(2, 3))
    assert only(said, "moved").startswith("moved: a0") and "[3, 2]" in only(said, "m1")


def test_what_is_returned_keeps_its_containers():
    said = explain(aot_function(lambda x: {"out": [x.sin(), (x,)], "n": 3}), torch.ones(2))
    returned = only(said, "returned").removeprefix("returned: ")
    made = dict(line.split(" = ") for line in said.signature if line.startswith("m"))
    value = eval(returned, made)
    assert value == {"out": ["r0", ("a0",)], "n": 3}


def test_views_are_said_with_their_ops_and_modes():
    def views(x):
        with torch.no_grad():
            part = x[0]
        return x.t(), part

    said = explain(aot_function(views), torch.ones(2, 3))
    made = {line.split(" = ")[1] for line in said.signature if line.startswith("m")}
    assert made == {"a0 then aten.t.default(_) under enable_grad", "a0 then aten.select.int(_, 0, 0) under no_grad"}


def test_state_that_a_call_assigns_has_the_name_of_its_place():
    cache = {}

    def remember(x, state):
        state["last"] = x * 2
        cache["n"] = 3
        return state

    said = explain(aot_function(remember), torch.ones(2), {})
    assigned = {line for line in said.signature if line.startswith("assigned")}
    assert assigned == {"assigned: args[1]['last'] = m0", "assigned: cache['n'] = 3"}
    assert only(said, "looked").endswith("is args[1]")
    assert only(said, "looked").split(" is ")[0] == only(said, "returned").removeprefix("returned: ")


def test_the_key_says_modes_tensors_and_plain_values():
    x = leaf(2, 3)
    with torch.no_grad():
        said = explain(aot_function(lambda x, y, n: (x + y) * n), x, x.detach().t()[:, :1].expand(3, 3)[:2], 2.5)
    assert said.key[0].startswith("grad mode off")
    assert [line for line in said.key if line.startswith("args[0]: ")] == [
        "args[0]: Tensor float32[2, 3] on cpu, requires grad"
    ]
    (second,) = [line for line in said.key if line.startswith("args[1]: ")]
    assert "stride (1, 0)" in second and "on the storage of args[0]" in second
    assert "args[2] = 2.5" in said.key


def test_symbols_come_with_what_must_hold_of_them():
    compiled = aot_function(lambda x: x.sum() * x.size(0), dynamic=True)
    said = explain(compiled, torch.ones(3, 4))
    assert "symbols" in said.specialization
    shape = only(said, "input a0").split("[")[2].split("]")[0]
    assert all(f"{symbol} >= 2" in said.key for symbol in shape.split(", "))
    assert "fixed" in explain(aot_function(torch.sin), torch.ones(3, 4)).specialization


def test_the_call_that_is_shown_is_the_one_that_runs():
    source = explain(aot_function(layer), leaf(3, 4), leaf(4, 2)).call
    lines = source.splitlines()
    assert lines[0].startswith("def call(") and lines[-1].strip().startswith("return ")
    compile(source, "call", "exec")


def test_explaining_compiles_once_and_runs_nothing():
    runs = []

    def compiler(module, examples):
        return lambda *args: runs.append(1) or module(*args)

    x = torch.ones(3)
    compiled = aot_function(lambda x: x.add_(1), compiler)
    before = counters().compiled
    first, second = explain(compiled, x), explain(compiled, x)
    assert first == second
    assert torch.equal(x, torch.ones(3)) and not runs
    compiled(x)
    assert counters().compiled == before + 1 and runs == [1]


def test_each_kind_of_call_has_its_own_specialization():
    compiled = aot_function(lambda x: x * 2, nop, dynamic=False)
    said = [explain(compiled, torch.ones(n)).specialization for n in (2, 3, 2)]
    assert [s.split(",")[0] for s in said] == [
        "specialization 1 of 1",
        "specialization 2 of 2",
        "specialization 1 of 2",
    ]


def test_the_text_names_the_pass_of_each_stage():
    text = str(explain(aot_function(layer), leaf(3, 4), leaf(4, 2)))
    passes = [line.split(":")[0].removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    assert passes == ["bind", "analyze", "trace, partition", "joint, partition", "emit"]


def test_what_cannot_be_explained_raises_as_the_call_would():
    with pytest.raises(TypeError, match="aot_function"):
        explain(torch.sin, torch.ones(2))
    with pytest.raises(UnsupportedError):
        explain(aot_function(lambda x: bool(x.sum() > 0)), torch.ones(2))
    with pytest.raises(ZeroDivisionError):
        explain(aot_function(lambda x: x * (1 // 0)), torch.ones(2))


def test_logs_show_the_stages_that_are_asked_for_and_change_nothing(caplog):
    compiled, before = aot_function(lambda x, w: (x * w).sum()), counters()
    w = leaf(3)
    for stage in STAGES:
        caplog.set_level(logging.INFO, f"aotcheck.{stage}")
    for n in (2, 4, 5):
        compiled(torch.ones(n, 3), w).backward()
    assert counters() == dataclasses.replace(before, compiled=before.compiled + 2)
    assert {r.name.removeprefix("aotcheck.") for r in caplog.records} == set(STAGES)
    assert "+ args[0]: Tensor float32[4, 3] on cpu" in caplog.text
