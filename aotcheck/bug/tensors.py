"""How the tensors of a call are made, in plain torch."""

import math
from collections.abc import Iterator

from aotcheck.bug.choices import Choices
from aotcheck.program import Inputs, Storage, Strided

__all__ = ["Makers", "contiguous", "literal"]

_MOST_NUMBERS = 8
"""So many numbers may be written out, where fewer words will do for more."""

_INFERRED = {"float32": float, "int64": int, "bool": bool, "complex64": complex}
"""The dtypes that torch gives literals."""


def contiguous(size: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(math.prod(size[k + 1 :]) for k in range(len(size)))


def _numbers(storage: Storage) -> list[object]:
    if storage.dtype.startswith("complex"):
        pairs = zip(storage.data[::2], storage.data[1::2], strict=True)
        return [complex(a, b) for a, b in pairs]
    if storage.dtype == "bool":
        return [bool(n) for n in storage.data]
    if storage.dtype.startswith(("float", "bfloat")):
        return [float(n) for n in storage.data]
    return list(storage.data)


def literal(numbers: list[object], size: tuple[int, ...]) -> str:
    """Nested lists of numbers; a number for a tensor without dimensions."""

    def show(number: object) -> str:
        if isinstance(number, complex):
            return f"{number.real:g} + {number.imag:g}j" if number.imag >= 0 else f"{number.real:g} - {-number.imag:g}j"
        return f"{number:.1f}" if isinstance(number, float) and number == int(number) else repr(number)

    if not size:
        return show(numbers[0])
    step = len(numbers) // size[0] if size[0] else 0
    parts = (literal(numbers[k * step : (k + 1) * step], size[1:]) for k in range(size[0]))
    return f"[{', '.join(parts)}]"


class Makers:
    """The lines that make a call's tensors.

    Args:
        inputs: with readable names.
        choices: how to write what can be written in several ways.
        device: where the tensors live; empty for the CPU.
        prefix: what choices are called by, of this call.
    """

    def __init__(self, inputs: Inputs, choices: Choices, device: str, prefix: str) -> None:
        self.inputs, self.choices, self.prefix = inputs, choices, prefix
        self._device = [f'device="{device}"'] if device else []
        self._storages = {s.name: s for s in inputs.storages}

    def lines(self) -> Iterator[str]:
        """One for each tensor, in order, and one for memory that cannot be made together with a tensor."""
        first: dict[str, Strided] = {}
        for t in self.inputs.tensors:
            storage = self._storages[t.storage]
            if t.storage in first:
                yield f"{t.name} = {self._on(t, storage, first[t.storage].name)}"
                continue
            first[t.storage] = t
            yield f"{t.name} = {self._made(t, storage)}"

    def _made(self, t: Strided, storage: Storage) -> str:
        """The first tensor on its memory."""
        numbers = _numbers(storage)
        held = math.prod(t.size)
        whole = t.dtype == storage.dtype and t.offset == 0 and _dense(t)
        if whole and held == len(numbers):
            return self._factory(t.name, t.size, t.dtype, numbers, t.requires_grad)
        flat = self._factory(f"{t.name} memory", (len(numbers),), storage.dtype, numbers, False)
        ways = [self._set(t, f"{flat}.untyped_storage()")]
        if t.dtype == storage.dtype:
            ways.insert(0, f"{flat}.as_strided({t.size}, {t.stride}, {t.offset}){_grad(t)}")
            # The same numbers without the memory around them.
            ways.insert(0, self._factory(t.name, t.size, t.dtype, _shown(t, numbers), t.requires_grad))
        return self.choices.among(f"{self.prefix}{t.name} strides", ways)

    def _on(self, t: Strided, storage: Storage, first: str) -> str:
        """A further tensor on the memory of ``first``."""
        base = next(one for one in self.inputs.tensors if one.name == first)
        ways = [self._set(t, f"{first}.untyped_storage()")]
        if base.dtype != t.dtype:
            ways.insert(0, f"{first}.detach().view(torch.{t.dtype}){_grad(t)}")
        else:
            like = (t.size, t.stride, t.offset) == (base.size, base.stride, base.offset)
            plain = f"{first}.detach()"
            ways.insert(0, (plain if like else f"{plain}.as_strided({t.size}, {t.stride}, {t.offset})") + _grad(t))
        return self.choices.among(f"{self.prefix}{t.name} strides", ways)

    def _set(self, t: Strided, storage: str) -> str:
        options = [] if t.dtype == "float32" else [f"dtype=torch.{t.dtype}"]
        empty = f"torch.empty({', '.join(['0', *options, *self._device])})"
        return f"{empty}.set_({storage}, {t.offset}, {t.size}, {t.stride}){_grad(t)}"

    def _factory(self, name: str, size: tuple[int, ...], dtype: str, numbers: list[object], trained: bool) -> str:
        """A contiguous tensor of its own."""
        grad = ["requires_grad=True"] if trained else []
        options = ([] if dtype == "float32" else [f"dtype=torch.{dtype}"]) + self._device + grad
        sizes = ", ".join(map(str, size)) if size else "()"
        if not any(numbers):
            return f"torch.zeros({', '.join([sizes, *options])})"
        if all(number == 1 for number in numbers):
            return f"torch.ones({', '.join([sizes, *options])})"
        known = _INFERRED.get(dtype)
        inferred = [o for o in options if not (known and o.startswith("dtype="))]
        exact = f"torch.tensor({', '.join([literal(numbers, size), *inferred])})"
        if len(numbers) <= _MOST_NUMBERS:
            return exact
        if dtype == "bool" or dtype.startswith("complex"):
            return self.choices.among(
                f"{self.prefix}{name} numbers", [f"torch.ones({', '.join([sizes, *options])})", exact]
            )
        end = f"{len(numbers)}.0" if isinstance(numbers[0], float) else str(len(numbers))
        counted = [o for o in options if o != "requires_grad=True" and not (known and o.startswith("dtype="))]
        shape = "" if len(size) == 1 else f".reshape({sizes})"
        counting = f"torch.arange({', '.join([end, *counted])}){shape}{'.requires_grad_()' if trained else ''}"
        return self.choices.among(f"{self.prefix}{name} numbers", [counting, exact])


def _grad(t: Strided) -> str:
    return ".requires_grad_()" if t.requires_grad else ""


def _dense(t: Strided) -> bool:
    wanted = contiguous(t.size)
    return 0 in t.size or all(n == 1 or s == w for n, s, w in zip(t.size, t.stride, wanted, strict=True))


def _shown(t: Strided, numbers: list[object]) -> list[object]:
    """The numbers that ``t`` shows of its memory, in order."""
    places = [t.offset]
    for n, step in zip(t.size, t.stride, strict=True):
        places = [place + k * step for place in places for k in range(n)]
    return [numbers[place] for place in places]
