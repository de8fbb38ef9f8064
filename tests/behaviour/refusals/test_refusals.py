"""Which error, that nothing has happened by then."""

import queue
from typing import Any

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, one_of, session
from tests.behaviour.inputs import leaf, plain


def test_an_escaped_replica_can_be_printed_and_its_use_is_refused():
    escaped: queue.SimpleQueue[Any] = queue.SimpleQueue()  # which nobody looks into

    def puts(x):
        y = x * 2
        escaped.put(y)
        return y + 1

    aotcheck.aot_function(puts)(plain(2))
    left = escaped.get()
    assert str(left) == f"{left}" == repr(left)
    with pytest.raises(aotcheck.UnsupportedError, match="escaped replica"):
        left + 1


REFUSED = {
    "nonzero": lambda x: x.nonzero(),
    "a boolean mask": lambda x: x[x > 0],
    "unique": lambda x: torch.unique(x),
    "item": lambda x: x.sum().item(),
    "a branch on a value": lambda x: x * 2 if x.sum() > 0 else x * 3,
    "a loop over values": lambda x: [x * n for n in x.tolist()],
    "float of a tensor": lambda x: x * float(x.sum()),
}
refused = one_of(REFUSED)


def test_a_refusal_of_data_dependence_is_a_runtime_error_with_a_reason(refused):
    with pytest.raises(aotcheck.UnsupportedError) as error:
        aotcheck.aot_function(refused)(plain(3))
    assert isinstance(error.value, RuntimeError)
    assert error.value.reason
    assert "\n" not in error.value.reason


def test_a_refusal_leaves_inputs_untouched(refused):
    def f(x, y):
        x.add_(1)
        y.t_()
        y.detach().mul_(2)
        return refused(x)

    x, y = plain(3), plain(2, 3, seed=1)
    version = x._version
    with pytest.raises(aotcheck.UnsupportedError):
        aotcheck.aot_function(f)(x, y)
    assert torch.equal(x, plain(3))
    assert torch.equal(y, plain(2, 3, seed=1))
    assert x._version == version


def test_a_refusal_leaves_the_random_state_untouched(refused):
    state = torch.get_rng_state()
    with pytest.raises(aotcheck.UnsupportedError):
        aotcheck.aot_function(lambda x: (torch.rand(3), refused(x)))(plain(3))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_refusal_is_counted_by_its_reason(refused):
    before = aotcheck.counters().refused
    with pytest.raises(aotcheck.UnsupportedError) as error:
        aotcheck.aot_function(refused)(plain(3))
    reason = error.value.reason
    assert aotcheck.counters().refused.get(reason, 0) == before.get(reason, 0) + 1


def test_a_refusal_configured_to_run_eagerly_does_so_and_is_counted(refused):
    def f(x):
        x.add_(1)
        return refused(x)

    x, again = plain(3), plain(3)
    before = sum(aotcheck.counters().refused.values())
    with aotcheck.patch_config(on_unsupported=aotcheck.OnUnsupported.EAGER):
        out = aotcheck.aot_function(f)(x)
    torch.testing.assert_close(out, f(again), rtol=0, atol=0)
    assert torch.equal(x, again)
    assert sum(aotcheck.counters().refused.values()) == before + 1


def test_a_function_stays_usable_after_a_refusal():
    def f(x, y):
        return bool(x.sum() > 0) if y is None else x * y

    compiled = aotcheck.aot_function(f)
    with pytest.raises(aotcheck.UnsupportedError):
        compiled(plain(3), None)
    assert torch.equal(compiled(plain(3), plain(3, seed=1)), plain(3) * plain(3, seed=1))


@pytest.mark.on_the_cpu("tensors on a GPU have no such layout")
def test_mkldnn_layouts_are_refused():
    with pytest.raises(aotcheck.UnsupportedError, match="layout"):
        aotcheck.aot_function(lambda x: x.to_mkldnn())(plain(2, 2))


@pytest.mark.parametrize("kept", ["function", "hook"])
def test_a_tensor_kept_in_a_captured_set_is_refused_and_the_set_restored(kept):
    found, module = {1}, torch.nn.Identity()

    def exchange(x):
        found.clear()
        found.add(x * 2)

    def f(x):
        exchange(x)
        return x * 3

    compiled = aotcheck.aot_function(f)
    if kept == "hook":
        module.register_forward_hook(lambda module, args, out: exchange(out))
        compiled = aotcheck.aot_module(module, aotcheck.nop)
    with pytest.raises(aotcheck.UnsupportedError, match="return it") as error:
        compiled(plain(3))
    assert error.value.reason == "kept tensor"
    assert found == {1}


_META = {
    "asked for": lambda x: (x * 2, torch.ones(2, device="meta")),
    "like": lambda x: torch.empty_like(x, device=torch.device("meta")).shape[0] * x,
    "to": lambda x: x.to("meta"),
    "by keyword": lambda x: x.to(device="meta"),
}


@pytest.mark.parametrize("function", _META.values(), ids=_META.keys())
def test_tensors_made_on_meta_are_refused(function: Any):
    with pytest.raises(aotcheck.UnsupportedError, match="device: the function makes a tensor on meta"):
        aotcheck.aot_function(function)(plain(2))


@pytest.mark.parametrize("inside", [False, True])
def test_tensors_made_with_meta_as_the_default_device_are_refused(inside: bool):
    def made(x):
        if inside:
            with torch.device("meta"):
                return x * 2, torch.ones(2)
        return x * 2, torch.ones(2)

    f = aotcheck.aot_function(made)
    x = plain(2)
    if not inside:
        assert f(x)[1].device == torch.device("cpu")
    with torch.device("cpu" if inside else "meta"), pytest.raises(aotcheck.UnsupportedError, match="device"):
        f(x)
    if not inside:
        assert f(x)[1].device == torch.device("cpu")


@session
def test_a_function_that_makes_nothing_on_the_default_device_is_not_refused(compile):
    f = compile(lambda x: (torch.zeros_like(x), x.new_ones(2), x.sum()))
    x = leaf(3)
    yield f(x)
    with torch.device("meta"):
        out = f(x)
    yield out, attempt(out[2].backward), x.grad


def test_a_former_leaf_written_from_its_own_result_is_refused():
    def f(x):
        v = x.detach().requires_grad_()
        y = v * 1
        v.requires_grad_(False)
        return v.mul_(y), y

    with pytest.raises(aotcheck.UnsupportedError, match="leaf made inside"):
        aotcheck.aot_function(f)(plain(3))
