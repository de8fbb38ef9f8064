"""BEHAVIOUR 12: what is refused, by which error, and that nothing has happened by then."""

from __future__ import annotations

import gc

import pytest
import torch

from aotcheck import _torch
from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, backward, check, check_session, given, leaf, plain, through_dynamo

REFUSED = {
    "nonzero": lambda x: x.nonzero(),
    "a boolean mask": lambda x: x[x > 0],
    "unique": lambda x: torch.unique(x),
    "item": lambda x: x.sum().item(),
    "a branch on a value": lambda x: x * 2 if x.sum() > 0 else x * 3,
    "a loop over values": lambda x: [x * n for n in x.tolist()],
    "float of a tensor": lambda x: x * float(x.sum()),
}


@pytest.fixture(params=REFUSED.values(), ids=REFUSED)
def refused(request):
    return request.param


def test_what_depends_on_values_is_refused(refused):
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


def test_a_refusal_can_be_asked_to_run_eagerly_and_is_counted(refused):
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


def test_through_torch_compile_what_is_refused_runs_eagerly():
    torch._dynamo.reset()
    x = plain(3)
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        out = through_dynamo(lambda x: x[x > 0] * 2)(x)
    assert torch.equal(out, x[x > 0] * 2)


def test_a_function_stays_usable_after_a_refusal():
    def f(x, y):
        return x.sum().item() if y is None else x * y

    compiled = aotcheck.aot_function(f)
    with pytest.raises(aotcheck.UnsupportedError):
        compiled(plain(3), None)
    assert torch.equal(compiled(plain(3), plain(3, seed=1)), plain(3) * plain(3, seed=1))


# -- what is not refused: checks in torch's own code --------------------------------------------------


def test_a_check_in_torchs_own_code_is_made_by_the_graph():
    """``istft`` looks at its window, ``cov`` at its weights; where they object, eager's error is raised."""

    def spectrum(x):
        return torch.stft(x, 8, window=torch.ones(8, device=x.device), return_complex=True)

    check(lambda z, window: torch.istft(z, 8, window=window), lambda: given(spectrum(plain(32)), leaf(8).abs()))
    check(
        lambda x, w: torch.cov(x, aweights=w),
        lambda: given(leaf(3, 4), plain(4).abs() + 1),
        lambda: given(leaf(3, 4), -plain(4).abs() - 1),
        lambda: given(leaf(3, 4, seed=1), plain(4, seed=1).abs() + 1),
        rtol=1e-6,
    )


def test_a_check_that_turns_out_otherwise_leaves_the_call_to_the_original():
    def f(x):
        return x * 2 if torch.equal((x.min() < 0), torch.ones((), dtype=torch.bool).new_ones(())) else x * 3

    compiled = aotcheck.aot_function(f)
    before = aotcheck.counters().refused.get("data-dependent", 0)
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2) * 2):
        assert torch.equal(compiled(x), f(x))
    assert aotcheck.counters().refused.get("data-dependent", 0) == before + 1


def test_other_layouts_are_refused():
    with pytest.raises(aotcheck.UnsupportedError, match="layout"):
        aotcheck.aot_function(lambda x: x.to_mkldnn())(plain(2, 2))


def test_a_gradient_retained_before_a_change_of_geometry_is_refused():
    """Eager keeps the gradient of what the tensor was."""

    def f(x):
        y = x.clone()
        y.retain_grad()
        return y.t_()

    with pytest.raises(aotcheck.UnsupportedError, match="hook"):
        aotcheck.aot_function(f)(leaf(2, 3))


def test_an_argument_cut_from_its_history_twice_is_left_alone():
    def f(x):
        x.detach_()
        x.requires_grad_()
        y = x * 2
        x.detach_()
        return y

    x = torch.ones(2, requires_grad=True).clone()
    with pytest.raises(aotcheck.UnsupportedError, match="leaf made inside"):
        aotcheck.aot_function(f)(x)
    assert not x.is_leaf


def test_shapes_that_depend_on_constants():
    def f(x):
        i = torch.tensor([2, 0, 2]).unique()
        return x[i] * 2, x[torch.tensor([0, 1, 1]).nonzero()[:, 0]], torch.trace(x)

    def session(compile):
        x = leaf(3, 3)
        out = compile(f)(x)
        yield out
        (first,) = torch.autograd.grad(out[2], x, create_graph=True)
        yield first
        backward(out[:2])
        yield x

    check_session(session)


@pytest.mark.parametrize("kept", ["function", "hook"])
def test_a_tensor_that_replaces_a_member_of_a_set_outside_is_refused_and_taken_back(kept):
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


