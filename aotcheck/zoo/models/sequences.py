"""Networks over sequences; a size is the batch's or the sequence's, as the schedule says."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck.backends import Promise
from aotcheck.zoo.model import Compiled, Kind, Place, Program, Schedule, model
from aotcheck.zoo.recipes import supervised

WORDS = 11


class Block(nn.Module):
    """A layer of a decoder: causal attention, then a feed-forward network, each behind a norm."""

    def __init__(self, width: int = 8, heads: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.forwards = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` is (batch, time, width)."""
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).flatten(2)), self.dropout, self.training)
        return x + self.forwards(self.norm_2(x))


class Decoder(nn.Module):
    """A small language model."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(WORDS, 8), nn.Embedding(16, 8)
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, WORDS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """``ids`` is (batch, time)."""
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def texts(place: Place, shapes: Sequence[tuple[int, int]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of (ids, the ids that follow), (batch, time) each."""
    whole = [torch.randint(0, WORDS, (n, t + 1)) for n, t in shapes]
    return place([(ids[:, :-1], ids[:, 1:].contiguous()) for ids in whole])


@model(Kind.SEQUENCES, Schedule.GROWING_SEQUENCE, at_most=2)
def decoder_language_model(place: Place, sizes: Sequence[int]) -> Program:
    """A transformer decoder with causal attention, on texts that grow."""
    net = place(Decoder())
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    return supervised(net, texts(place, [(3, t) for t in sizes]), optimizer=optimizer)


@model(Kind.SEQUENCES, at_most=2)
def encoder_padding_mask(place: Place, sizes: Sequence[int]) -> Program:
    """torch's encoder with a mask for what is padding, and the mean over what is not."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, 8, padding_idx=0), nn.Linear(8, 3)
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            padding = ids == 0
            x = self.encoder(self.embed(ids), src_key_padding_mask=padding).masked_fill(padding[..., None], 0.0)
            return self.head(x.sum(1) / (~padding).sum(1, keepdim=True))

    batches = []
    for n in sizes:
        ids = torch.randint(1, WORDS, (n, 5))
        for row in range(n):
            ids[row, 5 - row :] = 0
        batches.append((ids, torch.arange(n) % 3))
    return supervised(place(Classifier()), place(batches))


@model(Kind.SEQUENCES, at_most=2, needs={Promise.COMPLEX})
def rotary_attention_with_lengths(place: Place, sizes: Sequence[int]) -> Program:
    """Rotary positions by complex products, and a mask that is made from lengths."""

    class Attention(nn.Module):
        rotations: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 3)
            angles = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1, 0.01, 0.001]))
            self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles), persistent=False)

        def rotate(self, x: torch.Tensor) -> torch.Tensor:
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
            return torch.view_as_real(pairs * self.rotations[: x.shape[1]]).flatten(-2)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            mask = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
            score = self.rotate(q) @ self.rotate(k).mT / x.shape[-1] ** 0.5
            score = score.masked_fill(~mask[:, None, :], torch.finfo(score.dtype).min)
            return self.out((score.softmax(-1) @ v)[:, 0])

    batches = [((torch.randn(n, 6, 8), 6 - torch.arange(n)), torch.arange(n) % 3) for n in sizes]
    return supervised(place(Attention()), place(batches))


class _Recurrent(nn.Module):
    def __init__(self, rnn: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"embed": nn.Embedding(WORDS, 6), "rnn": rnn(6, 6, num_layers=2)})
        self.head = nn.Linear(6, WORDS)

    def forward(self, ids: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        hidden, state = self.parts["rnn"](self.parts["embed"](ids), state)
        return self.head(hidden), state


def _detached(state: Any) -> Any:
    return tuple(map(_detached, state)) if isinstance(state, tuple) else state.detach()


def _carried(net: nn.Module, place: Place, sizes: Sequence[int]) -> Program:
    """Truncated backpropagation through time: the state of one stretch of text is the start of the next."""
    place(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    carried: list[Any] = []

    def step(call: Compiled, batch: Any) -> Any:
        ids, wanted = batch
        optimizer.zero_grad()
        output, state = call(ids, _detached(carried.pop())) if carried else call(ids)
        loss = F.cross_entropy(output.flatten(0, 1), wanted.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        carried.append(state)
        return loss, output, state

    batches = [(torch.randint(0, WORDS, (t, 2)), torch.randint(0, WORDS, (t, 2))) for t in sizes]
    return Program(net, step, place(batches), {"net": net})


@model(Kind.SEQUENCES, Schedule.STATIC, at_most=2, needs={Promise.GUARDS})
def lstm_language_model(place: Place, sizes: Sequence[int]) -> Program:
    """An LSTM within a dictionary of modules, its state carried over from text to text."""
    return _carried(_Recurrent(nn.LSTM), place, sizes)


@model(Kind.SEQUENCES, Schedule.GROWING_SEQUENCE, at_most=3)
def gru_language_model(place: Place, sizes: Sequence[int]) -> Program:
    """A GRU whose state is carried over, on texts that grow."""
    return _carried(_Recurrent(nn.GRU), place, sizes)


@model(Kind.SEQUENCES, Schedule.STATIC, at_most=1)
def bidirectional_tagger(place: Place, sizes: Sequence[int]) -> Program:
    """A bidirectional LSTM with dropout between its layers; every word has a class."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(WORDS, 4)
            self.rnn = nn.LSTM(4, 3, num_layers=2, dropout=0.2, bidirectional=True, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(self.embed(ids))[0])

    batches = [(torch.randint(0, WORDS, (n, 5)), torch.randint(0, 3, (n, 5))) for n in sizes]
    return supervised(place(Tagger()), place(batches))


