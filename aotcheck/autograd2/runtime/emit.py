"""emit: a signature becomes the straight Python code that runs at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotcheck import _torch2 as _torch
from aotcheck.autograd2.errors import GraphFailedError
from aotcheck.autograd2.ir.meta import Geometry
from aotcheck.autograd2.ir.signature import (
    Alias,
    Fresh,
    Given,
    Made,
    MetadataMutation,
    Mutation,
    Signature,
    Step,
    Written,
)
from aotcheck.autograd2.ir.size import symbols_in, text
from aotcheck.autograd2.ir.structure import Const, Leaf, ListOf, Sized, Structure, build
from aotcheck.autograd2.runtime.function import Runner, attach

__all__ = ["Attachment", "Call", "emit"]

Call = Callable[[Sequence[Tensor], Sequence[Any], Sequence[Any]], Any]
"""Takes the inputs in order, the containers of the call and its tables; returns the call's result."""


@dataclass(frozen=True)
class Attachment:
    """Results that get the history of a component, and the inputs to which its gradients flow."""

    runner: Runner
    results: tuple[int, ...]
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Modes:
    """Grad modes.

    Args:
        grad: whether grad mode is on as the call is made.
        records_grad: whether the graph must run with grad mode on, as a kernel in it then gives more.
        draws: whether the graph draws random numbers.
    """

    grad: bool
    records_grad: bool = False
    draws: bool = False


@dataclass(frozen=True)
class Symbolic:
    """Where the values of symbols come from.

    Args:
        reads: of which input, and which dimension, each symbol is the size.
        taken: those of which the graph takes the values, in order.
        defined: those whose values the graph returns last.
    """

    reads: Mapping[str, tuple[int, int]]
    taken: tuple[str, ...]
    defined: tuple[str, ...]


@dataclass
class _Source:
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)

    def add(self, line: str, indent: int = 1) -> None:
        self.lines.append("    " * indent + line)

    def bind(self, prefix: str, value: Any) -> str:
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name


def emit(
    signature: Signature,
    forward: Callable[..., Any],
    graph_inputs: Sequence[int | tuple[int, torch.dtype]],
    attachments: Sequence[Attachment],
    strides: Mapping[int, tuple[Any, ...]],
    modes: Modes,
    symbolic: Symbolic,
) -> tuple[Call, str]:
    """The function that runs at each call, and its source.

    Args:
        forward: computes results and saved tensors.
        graph_inputs: what it takes: inputs by position, or the whole storage of one in a dtype.
        attachments: results with a history.
        strides: results that must have other strides than the graph may give them.
        modes: in which the call is made, and the graph runs.
        symbolic: where the values of symbols come from.
    """
    s = _Source()
    s.names |= {
        "forward": forward, "attach": attach, "flat_of": flat_of, "no_grad": torch.no_grad, "build": build,
        "enable_grad": torch.enable_grad, "restrided": restrided, "set_grad": torch.set_grad_enabled,
        "raw_alias": raw_alias, "set_storage": set_storage, "empty": torch.empty, "inference": torch.inference_mode,
        "set_gradient": _torch.set_gradient, "GraphFailedError": GraphFailedError,
        "get_state": torch.random.get_rng_state, "set_state": torch.random.set_rng_state,
    }  # fmt: skip
    count, effects = len(signature.inputs), signature.effects
    s.add("def call(inputs, looked, tables):", 0)
    if count:
        s.add(f"({', '.join(f'a{k}' for k in range(count))},) = inputs")
    for m in effects.moved:
        if m.requires_grad:
            s.add(f"a{m.input}.requires_grad_()")
    for name, (k, d) in symbolic.reads.items():
        s.add(f"{name} = a{k}.size({d})")
    s.add(f"sizes = {{{', '.join(f'{name!r}: {name}' for name in symbolic.reads)}}}")
    grad = modes.grad
    detached = ".detach()" if grad and modes.records_grad else ""
    given = [
        f"a{i}{detached}" if isinstance(i, int) else f"flat_of(a{i[0]}, {s.bind('dtype', i[1])})" for i in graph_inputs
    ]
    results = [f"r{k}" for k in range(signature.results)]
    given += symbolic.taken
    if modes.draws:
        s.add("state = get_state()")
    if grad and not modes.records_grad:
        s.add("set_grad(False)")
    s.add("try:")
    s.add(f"out = forward({', '.join(given)})", 2)
    s.add("except Exception as error:")
    if modes.draws:
        s.add("set_state(state)", 2)
    s.add("raise GraphFailedError from error", 2)
    if grad and not modes.records_grad:
        s.add("finally:")
        s.add("set_grad(True)", 2)
    if symbolic.defined:
        names = "".join(f"{name}, " for name in symbolic.defined)
        s.add(f"{names} = out[{-len(symbolic.defined)}:]")
        s.add(f"sizes.update({', '.join(f'{name}={name}' for name in symbolic.defined)})")
        s.add(f"out = out[:{-len(symbolic.defined)}]")
    if results:
        s.add(f"{', '.join(results)}, *saved = out" if attachments else f"{', '.join(results)}, = out")
    for k, stride in strides.items():
        wanted = numbers(stride)
        s.add(f"if r{k}.stride() != {wanted}: r{k} = restrided(r{k}, {wanted})")
    for attachment in attachments:
        _attach(s, attachment, grad)
    left = {k: how for k, how in enumerate(signature.made) if effects.moved and _lies_on_input(how)}
    sizes = {m.input: m.nbytes for m in effects.moved if m.nbytes is not None}
    late = {k for k, how in left.items() if _fits(how, sizes)}
    for k in left.keys() - late:
        s.add(f"m{k} = {_made(s, left[k], k, grad)}")
    for j, nbytes in sizes.items():
        s.add(f"a{j}.untyped_storage().resize_({nbytes})")
    for k in late:
        s.add(f"m{k} = {_made(s, left[k], k, grad)}")
    for w in effects.written:
        _write(s, w)
    for m in effects.moved:
        _move(s, m)
    for k, how in enumerate(signature.made):
        if k not in left and (made := _made(s, how, k, grad)) != f"m{k}":
            s.add(f"m{k} = {made}")
    made = f"({''.join(f'm{k}, ' for k in range(len(signature.made)))})"
    for assign in effects.assigned:
        _assign(s, assign.table, assign.key, assign.value, made)
    for k, value in effects.gradients:
        s.add(f"set_gradient(a{k}, {_built(s, value, made)})")
    if effects.grad_mode is not None:
        s.add(f"set_grad({effects.grad_mode})")
    s.add(f"return {_built(s, signature.output, made)}")
    source = "\n".join(s.lines) + "\n"
    exec(compile(source, "<aotcheck call>", "exec"), s.names)
    call: Call = s.names["call"]
    return call, source


