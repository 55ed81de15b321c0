"""Configurations as vendors publish them: totals of their checkpoints, and their steps."""

import json
from pathlib import Path
from typing import Any

import pytest

from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.models.fields import families
from stepsim.files.models.huggingface import architecture_of
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.held import check_plan
from stepsim.workload.model.memory import rank_memory
from stepsim.workload.model.model import Model
from stepsim.workload.model.parts import Interconnect
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan

PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("published.json").read_text()
)
"""Facts of 60 models: keys of their `config.json`, and parameters of their checkpoints."""
NETWORK = Interconnect(
    domain=8, inner=4e11, outer=5e10, inner_ps=10**6, outer_ps=10**7, launch_ps=10**6
)


def read(name: str) -> tuple[Architecture, list[str]]:
    return architecture_of(PUBLISHED[name]["config"], place="config.json", name=name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_are_the_published_ones(name: str) -> None:
    architecture, _ = read(name)
    published = PUBLISHED[name]["published"]
    assert architecture.published_parameters == pytest.approx(published, rel=0.01)


ACTIVE = {
    "kimi-linear-48b": 3e9,
    "minimax-text-01": 45.9e9,
    "jamba-1.5-large": 94e9,
    "lfm2-8b-a1b": 1.5e9,
    "granite-4.0-h-small": 9e9,
    "ling-flash-2.0": 6.1e9,
    "hunyuan-a13b": 13e9,
    "dots.llm1": 14e9,
    "qwen3-next-80b": 3.9e9,
    "nemotron-3-nano-30b": 3.6e9,
    "longcat-flash": 27e9,
    "step-3.5-flash": 11e9,
    "mimo-v2-flash": 15e9,
    "llama-4-maverick": 17e9,
}
"""Active parameters as names and cards of vendors say them, with two digits or fewer."""


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_about_those_of_the_cards(name: str) -> None:
    assert read(name)[0].parameters(active=True) == pytest.approx(ACTIVE[name], rel=0.2)


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_has_a_step_and_its_memory(name: str) -> None:
    architecture, _ = read(name)
    device, framework = read_device("h200"), read_framework("megatron-core")
    plan = Plan.of_batch(dp=8, microbatch_size=1, global_batch=16, sequence=4096)
    check_plan(architecture, plan)
    model = Model(source=name, architecture=architecture)
    workload = build_workload(model, plan, device, framework, NETWORK)
    assert workload.effort is not None
    dense = 6 * architecture.parameters(active=True) * plan.step_tokens
    assert 0.3 * dense < workload.effort.model_flops < 4 * dense
    steps = StepModel(
        architecture=architecture, device=device, framework=framework, interconnect=NETWORK
    )
    assert steps.seconds([plan])[0] > 0
    memory = rank_memory(architecture, device, framework, [plan])
    assert memory.weights[0] == pytest.approx(2 * architecture.parameters(), rel=0.05)


def test_what_sees_is_counted_and_said() -> None:
    architecture, notes = read("qwen3-vl-8b")
    assert architecture.tower is not None
    assert architecture.tower is not None
    assert architecture.tower.parameters() == 576_388_336
    assert architecture.parameters() == 8_190_735_360
    assert notes == [
        "qwen3-vl-8b: its text model alone is trained here, not what sees or hears; "
        "0.576 billion parameters see; image_tokens beside its text_config are a sample's"
    ]


def test_switches_that_nobody_reads_are_named_and_sizes_refused() -> None:
    _, notes = read("longcat-flash")
    assert "256 of 768 experts change nothing" in notes[0]
    assert "passed over" in notes[1]
    assert "mla_scale_q_lora True" in notes[1]


def test_every_way_of_saying_a_pattern_gives_the_same_layers() -> None:
    jamba = PUBLISHED["jamba-1.5-mini"]["config"]
    kinds = ["attention" if n % 8 == 4 else "mamba" for n in range(32)]
    listed = {k: v for k, v in jamba.items() if not k.startswith("attn_layer")}
    both = [
        architecture_of(config, place="config.json", name="jamba")[0].layers
        for config in (jamba, {**listed, "layers_block_type": kinds})
    ]
    assert both[0] == both[1]
    bamba = PUBLISHED["bamba-9b"]["config"]
    types = ["full_attention" if n in (9, 18, 27) else "linear_attention" for n in range(32)]
    again = {**bamba, "attn_layer_indices": None, "layer_types": types}
    assert (
        architecture_of(again, place="c", name="b")[0]
        == architecture_of(bamba, place="c", name="b")[0]
    )


def test_families_are_many() -> None:
    named = {config["config"]["architectures"][0] for config in PUBLISHED.values()}
    assert named <= set(families().family)
    assert len(named) >= 40
