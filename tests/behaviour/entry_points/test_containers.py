"""Lists, dicts, sets among the arguments (or captured) that the function writes; identity of containers."""

from collections import OrderedDict

import pytest
import torch

from tests.behaviour.harness import agrees, session
from tests.behaviour.inputs import given, leaf, plain, to_device


@agrees(lambda: given({"x": leaf(3)}))
def test_an_entry_written_into_a_dict_argument_reaches_the_caller(d):
    d["new"] = d["x"] * 2
    d["x"] = d["x"] + 1
    return d["new"] * 3


@session
def test_containers_of_the_caller_keep_their_identity(compile):
    def f(d, xs, *, named):
        d["in"]["xs"] = xs
        xs.append(d["x"] * 2)
        xs.append([d["in"], 3])
        del d["gone"]
        named["y"] = named.pop("x") + 1
        return xs[1], d, [xs]

    compiled = compile(f)
    for _ in range(2):
        d, xs, named = {"x": leaf(3), "in": OrderedDict(), "gone": 1}, [plain(2)], {"x": plain(3, seed=1)}
        out = compiled(d, xs, named=named)
        yield (out[0], list(d), named, xs[2][1], out[1] is d, out[2][0] is xs, d["in"]["xs"] is xs, xs[2][0] is d["in"])


@agrees(lambda: given([leaf(3)]))
def test_an_element_appended_to_a_list_argument_reaches_the_caller(xs):
    xs.append(xs[0] * 2)


@pytest.mark.parametrize("kind", ["part", "shrunk", "swapped"])
@session
def test_a_view_appended_to_a_list_argument_has_the_whole_storage_of_its_base(compile, kind: str):
    def f(xs):
        whole = to_device(torch.full((4,), 2.0))
        part = whole[2:] if kind == "part" else whole.chunk(2)[0] if kind == "swapped" else whole.resize_(2)
        whole.zero_() if kind == "shrunk" else whole[:1].zero_()
        if kind == "swapped":
            del whole
            torch.utils.swap_tensors(xs[0], part)
        else:
            xs.append(part)

    compiled = compile(f)
    for _ in range(2):
        xs = [plain(3)]
        compiled(xs)
        storage = xs[-1].untyped_storage()
        whole = to_device(torch.empty(0)).set_(storage, 0, (storage.nbytes() // 4,), (1,))
        yield xs, whole if kind != "shrunk" else storage.nbytes()