def _lies_on_input(how: Given | Fresh | Alias) -> bool:
    """Whether a tensor is made by its geometry on the storage that an input has at entry."""
    return isinstance(how, Alias) and how.geometry is not None and isinstance(how.base, Given)


def _fits(how: Given | Fresh | Alias, sizes: Mapping[int, int]) -> bool:
    """Whether it can be made on its storage once that has its new size; if not, it must be made before."""
    assert isinstance(how, Alias) and how.geometry is not None and isinstance(how.base, Given)
    size, reached = sizes.get(how.base.input), how.geometry.end
    return size is None or type(reached) is not int or reached * how.geometry.dtype.itemsize <= size


def _attach(s: _Source, attachment: Attachment, grad: bool) -> None:
    results = "".join(f"r{k}, " for k in attachment.results)
    inputs = "".join(f"a{k}, " for k in attachment.inputs)
    runner = s.bind("runner", attachment.runner)
    line = f"{results[:-1]} = attach({runner}, ({results}), saved, ({inputs}), sizes)"
    s.add(line if grad else f"with enable_grad(): {line}")


def _write(s: _Source, w: Written) -> None:
    if w.flat:
        s.add(f"with no_grad(): flat_of(a{w.input}, r{w.result}.dtype).copy_(r{w.result})")
    elif w.kind is Mutation.DIFFERENTIABLE:
        s.add(f"with enable_grad(): a{w.input}.copy_(r{w.result})")
    elif w.kind is Mutation.HIDDEN:
        s.add(f"a{w.input}.data.copy_(r{w.result})")
    else:
        s.add(f"with no_grad(): a{w.input}.copy_(r{w.result})")
    if w.versions:
        s.names["increment_version"] = torch.autograd.graph.increment_version
        s.add(f"increment_version(({''.join(f'a{k}, ' for k in w.versions)}))")


def _move(s: _Source, m: MetadataMutation) -> None:
    name = f"a{m.input}"
    if m.geometry is not None:
        g = m.geometry
        if m.base is None:
            s.add(f"with no_grad(): {name}.as_strided_({numbers(g.shape)}, {numbers(g.stride)}, {text(g.offset)})")
        else:
            s.add(f"set_storage({name}, {_of(m.base)}, {_geometry(s, g)}, {text(m.shift)}, {m.by_data})")
    if m.requires_grad is False:
        s.add(f"{name}.detach_()" if m.detached else f"{name}.requires_grad_(False)")


def _of(base: Given | Fresh | Made) -> str:
    match base:
        case Given(k):
            return f"a{k}"
        case Fresh(k):
            return f"r{k}"
        case Made(k):
            return f"m{k}"


