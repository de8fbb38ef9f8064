"""How often ops, modules, dtypes, layouts, sizes and idioms occur in the zoo: the table of ``strategies:realistic``.

Run as ``python -m tools.idiom_table``; writes strategies/realistic.json. Each model is run eagerly. What its target
calls is counted by the grammar's paths where the grammar has it, else by torch's name; a module that the grammar has is
one call. Shares are per 10,000, a mean over programs, so that no loop outweighs the rest.
"""

from __future__ import annotations

import json
import sys
import textwrap
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils.checkpoint import checkpoint

import aotcheck.zoo.models  # noqa: F401  # registers
from aotcheck._torch import pytree
from aotcheck.program.memory import address
from aotcheck.program.ops import ops
from aotcheck.zoo import MODELS, Model, Place
from aotcheck.zoo.run import steps_of

_PATHS = frozenset(op.path for op in ops())
_OPERATORS = {
    "__getitem__": "getitem",
    "__setitem__": "setitem",
    "__truediv__": "torch.div",
    "__invert__": "bitwise_not",
}
_NAMES = {"multiply": "mul", "subtract": "sub", "concat": "cat", "and": "logical_and", "rdiv": "reciprocal", "gt": "lt"}
_NAMES |= {"le": "ge", "max_pool2d": "max_pool2d", "rtruediv": "reciprocal", "rsub": "rsub"}
_MODULES = {
    nn.Linear: "Module.linear",
    nn.Conv2d: "Module.conv",
    nn.BatchNorm1d: "Module.batch_norm",
    nn.BatchNorm2d: "Module.batch_norm",
    nn.LayerNorm: "Module.layer_norm",
    nn.Embedding: "Module.embedding",
    nn.Dropout: "Module.dropout",
}
_CONTEXTS = {
    checkpoint.__code__.co_filename + ":checkpoint": "checkpoint",
    torch.autocast.__enter__.__code__.co_filename + ":__enter__": "autocast",
    torch.no_grad.__enter__.__code__.co_filename + ":__enter__": "no_grad",
}


def path_of(function: Any) -> str | None:
    """The grammar's path of what torch calls, torch's name where the grammar has none; None for a query."""
    name = resolve_name(function) or ""
    last = name.rsplit(".", 1)[-1]
    if not name or last in ("__get__", "__set__", "size", "dim", "numel", "__len__", "is_floating_point", "item"):
        attribute = name.removesuffix(".__get__").replace("torch.Tensor.", "Tensor.")
        return attribute if attribute in _PATHS else None
    if last in _OPERATORS and _OPERATORS[last] in _PATHS:
        return _OPERATORS[last]
    if last.startswith("__") and last.endswith("__"):
        last = last.strip("_")
        in_place = last.startswith("i") and f"Tensor.{last[1:]}_" in _PATHS
        last = f"{last[1:]}_" if in_place else last
        last = last[1:] if last.startswith("r") and f"torch.{last}" not in _PATHS else last
        last = "div" if last == "truediv" else last
    last = _NAMES.get(last, last)
    spaces = ("Tensor.", "torch.", "torch.nn.functional.", "torch.linalg.")
    own = name.replace("torch.Tensor.", "Tensor.").rsplit(".", 1)[0] + "."
    return next((space + last for space in (own, *spaces) if space + last in _PATHS), own + last)


def layout(t: torch.Tensor) -> str:
    """What its strides are."""
    if 0 in t.stride():
        return "expanded"
    if t.is_contiguous():
        return "contiguous"
    if t.ndim == 4 and t.is_contiguous(memory_format=torch.channels_last):
        return "channels-last"
    return "transposed" if sorted(t.stride(), reverse=True) != list(t.stride()) else "sliced"


