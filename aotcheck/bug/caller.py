"""What a caller does with a function, in plain torch: makes tensors, calls it, differentiates, writes, looks.

The program is run eagerly meanwhile: which tensors a step of its plan is about is known only then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from aotcheck.bug.choices import Choices
from aotcheck.bug.names import named_inputs
from aotcheck.bug.statements import CannotBeWrittenError, Spelling
from aotcheck.bug.steps import cotangents_of, differentiation, hook_lines, probe_lines
from aotcheck.bug.tensors import Makers
from aotcheck.minimize.edit import renamed
from aotcheck.oracle.execute import Observation, Run, identity
from aotcheck.oracle.kinds import Phase, Place
from aotcheck.program import Backward, BuiltCall, Call, GradMode, Hook, Program, Scene, Step, flat_calls
from aotcheck.program.called.objects import OBJECTS
from aotcheck.program.data.model import Around, DictExpr, Expr, Fill, Graph, ListExpr, TupleExpr, Way
from aotcheck.program.running.harness import leaves, suited
from aotcheck.program.source.emit import show_expr

__all__ = ["SEED", "Caller", "Chunk"]

SEED = "torch.manual_seed(0)"

_AROUND = {
    Around.AUTOCAST: "torch.autocast({device!r}, torch.bfloat16)",
    Around.ANOMALY: "torch.autograd.set_detect_anomaly(True, check_nan=False)",
    Around.SAVED_TENSORS: "torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)",
    Around.NO_GRAD: "torch.no_grad()",
}
_MODES = {GradMode.ENABLED: (), GradMode.NO_GRAD: ("torch.no_grad()",), GradMode.INFERENCE: ("torch.inference_mode()",)}


@dataclass
class Chunk:
    """The lines of one step, and whether eager raises in it."""

    lines: list[str]
    raises: bool = False


@dataclass
class _Names:
    """How a call's tensors are called in the script."""

    inputs: dict[str, str]
    output: str = "out"
    results: str = "grads"
    hooks: list[tuple[str, int]] = field(default_factory=list)
    containers: dict[int, str] = field(default_factory=dict)