@model(Kind.SEQUENCES, at_most=2)
def mixture_of_experts(place: Place, sizes: Sequence[int]) -> Program:
    """Each expert gets the rows that are routed to it, by their indices: how many is known from data alone."""

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight, chosen = self.gate(x).softmax(-1).topk(2)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                row, slot = torch.where(chosen == i)
                out.index_add_(0, row, expert(x[row]) * weight[row, slot, None])
            return out

    batches = [(torch.randn(2 * n, 4), torch.randn(2 * n, 4)) for n in sizes]
    return supervised(place(Mixture()), place(batches), F.mse_loss)


@model(Kind.SEQUENCES, at_most=2)
def mixture_with_capacity(place: Place, sizes: Sequence[int]) -> Program:
    """A switch layer: positions within each expert by a cumulative sum, one product for all experts."""

    class Switch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.weight = nn.Linear(4, 3), nn.Parameter(torch.randn(3, 4, 4) / 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            probability, chosen = self.gate(x).softmax(-1).max(-1)
            one_hot = F.one_hot(chosen, 3)
            position = (one_hot.cumsum(0) * one_hot).sum(-1) - 1
            kept = position < 3
            slot = chosen * 3 + position.clamp_max(2)
            buffer = x.new_zeros(9, 4).index_add(0, slot, x * kept[:, None])
            done = torch.bmm(buffer.view(3, 3, 4), self.weight).view(9, 4)
            return done[slot] * (probability * kept)[:, None]

    batches = [(torch.randn(2 * n, 4), torch.randn(2 * n, 4)) for n in sizes]
    return supervised(place(Switch()), place(batches), F.mse_loss)


@model(Kind.SEQUENCES, at_most=2)
def mask_that_is_looked_at_unless_compiling(place: Place, sizes: Sequence[int]) -> Program:
    """Masks as libraries make them: a mask that hides nothing is dropped, unless the function is being compiled."""

    class Pool(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            if torch.compiler.is_compiling() or not bool(mask.all()):
                y = y.masked_fill(~mask[..., None], 0.0)
            return y.mean(1)

    batches = [((torch.randn(n, 5, 4), torch.ones(n, 5, dtype=torch.bool)), torch.arange(n) % 3) for n in sizes]
    return supervised(place(Pool()), place(batches))


@model(Kind.SEQUENCES, Schedule.MANY_LENGTHS, at_most=2)
def many_lengths(place: Place, sizes: Sequence[int]) -> Program:
    """A small network on sequences, each of a length of its own."""

    class Scan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.linear(x), -1).cumsum(0).mean(0)

    batches = [(torch.randn(t, 4), torch.randn(4)) for t in sizes]
    return supervised(place(Scan()), place(batches), F.mse_loss)


@model(Kind.SEQUENCES, at_most=2, needs={Promise.COMPLEX})
def fourier_mixing(place: Place, sizes: Sequence[int]) -> Program:
    """An FFT network: mixing by a Fourier transform, and a filter learned for each frequency."""

    class Fourier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filter = nn.Parameter(torch.randn(5, 4, 2) / 4)
            self.norm, self.forwards, self.head = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.norm(x + torch.fft.fft2(x).real)
            frequencies = torch.fft.rfft(x, dim=1, norm="ortho") * torch.view_as_complex(self.filter)
            x = x + torch.fft.irfft(frequencies, n=x.shape[1], dim=1, norm="ortho")
            return self.head(F.gelu(self.forwards(x)).mean(1))

    batches = [(torch.randn(n, 8, 4), torch.arange(n) % 3) for n in sizes]
    return supervised(place(Fourier()), place(batches))


@model(Kind.SEQUENCES, at_most=2, needs={Promise.COMPLEX})
def speech_by_spectrograms(place: Place, sizes: Sequence[int]) -> Program:
    """Magnitudes of a short-time Fourier transform, then the CTC loss on what is heard in each frame."""

    class Speech(nn.Module):
        window: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Conv1d(9, WORDS, 3, padding=1)
            self.register_buffer("window", torch.hann_window(16))

        def forward(self, wave: torch.Tensor) -> torch.Tensor:
            spectrum = torch.stft(wave, 16, 8, window=self.window, center=False, return_complex=True)
            return self.head(torch.log1p(spectrum.abs())).permute(2, 0, 1).log_softmax(-1)

    def loss(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        heard = torch.full((scores.shape[1],), scores.shape[0], dtype=torch.long)
        spoken = torch.full((len(wanted),), wanted.shape[1], dtype=torch.long)
        return F.ctc_loss(scores, wanted, heard, spoken)

    batches = [(torch.randn(n, 80), torch.randint(1, WORDS, (n, 3))) for n in sizes]
    return supervised(place(Speech()), place(batches), loss)
