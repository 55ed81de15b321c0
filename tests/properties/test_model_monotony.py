"""Models under random plans: a better machine, or less work, is never slower; floors hold."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import make_batch

import stepsim
from stepsim.base.errors import StepsimError
from stepsim.files.accelerators import read_framework
from stepsim.files.load import load_topology
from stepsim.files.models.load import read_model
from stepsim.workload.axes import ParallelAxis, Part

MODELS = ("llama-3.2-1b", "llama-3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "gemma-7b", "bloom-560m")
MACHINES = (
    ("dgx-v100", "a100-40gb"),
    ("hgx-a100", "a100-80gb"),
    ("hgx-h100", "h100"),
    ("hgx-b200", "b200"),
    ("gb200-nvl72", "gb200"),
    ("hgx-a100", "mi300x"),
)
WAYS = ("bandwidth", "latency", "compute", "bytes", "sequence")
TOLERANCE = {"none": 1.0, "siblings": 1.0, "fair": 1.005}
"""What a better machine may cost: of overlapping transfers the order may change (fair sharing)."""


@st.composite
def plans(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    """A model, a topology and options of a job that may be host-bound."""
    model = draw(st.sampled_from(MODELS))
    topology, device = draw(st.sampled_from(MACHINES))
    tp, pp = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 2, 4]))
    dp = draw(st.sampled_from([1, 2, 8]))
    batch = dp * draw(st.sampled_from([1, 4, 8]))
    asked: dict[str, Any] = {
        "device": device,
        "tp": tp,
        "pp": pp,
        "npus": tp * pp * dp,
        "global_batch": batch,
        "sequence": draw(st.sampled_from([512, 2048])),
        "recompute": draw(st.sampled_from(["none", "full"])),
        "dp_overlap": draw(st.booleans()),
        "zero": draw(st.sampled_from([0, 1, 3] if pp == 1 else [0, 1])),
        "contention": draw(st.sampled_from(sorted(TOLERANCE))),
        "framework": draw(st.sampled_from(["megatron-core", "nanotron", "torch-fsdp-compiled"])),
    }
    if model in ("qwen3-30b-a3b", "mixtral-8x7b"):
        asked["ep"] = draw(st.sampled_from([1, min(dp, 8)]))
    return model, topology, asked


def steps_along(way: str, model: str, topology: str, asked: dict[str, Any]) -> list[float]:
    """Steps from the worst machine, or the most work, to the best."""

    def step(numbers: dict[str, str] | None = None, **more: Any) -> float:
        network = stepsim.load_topology(topology, numbers=numbers)
        return stepsim.simulate(model, network, **asked | more).step_time_s

    inner = load_topology(topology).link_classes[0].name
    match way:
        case "bandwidth":
            return [step({f"{inner}.bandwidth": f"{rate} GB/s"}) for rate in (50, 100, 200, 400)]
        case "latency":
            return [step({f"{inner}.latency": f"{us} us"}) for us in (100, 10, 1)]
        case "compute":
            return [step(compute_scale=scale) for scale in ("2", "1", "0.5", "0.1")]
        case "bytes":
            batch = make_batch(model, topology, **asked | {"contention": "siblings"})
            columns = {f"size.{axis}": [2.0, 1.0, 0.5] for axis in ParallelAxis}
            evaluated: list[float] = batch.evaluate(batch.scenarios(columns)).step_time_ps.tolist()
            return evaluated
        case _:
            return [step(sequence=tokens) for tokens in (4096, 2048, 1024)]


@given(job=plans(), way=st.sampled_from(WAYS))
@settings(max_examples=12, deadline=None)
def test_less_work_on_a_better_machine_is_not_slower(
    job: tuple[str, str, dict[str, Any]], way: str
) -> None:
    _check(job, way)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(job=plans(), way=st.sampled_from(WAYS))
@settings(max_examples=1000, deadline=None)
def test_a_thousand_jobs_are_monotone(job: tuple[str, str, dict[str, Any]], way: str) -> None:
    _check(job, way)


def _check(job: tuple[str, str, dict[str, Any]], way: str) -> None:
    model, topology, asked = job
    try:
        found = steps_along(way, model, topology, asked)
    except StepsimError:
        return  # a plan that the model cannot run
    for worse, better in pairwise(found):
        assert better <= worse * TOLERANCE[asked["contention"]]


@given(job=plans())
@settings(max_examples=12, deadline=None)
def test_a_step_is_as_long_as_launches_and_compute_of_its_busiest_rank(
    job: tuple[str, str, dict[str, Any]],
) -> None:
    model, topology, asked = job
    try:
        report = stepsim.simulate(model, topology, **asked).report
    except StepsimError:
        return
    framework = read_framework(asked["framework"])
    layers = read_model(model).architecture.layers
    own = [
        framework.host_expert_layer_ps if layer.is_sparse else framework.host_layer_ps
        for layer in layers
    ]
    passes = 4 / 3 if asked["recompute"] == "full" else 1
    launches = sum(own) / asked["pp"] * report.plan.microbatches * passes
    assert report.step_time_ps >= 0.999 * launches
    parts = report.mean_breakdown_ps()
    assert report.step_time_ps >= parts[Part.COMPUTE]
