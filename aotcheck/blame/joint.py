"""The rung of the joint graph: the gradients that the trace holds, against eager's."""

import dataclasses
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from aotcheck import _torch
from aotcheck.autograd.backward.stage import Stage
from aotcheck.autograd.backward.tangents import inputs_of
from aotcheck.autograd.record.record import Attached
from aotcheck.autograd.record.steps import Arg, BaseOf, RegisterHook
from aotcheck.blame.describe import name
from aotcheck.blame.runs import EagerCall, Question, edge
from aotcheck.blame.specimen import Key, Specimen, dense
from aotcheck.oracle.raised import raised
from aotcheck.oracle.undefined import PLAIN, undefined_memory
from aotcheck.oracle.values import Agreement, compare_values
from aotcheck.program import Scene


@dataclasses.dataclass(frozen=True)
class Tried:
    """A backward that was tried: the tensors of a stage that have tangents, the tangents, eager's gradients by input
    (None where there is none), or what eager raised."""

    stage: Stage
    key: Key
    tangents: tuple[Tensor, ...]
    eager: dict[Arg | BaseOf, Tensor | None] | None
    error: str


def judge_joint(question: Question) -> str:
    """The gradients that the trace holds, against eager's."""
    specimen, exact = question.specimen, question.reference.exact
    caller = Caller(question)
    for tried in caller.backwards():
        try:
            values = specimen.gradients(tried.stage, tried.key)
        except Exception as error:  # eager's own, or the sign of a wrong trace
            if tried.eager is not None:
                return f"tracing the backward of {roots_of(tried)} {raised(error)}, eager's raises nothing"
            continue
        if tried.eager is None and tried.stage.cut_nodes:  # what raises may lie behind them
            continue
        if tried.eager is None:
            return f"eager's backward of {roots_of(tried)} {tried.error}, tracing it raises nothing"
        live = dict(zip(inputs_of(tried.stage.tangents[j] for j in tried.key), tried.tangents, strict=True))
        done = specimen.interpret(live)
        if done.raised is not None:
            return f"the backward of {roots_of(tried)} {done.raised}"
        arrived = caller.arrived([done.dense(v) for v in values])
        for source, expected in tried.eager.items():
            text = differing(expected, arrived[source], exact)
            if text:
                return f"gradient of {_input(specimen, source)} from {roots_of(tried)}: {text}"
    return ""


