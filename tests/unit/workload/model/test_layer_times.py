"""What a layer takes: slower beside gathers, and no quicker than the host launches its kernels."""

from math import inf
from typing import Any

import pytest

from stepsim.base.axes import Phase
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.workload.model.architecture import Architecture, DenseMlp, GroupedAttention, Layer
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.choices import Recompute
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.model import Model
from stepsim.workload.model.parts import NO_NETWORK, Interconnect
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Workload

LAYER = Layer(
    attention=GroupedAttention(heads=8, kv_heads=4, head_dim=128), mlp=DenseMlp(width=4096)
)
MODEL = Model(
    source="x",
    architecture=Architecture(name="small", hidden=1024, layers=(LAYER,) * 2, vocabulary=1000),
)
FRAMEWORK = replace(
    read_framework("megatron-core"), fsdp_slowdown=0.5, host_layer_ps=0, host_step_ps=0, skew=0.0
)


def workload(
    interconnect: Interconnect = NO_NETWORK, framework: Framework = FRAMEWORK, **how: Any
) -> Workload:
    plan = Plan.of_batch(dp=4, global_batch=4, sequence=2048, **how)
    return build_workload(MODEL, plan, read_device("h100"), framework, interconnect)


def computed(made: Workload) -> tuple[int, int]:
    """Compute of a layer in ps, forward and backward."""
    rows = made.microbatches[0].layers[0]
    forward, *backward = (sum(getattr(row, phase).compute_ps for row in rows) for phase in Phase)
    return forward, sum(backward)


def lasting(collective_ps: int) -> Interconnect:
    """One node, in which every collective takes as long whatever its bytes."""
    return Interconnect(domain=8, inner=inf, outer=inf, launch_ps=collective_ps)


def test_compute_loses_what_gathers_and_reductions_take_of_it() -> None:
    """A collective of a fifth of the forward, half of it lost while it goes on.

    The forward has one beside it, and loses a tenth; the backward, with two, twice as much time.
    """
    forward, backward = computed(workload(zero=3))
    fifth = forward // 5
    slowed = computed(workload(lasting(fifth), zero=3))
    assert slowed == pytest.approx((forward + fifth / 2, backward + 2 * fifth / 2), abs=20)
    whole = computed(workload(lasting(fifth), zero=1))
    assert whole == computed(workload(zero=1)) == (forward, backward)


def test_compute_loses_its_share_at_most() -> None:
    forward, backward = computed(workload(zero=3))
    slowed = computed(workload(lasting(10 * backward), zero=3))
    assert slowed == pytest.approx((1.5 * forward, 1.5 * backward), abs=20)


@pytest.mark.parametrize(
    ("recompute", "share", "decides"),
    [
        (Recompute.NONE, 0.99, False),
        (Recompute.NONE, 1.01, True),
        (Recompute.FULL, 0.74, False),
        (Recompute.FULL, 0.76, True),
    ],
)
def test_the_host_decides_where_its_launches_take_longer_than_the_kernels(
    recompute: Recompute, share: float, *, decides: bool
) -> None:
    """A layer that runs forward again launches four passes, where its launches are of three."""
    forward, backward = computed(workload())
    kernels = forward * (2 if recompute is Recompute.FULL else 1) + backward
    framework = replace(FRAMEWORK, host_layer_ps=round(share * kernels))
    warnings = workload(framework=framework, recompute=recompute).warnings
    assert (
        any("longer than its kernels run: the host sets the time" in text for text in warnings)
        == decides
    )
