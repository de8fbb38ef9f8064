"""BEHAVIOUR 1: context variables, and attributes that each thread has for itself, around a function."""

from __future__ import annotations

import contextvars
import threading

import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import check_session, plain

pytestmark = pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")


class Settings(threading.local):
    depth = 1

    def __init__(self) -> None:
        self.scale = 3
        self.more = {"offset": 1}

    def factor(self) -> int:
        return self.scale * self.depth + self.more["offset"]


def test_attributes_of_the_threads_own_are_read_on_every_call():
    def session(compile):
        settings = Settings()
        f = compile(lambda x: x * settings.factor())
        yield f(plain(2))
        settings.scale = 4
        yield f(plain(2))
        settings.more["offset"] = 2
        yield f(plain(2))
        settings.more = {"offset": 5}
        yield f(plain(2))
        settings.depth = 7
        yield f(plain(2))
        del settings.depth
        yield f(plain(2)), f(plain(2))

    check_session(session)


def test_each_thread_reads_its_own():
    def session(compile):
        settings = Settings()
        f = compile(lambda x: x * settings.factor())
        seen = [f(plain(2))]

        def other(scale):
            seen.append(f(plain(2)))
            settings.scale = scale
            seen.append(f(plain(2)))

        for scale in (5, 6):
            thread = threading.Thread(target=other, args=(scale,))
            thread.start()
            thread.join()
            seen.append(f(plain(2)))
        yield seen

    check_session(session)


def test_an_attribute_that_the_thread_has_not_yet():
    def session(compile):
        own = threading.local()
        f = compile(lambda x: x * getattr(own, "scale", 3))
        yield f(plain(2))
        own.scale = 5
        yield f(plain(2))
        del own.scale
        yield f(plain(2))

    check_session(session)


@pytest.mark.parametrize("starts", [0, None], ids=["set before", "not set before"])
@pytest.mark.parametrize("kind", ["variable", "attribute"])
def test_what_the_function_sets_is_set_once_in_each_call(kind, starts):
    def session(compile):
        variable, own = contextvars.ContextVar("variable", default=0), threading.local()

        def get():
            return variable.get() if kind == "variable" else getattr(own, "n", 0)

        def put(n):
            variable.set(n) if kind == "variable" else setattr(own, "n", n)

        def f(x):
            put(get() + 1)
            return x * get()

        if starts is not None:
            put(starts)
        compiled = compile(f)
        for _ in range(2):
            for _ in range(3):
                yield compiled(plain(2)), get()
            put(0)

    check_session(session)


def test_that_it_sets_one_is_said():
    variable = contextvars.ContextVar("variable", default=0)

    def f(x):
        variable.set(variable.get() + 1)
        return x * variable.get()

    with pytest.warns(RuntimeWarning, match="it sets a context variable"):
        assert torch.equal(aotcheck.aot_function(f)(plain(2)), plain(2))
    assert variable.get() == 1
