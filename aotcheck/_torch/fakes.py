"""Fake tensors."""

from __future__ import annotations

import collections
import functools
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode

from aotcheck._torch.dispatch import META, make_subclass

_throw_on_data = torch._C._set_throw_on_mutable_data_ptr
_warn_on_data = torch._C._set_warn_deprecated_on_mutable_data_ptr


class Fakes:
    """Makes FakeTensors of one mode: with the attributes that torch gives one on their device."""

    def __init__(self) -> None:
        self.mode = _new_mode()
        self._attributes: dict[torch.device, dict[str, Any]] = {}
        self._guard = _warn_on_data if self.mode._allow_unsafe_data_ptr_access else _throw_on_data

    def from_meta(self, elem: Tensor, device: torch.device) -> Tensor:
        """A FakeTensor on the meta tensor ``elem``, which requires no grad, as if on ``device``."""
        attributes = self._attributes.get(device)
        if attributes is None:
            attributes = self._attributes[device] = {**_attributes_of_fakes(device), "fake_mode": self.mode}
        fake = make_subclass(FakeTensor, elem, device_for_backend_keys=attributes[_FAKE_DEVICE])
        self._guard(fake)
        fake.__dict__.update(attributes)
        return fake


_FAKE_DEVICE = "_fake_device" if isinstance(getattr(FakeTensor, "fake_device", None), property) else "fake_device"
"""Where a FakeTensor has its device: behind a property from torch 2.12 on, in an attribute before."""

_CONTAINERS = (list, dict, set, collections.deque)


@functools.lru_cache(64)
def _attributes_of_fakes(device: torch.device) -> dict[str, Any]:
    """What a FakeTensor on ``device`` has in its dictionary, but for its mode."""
    fake = FakeTensor(_new_mode(), torch.empty(0, device=META), device)
    return {k: v for k, v in vars(fake).items() if k != "fake_mode"}


_CONVERTER = "fake_tensor_converter"


class _Mode(FakeTensorMode):
    """A mode that makes its converter when it is first asked for it."""

    def __getattr__(self, name: str) -> Any:
        if name != _CONVERTER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        converter = FakeTensorConverter(copy_data=self.propagate_real_tensors)
        self.__dict__[_CONVERTER] = converter
        return converter


@functools.cache
def _attributes_of_mode() -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Those that all modes have in common, and the classes of those that are containers."""
    attributes = vars(FakeTensorMode(allow_non_fake_inputs=True)).items()
    common = [(k, v) for k, v in attributes if type(v) not in _CONTAINERS and k != _CONVERTER]
    return common, [(k, type(v)) for k, v in attributes if type(v) in _CONTAINERS]


def _new_mode() -> FakeTensorMode:
    """A mode as its constructor makes it, but that it does not remember from where: that takes longer than all else."""
    common, containers = _attributes_of_mode()
    mode: FakeTensorMode = object.__new__(_Mode)
    mode.__dict__.update(common)
    for name, kind in containers:
        mode.__dict__[name] = kind()
    return mode