def test_what_is_no_tensor_may_be_kept_outside():
    items = []

    def f(x):
        items.append(x.shape)
        return x * 3

    check(f, lambda: given(leaf(3)))
    assert items == [(3,)] * 2


def test_a_view_that_what_it_was_made_of_does_not_give_any_more():
    def f(x):
        y = x.sum()
        imag = y.imag
        y.set_()
        return imag

    check(f, lambda: given(leaf(2, dtype=torch.complex64)))
    check(f, lambda: given(plain(2, dtype=torch.complex64)))


def test_a_view_whose_base_was_given_more_elements_than_it_was_made_of():
    base = leaf(1) * 1
    view = base.view(-1)
    base.data = plain(3)
    view.data = base
    with pytest.raises(aotcheck.UnsupportedError, match="view of a base that has changed"):
        aotcheck.aot_function(lambda x, y: x.set_(x))(base, view)


RESHAPED = {
    "t": ((2,), lambda x: x.t_()),
    "transpose": ((1, 1, 1, 2), lambda x: x.transpose_(0, 3)),
}


@pytest.mark.parametrize("reshaped", RESHAPED)
def test_a_view_reshaped_when_it_lay_otherwise_than_its_history_says(reshaped):
    """``set_`` to a storage leaves no trace in a history, in which the change is of what the view was made as."""
    size, change = RESHAPED[reshaped]

    def argument():
        x = torch.view_as_real(leaf(3, 3, dtype=torch.complex64) * 1)
        return change(x.set_(x.untyped_storage(), 2, size, torch.empty(size).stride()))

    x, untouched = argument(), argument()
    with pytest.raises(aotcheck.UnsupportedError, match="view of a base that has changed"):
        aotcheck.aot_function(lambda x: x.pow_(2))(x)
    assert torch.equal(x, untouched)
    assert (x._version, x.shape, x.stride()) == (untouched._version, untouched.shape, untouched.stride())


def test_what_the_frames_of_an_error_hold_ends_before_the_trace_does():
    """Dynamo's code enters inference mode by hand, and leaves it when the frame that raised ends."""

    def f(x):
        guard = enter(True)
        x.view(3, 3)
        return guard

    enter = torch.autograd.grad_mode._enter_inference_mode
    before = _torch.autograd_flags(), _torch.dispatch_keys(), torch.is_inference_mode_enabled()
    for compiled in (f, aotcheck.aot_function(f), through_dynamo(f)):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="invalid for input"):
                compiled(plain(2))
            gc.collect()
            assert (_torch.autograd_flags(), _torch.dispatch_keys(), torch.is_inference_mode_enabled()) == before


def test_a_fill_by_a_mask_that_the_fill_itself_changes_is_refused():
    def fill(x, mask):
        return x.masked_fill_(mask, False)

    x = torch.tensor([False, True, False, False, False, True, False, False]).reshape(2, 2, 2)
    with pytest.raises(aotcheck.UnsupportedError, match=r"overlapping operands.*masked_fill_"):
        aotcheck.aot_function(fill)(x, x.as_strided((2, 2), (6, 1)))
    assert x.sum() == 2


@pytest.mark.parametrize("mask", [lambda x: x, lambda x: x.view(-1)[:4].view(2, 2), lambda x: x.clone()[0]])
def test_a_fill_by_a_mask_in_its_own_memory_is_as_in_eager(mask):
    def session(compile):
        x = torch.tensor([False, True, False, False, False, True, False, False]).reshape(2, 2, 2)
        yield attempt(lambda: compile(lambda x, mask: x.masked_fill_(mask, False))(x, mask(x))), x

    check_session(session)


@pytest.mark.parametrize(
    "other", [torch.from_dlpack, lambda x: torch.from_numpy(x.numpy()[2:])], ids=["dlpack", "numpy"]
)
def test_a_write_to_memory_that_another_storage_has_too_is_refused(other):
    x = torch.arange(4.0)
    y = other(x)
    compiled = aotcheck.aot_function(lambda a, b: (a.add_(1), b * 2))
    for _ in range(2):
        compiled(torch.arange(4.0), torch.arange(float(len(y))))
    with pytest.raises(aotcheck.UnsupportedError, match="storages that share memory"):
        compiled(x, y)
    assert x.tolist() == [0, 1, 2, 3]

    def session(compile):
        x = torch.arange(4.0)
        reads = compile(lambda a, b: (a + 1, b * 2))
        yield reads(x, other(x))

    check_session(session)
