"""Memory that is freed, grown, saved or not written while a program is drawn."""

from collections.abc import Callable

import pytest
import torch

from aotcheck.program import Literal, OpCall, Ref
from aotcheck.program.running import harness
from aotcheck.program.running.memory import Saved, execute_definite, extent_in_bytes, fits, reads_nothing_missing

RESIZES = ("Tensor.untyped_storage().resize_", "torch.ops.inductor.resize_storage_bytes_.default")


def _resize(path: str, nbytes: int) -> OpCall:
    return OpCall(None, path, (Ref("x"), Literal(nbytes)))


@pytest.mark.parametrize("path", RESIZES)
def test_a_tensor_does_not_fit_a_storage_that_was_freed(path: str) -> None:
    env = {"x": torch.ones(4)}
    view = env["x"][:2]
    execute_definite(_resize(path, 8), env)
    assert not fits(env["x"]) and fits(view)
    assert extent_in_bytes(env["x"]) == 16
    execute_definite(_resize(path, 0), env)
    assert not fits(view) and fits(env["x"][4:])


@pytest.mark.parametrize("path", RESIZES)
def test_what_grows_holds_ones_while_a_program_is_drawn(path: str) -> None:
    env = {"x": torch.zeros(2, dtype=torch.int32)}
    execute_definite(_resize(path, 16), env)
    assert env["x"].as_strided((4,), (1,)).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("path", RESIZES)
def test_what_grows_within_an_element_is_the_same_each_time(path: str) -> None:
    storage = torch.full((6,), 7, dtype=torch.uint8).untyped_storage()
    env = {"x": torch.empty(0, dtype=torch.float32).set_(storage, 0, (1,), (1,))}
    execute_definite(_resize(path, 15), env)
    held = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (15,), (1,)).tolist()
    assert held[:8] == [7] * 6 + [0] * 2
    assert torch.tensor(held[8:12], dtype=torch.uint8).view(torch.float32).item() == 1


@pytest.mark.parametrize("path", ["Tensor.resize_", "torch.empty_like"])
def test_what_else_is_not_written_holds_ones(path: str) -> None:
    env = {"x": torch.zeros(1)}
    size = (Literal(3),) if path == "Tensor.resize_" else ()
    execute_definite(OpCall("v", path, (Ref("x"), *size)), env)
    assert env["v"].tolist() == ([0, 1, 1] if size else [1])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_what_a_loss_leaves_beyond_its_result_holds_ones(reduction: str) -> None:
    env = {"x": torch.arange(3.0, requires_grad=True), "y": torch.full((3,), 5.0)}
    given = (("reduction", Literal(reduction)),)
    execute_definite(OpCall("v", "torch.nn.functional.mse_loss", (Ref("x"), Ref("y")), given), env)
    held = torch.empty(0).set_(env["v"].untyped_storage(), 0, (3,), (1,)).tolist()
    summands = [25.0, 16.0, 9.0]
    expected = {"mean": [sum(summands) / 3, 1, 1], "sum": [sum(summands), 1, 1], "none": summands}[reduction]
    assert held == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "harmless"),
    [
        (OpCall("v", "torch.neg", (Ref("x"),)), False),
        (OpCall(None, "Tensor.copy_", (Ref("y"), Ref("x"))), False),
        (OpCall(None, "Tensor.fill_", (Ref("x"), Literal(1))), False),
        (OpCall("v", "torch.neg", (Ref("y"),)), True),
        (_resize(RESIZES[0], 16), True),
        (OpCall(None, "Tensor.data=", (Ref("x"), Ref("y"))), True),
    ],
    ids=lambda part: getattr(part, "path", part),
)
def test_a_freed_tensor_may_only_be_given_memory(call: OpCall, harmless: bool) -> None:
    env = {"x": torch.ones(4), "y": torch.ones(4)}
    env["x"].untyped_storage().resize_(0)
    assert reads_nothing_missing(call, env) == harmless


@pytest.mark.parametrize("lazily", [torch.Tensor.conj, lambda t: t.conj().imag], ids=["conjugated", "negated"])
@pytest.mark.parametrize(
    ("call", "harmless"),
    [
        (_resize(RESIZES[0], 32), True),
        (_resize(RESIZES[1], 32), False),  # torch crashes: it copies the tensor first
        (OpCall(None, "Tensor.set_", (Ref("x"),)), True),
        (OpCall(None, "Tensor.set_", (Ref("x"), Ref("y"))), True),
        (OpCall(None, "Tensor.set_", (Ref("x"), Ref("storage"))), False),
    ],
    ids=["its storage is resized", "resized by an op", "set_ to nothing", "set_ to a tensor", "set_ to a storage"],
)
def test_torch_reads_a_freed_tensor_with_a_lazy_bit_where_an_op_knows_no_such_bit(
    lazily: Callable[[torch.Tensor], torch.Tensor], call: OpCall, harmless: bool
) -> None:
    base = torch.ones(4, dtype=torch.complex64)
    env = {"x": lazily(base), "y": torch.ones(4), "storage": torch.ones(4).untyped_storage()}
    assert reads_nothing_missing(call, env)
    base.untyped_storage().resize_(0)
    assert reads_nothing_missing(call, env) == harmless


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
def test_what_a_backward_may_read_is_not_freed(requires_grad: bool, enabled: bool) -> None:
    env = {"x": torch.ones(2), "w": torch.ones(2, requires_grad=requires_grad)}
    saved, product = Saved(), OpCall("v", "torch.mul", (Ref("w"), Ref("x")))
    with torch.set_grad_enabled(enabled):
        execute_definite(product, env)
        saved.note(product, env)
    assert saved.lost(_resize(RESIZES[0], 0), env) == (requires_grad and enabled)
    assert not saved.lost(_resize(RESIZES[0], 64), env)


def test_what_takes_the_place_of_something_saved_is_not_freed_either() -> None:
    env = {"x": torch.ones(2, requires_grad=True), "y": torch.ones(2)}
    saved = Saved()
    for call in (OpCall("v", "torch.square", (Ref("x"),)), OpCall(None, "Tensor.data=", (Ref("x"), Ref("y")))):
        execute_definite(call, env)
        saved.note(call, env)
    free = OpCall(None, RESIZES[0], (Ref("y"), Literal(0)))
    assert saved.lost(free, env)


@pytest.mark.parametrize("fill", ["pattern", "zeros", "strided", "trained", "implicit"])
def test_a_cotangent_of_a_freed_conjugate_is_made_without_reading_it(fill: str) -> None:
    t = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    conjugate = t.conj()
    t.untyped_storage().resize_(0)
    made = harness.cotangent(conjugate, 1, fill)
    assert made.shape == (2,) and made.dtype == torch.complex64
