"""The GraphModules that compilers are given: each is its own, though they share a class, and their nodes tell all."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import aotcheck


class _Sub(torch.nn.Module):
    """Adds a constant, so that its graph takes an attribute from the module."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([2.0, 3.0, 4.0])


def _modules(*functions: Any, mode: Any = torch.enable_grad) -> list[fx.GraphModule]:
    """The forward graphs that a compiler is given for ``functions`` of one tensor."""
    found: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, examples: Any) -> Any:
        found.append(module)
        return module

    for function in functions:
        with mode():
            aotcheck.aot_function(function, fw_compiler=keep, bw_compiler=lambda m, _: m)(_x())
    return found


def _x() -> Tensor:
    return torch.tensor([1.0, -2.0, 0.5])


def _ops(module: fx.GraphModule) -> list[fx.Node]:
    return [n for n in module.graph.nodes if n.op == "call_function"]


def _make_sine(module: fx.GraphModule) -> None:
    _ops(module)[0].target = torch.ops.aten.sin.default
    module.recompile()


def test_that_one_is_changed_and_recompiled_changes_no_other() -> None:
    first, second = _modules(torch.exp, torch.exp)
    _make_sine(first)
    assert torch.equal(first(_x())[0], _x().sin())
    assert torch.equal(second(_x())[0], _x().exp())
    _make_sine(second)
    assert torch.equal(second(_x())[0], _x().sin())
    (third,) = _modules(torch.exp)
    assert torch.equal(third(_x())[0], _x().exp())


def test_that_fx_writes_the_code_of_one_changes_no_other() -> None:
    first, second = _modules(torch.exp, torch.cos)
    assert "torch.ops.aten.exp.default" in first.code and "aten.cos" not in first.code
    assert "torch.ops.aten.cos.default" in second.code
    first._real_recompile()  # type: ignore[operator]  # a lazy module's
    assert torch.equal(first(_x())[0], _x().exp())
    assert torch.equal(second(_x())[0], _x().cos())
    assert type(first) is not type(second)


def test_a_graph_that_is_exchanged_is_the_one_that_runs() -> None:
    first, second = _modules(torch.exp, torch.cos)
    first(_x())
    first.graph = copy.deepcopy(second.graph)
    assert torch.equal(first(_x())[0], _x().cos())


def test_a_forward_that_was_taken_before_it_was_made_is_the_modules() -> None:
    (module,) = _modules(torch.exp)
    taken = module.forward
    assert torch.equal(taken(_x())[0], _x().exp())
    assert torch.equal(module.forward(_x())[0], _x().exp())


def test_hooks_on_a_module_are_called_once_for_each_call() -> None:
    (module,) = _modules(torch.exp)
    module.recompile()
    calls: list[int] = []
    module(_x())
    module.register_forward_hook(lambda *_: calls.append(1))
    module(_x())
    assert calls == [1]


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("called", [False, True])
def test_a_copy_runs_and_is_apart(again: Any, called: bool) -> None:
    (module,) = _modules(torch.exp)
    if called:
        module(_x())
    copied = again(module)
    assert torch.equal(copied(_x())[0], _x().exp())
    if again is not copy.copy:  # whose graph is the module's
        _make_sine(copied)
        assert torch.equal(copied(_x())[0], _x().sin())
    assert torch.equal(module(_x())[0], _x().exp())


def test_a_module_with_a_constant_has_it() -> None:
    (module,) = _modules(_Sub())
    assert len(list(module.buffers())) == 1
    assert torch.equal(module(_x())[0], _x() * torch.tensor([2.0, 3.0, 4.0]))


def test_a_module_has_what_fx_gives_one() -> None:
    (module,) = _modules(torch.exp)
    like = fx.GraphModule(torch.nn.Module(), fx.Graph())
    lacking = vars(like).keys() - vars(module).keys() - {"_code", "_lineno_map", "_prologue_start"}
    assert not lacking
    assert module.graph.owning_module is module
    assert not list(module.named_parameters()) and not list(module.named_buffers())
    (other,) = _modules(torch.exp)
    own = [k for k, v in vars(module).items() if isinstance(v, (dict, list, set))]
    assert own and all(vars(module)[k] is not vars(other)[k] for k in own)


