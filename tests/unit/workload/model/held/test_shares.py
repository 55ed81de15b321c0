"""What ranks hold adds up to the model."""

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import replace
from stepsim.files.load import read_model
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.held import counts_by_chunk, plan_places, rank_parameters
from stepsim.workload.model.layout import LayerLayout, parse_layout
from stepsim.workload.plan import Plan, PlanTable


def even_counts(model: Architecture, pp: int = 1, chunks: int = 1) -> Floats:
    """Layers and ends of every rank and chunk where layers are shared out evenly."""
    return counts_by_chunk(model, LayerLayout(), plan_places(Plan(pp=pp, chunks=chunks)))


def test_degrees_share_parameters_out() -> None:
    model = read_model("qwen3-30b-a3b").architecture
    alone = PlanTable([Plan()])
    shared = PlanTable([Plan.of_batch(tp=2, dp=4, ep=4, expert_tp=2, global_batch=4)])
    dense, routed = rank_parameters(model, alone, even_counts(model))
    own_dense, own_routed = rank_parameters(model, shared, even_counts(model))
    np.testing.assert_allclose(own_dense, dense / 2)
    np.testing.assert_allclose(own_routed, routed / 8)


def test_a_layout_puts_layers_and_ends_where_it_says() -> None:
    model = read_model("deepseek-v3").architecture
    layout = parse_layout("Et*3|(tt|)*29m|L")
    counts = counts_by_chunk(model, layout, plan_places(Plan(pp=16, chunks=2)))
    assert counts.shape == (4, 16, 2)
    assert counts[:2].sum() == model.depth + 1  # the prediction layer is of their kind
    assert counts[0, 0, 0] == 3  # dense layers
    assert counts[2, 0, 0] == 1  # the embedding
    assert counts[3, 15, 1] == 1  # the head


def test_prediction_layers_follow_each_other_from_stage_to_stage() -> None:
    """A dense one and one with experts, on a stage each."""
    model = read_model("deepseek-v3").architecture
    dense, sparse = model.layer_kinds()
    small = replace(model, layers=(dense,) * 2, prediction_layers=(dense, sparse))
    counts = counts_by_chunk(small, parse_layout("Etm|tmL"), plan_places(Plan(pp=2)))
    assert counts[:, :, 0].tolist() == [[2, 1], [0, 1], [1, 0], [1, 2]]
