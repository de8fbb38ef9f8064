"""How often ops, modules, dtypes, layouts, sizes and idioms occur in models: the table of ``strategies:realistic``.

``python -W ignore -m tools.idiom_table`` writes strategies/realistic.json and says which ops the grammar lacks. Models
of the zoo and of installed libraries run eagerly. What a target calls is counted by the grammar's path, or else torch's
name; a module that the grammar has is one call. Shares are means over models, those of idioms are of models.
"""

import inspect
import re
import sys
import textwrap
from collections import Counter, defaultdict, deque
from importlib.util import find_spec
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import aotcheck.zoo.models  # noqa: F401  # registers
from aotcheck.program.running.memory import address
from aotcheck.zoo import MODELS, Model, Place
from aotcheck.zoo.model import LIBRARY_MODELS
from aotcheck.zoo.run import steps_of
from strategies.realistic import TABLE, path_of

_NAMES = {"__getitem__": "getitem", "__setitem__": "setitem", "__invert__": "bitwise_not", "__and__": "logical_and"}
_NAMES |= {"__or__": "logical_or", "__rtruediv__": "reciprocal", "__rdiv__": "reciprocal", "__rsub__": "rsub"}
_NAMES |= {"multiply": "mul", "subtract": "sub", "concat": "cat", "divide": "div", "truediv": "div"}
_CONTEXTS = {
    inspect.unwrap(checkpoint).__code__: "checkpoint",
    torch.autocast.__enter__.__code__: "autocast",
    torch.no_grad.__enter__.__code__: "no_grad",
}
_EVENTS = {"backward": "b", "optimizer": "o", "backward inside": "B", "optimizer inside": "O", "accumulation": "bbo"}


def path(function: Any) -> str:
    """The grammar's path of what torch calls, torch's name where the grammar has none; empty for attributes."""
    name = (resolve_name(function) or "").replace("torch.Tensor.", "Tensor.").replace("torch.functional.", "torch.")
    if not name or name.endswith((".__get__", ".__set__")):
        return path_of(name.removesuffix(".__get__")) or ""
    space, _, last = name.rpartition(".")
    last, in_place = _NAMES.get(last, last), ""
    if last.startswith("__"):
        last = last.strip("_")
        in_place = "_" * (last.startswith("i") and hasattr(torch.Tensor, f"{last[1:].replace('truediv', 'div')}_"))
        last = last[1:] if in_place or (last.startswith("r") and hasattr(torch, last[1:])) else last
    name = last if last in ("getitem", "setitem") else f"{space}.{_NAMES.get(last, last)}{in_place}"
    return path_of(name) or name


def _tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def _module_path(name: str) -> str:
    """That of a module in the grammar: Module.batch_norm of BatchNorm2d; empty where it has none."""
    made = "Module." + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.sub(r"\dd$", "", name)).lower()
    return made if path_of(made) == made else ""


def layout(t: torch.Tensor) -> str:
    """What its strides are."""
    if 0 in t.stride() or t.is_contiguous():
        return "contiguous" if t.is_contiguous() else "expanded"
    if t.ndim == 4 and t.is_contiguous(memory_format=torch.channels_last):
        return "channels-last"
    return "transposed" if sorted(t.stride(), reverse=True) != list(t.stride()) else "sliced"


