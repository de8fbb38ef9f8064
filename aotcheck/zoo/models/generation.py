"""Texts made word by word, with caches of keys and values; a size is that of a prompt. Nothing is trained."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck.backends import Promise
from aotcheck.zoo.model import Compiled, Kind, Place, Program, Schedule, model
from aotcheck.zoo.models.sequences import WORDS, Decoder

_MADE = 6


class _Attention(nn.Module):
    """One layer with one head; keys and values of words before come from the caller."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(WORDS, 4), nn.Linear(4, 12), nn.Linear(4, WORDS)

    def project(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values of some words."""
        return self.qkv(self.embed(ids)).chunk(3, -1)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Scores of the next word."""
        return self.head((q[:, -1:] @ k.mT).softmax(-1) @ v)[:, -1]


def _prompts(place: Place, sizes: Sequence[int]) -> list[torch.Tensor]:
    return place([torch.randint(0, WORDS, (1, t)) for t in sizes])


@model(Kind.GENERATION, Schedule.GROWING_SEQUENCE, at_most=4)
def generation_with_cached_tensors(place: Place, sizes: Sequence[int]) -> Program:
    """Keys and values of all words before are arguments and results, longer by one with each word."""

    class Cached(_Attention):
        def forward(self, ids: torch.Tensor, past: Any = None) -> tuple[torch.Tensor, Any]:
            q, k, v = self.project(ids)
            if past is not None:
                k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
            return self.attend(q, k, v), (k, v)

    net = place(Cached())

    @torch.no_grad()
    def step(call: Compiled, ids: torch.Tensor) -> Any:
        past, seen = None, []
        for _ in range(_MADE):
            scores, past = call(ids, past) if past is not None else call(ids)
            ids = scores.argmax(-1)[:, None]
            seen.append(scores)
        return seen, past

    return Program(net, step, _prompts(place, sizes), {"net": net})


class _Layer:
    """Keys of a layer, in attributes that the first call makes."""

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None
        self.ready = False

    def update(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.ready:
            self.keys, self.values, self.ready = k.new_zeros(0), v.new_zeros(0), True
        assert self.keys is not None and self.values is not None
        self.keys = torch.cat([self.keys.reshape(1, -1, k.shape[-1]), k], 1)
        self.values = torch.cat([self.values.reshape(1, -1, v.shape[-1]), v], 1)
        return self.keys, self.values


class _Cache:
    """A cache as libraries have it: layers are added when they are first used."""

    def __init__(self) -> None:
        self.layers: list[_Layer] = []

    def update(self, index: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        while len(self.layers) <= index:
            self.layers.append(_Layer())
        return self.layers[index].update(k, v)


@model(Kind.GENERATION, Schedule.STATIC, at_most=4, needs={Promise.PYTREES})
def generation_with_a_cache_object(place: Place, sizes: Sequence[int]) -> Program:
    """An object made anew for each generation holds keys and values; the model writes its attributes."""

    class WithCache(_Attention):
        def forward(self, ids: torch.Tensor, cache: _Cache) -> torch.Tensor:
            q, k, v = self.project(ids)
            return self.attend(q, *cache.update(0, k, v))

    net = place(WithCache())

    @torch.no_grad()
    def step(call: Compiled, ids: torch.Tensor) -> Any:
        cache, seen = _Cache(), []
        for _ in range(_MADE):
            seen.append(call(ids, cache=cache))
            ids = seen[-1].argmax(-1)[:, None]
        return seen, cache.layers[0].keys, len(cache.layers)

    return Program(net, step, _prompts(place, sizes), {"net": net})


@model(Kind.GENERATION, Schedule.STATIC, at_most=3, needs={Promise.MUTATION})
def generation_at_a_position(place: Place, sizes: Sequence[int]) -> Program:
    """Caches of full length are written in place at a position that is a Python number."""

    class AtPosition(_Attention):
        def forward(self, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: int) -> torch.Tensor:
            q, k, v = self.project(ids)
            end = position + ids.shape[1]
            keys[:, position:end] = k
            values[:, position:end] = v
            return self.attend(q, keys[:, :end], values[:, :end])

    net = place(AtPosition())

    @torch.no_grad()
    def step(call: Compiled, ids: torch.Tensor) -> Any:
        weight = net.qkv.weight
        keys, values, position, seen = weight.new_zeros(1, 16, 4), weight.new_zeros(1, 16, 4), 0, []
        for _ in range(_MADE):
            seen.append(call(ids, keys, values, position))
            position += ids.shape[1]
            ids = seen[-1].argmax(-1)[:, None]
        return seen, keys, values

    return Program(net, step, _prompts(place, sizes), {"net": net})


@model(Kind.GENERATION, Schedule.STATIC, at_most=2, needs={Promise.MUTATION})
def generation_at_positions_in_a_tensor(place: Place, sizes: Sequence[int]) -> Program:
    """The same with positions in a tensor, ``index_copy_`` and a mask: no size changes after the prompt."""

    class StaticCache(_Attention):
        keys: torch.Tensor
        values: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 16, 4), persistent=False)
            self.register_buffer("values", torch.zeros(1, 16, 4), persistent=False)

        def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            q, k, v = self.project(ids)
            self.keys.index_copy_(1, positions, k)
            self.values.index_copy_(1, positions, v)
            seen = torch.arange(16, device=ids.device)[None, None] <= positions[-1]
            score = (q[:, -1:] @ self.keys.mT).masked_fill(~seen, float("-inf"))
            return self.head(score.softmax(-1) @ self.values)[:, -1]

    net = place(StaticCache())

    @torch.inference_mode()
    def step(call: Compiled, ids: torch.Tensor) -> Any:
        positions, seen = torch.arange(ids.shape[1], device=ids.device), []
        for _ in range(_MADE):
            seen.append(call(ids, positions))
            ids, positions = seen[-1].argmax(-1)[:, None], positions[-1:] + 1
        return [scores.clone() for scores in seen]

    return Program(net, step, _prompts(place, sizes), {"net": net})


@model(Kind.GENERATION, Schedule.STATIC, at_most=3, needs={Promise.RANDOM})
def sampling(place: Place, sizes: Sequence[int]) -> Program:
    """The whole text anew for each word, which is drawn from the few likeliest ones, at a temperature that falls."""
    net = place(Decoder(dropout=0.0)).eval()

    def next_word(ids: torch.Tensor, temperature: float) -> torch.Tensor:
        scores = net(ids)[:, -1] / temperature
        least = scores.topk(5).values[:, -1:]
        scores = torch.where(scores < least, float("-inf"), scores)
        return torch.multinomial(F.softmax(scores, -1), 1)

    @torch.no_grad()
    def step(call: Compiled, ids: torch.Tensor) -> Any:
        for n in range(_MADE):
            ids = torch.cat([ids, call(ids, 1.0 / (n + 1))], 1)
        return ids

    return Program(next_word, step, _prompts(place, sizes), {"net": net})
