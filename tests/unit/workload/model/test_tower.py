"""What sees: operations, bytes and parameters on the first stage, counted by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.workload.model.small_layers import check_operators

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.models.huggingface import architecture_of
from stepsim.workload.model.architecture import (
    Activation,
    Architecture,
    DenseMlp,
    GroupedAttention,
    Layer,
    NormKind,
    Tower,
)
from stepsim.workload.model.blocks import tower_blocks
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.memory import rank_memory
from stepsim.workload.model.model import Model
from stepsim.workload.model.parts import Interconnect, Operator
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable

DEVICE, FRAMEWORK = read_device("h100"), read_framework("megatron-core")
NETWORK = Interconnect(
    domain=8, inner=4e11, outer=5e10, inner_ps=10**6, outer_ps=10**7, launch_ps=10**6
)
TOWER = Tower(
    hidden=32,
    depth=3,
    layer=Layer(
        attention=GroupedAttention(heads=4, kv_heads=4, head_dim=8, bias=True, output_bias=True),
        mlp=DenseMlp(width=64, activation=Activation.GELU, bias=True),
    ),
    norm=NormKind.LAYER,
    patch=48,
    positions=100,
    merged=4,
    products=((128, 128, True), (128, 64, True)),
    others=64,
    tokens=16,
)
DECODER = Architecture(
    name="seeing",
    hidden=64,
    layers=(
        Layer(
            attention=GroupedAttention(heads=4, kv_heads=4, head_dim=16), mlp=DenseMlp(width=256)
        ),
    )
    * 4,
    vocabulary=1000,
    tower=TOWER,
)
PLAN = Plan.of_batch(microbatch_size=2, global_batch=8, sequence=64, dp=2, pp=2)
PATCHES = 2 * 16 * 4  # samples of a microbatch, tokens of a sample, patches of a token


def operators(tower: Tower = TOWER) -> dict[str, Operator]:
    blocks = tower_blocks(tower, PlanTable([PLAN]))
    return {item.name: item for block in blocks for item in block.operators}


def test_parameters_are_counted_once() -> None:
    attention = 4 * 32 * 32 + 4 * 32
    mlp = 2 * 32 * 64 + 64 + 32
    layers = 3 * (attention + mlp + 2 * 2 * 32)
    ends = 32 * (48 + 1 + 100) + 128 * 128 + 128 + 128 * 64 + 64 + 64
    assert TOWER.parameters() == layers + ends
    assert DECODER.published_parameters == DECODER.parameters() + TOWER.parameters()
    assert DECODER.first_parameters == 1000 * 64 + TOWER.parameters()
    blind = replace(DECODER, tower=replace(TOWER, tokens=0))
    assert blind.first_parameters == 1000 * 64
    assert blind.published_parameters == DECODER.published_parameters


def test_patches_go_through_all_layers_and_see_all_of_their_image() -> None:
    made = operators()
    products = {
        "patches": 2 * PATCHES * 48 * 32,
        "qkv": 3 * 2 * PATCHES * 32 * 96,
        "core attention": 3 * 2 * PATCHES * 64 * 4 * 16,
        "projector 1": 2 * PATCHES / 4 * 128 * 64,
    }
    check_operators(made, products)
    assert made["mlp in"].flops[2, 0] == 3 * 2 * PATCHES * 32 * 64


def test_a_frozen_tower_runs_forward_alone() -> None:
    made = operators(replace(TOWER, frozen=True))
    assert made["qkv"].flops[0, 0] == operators()["qkv"].flops[0, 0]
    assert all(item.flops[2, 0] == item.flops[1, 0] == 0 for item in made.values())


def parts(tower: Tower) -> tuple[float, float, float, float]:
    """Weights, gradients, activations of the fullest rank, and seconds of a step."""
    architecture = replace(DECODER, tower=tower)
    memory = rank_memory(architecture, DEVICE, FRAMEWORK, [replace(PLAN, pp=1)])
    steps = StepModel(
        architecture=architecture, device=DEVICE, framework=FRAMEWORK, interconnect=NETWORK
    )
    seconds = steps.seconds([replace(PLAN, pp=1)])
    sizes = (memory.weights, memory.gradients, memory.activations, seconds)
    return tuple(float(item[0]) for item in sizes)  # type: ignore[return-value]


def test_memory_and_time_are_those_of_what_is_trained() -> None:
    trained = parts(TOWER)
    frozen = parts(replace(TOWER, frozen=True))
    blind = parts(replace(TOWER, tokens=0))
    size = TOWER.parameters()
    assert trained[0] - blind[0] == frozen[0] - blind[0] == 2 * size
    assert trained[1] - blind[1] == FRAMEWORK.gradient_bytes * size
    assert frozen[1] == blind[1]
    assert trained[2] > frozen[2] == blind[2]
    assert trained[3] > frozen[3] > blind[3]


def test_rows_of_the_first_stage_hold_the_tower() -> None:
    model = Model(source="seeing", architecture=DECODER)
    seen = build_workload(model, PLAN, DEVICE, FRAMEWORK, NETWORK)
    blind = replace(DECODER, tower=replace(TOWER, tokens=0))
    text = build_workload(replace(model, architecture=blind), PLAN, DEVICE, FRAMEWORK, NETWORK)
    first, alone = (work.microbatches[0].embedding for work in (seen, text))
    assert len(first) > len(alone) == 1
    assert first[0].parameters - alone[0].parameters == TOWER.parameters()
    assert seen.microbatches[0].layers == text.microbatches[0].layers
    assert any("a sample has 16 tokens of one image" in note for note in seen.warnings)
    assert seen.effort is not None
    assert text.effort is not None
    assert seen.effort.model_flops > text.effort.model_flops
    assert seen.effort.parameters - text.effort.parameters == TOWER.parameters()


def test_more_images_never_take_less() -> None:
    sizes = [parts(replace(TOWER, tokens=n)) for n in (16, 64, 256, 1024)]
    assert (np.diff([size[3] for size in sizes]) >= 0).all()
    assert sizes[-1][3] > sizes[0][3]
    assert (np.diff([size[2] for size in sizes]) > 0).all()


PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "files/models/published.json").read_text()
)


def test_tokens_of_images_are_a_key_of_the_model() -> None:
    values = {**PUBLISHED["qwen3-vl-8b"]["config"], "image_tokens": 1024, "frozen_tower": True}
    architecture, notes = architecture_of(values, place="config.json", name="qwen")
    assert architecture.seeing is not None
    assert (architecture.seeing.tokens, architecture.seeing.frozen) == (1024, True)
    assert notes == []
    blind = PUBLISHED["ling-1t"]["config"]
    with pytest.raises(WorkloadError, match="image_tokens is 8: expected 0: what sees"):
        architecture_of({**blind, "image_tokens": 8}, place="config.json", name="ling")


def test_a_word_for_patches_that_merge_is_named() -> None:
    values = PUBLISHED["kimi-vl-a3b"]["config"] | {"image_tokens": 256}
    vision = {**values["vision_config"], "merge_kernel_size": [2, "two"]}
    with pytest.raises(WorkloadError, match=r"vision_config: merge_kernel_size is \[2, 'two'\]"):
        architecture_of({**values, "vision_config": vision}, place="config.json", name="kimi")
