"""Models of torchvision, timm and transformers: built small, with random weights, and trained as their users do.

Each is a line of ``libraries.toml``. A name is that of the library and of the model, ``timm.convmixer``. The libraries
come with the extra ``aotcheck[models]`` and are imported when a model of theirs is built. Nothing is downloaded.
"""

import importlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from aotcheck._torch import pytree
from aotcheck.zoo.model import Compiled, Kind, Place, Program, library_model

__all__ = ["ENTRIES", "Entry"]

_TABLE: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_SIDE, _CLASSES, _VOCABULARY, _LENGTH = 32, 5, 40, 8


def _tokens(n: int) -> torch.Tensor:
    return torch.randint(3, _VOCABULARY, (n, _LENGTH))


def _images(n: int) -> torch.Tensor:
    return torch.randn(n, 3, _SIDE, _SIDE)


def _lengths(n: int) -> torch.Tensor:
    return (torch.arange(_LENGTH) < torch.arange(_LENGTH, _LENGTH - n, -1)[:, None]).long()


_BATCHES: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "classes": lambda n: {"x": _images(n), "wanted": torch.randint(0, _CLASSES, (n,))},
    "pixels": lambda n: {"x": _images(n), "wanted": torch.randint(0, _CLASSES, (n, _SIDE, _SIDE))},
    "causal": lambda n: dict.fromkeys(("input_ids", "labels"), _tokens(n)),
    "padded": lambda n: {"input_ids": _tokens(n), "attention_mask": _lengths(n), "labels": _tokens(n)},
    "images": lambda n: {"pixel_values": _images(n), "labels": torch.randint(0, 2, (n,))},
    "image_text": lambda n: {"input_ids": _tokens(n), "pixel_values": _images(n), "return_loss": True},
    "spectrograms": lambda n: {"input_features": torch.randn(n, 8, 2 * _LENGTH), "labels": _tokens(n)},
    "waves": lambda n: {"input_values": torch.randn(n, 400), "labels": _tokens(n)[:, :2]},
}
"""Makes a batch with so many examples: what the model is called with and, as ``wanted``, what its results are held
against where the model computes no loss itself."""


@dataclass(frozen=True)
class Entry:
    """A line of the table.

    Args:
        library: where the constructor comes from.
        name: of the model.
        constructor: its name, as the table says.
        batch: what it is trained on, a key of `_BATCHES`.
        sizes: what the constructor or the configuration takes.
    """

    library: Kind
    name: str
    constructor: str
    batch: str
    sizes: dict[str, Any] = field(default_factory=dict)

    def net(self) -> nn.Module:
        """Build the module."""
        if self.library is Kind.TRANSFORMERS:
            configuration = part = {k: v for some in _TABLE["configuration"].values() for k, v in some.items()}
            if self.batch == "image_text":
                configuration = {**part, "text_config": part, "vision_config": part}
            model: Any = getattr(importlib.import_module("transformers"), self.constructor)
            return model(model.config_class(**configuration | self.sizes))
        if self.library is Kind.TIMM and "." not in self.constructor:
            timm: Any = importlib.import_module("timm")
            return timm.create_model(self.constructor, num_classes=_CLASSES, **self.sizes)
        module, _, name = f"{self.library.value}.models.{self.constructor}".rpartition(".")
        backbone = {"weights_backbone": None} if self.batch == "pixels" else {}
        return getattr(importlib.import_module(module), name)(num_classes=_CLASSES, **backbone, **self.sizes)

    def __call__(self, place: Place, sizes: Sequence[int]) -> Program:
        """Build the program: a step calls the module, differentiates the loss and lets SGD step."""
        net = place(self.net().train())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

        def step(call: Compiled, batch: dict[str, Any]) -> Any:
            optimizer.zero_grad()
            if "wanted" in batch:
                output = call(batch["x"])
                loss = sum((F.cross_entropy(y, batch["wanted"]) for y in pytree.tree_leaves(output)), torch.zeros(()))
            else:
                output = call(**batch)
                loss = output.loss
            loss.backward()
            optimizer.step()
            return {"loss": loss, "output": output}

        batches = [place(_BATCHES[self.batch](n)) for n in sizes]
        return Program(net, step, batches, {"net": net, "optimizer": optimizer})


ENTRIES = tuple(
    Entry(library, name, constructor, batch, *sizes)
    for library in (Kind.TORCHVISION, Kind.TIMM, Kind.TRANSFORMERS)
    for name, (constructor, batch, *sizes) in _TABLE[library.value].items()
)
"""The table."""

for _entry in ENTRIES:
    library_model(_entry.library, _entry.name, _entry, f"{_entry.constructor}, trained on '{_entry.batch}'.")
