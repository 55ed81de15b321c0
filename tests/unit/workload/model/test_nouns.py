"""Nouns of a model's description against hand counts and Megatron-LM's own rules."""

from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest
from helpers import examples
from hypothesis import given, strategies as st

from stepsim.base.errors import PlanError, WorkloadError
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
)
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.held import check_plan
from stepsim.workload.model.layout import (
    LayerLayout,
    balanced_layout,
    counted_layout,
    even_or_ends,
    layout_by_cost,
    layout_text,
    named_layout,
    parse_layout,
)
from stepsim.workload.plan import Plan


def llama_8b() -> Architecture:
    attention = GroupedAttention(heads=32, kv_heads=8, head_dim=128)
    layer = Layer(attention=attention, mlp=DenseMlp(width=14336))
    return Architecture(name="llama-8b", hidden=4096, layers=(layer,) * 32, vocabulary=128256)


def deepseek_v3() -> Architecture:
    attention = LatentAttention(
        heads=128, query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128
    )
    experts = ExpertMlp(experts=256, top_k=8, width=2048, shared_width=2048)
    dense = Layer(attention=attention, mlp=DenseMlp(width=18432))
    sparse = Layer(attention=attention, mlp=experts)
    return Architecture(
        name="deepseek-v3",
        hidden=7168,
        layers=(dense,) * 3 + (sparse,) * 58,
        vocabulary=129280,
        prediction_layers=(sparse,),
    )


ENDS = LayerLayout(embedding_counts=True, head_counts=True)


def test_parameters_are_the_published_ones() -> None:
    assert llama_8b().parameters() == 8_030_261_248
    assert deepseek_v3().parameters() == 671_026_404_352
    assert deepseek_v3().parameters(active=True) == pytest.approx(37.5e9, rel=0.01)


def test_a_layout_string_is_read_as_megatron_reads_it() -> None:
    slices = parse_layout("Et*3|(tt|)*28m|L").resolve(59, 1, 31)
    assert [each.layers for each in slices] == [3, *[2] * 28, 0, 0]
    assert (slices[0].embedding, slices[-2].prediction_layers, slices[-1].head) == (True, 1, True)


@examples(50)
@given(counts=st.lists(st.integers(0, 12), min_size=2, max_size=12), ahead=st.integers(0, 3))
def test_a_layout_is_read_back_from_its_text(counts: list[int], ahead: int) -> None:
    slices = counted_layout(counts, ahead).slices
    assert parse_layout(layout_text(slices)).slices == slices


@examples(50)
@given(
    layers=st.integers(4, 14),
    pp=st.integers(2, 4),
    embedding=st.sampled_from([0.0, 0.25, 1.5]),
    last=st.sampled_from([0.0, 0.5, 1.25, 2.0, 3.5]),
)
def test_no_layout_has_a_faster_slowest_rank(
    layers: int, pp: int, embedding: float, last: float
) -> None:
    """Against every way to share the layers out with one at least on every rank but the ends."""

    def slowest(counts: Sequence[int]) -> float:
        return max([counts[0] + embedding, *counts[1:-1], counts[-1] + last])

    layout = balanced_layout(layers, 0, pp, 1, embedding=embedding, last=last)
    counts = [each.layers for each in layout.resolve(layers, 0, pp)]
    cuts = ([0, *c, layers] for c in combinations_with_replacement(range(layers + 1), pp - 1))
    ways = ([*map(int.__sub__, each[1:], each[:-1])] for each in cuts)
    best = min(slowest(way) for way in ways if min(way[1:-1], default=1) > 0)
    assert slowest(counts) == best


@pytest.mark.parametrize(
    ("stages", "expected"),
    [(2, [16, 12]), (4, [8, 8, 8, 4]), (16, [2] * 14 + [0] * 2)],
)
def test_a_stage_takes_layers_until_its_share_of_the_cost_is_passed(
    stages: int, expected: list[int]
) -> None:
    """28 layers of 1 and a head of 3.55, as nanotron shares them out: 31.55 in all."""
    slices = layout_by_cost([1.0] * 28, 3.55, stages).slices
    assert [each.layers for each in slices] == expected
    assert slices[0].embedding
    assert slices[-1].head