class Caller:
    """The caller's side of a call: eager's run of it, stopped when the call is over.

    Note [Gradients that go on]
    An input may be computed from another. Autograd is asked for the gradients of all of them at once, and what arrives
    at one goes on, in the caller's graph, to the other; the trace knows of no such path. Nor does a stage know what
    lies behind the cuts that it hangs on. So the trace's gradients are sent through eager's graph, from where they
    arrive, before they are compared.
    """

    def __init__(self, question: Question) -> None:
        specimen, reference = question.specimen, question.reference
        self.specimen = specimen
        judged = question.differentiated and specimen.assembly is not None and question.eager.raised is None
        judged = judged and not specimen.wrapped
        self.stages = specimen.opened.stages if judged else []
        if not self.stages:
            return
        with undefined_memory(PLAIN):
            run = EagerCall(reference.program, reference.device, question.call)
        scene = run.scenes[-1]
        self.eager = _counterparts(specimen, scene)
        self.edges: dict[Arg | BaseOf, list[GradientEdge]] = {}
        for root in specimen.capture.roots:
            name = _input(specimen, root.source)
            if name in run.edges and root.requires_grad:
                self.edges[root.source] = [run.edges[name]]
                later = edge(scene.inputs[name]) if _torch.leafness(scene.inputs[name]) is True else None
                if later is not None and later.node is not run.edges[name].node:
                    self.edges[root.source].append(later)
        self.views = [run.edges.get(_input(specimen, Arg(a.index))) for a in specimen.capture.views]
        self.cuts = [self.eager.get(id(c.tensor)) for c in specimen.capture.cuts]

    def backwards(self) -> Iterator[Tried]:
        """Eager's gradients for tangents of small integers: of each stage, from all its tensors and from each alone.

        Not from those on which the function registered a hook: the runtime does that, which the trace does not know.
        """
        if not self.stages:
            return
        hooked = {s.target for s in self.specimen.capture.record.all_steps if isinstance(s, RegisterHook)}
        for stage in self.stages:
            if any(t is None and k in stage.reached for k, t in self._cut_targets(stage)):
                continue  # what it hangs on cannot be found in eager's run
            known = [j for j, a in enumerate(stage.attached) if id(a.tensor) in self.eager and a.ref not in hooked]
            for key in dict.fromkeys([tuple(known), *[(j,) for j in known]]):
                if key:
                    yield self._tried(stage, key)

    def _cut_targets(self, stage: Stage) -> list[tuple[int, Tensor | None]]:
        first = len(stage.targets) - len(self.cuts)
        return [(first + k, t) for k, t in enumerate(self.cuts)]

    def _tried(self, stage: Stage, key: Key) -> Tried:
        outputs = [self.eager[id(stage.attached[j].tensor)] for j in key]
        tangents = tuple(_tangent(t, j + 1) for j, t in zip(key, outputs, strict=True))
        try:
            return Tried(stage, key, tangents, self._gradients(outputs, tangents), "")
        except Exception as error:  # eager refuses this backward
            return Tried(stage, key, tangents, None, str(raised(error)))

    def arrived(self, gradients: Sequence[Tensor | None]) -> dict[Arg | BaseOf, Tensor | None]:
        """What arrives at each input in the end if the call gives its targets these gradients: see Note [Gradients
        that go on].
        """
        roots = [self.edges.get(root.source, [None])[0] for root in self.specimen.capture.roots]
        cuts = [edge(t) if t is not None else None for t in self.cuts]
        between = [None] * (len(gradients) - len(roots) - len(self.views) - len(cuts))
        ends = [*roots, *between, *self.views, *cuts]
        given = [(e, g) for e, g in zip(ends, gradients, strict=True) if e is not None and g is not None]
        return self._gradients([e for e, _ in given], [g for _, g in given])

    def share(self, one: Attached, other: Attached) -> bool:
        """Whether eager refuses a backward from ``other`` after one from ``one`` that has freed its graph.

        Either is to be asked of a caller of its own.
        """
        outputs = [self.eager[id(a.tensor)] for a in (one, other)]
        self._gradients(outputs[:1], [_tangent(outputs[0], 1)], retain_graph=False)
        try:
            self._gradients(outputs[1:], [_tangent(outputs[1], 1)], retain_graph=False)
        except RuntimeError as error:
            return "second time" in str(error)
        return False

    def _gradients(
        self, outputs: Sequence[Tensor] | Sequence[GradientEdge], tangents: Sequence[Tensor], retain_graph: bool = True
    ) -> dict[Arg | BaseOf, Tensor | None]:
        found: dict[Arg | BaseOf, Tensor | None] = dict.fromkeys(self.edges)
        wanted = [(source, e) for source, several in self.edges.items() for e in several]
        if wanted and outputs:
            gradients = torch.autograd.grad(
                outputs, [e for _, e in wanted], tangents, retain_graph=retain_graph, allow_unused=True
            )
            for (source, _), g in zip(wanted, gradients, strict=True):
                if g is not None:
                    before = found[source]
                    found[source] = dense(g) if before is None else before + dense(g)
        return found


def _tangent(t: Tensor, seed: int) -> Tensor:
    whole = (torch.arange(t.numel(), device=t.device) * 3 + seed) % 5 - 2
    return whole.reshape(t.shape).to(t.dtype)


def _counterparts(specimen: Specimen, scene: Scene) -> dict[int, Tensor]:
    """Eager's tensors by the id of the replica that stands for the same."""
    found: dict[int, Tensor] = {}
    replicas = specimen.replicas
    assert replicas is not None
    pairs = [(r, scene.inputs[name]) for name, r in replicas.inputs.items()]
    pairs += [(r, scene.outputs[name]) for name, r in replicas.outputs.items() if name in scene.outputs]
    for r, t in pairs:
        found.setdefault(id(r), t)
    with specimen.opened.backwards.rearmed():
        bases = [_torch.base_of(r) for r, _ in pairs]
    for base, (_, t) in zip(bases, pairs, strict=True):
        eager = _torch.base_of(t)
        if base is not None and eager is not None:
            found.setdefault(id(base), eager)
    return {key: t for key, t in found.items() if t.requires_grad}


def roots_of(tried: Tried) -> str:
    """The tensors that a backward begins at, in words."""
    return ", ".join(name(tried.stage.attached[j].ref) for j in tried.key)


def _input(specimen: Specimen, source: Arg | BaseOf) -> str:
    real = specimen.real_at_entry(source)
    return next((n for n, t in specimen.scene.inputs.items() if t is real), str(source))


def differing(eager: Tensor | None, found: Tensor | None, exact: bool) -> str:
    """How two gradients differ, or nothing."""
    if eager is None or found is None:
        return "" if eager is found else f"eager {_shown(eager)}, here {_shown(found)}"
    if (eager.shape, eager.dtype) != (found.shape, found.dtype):
        return f"eager {_shown(eager)}, here {_shown(found)}"
    compared = compare_values(eager, found, exact=exact)
    if compared.agreement is Agreement.DIFFERENT:
        return f"eager {compared.eager}, here {compared.compiled}"
    return ""


def _shown(t: Tensor | None) -> str:
    return "has none" if t is None else f"has one, {str(t.dtype)[6:]}{list(t.shape)}"
