"""Fake tensors."""

from __future__ import annotations

import collections
import functools
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode

from aotcheck._torch.dispatch import make_subclass

_throw_on_data = torch._C._set_throw_on_mutable_data_ptr
_warn_on_data = torch._C._set_warn_deprecated_on_mutable_data_ptr


class Fakes:
    """Makes FakeTensors of one mode: the first on a device as torch does, others with the attributes that it got."""

    def __init__(self) -> None:
        self.mode = _new_mode()
        self._attributes: dict[torch.device, dict[str, Any]] = {}
        self._guard = _warn_on_data if self.mode._allow_unsafe_data_ptr_access else _throw_on_data

    def from_meta(self, elem: Tensor, device: torch.device) -> Tensor:
        """A FakeTensor on the meta tensor ``elem``, which requires no grad, as if on ``device``."""
        attributes = self._attributes.get(device)
        if attributes is None:
            attributes = self._attributes[device] = dict(vars(FakeTensor(self.mode, elem, device)))
        fake = make_subclass(FakeTensor, elem, attributes["_fake_device"])
        self._guard(fake)
        fake.__dict__.update(attributes)
        return fake


_CONTAINERS = (list, dict, set, collections.deque)


@functools.cache
def _first_mode() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True)


def _new_mode() -> FakeTensorMode:
    """A mode as its constructor makes it, but that it does not remember from where: that takes longer than all else."""
    like = _first_mode()
    mode: FakeTensorMode = object.__new__(FakeTensorMode)
    mode.__dict__.update({k: type(v)() if type(v) in _CONTAINERS else v for k, v in vars(like).items()})
    mode.fake_tensor_converter = FakeTensorConverter(copy_data=mode.propagate_real_tensors)
    return mode
