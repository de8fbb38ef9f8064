"""Traits: what a program is like, in the words in which pairs are counted."""

from collections import Counter
from dataclasses import replace

from aotcheck.campaign.setup.generate import programs_of_block
from aotcheck.program import Literal, OpCall, Ref, TupleExpr, difficulty, traits_of
from aotcheck.program.data.samples import ALIASED_VIEWS, REFUSED_COPY, SAMPLES, TRANSPOSED_IN_PLACE
from aotcheck.program.vocabulary.features import Feature
from aotcheck.program.vocabulary.traits import EXCLUDED, NAMES, TRAITS, bits_of, excluded, facet_of, pairs, traits_in
from strategies import Profile, programs
from tests.meta.small import X, op, program


def test_aliased_inputs_and_further_calls_are_told_apart() -> None:
    traits = traits_of(ALIASED_VIEWS)
    assert {"input:no-view", "input:overlapping", "call:same-arguments", "call:other-aliasing", "call:third"} <= traits
    assert {"context:call-no-grad", "call:other-mode", "step:probe-output", "step:probe-input", "end:mutated"} <= traits
    assert {"output:view-of-input", "output:input", "output:fresh", "output:constant"} <= traits
    assert not {"input:same-object", "step:backward", "end:refused", "call:other-shape"} & traits


def test_what_is_refused_or_never_reached_is_no_trait() -> None:
    traits = traits_of(REFUSED_COPY)
    assert {"end:refused", "op:pointwise"} <= traits
    assert not {"op:inplace", "op:reduce", "step:backward"} & traits


def test_metadata_and_one_object_twice() -> None:
    traits = traits_of(TRANSPOSED_IN_PLACE)
    assert {"input:same-object", "input:non-leaf", "op:metadata", "end:metadata-changed", "step:backward"} <= traits


def test_out_arguments_are_an_op_of_their_own() -> None:
    into = program(op("v0", "torch.zeros", TupleExpr((Literal(4),))), op("v1", "torch.neg", X), outputs=Ref("v0"))
    assert "op:out" not in traits_of(into)
    written = replace(into, body=(into.body[0], OpCall(None, "torch.neg", (X,), (("out", Ref("v0")),))))
    assert "op:out" in traits_of(written)


def test_bits_hold_traits() -> None:
    some = {TRAITS[0], TRAITS[7], TRAITS[-1]}
    assert {TRAITS[i] for i in traits_in(bits_of(some))} == some
    assert len(set(TRAITS)) == len(TRAITS)
    assert facet_of("op:view").value == "op"


def test_pairs_are_left_out_for_a_reason_only() -> None:
    every = len(TRAITS) * (len(TRAITS) - 1) // 2
    left_out = [(a, b) for i, a in enumerate(TRAITS) for b in TRAITS[i + 1 :] if excluded(a, b)]
    assert every == len(list(pairs())) + len(left_out)
    assert len(left_out) < 0.05 * every
    assert all(why and one <= set(TRAITS) and other <= set(TRAITS) for one, other, why in EXCLUDED)


def test_the_stream_has_every_trait_and_no_pair_that_cannot_be() -> None:
    seen: Counter[str] = Counter()
    for block in range(16):
        missing = [trait for trait in TRAITS if not seen[trait]] if block >= 6 else []
        if block >= 6 and not missing:
            break
        every = programs(Profile(trained_writes=30), wanted=tuple((trait, trait) for trait in missing))
        for each in programs_of_block(every, 11, block):
            traits = sorted(traits_of(each))
            seen.update(traits)
            assert not [(a, b) for i, a in enumerate(traits) for b in traits[i + 1 :] if excluded(a, b)]
    assert [trait for trait in TRAITS if not seen[trait]] == []


def test_features_are_distinct_sets_of_traits_and_each_trait_that_no_pair_counts_is_in_one() -> None:
    every = {f"{facet}:{name}" for facet, names in NAMES.items() for name in names}
    said = [feature.value for feature in Feature.__members__.values()]
    assert all(said) and len(set(said)) == len(said) == len(Feature)
    assert every - set(TRAITS) <= frozenset().union(*said) <= every


def test_what_the_source_shows_is_a_trait_that_no_pair_counts() -> None:
    assert "source:subclass" not in TRAITS and bits_of({"source:subclass", TRAITS[0]}) == 1
    assert Feature.INPUTS_SHARE_STORAGE in difficulty(ALIASED_VIEWS)
    assert {"event:inputs-share-storage", "input:no-view"} <= traits_of(ALIASED_VIEWS)


def test_every_trait_that_is_seen_is_in_the_vocabulary() -> None:
    every = {f"{facet}:{name}" for facet, names in NAMES.items() for name in names}
    assert all(traits_of(sample) <= every for sample in SAMPLES)