class Trace(TorchFunctionMode):
    """Counts what one program does."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.inside, self.sizes, self.modules = False, set[Any](), list[str]()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a function."""
        path = path_of(function)
        if path in ("Tensor.backward", "torch.autograd.grad", "torch.autograd.backward"):
            self.counts["idioms"]["backward"] += 1
        elif path and self.inside and not any(self.modules):
            self.counts["ops"][path] += 1
            self.see(args)
        return function(*args, **(kwargs or {}))

    def see(self, args: Any) -> None:
        """Count the tensors of a call."""
        for t in pytree.tree_leaves(args):
            if isinstance(t, torch.Tensor) and t.layout is torch.strided and not t.is_nested:
                self.counts["dtypes"][str(t.dtype).removeprefix("torch.")] += 1
                self.counts["layouts"][layout(t)] += 1
                self.counts["ranks"][str(t.ndim)] += 1
                self.counts["sizes"].update(str(min(n, 64)) for n in t.shape)

    def enter(self, module: nn.Module, _: Any) -> None:
        """A module is called."""
        path = _MODULES.get(type(module), "")
        if self.inside and not any(self.modules):
            if type(module).__module__.startswith("torch.nn"):
                self.counts["modules"][type(module).__name__] += 1
            self.counts["ops"][path] += bool(path)
        self.modules.append(path)

    def leave(self, *_: Any) -> None:
        """A module has returned."""
        if self.modules:
            self.modules.pop()

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Count contexts."""
        if event == "call":
            found = _CONTEXTS.get(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
            if found and (found != "no_grad" or isinstance(frame.f_locals.get("self"), torch.no_grad)):
                self.counts["idioms"][found] += 1
                self.counts["ops"]["Inside.checkpointed"] += found == "checkpoint"

    def compile(self, target: Any) -> Any:
        """The target, counted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            given = pytree.tree_leaves((args, kwargs))
            tensors = [t for t in given if isinstance(t, torch.Tensor)]
            state = list(target.buffers()) if isinstance(target, nn.Module) else []
            versions = [(t, t._version) for t in (*tensors, *state) if not t.is_inference()]
            self.sizes.add(tuple(tuple(t.shape) for t in tensors))
            self.inside = True
            sys.setprofile(self.profile)
            try:
                result = target(*args, **kwargs)
            finally:
                sys.setprofile(None)
                self.inside = False
            returned = [address(t) for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
            idioms = self.counts["idioms"]
            idioms["write to an input or a buffer"] += any(t._version != version for t, version in versions)
            idioms["view of an input returned"] += any(address(t) in returned for t in tensors if address(t))
            idioms["call of another size"] += len(self.sizes) > 1
            return result

        return call


def trace(model: Model) -> dict[str, Counter[str]]:
    """What a model does."""
    seen = Trace()
    handles = [
        nn.modules.module.register_module_forward_pre_hook(seen.enter),
        nn.modules.module.register_module_forward_hook(seen.leave, always_call=True),
        register_optimizer_step_post_hook(lambda *_: seen.counts["idioms"].update(["optimizer"])),
    ]
    try:
        with seen:
            for _ in steps_of(model, Place(), seen.compile):
                pass
    finally:
        for handle in handles:
            handle.remove()
    return seen.counts


def table() -> dict[str, dict[str, int]]:
    """Shares by section, each per 10,000; idioms are of programs."""
    shares: dict[str, Counter[str]] = defaultdict(Counter)
    for model in MODELS.values():
        for section, counts in trace(model).items():
            for name, count in (+counts).items():
                shares[section][name] += 1 if section == "idioms" else count / counts.total()  # type: ignore[assignment]
    made: dict[str, dict[str, int]] = {}
    for section, counter in sorted(shares.items()):
        total = len(MODELS) if section == "idioms" else sum(counter.values())
        made[section] = {name: max(1, round(10_000 * share / total)) for name, share in counter.most_common()}
    return made


def main() -> None:
    """Write the table."""
    warnings.simplefilter("ignore")
    sections = []
    for section, shares in table().items():
        lines = textwrap.wrap(", ".join(json.dumps(k).replace(" ", "\0") + f":{v}" for k, v in shares.items()), 118)
        sections.append(f'"{section}": {{\n' + "\n".join(lines).replace("\0", " ").replace('":', '": ') + "\n}")
    path = Path(__file__).parent.parent / "strategies" / "realistic.json"
    path.write_text("{\n" + ",\n".join(sections) + "\n}\n")


if __name__ == "__main__":
    main()