def test_a_name_that_is_given_to_a_class_stays_with_its_modules() -> None:
    (module,) = _modules(torch.exp)
    name = type(module).__name__
    type(module).__name__ = "Renamed"
    (other,) = _modules(torch.exp)
    assert (type(other).__name__, type(module).__name__) == (name, "Renamed")


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_nodes_tell_what_each_value_is_like(mode: Any) -> None:
    (module,) = _modules(lambda x: x.exp().unsqueeze(0).expand(2, 3) + 1, mode=mode)
    assert all("lambda" in n.meta["stack_trace"] for n in (_ops(module)[0], _ops(module)[-1]))
    vals = [n.meta["val"] for n in _ops(module)]
    assert [tuple(v.shape) for v in vals] == [(3,), (1, 3), (2, 3), (2, 3)]
    assert [v.stride() for v in vals] == [(1,), (3, 1), (0, 1), (3, 1)]
    assert {v.device for v in vals} == {torch.device("cpu")}
    assert all(v.is_inference() == (mode is torch.inference_mode) for v in vals)
    given = next(iter(module.graph.nodes)).meta["val"]
    assert all(v.fake_mode is given.fake_mode for v in vals)


def test_nodes_tell_it_under_modes_that_are_in_force_by_then() -> None:
    module, other = _modules(torch.exp, torch.exp)
    known = _ops(other)[0].meta["val"]
    with known.fake_mode, torch.device("meta"), torch.inference_mode():
        val = _ops(module)[0].meta["val"]
    assert type(val) is type(known) and val.device == known.device and not val.is_inference()


_LOOKS = {
    "contains": lambda m: "val" in m,
    "length": len,
    "iteration": list,
    "get": lambda m: m.get("val") is not None,
    "items": lambda m: sorted(k for k, _ in m.items()),
    "keys": lambda m: sorted(m.keys()),
    "values": lambda m: len(m.values()),
    "dict": lambda m: sorted(dict(m)),
    "unpacked": lambda m: sorted({**m}),
    "keywords": lambda m: sorted(dict(**m)),
    "copied": lambda m: sorted(copy.copy(m)),
    "copy": lambda m: sorted(m.copy()),
    "joined": lambda m: sorted(m | {"x": 1}),
    "joined to": lambda m: sorted({"x": 1} | m),
    "put into another": lambda m: (d := {}, d.update(m), sorted(d))[-1],
    "truth": bool,
    "equal": lambda m: (m == {"val": 1}, {"val": 1}.__eq__(m)),
    "text": lambda m: "'val'" in repr(m) and "'val'" in f"{m}",
    "popped": lambda m: (m.pop("val") is not None, "val" in m, sorted(m)),
    "deleted": lambda m: (m.__delitem__("val"), "val" in m, sorted(m))[1:],
    "set": lambda m: (m.__setitem__("val", 7), m["val"], sorted(m)),
    "set by default": lambda m: type(m.setdefault("val", 7)).__name__,
    "updated": lambda m: (m.update(val=7, x=1), m["val"], sorted(m)),
    "joined in place": lambda m: (m.__ior__({"val": 7}), m["val"], sorted(m))[1:],
    "cleared": lambda m: (m.clear(), sorted(m)),
    "reversed": lambda m: len(list(reversed(m))),
}


@pytest.mark.parametrize("look", list(_LOOKS))
def test_what_a_node_is_told_looks_like_any_dictionary(look: str) -> None:
    module, other = _modules(lambda x: x.exp(), lambda x: x.exp())
    meta = _ops(module)[0].meta
    plain = dict(_ops(other)[0].meta.items())
    assert isinstance(meta, dict) and {"val", "seq_nr", "stack_trace"} == plain.keys()
    assert _LOOKS[look](meta) == _LOOKS[look](plain)
    assert sorted(meta) == sorted(plain)


def test_nodes_that_are_copied_tell_the_same() -> None:
    (module,) = _modules(torch.exp)
    graph = fx.Graph()
    graph.graph_copy(module.graph, {})
    (copied,) = [n for n in graph.nodes if n.op == "call_function"]
    assert copied.meta["val"] is _ops(module)[0].meta["val"]
    assert copied.meta["stack_trace"] == _ops(module)[0].meta["stack_trace"]
