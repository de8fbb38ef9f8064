"""Thread locals, context variables, arrays, random generators and iterators."""

import array
import concurrent.futures
import contextvars
import functools
import itertools
import random
import threading
import types

import numpy as np
import pytest
import torch

from tests.behaviour.compilers import aotcheck
from tests.behaviour.harness import attempt, check_session, session
from tests.behaviour.inputs import plain, to_device


@session
def test_a_python_random_generator_argument_advances_on_every_call(compile):
    g = compile(lambda r, x: x * r.randint(1, 9))
    r = random.Random(0)
    for k in range(4):
        yield g(r, plain(3, seed=k))
    yield r.random()


class Settings(threading.local):
    depth = 1

    def __init__(self) -> None:
        self.scale = 3
        self.more = {"offset": 1}

    def factor(self) -> int:
        return self.scale * self.depth + self.more["offset"]


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_thread_local_attributes_are_read_on_every_call(compile):
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


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_each_thread_reads_its_own_thread_local_attributes(compile):
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


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@session
def test_a_missing_thread_local_attribute_is_read_once_it_is_set(compile):
    own = threading.local()
    f = compile(lambda x: x * getattr(own, "scale", 3))
    yield f(plain(2))
    own.scale = 5
    yield f(plain(2))
    del own.scale
    yield f(plain(2))


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("starts", [0, None], ids=["set before", "not set before"])
@pytest.mark.parametrize("kind", ["variable", "attribute"])
@session
def test_context_variables_and_thread_locals_are_set_once_per_call(compile, kind, starts):
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


@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
def test_setting_a_context_variable_is_warned_of():
    variable = contextvars.ContextVar("variable", default=0)

    def f(x):
        variable.set(variable.get() + 1)
        return x * variable.get()

    with pytest.warns(RuntimeWarning, match="it sets a context variable"):
        assert torch.equal(aotcheck.aot_function(f)(plain(2)), plain(2))
    assert variable.get() == 1


_LOCAL = threading.local()


def _of_a_thread():
    _LOCAL.factor, _LOCAL.w = 2, to_device(torch.ones(3))

    def change():
        _LOCAL.factor = 5

    return (lambda x: x * _LOCAL.factor), change


def _of_an_array():
    numbers = array.array("f", [1.0, 2.0])
    return (lambda x: x * numbers[0] * memoryview(numbers)[1]), lambda: numbers.__setitem__(0, 5.0)


def _of_a_window():
    window = memoryview(bytearray(b"ab"))
    return (lambda x: x * window[1]), lambda: window.__setitem__(1, 3)


def _of_a_read_only_mapping():
    inner = {"factor": 2}
    mapping = types.MappingProxyType(inner)
    return (lambda x: x * mapping["factor"]), lambda: inner.update(factor=5)


@pytest.mark.on_the_cpu
@pytest.mark.parametrize("make", [_of_a_thread, _of_an_array, _of_a_window, _of_a_read_only_mapping])
@session
def test_values_of_thread_locals_arrays_and_mappings_are_read_on_every_call(compile, make):
    f, change = make()
    compiled = compile(f)
    for k in range(4):
        yield compiled(plain(3, seed=k))
        if k == 1:
            change()


def _an_ndarray():
    numbers = np.zeros((2, 2))[:, 0]
    return numbers, lambda: numbers.__setitem__(0, numbers[0] + 1)


def _a_structured_one():
    numbers = np.zeros(2, dtype=[("a", "i4"), ("b", "f4")])
    return numbers, lambda: numbers["a"].__setitem__(1, numbers["a"][1] + 1)


def _an_array():
    numbers = array.array("i", [0, 1])
    return numbers, lambda: numbers.append(numbers[-1] + 1)


def _a_bytearray():
    numbers = bytearray(2)
    return numbers, lambda: numbers.__setitem__(0, numbers[0] + 1)


def _a_window():
    numbers = memoryview(bytearray(2))
    return numbers, lambda: numbers.__setitem__(1, numbers[1] + 1)


def _one_in_a_dictionary():
    numbers = np.zeros(1)
    held = {"a": [numbers]}
    return numbers, lambda: held["a"][0].__iadd__(1)


def _gives(x):
    return x * 2


