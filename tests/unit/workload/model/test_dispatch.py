"""Bytes between experts: copies that leave a rank, by dispatcher and by groups of experts."""

import numpy as np
import pytest

from stepsim.files.load import read_model
from stepsim.workload.model.architecture import ExpertMlp, Layer
from stepsim.workload.model.blocks import layer_blocks
from stepsim.workload.model.columns import plan_columns
from stepsim.workload.model.context import sent_share
from stepsim.workload.model.plan import ExpertDispatch, ModelPlan

MLP = ExpertMlp(experts=64, top_k=8, width=64)
GROUPED = ExpertMlp(experts=64, top_k=8, width=64, groups=8, token_groups=4)


def plan(dispatch: ExpertDispatch, ep: int) -> ModelPlan:
    return ModelPlan(dp=ep, ep=ep, expert_tp=1, global_batch=ep, dispatch=dispatch)


@pytest.mark.parametrize(
    ("mlp", "dispatch", "ep", "domain", "share"),
    [
        (MLP, ExpertDispatch.ALL_TO_ALL, 64, 8, 1.0),
        (MLP, ExpertDispatch.DEEPEP, 1, 8, 1.0),
        # 8 nodes: 8 x (1 - (7/8)^8) = 5.25 of 8 copies
        (MLP, ExpertDispatch.DEEPEP, 64, 8, (1 - 0.875**8)),
        # 4 of 8 nodes at most: 4 x (1 - (3/4)^8) / 8
        (GROUPED, ExpertDispatch.DEEPEP, 64, 8, 0.5 * (1 - 0.75**8)),
        # 16 nodes for 8 groups: 4 groups lie on 8 of them
        (GROUPED, ExpertDispatch.DEEPEP, 64, 4, (1 - 0.875**8)),
        # one node: ranks of it, which groups do not limit
        (GROUPED, ExpertDispatch.DEEPEP, 4, 8, 0.5 * (1 - 0.75**8)),
    ],
)
def test_a_token_goes_to_a_node_once(
    mlp: ExpertMlp, dispatch: ExpertDispatch, ep: int, domain: int, share: float
) -> None:
    columns = plan_columns([plan(dispatch, ep)])
    assert sent_share(mlp, columns, domain)[0] == pytest.approx(share)


def test_eight_bits_are_on_the_way_to_the_experts_alone() -> None:
    architecture = read_model("mixtral-8x7b").architecture
    layer: Layer = architecture.layers[0]
    sizes = {}
    for dispatch in (ExpertDispatch.DEEPEP, ExpertDispatch.DEEPEP_FP8):
        columns = plan_columns([plan(dispatch, 8)])
        exchanges = [
            [exchange.size_bytes[0] for exchange in way if exchange.experts]
            for block in layer_blocks(layer, architecture, columns)
            for way in (block.forward, block.backward)
        ]
        sizes[dispatch] = np.concatenate([each for each in exchanges if each])
    sixteen, eight = sizes.values()
    assert len(sixteen) == 4
    assert (sixteen == 2 * 2048 * 2 * 4096).all()
    assert eight[0] == sixteen[0] * (1 + 4 / 128) / 2
    assert (eight[1:] == sixteen[1:]).all()
