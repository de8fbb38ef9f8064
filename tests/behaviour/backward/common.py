"""What several tests of backward use."""

import torch

from tests.behaviour.harness import attempt, check_session


def custom(forward, backward):
    """A custom Function's ``apply``."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Custom", (torch.autograd.Function,), body).apply


def calls(function, *make, times: int = 3):
    """A session that calls one compiled function several times on the same tensors."""

    def session(compile):
        args = [m() for m in make]
        compiled = compile(function)
        for _ in range(times):
            yield attempt(lambda: compiled(*args)), args, [a.grad for a in args]

    check_session(session)
