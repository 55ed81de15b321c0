"""Models of every family under random plans: stages add up, and more tokens never cost less."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.models.huggingface import architecture_of
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.held import check_plan, counts_by_chunk, plan_places, rank_parameters
from stepsim.workload.model.memory import rank_memory
from stepsim.workload.model.parts import Interconnect
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable

PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "unit/files/models/published.json").read_text()
)
NETWORK = Interconnect(
    domain=8, inner=4e11, outer=5e10, inner_ps=10**6, outer_ps=10**7, launch_ps=10**6
)
HYBRIDS = (
    *("kimi-linear-48b", "minimax-text-01", "jamba-1.5-mini", "falcon-h1-0.5b", "lfm2-8b-a1b"),
    *("granite-4.0-h-tiny", "qwen3-next-80b", "nemotron-3-nano-30b", "ring-flash-linear-2.0"),
)


def read(name: str) -> Architecture:
    return architecture_of(PUBLISHED[name]["config"], place="config.json", name=name)[0]


def priced(architecture: Architecture, device: str = "h200") -> StepModel:
    return StepModel(
        architecture=architecture,
        device=read_device(device),
        framework=read_framework("megatron-core"),
        interconnect=NETWORK,
    )


def fitting(architecture: Architecture, plan: Plan) -> Plan:
    """The plan, where it divides the model."""
    try:
        check_plan(architecture, plan)
    except StepsimError:
        assume(False)
    return plan


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PUBLISHED)), st.data())
def test_parameters_of_all_stages_are_those_of_the_model(name: str, data: st.DataObject) -> None:
    architecture = read(name)
    tp, pp, ep = (data.draw(st.sampled_from(n)) for n in ((1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8)))
    assume(ep == 1 or architecture.is_sparse)
    dp = 8
    plan = fitting(
        architecture, Plan.of_batch(tp=tp, pp=pp, ep=ep, dp=dp, expert_tp=1, global_batch=dp)
    )
    columns = PlanTable([plan])
    counts = counts_by_chunk(architecture, plan.layout, plan_places(plan))
    dense, routed = rank_parameters(architecture, columns, counts)
    held = tp * dense.sum() + ep * routed.sum()
    copied = architecture.vocabulary * architecture.hidden if architecture.tied and pp > 1 else 0
    hidden, norm = architecture.hidden, architecture.norm
    ahead = sum(layer.parameters(hidden, norm) for layer in architecture.prediction_layers)
    whole = architecture.parameters() + ahead + copied
    assert held == pytest.approx(whole, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(PUBLISHED)), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2)))
def test_more_tokens_never_take_less_time_or_memory(name: str, tp: int, cp: int) -> None:
    architecture = read(name)
    first = fitting(
        architecture, Plan.of_batch(tp=tp, cp=cp, dp=4, global_batch=8, expert_tp=1, sequence=2048)
    )
    plans = [replace(first, sequence=length) for length in (2048, 4096, 8192, 16384)]
    steps = priced(architecture)
    assert (np.diff(steps.seconds(plans)) > 0).all()
    assert (
        np.diff(rank_memory(architecture, steps.device, steps.framework, plans).total) > 0
    ).all()


@pytest.mark.parametrize("name", HYBRIDS)
def test_plans_priced_together_are_those_priced_alone(name: str) -> None:
    steps = priced(read(name))
    plans = [
        Plan.of_batch(dp=dp, pp=pp, microbatch_size=size, global_batch=16, sequence=4096)
        for dp in (1, 2)
        for pp in (1, 2)
        for size in (1, 2)
    ]
    together = steps.seconds(plans)
    alone = [float(steps.seconds([plan])[0]) for plan in plans]
    assert np.allclose(together, alone, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_shorter_documents_are_never_slower(name: str) -> None:
    """Of a sequence filled with shorter samples a token reads fewer keys; nothing else grows."""
    steps = priced(read(name), "h100")
    plan = Plan(sequence=8192, cuda_graph=True)
    packed = [replace(plan, packed=length) for length in (8192, 4096, 1024, 256, 64, 8)]
    seconds = steps.seconds(packed)
    assert (np.diff(seconds) <= 1e-9 * seconds[0]).all(), seconds
    assert seconds[0] == pytest.approx(steps.seconds([plan])[0], rel=1e-12)