def _raises(x):
    raise KeyError(3)


def _captures(x):
    return x * _AROUND


_AROUND = torch.ones(3)

_ARRAYS = [_an_ndarray, _a_structured_one, _an_array, _a_bytearray, _a_window, _one_in_a_dictionary]


@pytest.mark.on_the_cpu
@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("goes_on", [_gives, _raises, _captures])
@pytest.mark.parametrize("make", _ARRAYS)
@session
def test_arrays_that_a_function_changes_change_once_per_call(compile, make, goes_on):
    numbers, change = make()

    def f(x):
        change()
        return goes_on(x)

    compiled = compile(f)
    for k in range(10):
        yield attempt(lambda k=k: compiled(plain(3, seed=k))), bytes(numbers)


@pytest.mark.on_the_cpu
@pytest.mark.filterwarnings("ignore:aotcheck runs this function eagerly")
@pytest.mark.parametrize("make", _ARRAYS)
def test_a_refused_call_changes_no_array(make):
    numbers, change = make()

    def f(x):
        change()
        return x[x > 0]

    before = bytes(numbers)
    compiled = aotcheck.aot_function(f)
    for _ in range(2):
        with pytest.raises(aotcheck.UnsupportedError):
            compiled(plain(3))
        assert bytes(numbers) == before
    once, change_once = make()
    change_once()
    with aotcheck.patch_config(on_unsupported="eager"):
        compiled(plain(3))
    assert bytes(numbers) == bytes(once)


@pytest.mark.on_the_cpu
def test_an_array_that_alternates_between_two_values_is_compiled_twice():
    def session(compile):
        numbers = np.zeros(1, dtype=np.int64)

        def f(x):
            numbers[0] ^= 1
            return x * int(numbers[0])

        compiled = compile(f)
        for k in range(6):
            yield compiled(plain(3, seed=k)), int(numbers[0])

    assert len(check_session(session).forwards) == 2


@pytest.mark.on_the_cpu
@pytest.mark.filterwarnings("ignore:aotcheck runs a function as it is")
@pytest.mark.parametrize("passed", [False, True])
@session
def test_writes_to_an_array_are_seen_by_a_tensor_in_its_memory(compile, passed):
    numbers = np.ones(2, dtype=np.float32)
    inside = torch.from_numpy(numbers)

    def f(x):
        numbers[0] += 1
        return x * 2 if passed else x * inside

    compiled = compile(f)
    for k in range(4):
        yield compiled(inside if passed else plain(2, seed=k)), numbers.tolist()


@pytest.mark.on_the_cpu
def test_thread_local_values_are_those_of_the_calling_thread():
    local = threading.local()
    compiled = aotcheck.aot_function(lambda x: x * local.factor)

    def work(factor):
        local.factor = factor
        return [compiled(plain(3)) for _ in range(3)]

    for factor in (2, 3, 2):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            found = pool.submit(work, factor).result()
        assert all(torch.equal(y, plain(3) * factor) for y in found)


DRAWS = {
    "random": lambda: lambda x: x * random.random(),
    "numpy": lambda: lambda x: x * float(np.random.rand()),
    "of its own": lambda: functools.partial(lambda own, x: x * own.random(), random.Random(3)),
    "of numpy": lambda: functools.partial(lambda own, x: x * float(own.random()), np.random.default_rng(3)),
    "a method": lambda: (lambda draw: lambda x: x * draw())(random.Random(3).random),
    "count": lambda: (lambda numbers: lambda x: x * next(numbers))(itertools.count()),
    "generator": lambda: (lambda numbers: lambda x: x * next(numbers))(k * k for k in range(9)),
    "iterator": lambda: (lambda numbers: lambda x: x * next(numbers))(iter([3, 1, 2, 4, 5])),
}


@pytest.mark.filterwarnings("ignore:aotcheck")
@pytest.mark.parametrize("draws", DRAWS.values(), ids=DRAWS)
@session
def test_random_numbers_and_iterators_advance_on_every_call(compile, draws):
    random.seed(3)
    np.random.seed(3)
    compiled = compile(draws())
    for _ in range(3):
        yield compiled(plain(3))
    yield random.random(), float(np.random.rand())
