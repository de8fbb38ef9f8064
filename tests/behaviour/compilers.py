"""The compiler that the behaviour tests check: ``pytest --compiler NAME`` chooses it.

Tests write ``from tests.behaviour.compilers import aotcheck`` in place of ``import aotcheck``, and then as ever
``aotcheck.aot_function``: the name stands for the module of the chosen compiler.

| name | what it is |
| --- | --- |
| ``first`` | the compiler of `aotcheck`, the default |
| ``second`` | the one that is being built beside it, ``aotcheck.autograd2`` |
| ``eager`` | compiles nothing: what fails with it looks at graphs, at counters or at what only a compiler refuses |
| ``refusing`` | refuses every call: with it each test shows what an ``UnsupportedError`` makes of it |
| ``faulty:NAME`` | eager but for one planted fault of `tools.faulty`: a test should fail with it |
"""

import copy
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

first = importlib.import_module("aotcheck")
importlib.import_module("aotcheck.autograd")  # before a test binds the `apply` of a custom Function, see docs/limits.md

KEPT = {"refusing", "second"}
"""Those whose refusals the ledger keeps."""

Function = Callable[..., Any]


class Uncompiled:
    """Entry points that give a function to ``change`` in place of compiling it; all else is the first compiler's."""

    def __init__(self, change: Callable[[Function], Function]) -> None:
        self.change = change

    def aot_function(self, function: Function, *_: Any, **__: Any) -> Function:
        return self.change(function)

    def aot_module(self, module: torch.nn.Module, *_: Any, **__: Any) -> torch.nn.Module:
        module.forward = self.change(module.forward)
        return module

    compiled_function = aot_module_simplified = aot_function
    compiled_module = aot_module

    def __getattr__(self, name: str) -> Any:
        return getattr(first, name)


class Second:
    """The second compiler; what it does not have is the first one's."""

    def __init__(self) -> None:
        self.module = importlib.import_module("aotcheck.autograd2")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name, None) or getattr(first, name)


def refuse(*_: Any, **__: Any) -> NoReturn:
    """What every function becomes where everything is refused."""
    raise first.UnsupportedError("everything", "this compiler refuses each call")


def faulty(name: str) -> Uncompiled:
    """The planted fault of that name."""
    return Uncompiled(importlib.import_module("tools.faulty").FAULTS[name].compile)


class Chosen:
    """Stands for the module of the chosen compiler."""

    def __init__(self) -> None:
        self.choose("first")

    def choose(self, name: str) -> None:
        """Takes the compiler of that name."""
        kind, _, of_it = name.partition(":")
        match kind:
            case "first":
                self.module: Any = first
            case "second":
                self.module = Second()
            case "eager":
                self.module = Uncompiled(lambda function: function)
            case "refusing":
                self.module = Uncompiled(lambda function: refuse)
            case "faulty":
                self.module = faulty(of_it)
            case _:
                raise ValueError(f"no compiler is called {name}: first, second, eager, refusing, faulty:NAME")
        self.name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


aotcheck = Chosen()


@dataclass
class Recorder:
    """The compilers of a test: they interpret each graph, keep it, and hold it to what every graph must be."""

    forwards: list[torch.fx.GraphModule] = field(default_factory=list)
    backwards: list[torch.fx.GraphModule] = field(default_factory=list)

    @property
    def graphs(self) -> list[torch.fx.GraphModule]:
        return [*self.forwards, *self.backwards]

    def _accept(self, graph: torch.fx.GraphModule, examples: Sequence[Any]) -> None:
        assert isinstance(graph, torch.fx.GraphModule)
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        assert len(placeholders) == len(examples)
        aotcheck.assert_functional(graph)
        graph.graph.lint()
        tidied = copy.deepcopy(graph)
        tidied.graph.eliminate_dead_code()
        tidied.recompile()
        tidied.graph.lint()

    def forward(self, graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Function:
        self._accept(graph, examples)
        self.forwards.append(graph)
        return graph

    def backward(self, graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Function:
        self._accept(graph, examples)
        self.backwards.append(graph)
        return graph

    def compile(self, target: Any) -> Any:
        """``aot_module`` of a module, ``aot_function`` of anything else."""
        entry = aotcheck.aot_module if isinstance(target, torch.nn.Module) else aotcheck.aot_function
        return entry(target, fw_compiler=self.forward, bw_compiler=self.backward)


def backend() -> Any:
    """The chosen compiler as a backend of ``torch.compile``."""
    if isinstance(aotcheck.module, Uncompiled):
        return lambda graph, _: aotcheck.aot_function(graph)
    return "aotcheck"
