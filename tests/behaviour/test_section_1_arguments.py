"""BEHAVIOUR 1: what a compiled function is given: arguments of all kinds, and what it reaches by itself."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch

from tests.behaviour.harness import backward, check, check_session, given, leaf, plain

# -- arguments ---------------------------------------------------------------------------------------


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: given({"a": leaf(3), "b": [plain(3, seed=1), leaf(3, seed=2)]}),
        lambda: given(OrderedDict(b=leaf(3), a=(plain(3, seed=1), None, 2))),
        lambda: given(Point(leaf(3), plain(3, seed=1))),
        lambda: given([leaf(3), [leaf(3, seed=1), [2.5, None, True, "x"]]]),
    ],
    ids=["dict", "ordered dict", "named tuple", "nested lists"],
)
def test_nested_arguments(make):
    def f(tree):
        leaves = torch.utils._pytree.tree_leaves(tree)
        total = 0
        for x in leaves:
            if isinstance(x, (torch.Tensor, int, float)):
                total = total + x * 2
        return {"total": total, "tree": tree}

    check(f, make)


def test_keyword_arguments():
    def session(compile):
        f = compile(lambda x, *, y, n=2: (x * y * n, y))
        for more in ({}, {"n": 3}, {"n": plain(3, seed=4)}):
            x, y = leaf(3), leaf(3, seed=1)
            out = f(x, y=y, **more)
            backward([out[0]])
            yield x, y, out

    check_session(session)


@pytest.mark.parametrize("nest", [lambda size: size, lambda size: [size], lambda size: {"size": (1, size)}])
def test_sizes_stay_sizes(nest):
    def f(x, size=None, nested=None):
        given = size if size is not None else nested[0]
        return x.new_ones(given).sum() * given.numel(), nest(x.shape), given

    def session(compile):
        compiled, x = compile(f), leaf(2, 3)
        yield compiled(x, torch.Size((2, 2)))
        yield compiled(x, size=torch.Size((4,)))
        yield compiled(x, nested=[torch.Size(()), 2])
        yield compiled(x, nested=[torch.Size((5,)), 2])

    check_session(session)


def test_a_function_without_tensors():
    check(lambda n: n + 1, lambda: given(2), lambda: given(3))


def test_a_function_without_arguments():
    check(lambda: torch.ones(3), lambda: given())


def test_a_generator_as_an_argument(device: str):
    def session(compile):
        generator = torch.Generator(device).manual_seed(3)
        f = compile(lambda n, g: torch.rand(n, generator=g, device=device))
        yield f(3, generator), generator.get_state()
        yield f(3, generator), generator.get_state()

    check_session(session)


def test_an_entry_written_into_a_dict_argument_reaches_the_caller():
    def f(d):
        d["new"] = d["x"] * 2
        d["x"] = d["x"] + 1
        return d["new"] * 3

    check(f, lambda: given({"x": leaf(3)}))


def test_containers_of_the_caller_keep_their_identity():
    def f(d, xs, *, named):
        d["in"]["xs"] = xs
        xs.append(d["x"] * 2)
        xs.append([d["in"], 3])
        del d["gone"]
        named["y"] = named.pop("x") + 1
        return xs[1], d, [xs]

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            d, xs, named = {"x": leaf(3), "in": OrderedDict(), "gone": 1}, [plain(2)], {"x": plain(3, seed=1)}
            out = compiled(d, xs, named=named)
            yield (
                out[0],
                list(d),
                named,
                xs[2][1],
                out[1] is d,
                out[2][0] is xs,
                d["in"]["xs"] is xs,
                xs[2][0] is d["in"],
            )

    check_session(session)


def test_a_container_passed_twice_is_not_taken_for_two():
    def session(compile):
        f = compile(lambda a, b: (len(a), len(b), a[0] * b[0]))
        xs, ys = [plain(3)], [plain(3, seed=1)]
        yield f(xs, ys)
        yield f(xs, xs)

    check_session(session)


def test_a_generator_from_a_closure(device: str):
    def session(compile):
        generator = torch.Generator(device).manual_seed(3)

        def f(x):
            x.uniform_(generator=generator)
            return x + torch.bernoulli(torch.full_like(x, 0.5), generator=generator)

        compiled = compile(f)
        for _ in range(2):
            x = plain(3)
            yield compiled(x), x, generator.get_state()

    check_session(session)


def test_an_element_appended_to_a_list_argument_reaches_the_caller():
    def f(xs):
        xs.append(xs[0] * 2)

    check(f, lambda: given([leaf(3)]))


@pytest.mark.parametrize("kind", ["part", "shrunk", "swapped"])
def test_the_caller_sees_all_of_what_he_is_given_a_part_of(kind: str):
    def f(xs):
        whole = torch.full((4,), 2.0)
        part = whole[2:] if kind == "part" else whole.chunk(2)[0] if kind == "swapped" else whole.resize_(2)
        whole.zero_() if kind == "shrunk" else whole[:1].zero_()
        if kind == "swapped":
            del whole
            torch.utils.swap_tensors(xs[0], part)
        else:
            xs.append(part)

    def session(compile):
        compiled = compile(f)
        for _ in range(2):
            xs = [plain(3)]
            compiled(xs)
            storage = xs[-1].untyped_storage()
            whole = torch.empty(0).set_(storage, 0, (storage.nbytes() // 4,), (1,))
            yield xs, whole if kind != "shrunk" else storage.nbytes()

    check_session(session)


# -- closures ----------------------------------------------------------------------------------------


def test_a_tensor_from_a_closure_is_read_on_every_call():
    def session(compile):
        w = plain(3, seed=1)
        f = compile(lambda x: x * w)
        for _ in range(2):
            yield f(plain(3)), w
            w.add_(1)

    check_session(session)


def test_a_tensor_from_a_closure_is_differentiated():
    def session(compile):
        w = leaf(3, seed=1)
        f = compile(lambda x: x * w)
        for _ in range(2):
            x = leaf(3)
            out = f(x)
            yield out
            backward([out])
            yield x, w

    check_session(session)


def test_a_tensor_from_a_closure_is_mutated():
    def session(compile):
        count = plain(3, seed=1)

        def f(x):
            count.add_(x)
            return count * 2

        compiled = compile(f)
        for _ in range(3):
            yield compiled(plain(3)), count

    check_session(session)


def test_a_name_in_a_closure_is_bound_to_another_tensor():
    def session(compile):
        w = leaf(3, seed=1)
        f = compile(lambda x: x * w)
        yield f(plain(3)), w
        w = leaf(3, seed=2)
        out = f(plain(3))
        backward([out])
        yield out, w

    check_session(session)


def test_a_tensor_from_a_closure_that_aliases_an_argument():
    def session(compile):
        w = plain(4, seed=1)

        def f(x):
            x.add_(1)
            return w * 2

        compiled = compile(f)
        yield compiled(w[1:3]), w
        yield compiled(plain(2)), w

    check_session(session)


def test_a_tensor_from_a_closure_that_is_returned():
    def session(compile):
        w = leaf(3, seed=1)
        yield compile(lambda x: (x * 2, w, w.view(-1)))(leaf(3)), w

    check_session(session)


def test_a_tensor_from_a_closure_starts_to_require_grad():
    def session(compile):
        w = plain(3, seed=1)
        f = compile(lambda x: x * w)
        yield f(plain(3)), w
        w.requires_grad_()
        out = f(plain(3))
        backward([out])
        yield out, w

    check_session(session)