@pytest.mark.parametrize("text", ["", "Etx|L", "E(tt|*2L", "Et*0|L"])
def test_a_wrong_layout_string_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="pipeline_model_parallel_layout"):
        parse_layout(text)


@pytest.mark.parametrize(
    ("layout", "layers", "stages", "said"),
    [
        (counted_layout([4, 4]), 9, 2, "8 layers: expected 9"),
        (ENDS, 128, 16, "multiple of pp x chunks, 16"),
        (named_layout("equal"), 33, 4, "layers is 33: expected a multiple of the 4 virtual"),
    ],
)
def test_a_layout_that_does_not_add_up_is_refused(
    layout: LayerLayout, layers: int, stages: int, said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        layout.resolve(layers, 0, stages)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tp": 0}, "tp is 0"),
        ({"dp": 3, "global_batch": 8}, "global_batch is 8: expected a multiple"),
        ({"sequence": 8191, "cp": 2, "global_batch": 1}, "sequence is 8191"),
        ({"ep": 4, "dp": 2, "global_batch": 2}, "ep x expert_tp is 4"),
        ({"zero": 4}, "zero is 4"),
        ({"offload_layers": -1}, "offload_layers is -1: expected at least 0"),
        ({"dp": 8, "shard_ranks": 3, "global_batch": 8}, "shard_ranks is 3"),
    ],
)
def test_a_plan_that_does_not_divide_is_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.of_batch(**{"global_batch": 1, **fields})


def test_a_plan_that_does_not_fit_the_model_is_refused() -> None:
    with pytest.raises(PlanError, match="heads is 32: expected a multiple of tp, 3"):
        check_plan(llama_8b(), Plan(tp=3))
    with pytest.raises(PlanError, match="no experts"):
        check_plan(llama_8b(), Plan.of_batch(ep=2, dp=2, global_batch=2))
    with pytest.raises(PlanError, match="at least one each"):
        check_plan(llama_8b(), Plan(pp=35))


def test_a_count_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(WorkloadError, match="kv_heads"):
        GroupedAttention(heads=32, kv_heads=5, head_dim=128)
    with pytest.raises(WorkloadError, match="width"):
        DenseMlp(width=-1)


def test_npus_and_microbatches_follow_the_degrees() -> None:
    plan = Plan.of_batch(tp=8, cp=2, dp=4, pp=16, global_batch=64, microbatch_size=2)
    assert (plan.npus, plan.microbatches, plan.step_tokens) == (1024, 8, 64 * 2048)
    assert Precision.FP8.element_bytes == 1.0


@pytest.mark.parametrize(
    ("layout", "counts"),
    [
        (ENDS, [7, *[8] * 14, 7]),
        (named_layout("equal"), [0, *[1] * 126, 0]),
        (named_layout("even"), [*[8] * 14, 7, 7]),
        (named_layout("head"), [31, 30]),
        (named_layout("even"), [*[1] * 30, 0]),
        (even_or_ends(62, 32), [1, *[2] * 30, 1]),
        (even_or_ends(28, 32), [0, *[1] * 28, 0, 0, 0]),
        (even_or_ends(32, 4), [8, 8, 8, 8]),
        (even_or_ends(35, 4), [9, 9, 9, 8]),
    ],
)
def test_ends_count_as_layers_where_that_alone_divides(
    layout: LayerLayout, counts: list[int]
) -> None:
    """Runs that say no layout have an even one."""
    slices = layout.resolve(sum(counts), 0, len(counts))
    assert [each.layers for each in slices] == counts
    assert (slices[0].embedding, slices[-1].head) == (True, True)
