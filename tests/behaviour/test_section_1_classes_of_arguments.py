"""BEHAVIOUR 1: what methods of arguments find around them: variables, what their classes have and keep."""

from __future__ import annotations

import dataclasses
import types
import typing

import torch

from tests.behaviour.harness import check_session, leaf, plain


def test_a_method_reads_and_writes_what_is_around_it():
    def session(compile):
        config, seen = {"factor": 2}, []

        class Batch:
            def __init__(self, x):
                self.x = x

            def scaled(self, y):
                seen.append(y.shape)
                config["calls"] = config.get("calls", 0) + 1
                return self.x * y * config["factor"]

        g = compile(lambda batch, y: batch.scaled(y))
        for k in range(5):
            if k == 3:
                config["factor"] = 5
            yield g(Batch(plain(3, seed=k)), plain(3)), seen, config

    check_session(session)


def test_a_method_of_a_named_tuple():
    def session(compile):
        config = types.SimpleNamespace(factor=2)

        class Pair(typing.NamedTuple):
            x: torch.Tensor
            y: torch.Tensor

            def scaled(self):
                return self.x * self.y * config.factor

        g = compile(lambda pair: pair.scaled())
        for k in range(4):
            config.factor = 2 + k // 2
            x = leaf(3, seed=k)
            g_x = g(Pair(x, plain(3)))
            g_x.sum().backward()
            yield g_x, x

    check_session(session)


def test_attributes_of_the_class():
    def session(compile):
        class Batch:
            factor, made = 2, 0

            def __init__(self, x):
                self.x = x
                type(self).made += 1

            def scaled(self):
                return type(self)(self.x * self.factor)

        class Other(Batch):
            factor = 3

        g = compile(lambda batch: batch.scaled())
        for k in range(8):
            if k == 4:
                Batch.factor = 7
            result = g((Batch, Other)[k % 2](plain(3, seed=k)))
            yield result.x, Batch.made, Other.made, type(result).__name__

    check_session(session)


def test_a_property_that_keeps_what_it_made_in_the_class():
    def session(compile):
        class Batch:
            kept: dict = {}  # noqa: RUF012  # is what this is about

            def __init__(self, x):
                self.x = x

            @property
            def first(self):
                if "first" not in Batch.kept:
                    Batch.kept["first"] = self.x * 2
                return Batch.kept["first"]

        g = compile(lambda batch: batch.first + batch.x)
        for k in range(3):
            yield g(Batch(plain(3, seed=k))), Batch.kept

    check_session(session)


def test_objects_within_other_arguments():
    def session(compile):
        count = {"n": 1}

        @dataclasses.dataclass
        class Item:
            x: torch.Tensor

            def next(self):
                count["n"] += 1
                return self.x * count["n"]

        g = compile(lambda d: sum(item.next() for item in d["items"]))
        for k in range(4):
            yield g({"items": [Item(plain(3, seed=k)), Item(plain(3))]}), count

    check_session(session)
