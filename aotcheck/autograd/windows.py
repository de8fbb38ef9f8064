"""Windows on memory that ops give and that autograd, or the op's schema, does not call views."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from aotcheck import _torch
from aotcheck.autograd.trace import Geometry, geometry_of


@dataclasses.dataclass(frozen=True)
class Derivation:
    """How a tensor that shares memory with ``source`` was made: ``op`` gave it, as result ``index`` if of several.

    ``source_version`` is the version of ``source`` then, ``source_geometry`` where it lay, ``grad`` the grad mode.
    """

    tensor: Tensor
    source: Tensor
    source_version: int
    source_geometry: Geometry
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None
    grad: bool

    @property
    def intact(self) -> bool:
        """Whether neither was written since, so that the op repeated now gives the same history."""
        return _torch.version_of(self.source) == self.source_version and _torch.version_of(self.tensor) == 0

    @property
    def source_stays(self) -> bool:
        """Whether the source still lies where it lay."""
        return geometry_of(self.source) == self.source_geometry

    @property
    def current(self) -> bool:
        """Whether the memory was not written since, as far as versions tell: autograd keeps the history it has."""
        return _torch.version_of(self.source) == self.source_version

    def replay(self, source: Tensor) -> Tensor:
        """The op again on ``source``."""
        out = self.op(source, *self.args, **self.kwargs)
        result: Tensor = out if self.index is None else out[self.index]
        return result


def check_bounds(t: Tensor) -> None:
    """Real tensors may not reach beyond their storage; meta ones may."""
    g = geometry_of(t)
    if 0 not in g.shape and g.elements_reached * g.dtype.itemsize > t.untyped_storage().nbytes():
        raise RuntimeError(
            f"as_strided of {g.shape} with strides {g.stride} at offset {g.offset} is out of bounds of its storage"
        )


def shares_storage(out: Any, source: Tensor) -> bool:
    """Whether an op gave a window on its argument although its schema does not say so."""
    first = (
        out
        if isinstance(out, Tensor)
        else next((o for o in out if isinstance(o, Tensor)), None)
        if isinstance(out, (list, tuple))
        else None
    )
    return first is not None and _torch.storage_address(first.untyped_storage()) == _torch.storage_address(
        source.untyped_storage()
    )
