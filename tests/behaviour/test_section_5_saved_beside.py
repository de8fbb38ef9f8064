"""BEHAVIOUR 5: what is saved of memory beside which the function writes is the memory, as eager has it."""

from __future__ import annotations

import pytest
import torch

from tests.behaviour.harness import check_session, plain

READS = {
    "sin": torch.sin,
    "with a view": lambda x: x * x.view(2),
    "a part": lambda x: x.flip(0) * x[1:],
    "pow": lambda x: x**3,
}
WRITES = {
    "beside": lambda whole: whole.data[2:].mul_(2),
    "beside, twice": lambda whole: (whole.data[2:].mul_(2), whole.sum(), whole.data[2:3].mul_(2)),
    "partly": lambda whole: whole.data[1:].mul_(2),
    "nothing": lambda whole: whole.as_strided((0,), (1,)).mul_(2),
}


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("read", READS)
def test_the_caller_writes_past_the_counter_of_what_was_saved(read, write, late):
    def f(part, whole):
        if not late:
            WRITES[write](whole)
        out = READS[read](part)
        if late:
            WRITES[write](whole)
        return out, whole

    def session(compile):
        memory = plain(6)
        part, whole = memory.data[:2].requires_grad_(), memory.data
        out, _ = compile(f)(part, whole)
        whole.fill_(3)
        yield out.detach(), torch.autograd.grad(out.sum(), part)

    check_session(session)