class Caller(Run):
    """Runs a program eagerly up to one step, and writes down what it does; ``chunks`` is that, a step each.

    Args:
        program: with readable names in its function.
        spelling: of that program.
        choices: how to write what can be written in several ways.
        device: where it runs.
        until: the step after which the difference shows; None for the last one.
    """

    def __init__(
        self, program: Program, spelling: Spelling, choices: Choices, device: torch.device, until: Place | None
    ) -> None:
        super().__init__(program, identity, device)
        self.spelling, self.choices = spelling, choices
        self._wanted = None if until is None else (until.call, until.phase, until.nth, until.steps)
        self.chunks: list[Chunk] = []
        self.names: list[_Names] = []
        self.draws = False
        self._pending: list[str] = []
        self._seen: list[tuple[str, int]] = []
        self._apart = any(isinstance(s, Backward) and s.calls_ago for c in program.calls for s in c.steps)
        self._grown: list[int] = []
        self._cotangents: dict[int, str] = {}

    def write(self) -> Observation:
        """Do it; what eager shows after the last step.

        Raises:
            CannotBeWrittenError: eager does not come so far, or something on the way has no form in plain torch.
        """
        last = None
        for last in self.observations():
            if last.step == self._wanted:
                return last
        if last is not None and self._wanted is None:
            return last
        raise CannotBeWrittenError("eager does not come to the step at which the difference was seen")

    # -- one call

    def build(self, index: int, previous: BuiltCall | None) -> BuiltCall:
        """Write how the arguments of a call are made."""
        given = self.program.calls[index].inputs
        if given is None:
            earlier = self.names[-1]
            self.names.append(_Names(earlier.inputs, containers=earlier.containers))
        else:
            suffix = self._suffix(index)
            inside = [name for call in flat_calls(self.program.body) for name in call.targets]
            inputs, names = named_inputs(given, self.program.params, suffix, inside)
            device = "" if self.device.type == "cpu" else str(self.device)
            lines = list(Makers(inputs, self.choices, device, f"call {index} ").lines())
            lines += self.spelling.statements(inputs.derived)
            containers = {}
            for k, arg in enumerate(inputs.args):
                for made in _objects(arg):
                    self.spelling.define(made)
                if _is_mutable(arg):
                    containers[k] = f"{self.program.params[k]}{suffix}"
                    lines.append(f"{containers[k]} = {show_expr(arg)}")
            self.names.append(_Names(names, containers=containers))
            self.chunks.append(Chunk(lines))
        self.names[-1].output += self._suffix(index)
        return super().build(index, previous)

    def _suffix(self, index: int) -> str:
        """What tells the names of a call from those of the calls before, where those are needed still."""
        return f"{index + 1}" if self._apart and index else ""

    def call(self, call: Call) -> Iterator[Observation]:
        """Write the call, then what follows."""
        names = self.names[-1]
        given = next(c.inputs for c in reversed(self.program.calls[: len(self.scenes)]) if c.inputs is not None)
        args = [names.containers.get(k, show_expr(renamed(arg, names.inputs))) for k, arg in enumerate(given.args)]
        line = f"{names.output} = {_called(call, args, self.scenes[-1])}"
        contexts = (*_MODES[call.grad_mode], *self._contexts(call.around))
        self._call_lines = [SEED, *_within(contexts, [line])]
        yield from super().call(call)

    def forward(self, scene: Scene) -> object:
        """Call the function."""
        self._pending = self._call_lines
        return super().forward(scene)

    def step(self, made: Step, scene: Scene) -> Observation:
        """Write a step, then make it."""
        names = self.names[self.scenes.index(scene)]
        self._pending = self._step_lines(made, scene, names)
        return super().step(made, scene)

    def look(self, step: Any, phase: Phase, scene: Scene) -> Observation:
        """Take down the step that was made."""
        self.chunks.append(Chunk(self._pending, step.error is not None))
        self._pending = []
        self._grown = [len(one) for one in self.hooks]
        seen = super().look(step, phase, scene)
        self.draws = self.draws or not torch.equal(seen.generators[0], _seeded())
        if seen.step != self._wanted:
            self._seen = [(name, count + n) for (name, count), n in zip(self._seen, self._grown, strict=True)]
        return seen

    def _contexts(self, around: Sequence[Around]) -> tuple[str, ...]:
        return tuple(_AROUND[one].format(device=self.device.type) for one in around if one in _AROUND)

    # -- steps

    def _step_lines(self, made: Step, scene: Scene, names: _Names) -> list[str]:
        if isinstance(made, Backward):
            return self._backward(made, scene, names)
        for t in scene.side(made.site.value)[made.index :][:1]:
            if isinstance(made, Hook):
                name = self.name_of(t, scene, names)
                lines, seen = hook_lines(made.kind, t, name, len(self._seen), self.choices)
                self._seen.append((seen, 0))
                return lines
            part = f"probe {len(self.chunks)}"
            factor = f"g{len(scene.cotangents)}"
            self._cotangents[len(scene.cotangents)] = factor
            return probe_lines(made, t, self.name_of(t, scene, names), factor, part, self.choices)
        return []

    def _backward(self, made: Backward, scene: Scene, names: _Names) -> list[str]:
        roots = scene.roots(made.of.value)
        roots = [roots[k] for k in made.roots if k < len(roots)]
        wanted = scene.wanted()
        if made.inputs is not None:
            wanted = [wanted[k] for k in made.inputs if k < len(wanted)]
        accumulates = made.way is Way.ACCUMULATE
        if not roots or not (wanted or (accumulates and made.inputs is None)):
            return []
        part = f"backward {len(self.chunks)}"
        shown = [self._root(t, made, scene, names) for t in roots]
        options = []
        if made.inputs is not None or not accumulates:
            options.append(f"[{', '.join(self.name_of(t, scene, names) for t in wanted)}]")
        if made.graph is not Graph.FREED:
            options += ["retain_graph=True"] if made.graph is Graph.RETAINED else []
            options += ["create_graph=True"] if made.graph in (Graph.CREATED, Graph.CREATED_FREED) else []
            options += ["retain_graph=False"] if made.graph is Graph.CREATED_FREED else []
        if made.way is Way.RETURN:
            options.append("allow_unused=True")
        fills = [made.cotangents[min(k, len(made.cotangents) - 1)] for k in range(len(roots))]
        trained = [k for k, one in enumerate(fills) if one.fill is Fill.TRAINED]
        first = len(scene.cotangents)
        bound = {k: f"g{first + n}" for n, k in enumerate(trained)}
        self._cotangents |= {first + n: f"g{first + n}" for n in range(len(trained))}
        before, seeds = cotangents_of(roots, shown, fills, bound, part, self.choices)
        line = differentiation(shown, roots, seeds, options, accumulates, part, self.choices)
        if not accumulates:
            line = f"{names.results} = {line}"
        return [*before, *_within(self._contexts(made.around), [line])]

    def _root(self, t: torch.Tensor, made: Backward, scene: Scene, names: _Names) -> str:
        if made.of.value != "penalty":
            return self.name_of(t, scene, names)
        results = f"sum((g * g).sum() for g in {names.results} if g is not None)"
        outputs = [t for t in scene.outputs.values() if t.requires_grad]
        return " + ".join([results, *(f"{self.name_of(t, scene, names)}.sum()" for t in outputs)])

    # -- names

    def name_of(self, t: torch.Tensor, scene: Scene, names: _Names) -> str:
        """How the script calls a tensor."""
        for name, one in scene.inputs.items():
            if one is t:
                return names.inputs[name]
        for name, one in scene.outputs.items():
            if one is t:
                return f"{names.output}{name.removeprefix('output')}"
        for name, one in leaves(scene.args, "argument")[1].items():
            if one is t:
                return self.named(name)
        for name, one in scene.inputs.items():
            if one.grad is t:
                return f"{names.inputs[name]}.grad"
        for k, one in enumerate(scene.results):
            if one is t:
                return f"{names.results}[{k}]"
        raise CannotBeWrittenError("a step is about a tensor that has no name in a script")

    def named(self, name: str) -> str:
        """How the script calls what the oracle calls ``name``, after the last step."""
        names = self.names[-1]
        root = name.partition("[")[0].partition(".")[0]
        rest = name[len(root) :]
        if root in names.inputs:
            return names.inputs[root] + rest
        if root == "output":
            return names.output + rest
        if root == "result":
            return names.results + rest
        if root == "hook":
            which, n = (int(part.rstrip("]")) for part in rest.removeprefix("[").split("[")[:2])
            called, before = self._seen[which]
            return f"{called}[{before + n}]"
        if root == "cotangent":
            place, _, inner = rest.removeprefix("[").partition("]")
            return f"{self._cotangents[int(place)]}{inner}"
        if root == "argument":
            place, _, inner = rest.removeprefix("[").partition("]")
            if int(place) in names.containers:
                return names.containers[int(place)] + inner
        raise CannotBeWrittenError(f"{name} has no name in a script")

    def hook(self, name: str) -> str:
        """How the script calls the list of what a hook was called with."""
        return self._seen[int(name.removeprefix("hook[").rstrip("]"))][0]


