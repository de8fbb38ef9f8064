"""The rung of the partition: the forward and backward graphs against the trace that they were cut from."""

import torch

from aotcheck.autograd.backward.tangents import inputs_of
from aotcheck.autograd.record.steps import Result
from aotcheck.blame.describe import name
from aotcheck.blame.joint import Caller, differing, roots_of
from aotcheck.blame.runs import Question
from aotcheck.blame.specimen import dense
from aotcheck.oracle.raised import raised


def judge_partition(question: Question) -> str:
    """The forward graph and the backward graphs, against the trace that they were cut from."""
    specimen, exact = question.specimen, question.reference.exact
    if specimen.assembly is None or question.eager.raised is not None:
        return ""
    assembly = specimen.opened
    done = specimen.interpret()
    try:
        results, storages = specimen.forward()
    except Exception as error:
        return "" if done.raised is not None else f"the forward graph {raised(error)}, the trace raises nothing"
    for k, output in enumerate(assembly.record.outputs):
        expected = done.dense(output.value)
        text = differing(expected, dense(results[k]), exact)
        if expected is not None and text:
            return f"r{k} of the forward graph: {text.replace('eager', 'the trace')}"
    for tried in Caller(question).backwards():
        if tried.eager is None:
            continue
        results, storages = specimen.forward()
        _overwrite(question, storages)
        try:
            values = specimen.gradients(tried.stage, tried.key)
        except Exception:  # of the rung below
            continue
        live = dict(zip(inputs_of(tried.stage.tangents[j] for j in tried.key), tried.tangents, strict=True))
        done = specimen.interpret(live)
        try:
            gradients = specimen.backward(tried.stage, tried.key, results, tried.tangents)
        except Exception as error:
            return f"the backward graph of {roots_of(tried)} {raised(error)}, the trace raises nothing"
        for value, gradient in zip(values, gradients, strict=True):
            found = None if gradient is None else dense(gradient)
            text = differing(done.dense(value), found, exact)
            if text:
                return f"a gradient from {roots_of(tried)}: {text.replace('eager', 'the trace')}"
    return _components(question) if question.refused else ""


def _components(question: Question) -> str:
    """Whether what can be backpropagated apart in eager, and only that, is attached apart."""
    stages = question.specimen.opened.stages
    if question.specimen.capture.cuts:  # what hangs on another shares with it all the same
        return ""
    known = [(k, a) for k, stage in enumerate(stages) for a in stage.attached]
    if not all(isinstance(a.ref, Result) for _, a in known):  # a stand-in only carries a history
        return ""
    if len(known) > _MOST_ATTACHED or not all(id(a.tensor) in Caller(question).eager for _, a in known):
        return ""
    group = {id(a): {id(a)} for _, a in known}
    for n, (k, one) in enumerate(known):
        for m, other in known[n + 1 :]:
            try:
                share = Caller(question).share(one, other)
            except RuntimeError:  # eager refuses a backward from one of them alone
                return ""
            if share and k != m:
                return f"eager's {name(one.ref)} and {name(other.ref)} share saved tensors; they are attached apart"
            if share:
                joined = group[id(one)] | group[id(other)]
                group.update(dict.fromkeys(joined, joined))
    for stage in stages:
        first = stage.attached[0]
        for a in stage.attached:
            if id(a) not in group[id(first)]:
                return f"eager's {name(first.ref)} and {name(a.ref)} share no saved tensors; they are attached together"
    return ""


_MOST_ATTACHED = 5


def _overwrite(question: Question, storages: dict[int, torch.UntypedStorage]) -> None:
    """Leave in the memory that the forward graph read what the call leaves in it."""
    specimen, seen = question.specimen, question.eager
    same = {t.name: t.storage for t in seen.snapshot.tensors}
    for owner, contents in seen.snapshot.storages:
        if owner not in specimen.keys:  # of a container that the call wrote
            continue
        held = storages[specimen.keys[owner]]
        if same.get(owner) == owner and held.nbytes() >= contents.nbytes and contents.numel():
            torch.empty(0, dtype=contents.dtype).set_(held, 0, contents.shape, contents.stride()).copy_(contents)