def _made(s: _Source, how: Given | Fresh | Alias, k: int, grad: bool) -> str:
    if not isinstance(how, Alias):
        return _of(how)
    if how.geometry is not None:
        return f"raw_alias({_of(how.base)}, {_geometry(s, how.geometry)}, {text(how.shift)})"
    name = _of(how.base)
    for step in how.steps:
        _step(s, step, k, name, grad)
        name = f"m{k}"
    return name


def numbers(terms: Sequence[Any]) -> str:
    """Terms as the source of a tuple."""
    return f"({''.join(f'{text(x)}, ' for x in terms)})"


def _geometry(s: _Source, g: Geometry) -> str:
    """The geometry in this call."""
    name = s.bind("geometry", g)
    if not symbols_in([g.offset, *g.shape, *g.stride]):
        return name
    return f"{name}._replace(offset={text(g.offset)}, shape={numbers(g.shape)}, stride={numbers(g.stride)})"


def _argument(s: _Source, a: Any) -> str:
    """An argument of a view op in this call."""
    return text(a) if symbols_in(a) else s.bind("arg", a)


def _step(s: _Source, step: Step, k: int, source: str, grad: bool) -> None:
    kwargs = f", **{s.bind('kwargs', dict(step.kwargs))}" if step.kwargs else ""
    rest = "".join(f", {_argument(s, a)}" for a in step.args)
    item = "" if step.index is None else f"[{step.index}]"
    line = f"m{k} = {s.bind('op', step.op)}({source}{rest}{kwargs}){item}"
    if step.grad is not grad:
        line = f"with {'enable_grad' if step.grad else 'no_grad'}(): {line}"
    s.add(line)


def _assign(s: _Source, table: int, key: Structure, value: Structure | None, made: str) -> None:
    where = f"tables[{table}]"
    if value is None:
        s.add(f"del {where}[{_built(s, key, made)}]")
    else:
        s.names["set_table"] = set_table
        s.add(f"set_table({where}, {_built(s, key, made)}, {_built(s, value, made)})")


def _built(s: _Source, structure: Structure, made: str) -> str:
    match structure:
        case Leaf(index):
            return f"m{index}"
        case Const(value):
            return repr(value) if value is None or type(value) in (int, bool, str) else s.bind("constant", value)
        case Sized(term):
            return text(term)
        case ListOf(kind, items) if kind in (tuple, list):
            inside = "".join(f"{_built(s, item, made)}, " for item in items)
            return f"({inside})" if kind is tuple else f"[{inside}]"
        case _:
            return f"build({s.bind('structure', structure)}, {made}, looked, sizes)"


def set_table(table: Any, key: Any, value: Any) -> None:
    """Let a dict have an item, a list these elements, a cell this content."""
    if hasattr(table, "owner"):
        table.owner[key] = value
    elif isinstance(table, dict):
        table[key] = value
    elif isinstance(table, list):
        table[:] = value
    elif hasattr(table, "cell_contents"):
        table.cell_contents = value
    else:
        table.clear()
        table.extend(value)


def flat_of(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The whole storage of ``t`` in one dimension."""
    storage = t.untyped_storage()
    with torch.no_grad():
        return torch.empty(0, dtype=dtype, device=t.device).set_(
            storage, 0, (storage.nbytes() // dtype.itemsize,), (1,)
        )


def restrided(t: Tensor, stride: tuple[int, ...]) -> Tensor:
    """``t`` with these strides."""
    if all(n == 1 or a == b for n, a, b in zip(t.shape, t.stride(), stride, strict=True)):
        return t
    return torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device).copy_(t)


def raw_alias(t: Tensor, g: Geometry, shift: int | None) -> Tensor:
    """A tensor without history at ``g`` on the storage of ``t``. Offsets count from that of ``t``, less ``shift``."""
    offset = g.offset if shift is None else t.storage_offset() + g.offset - shift
    with torch.no_grad():
        made = torch.empty(0, dtype=g.dtype, device=t.device).set_(t.untyped_storage(), offset, g.shape, g.stride)
        made = torch.ops.aten._conj.default(made) if g.conj else made
        return torch.ops.aten._neg_view.default(made) if g.neg else made


def set_storage(t: Tensor, base: Tensor, g: Geometry, shift: int | None, by_data: bool) -> None:
    """``t`` lies at ``g`` on the storage of ``base`` from now on."""
    with torch.no_grad():
        offset = g.offset if shift is None else base.storage_offset() + g.offset - shift
        if by_data:
            made = torch.empty(0, dtype=g.dtype, device=base.device)
            t.data = made.set_(base.untyped_storage(), offset, g.shape, g.stride)
        else:
            t.set_(base.untyped_storage(), offset, g.shape, g.stride)