class Trace(TorchFunctionMode):
    """Counts what one model does; ``events`` are backwards and optimizers' steps, those inside in capitals."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.inside, self.modules, self.events = False, list[str](), ""
        self.sizes, self.numbers, self.returned = list[Any](), list[Any](), list[torch.Tensor]()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a function, if it is in the grammar or returns a tensor."""
        result = function(*args, **(kwargs or {}))
        called = path(function)
        if called.endswith((".backward", ".autograd.grad")):
            self.events += "B" if self.inside else "b"
        elif called and self.inside and not any(self.modules) and (path_of(called) or _tensors(result)):
            self.counts["ops"][called] += 1
            self._see(_tensors((args, kwargs)))
        return result

    def _see(self, tensors: list[torch.Tensor]) -> None:
        self.counts["idioms"]["mask"] += len({t.dtype == torch.bool for t in tensors}) > 1
        for t in tensors:
            if t.layout is torch.strided and not t.is_nested:
                self.counts["dtypes"][str(t.dtype).removeprefix("torch.")] += 1
                self.counts["layouts"][layout(t)] += 1
                self.counts["ranks"][str(t.ndim)] += 1
                self.counts["sizes"].update(str(min(n, 64)) for n in t.shape)

    def _enter(self, module: nn.Module, _: Any) -> None:
        name, built_in = type(module).__name__, type(module).__module__.startswith("torch.nn")
        called = _module_path(name) if built_in else ""
        if self.inside and not any(self.modules):
            self.counts["modules"][name] += built_in
            self.counts["ops"][called] += bool(called)
        self.modules.append(called)

    def _step(self, *_: Any) -> None:
        self.events += "O" if self.inside else "o"

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (found := _CONTEXTS.get(frame.f_code)):
            self.counts["idioms"][found] += found != "no_grad" or isinstance(frame.f_locals.get("self"), torch.no_grad)

    def _compile(self, target: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            given, tensors = tree_leaves((args, kwargs)), _tensors((args, kwargs))
            owned = [*target.parameters(), *target.buffers()] if isinstance(target, nn.Module) else []
            versions = [(t, t._version) for t in (*tensors, *owned) if not t.is_inference()]
            self._compare(given, tensors, owned)
            self.inside = True
            sys.setprofile(self._profile)
            result = target(*args, **kwargs)
            sys.setprofile(None)
            self.inside = False
            self.returned += _tensors(result)
            idioms, places = self.counts["idioms"], [address(t) for t in _tensors(result)]
            idioms["write to an input or a buffer"] += any(t._version != version for t, version in versions)
            idioms["view of an input returned"] += any(address(t) in places for t in tensors if address(t))
            return result

        return call

    def _compare(self, given: list[Any], tensors: list[torch.Tensor], owned: list[torch.Tensor]) -> None:
        idioms, known = self.counts["idioms"], {id(t) for t in self.returned}
        numbers = [x for x in given if isinstance(x, int | float) and not isinstance(x, bool)]
        sizes = [tuple(t.shape) for t in tensors]
        objects = any(not isinstance(x, torch.Tensor) and type(x).__module__ != "builtins" for x in given)
        idioms["wrapper"] += any(type(t) not in (torch.Tensor, nn.Parameter) for t in (*tensors, *owned))
        idioms["cache"] += objects or any(id(t) in known for t in tensors)
        if self.sizes:
            idioms["schedule"] += numbers != self.numbers
            idioms["other size"] += sizes != self.sizes
            idioms["smaller batch"] += any(map(lambda a, b: a[1:] == b[1:] and a[:1] < b[:1], sizes, self.sizes))
        self.numbers, self.sizes = numbers, sizes

    def run(self, model: Model) -> dict[str, Counter[str]]:
        """Make a model's steps; what was counted."""
        handles = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(lambda *_: self.modules.__delitem__(-1), always_call=True),
            register_optimizer_step_post_hook(self._step),
        ]
        with self:
            deque(steps_of(model, Place(), self._compile), maxlen=0)
        for handle in handles:
            handle.remove()
        for name, events in _EVENTS.items():
            self.counts["idioms"][name] += events in self.events
        return self.counts


def table(models: list[Model]) -> dict[str, dict[str, int]]:
    """Shares by section, rare ops left out."""
    shares: dict[str, Counter[str]] = defaultdict(Counter)
    for model in models:
        for section, counts in Trace().run(model).items():
            for name, count in (+counts).items():
                shares[section][name] += 1 if section == "idioms" else count / counts.total()  # type: ignore[assignment]  # typeshed: only int
    made: dict[str, dict[str, int]] = {}
    for section, counter in sorted(shares.items()):
        total = len(models) if section == "idioms" else counter.total()
        rounded = sorted((-round(10_000 * share / total), name) for name, share in counter.items())
        made[section] = {name: -share for share, name in rounded if -share >= (5 if section == "ops" else 1)}
    return made


def main() -> None:
    """Write the table."""
    libraries = [one for one in LIBRARY_MODELS.values() if find_spec(one.kind.value)]
    found = table([*MODELS.values(), *libraries])
    sections = [f'"about": "{len(MODELS)} models of the zoo, {len(libraries)} of libraries; shares per 10,000"']
    for section, shares in found.items():
        pairs = ", ".join(f'"{name}":{share}'.replace(" ", "\0") for name, share in shares.items())
        lines = "\n".join(textwrap.wrap(pairs, 118)).replace("\0", " ").replace('":', '": ')
        sections.append(f'"{section}": {{\n{lines}\n}}')
    TABLE.write_text("{\n" + ",\n".join(sections) + "\n}\n")
    lacking = [f"{name} ({share})" for name, share in found["ops"].items() if not path_of(name)]
    print(f"{sections[0]}\nThe grammar lacks {', '.join(lacking)}.")


if __name__ == "__main__":
    main()
