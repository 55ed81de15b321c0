"""The closed form of a step in which communication slows compute, held against the engine."""

from typing import Any

import numpy as np
import pytest

from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.asked import read_inputs
from stepsim.step.prepared import prepare
from stepsim.step.second_look import SecondLook
from stepsim.workload.model.choices import ExpertDispatch
from stepsim.workload.model.slowing import DISPATCH_ENGINES, Slowing
from stepsim.workload.overlap import CommEngine, GpuLimits, KernelDemand, slowdown

FSDP: dict[str, Any] = {"framework": "torch-fsdp-compiled", "sequence": 4096}
MEGATRON: dict[str, Any] = {"framework": "megatron-core", "global_batch": 128, "sequence": 8192}
PAIRED: dict[str, Any] = {
    "framework": "megatron-bridge",
    "microbatch_size": 1,
    "global_batch": 256,
    "sequence": 4096,
    "cuda_graph": True,
}
JOBS: list[tuple[str, dict[str, Any]]] = [
    ("llama-3-8b", {"npus": 8, "microbatch_size": 2, "global_batch": 16} | FSDP),
    ("llama-3-8b", {"npus": 64, "tp": 2} | MEGATRON),
    ("llama-3-70b", {"npus": 64, "tp": 4, "pp": 4} | MEGATRON),
    ("qwen3-30b-a3b", {"npus": 16, "ep": 8, "pp": 2, "dispatch": "deepep"} | PAIRED),
    (
        "qwen3-30b-a3b",
        {"npus": 16, "ep": 16, "dispatch": "hybridep", "schedule": "combined-1f1b"} | PAIRED,
    ),
]


def steps(model: str, options: dict[str, Any]) -> tuple[float, float]:
    """A step by the engine and by the closed form, in seconds."""
    job = read_inputs(model, "hgx-h100", options)
    ready = prepare(job.workload, job.topology, job.options)
    assert isinstance(ready.second_look, SecondLook)
    closed_s = ready.second_look.closed_form_s()
    assert closed_s is not None
    return ready.step_time_ps() / 1e12, closed_s


@pytest.mark.parametrize(("model", "options"), JOBS)
def test_both_say_how_much_longer_a_step_is(model: str, options: dict[str, Any]) -> None:
    """Within a point and a half of the step: the closed form knows neither kernels nor messages."""
    alone, slowed = (steps(model, options | {"overlap_cost": cost}) for cost in (False, True))
    engine, closed = (after / before - 1 for after, before in zip(slowed, alone, strict=True))
    assert closed == pytest.approx(engine, abs=0.015)
    assert closed >= 0


def test_what_is_lost_is_the_law_of_each_plan() -> None:
    gpu = GpuLimits.of(read_device("h100"))
    slowing = Slowing(gpu=gpu)
    sent, seconds = np.array([3.7e9, 3.7e9, 0.0]), np.array([0.01, 0.01, 0.0])
    found = slowing.lost(CommEngine.RING, sent, seconds, np.array([False, True, False]))
    for place, sms in ((0, 24), (1, 16)):
        demand = CommEngine.RING.traits.moving(370e9, sms)
        assert found[place] == pytest.approx(1 - 1 / slowdown(KernelDemand(), [demand], gpu))
    assert found[2] == 0
    copies = replace(slowing, sms=0).lost(CommEngine.RING, sent, seconds, np.zeros(3, dtype=bool))
    assert copies[0] < found[0]


def test_products_that_leave_enough_sms_free_lose_memory_alone() -> None:
    device = read_device("h100")
    framework = replace(read_framework("megatron-core"), free_sms=24)
    sent, seconds, far = np.array([1.0]), np.array([1.0]), np.zeros(1, dtype=bool)
    lost = []
    for each in (framework, replace(framework, free_sms=0)):
        slowing = Slowing.on(device, each, None)
        assert slowing
        lost.append(slowing.lost(CommEngine.RING, sent, seconds, far)[0])
    assert lost == pytest.approx([0.0, 24 / 132])


def test_every_dispatcher_has_what_carries_it() -> None:
    assert {*DISPATCH_ENGINES} == {*ExpertDispatch}
    assert all(DISPATCH_ENGINES[each].traits.sms == each.sms for each in ExpertDispatch), (
        "SMs of dispatchers are said twice"
    )
