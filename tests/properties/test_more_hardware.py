"""A device that has at least as much of everything makes no step longer, of one maker's."""

from itertools import permutations, product

import numpy as np
import pytest
from helpers import few, maker
from pairs import in_turn

from stepsim.base.structs import replace
from stepsim.files.accelerators import device_names, read_device, read_framework
from stepsim.files.load import public_names, read_model, topology_of
from stepsim.step.model_plan import interconnect_of
from stepsim.workload.model.choices import Precision, Recompute
from stepsim.workload.model.device import Device
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan

_MEASURED = 1e-3
"""Share by which kernels that were measured on each device may be slower on the better one."""

DEVICES = [read_device(name) for name in device_names()]
FRAMEWORKS = ("megatron-core", "megatron-bridge", "torch-fsdp-compiled", "nanotron")
MODELS = public_names()[:: max(len(public_names()) // 20, 1)]


def has_more(one: Device, other: Device) -> bool:
    """Whether a device has at least the peaks, bandwidth and memory of another."""
    shared = one.rates.keys() & other.rates.keys()
    return (
        maker(one) == maker(other)
        and one.memory_bytes >= other.memory_bytes
        and one.memory_bandwidth >= other.memory_bandwidth
        and all(one.rates[p].peak >= other.rates[p].peak for p in shared)
    )


PAIRS = [(one, other) for one, other in permutations(DEVICES, 2) if has_more(one, other)]
PLANS = [
    Plan.of_batch(tp=tp, dp=8, pp=pp, microbatch_size=mbs, global_batch=64, sequence=seq, **more)
    for tp, pp, mbs, seq, more in (
        (1, 1, 1, 2048, {}),
        (2, 1, 4, 8192, {"zero": 3}),
        (1, 2, 2, 4096, {"dp_overlap": True}),
        (1, 1, 1, 512, {"recompute": Recompute.FULL, "cuda_graph": True}),
    )
]


def test_there_are_pairs_of_every_generation() -> None:
    generations = {device.generation for pair in PAIRS for device in pair}
    assert {"ampere", "hopper", "blackwell", "blackwell-ultra", "cdna3", "cdna4"} <= generations
    assert {"volta", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x"} <= generations
    assert len(MODELS) >= 20


@pytest.mark.parametrize(
    ("model", "framework"), few(product(MODELS, FRAMEWORKS), *in_turn(MODELS, FRAMEWORKS))
)
def test_more_hardware_makes_no_step_longer(model: str, framework: str) -> None:
    architecture = read_model(model).architecture
    network = interconnect_of(topology_of("hgx-h100"))
    seconds: dict[tuple[str, Precision], np.ndarray] = {}
    for device in DEVICES:
        steps = StepModel(
            architecture=architecture,
            device=device,
            framework=read_framework(framework),
            interconnect=network,
        )
        for precision in device.rates:
            plans = [replace(plan, precision=precision) for plan in PLANS]
            seconds[device.name, precision] = steps.seconds(plans)
    for one, other in PAIRS:
        for precision in one.rates.keys() & other.rates.keys():
            better, worse = seconds[one.name, precision], seconds[other.name, precision]
            assert (better <= worse * (1 + _MEASURED)).all(), (one.name, other.name, precision)