def _objects(arg: Expr) -> list[type]:
    """The classes of the objects in an argument."""
    if isinstance(arg, DictExpr) and arg.of:
        return [OBJECTS[arg.of]]
    inner = [item for _, item in arg.items] if isinstance(arg, DictExpr) else getattr(arg, "items", ())
    return [made for item in inner for made in _objects(item)]


def _called(call: Call, args: Sequence[str], scene: Scene) -> str:
    """The call of the function, under its transform."""
    name = next((one.value for one in call.around if one not in _AROUND), "")
    k, given = suited(name, scene.args), ", ".join(args)
    if name == "vmap":
        return f"torch.func.vmap(f, {tuple(0 if n == k else None for n in range(len(args)))})({given})"
    if name == "jacrev":
        return f"torch.func.jacrev(f, {k})({given})"
    if name == "jvp":
        inner = ", ".join("t" if n == k else arg for n, arg in enumerate(args))
        return f"torch.func.jvp(lambda t: f({inner}), ({args[k]},), (torch.ones_like({args[k]}),))"
    return f"f({given})"


def _is_mutable(arg: Expr) -> bool:
    if isinstance(arg, TupleExpr):
        return any(_is_mutable(item) for item in arg.items)
    return isinstance(arg, ListExpr | DictExpr)


def _within(contexts: Sequence[str], lines: list[str]) -> list[str]:
    """Lines in ``with`` blocks."""
    if not contexts:
        return lines
    return [f"with {', '.join(contexts)}:", *(f"    {line}" for line in lines)]


def _seeded() -> torch.Tensor:
    """The state of the generator when a call begins."""
    generator: Callable[[], torch.Generator] = torch.Generator
    return generator().manual_seed(0).get_state()
