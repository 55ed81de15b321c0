"""The law of a kernel beside communication: waves, memory, delays, whatever the numbers."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepsim.base.errors import PlanError
from stepsim.files.accelerators import device_names, read_device
from stepsim.network.fair_rates import fair_levels
from stepsim.workload.model.choices import ExpertDispatch
from stepsim.workload.model.evidence import Evidence, source_of
from stepsim.workload.overlap import (
    CommDemand,
    CommEngine,
    GpuLimits,
    KernelDemand,
    KernelKind,
    delay_s,
    memory_stretch,
    slowdown,
    waves,
)

HOPPER = GpuLimits(sms=132, bytes_per_s=3350e9, channel_bytes_per_s=15.45e9)
HELD = CommDemand(sms=20)
KERNELS = st.builds(
    KernelDemand,
    kind=st.sampled_from(KernelKind),
    blocks=st.integers(0, 5000),
    per_sm=st.sampled_from([(1,), (2,), (4, 8), (1, 2, 4)]),
)


@given(kernel=KERNELS)
def test_nothing_beside_changes_nothing(kernel: KernelDemand) -> None:
    assert slowdown(kernel, [], HOPPER) == 1.0
    assert slowdown(kernel, [CommDemand()], HOPPER) == 1.0
    assert slowdown(kernel, [CommDemand()], HOPPER) == 1
    assert delay_s([CommDemand()], HOPPER) == 0


@given(kernel=KERNELS, sms=st.integers(0, 200), wire=st.floats(0, 1e13))
def test_nothing_is_faster_beside(kernel: KernelDemand, sms: int, wire: float) -> None:
    comm = CommEngine.RING.traits.moving(wire, sms)
    assert slowdown(kernel, [comm], HOPPER) >= 1.0
    assert delay_s([comm], HOPPER) >= 0.0


@given(kernel=KERNELS, wire=st.floats(0, 1e12))
def test_more_bytes_never_help(kernel: KernelDemand, wire: float) -> None:
    less, more = (CommEngine.RING.traits.moving(share * wire) for share in (0.5, 1.0))
    assert slowdown(kernel, [less], HOPPER) <= slowdown(kernel, [more], HOPPER)


def test_a_grid_of_all_sms_loses_a_wave_and_one_that_leaves_them_nothing() -> None:
    """Stated: 1.7 to 2.0 times as long; at most 1.15 with as many SMs left as are held."""
    for held in (16, 20, 24):
        for wire in (0.0, held * HOPPER.channel_bytes_per_s):
            comm = CommEngine.RING.traits.moving(wire, held)
            full, fits = KernelDemand(blocks=132), KernelDemand(blocks=132 - held)
            assert 1.7 <= slowdown(full, [comm], HOPPER) <= 2.0
            assert slowdown(fits, [comm], HOPPER) <= 1.15
    assert slowdown(KernelDemand(free_sms=20), [HELD], HOPPER) == 1.0


def test_waves_are_whole_by_hand() -> None:
    assert waves(264, 1, 132) == 2
    assert waves(528, 4, 132) == 1
    assert waves(108, 1, 132) == 1
    # a wave of 112, then 20 blocks: 0.6 of a wave inside SMs, 0.4 by the root of 20 / 112
    assert waves(132, 1, 112) == pytest.approx(1 + 0.6 + 0.4 * (20 / 112) ** 0.5)
    # 3 blocks on an SM at a time, one in the last wave
    inside, outside = (1 / 3) ** 0.5, (60 / 336) ** 0.5
    assert waves(396, 3, 112) == pytest.approx(1 + 0.6 * inside + 0.4 * outside)


@given(blocks=st.integers(1, 100_000), per_sm=st.integers(1, 32), sms=st.integers(1, 300))
def test_waves_lie_between_shares_and_whole_ones(blocks: int, per_sm: int, sms: int) -> None:
    found = waves(blocks, per_sm, sms)
    assert blocks / (per_sm * sms) <= found * (1 + 1e-12)
    assert found <= -(-blocks // (per_sm * sms)) + 1e-12


@given(taken=st.floats(0, 0.5), draw=st.floats(0.01, 1))
def test_memory_is_shared_as_links_are(taken: float, draw: float) -> None:
    """Max-min fair levels of a kernel and a communication that asks for at most half."""
    gpu = GpuLimits(sms=1, bytes_per_s=1.0)
    wanted = np.array([draw, max(taken, 1e-9)])
    rows = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 2]), np.ones(4)
    levels = fair_levels(*rows, np.array([1.0, *wanted]), 2)
    assert memory_stretch(draw, float(wanted[1]), gpu) == pytest.approx(draw / levels[0])


@given(taken=st.floats(0, 0.94), draw=st.floats(0.01, 1))
def test_memory_is_never_taken_twice(taken: float, draw: float) -> None:
    gpu = GpuLimits(sms=1, bytes_per_s=1.0)
    assert draw / memory_stretch(draw, taken, gpu) + taken <= max(1.0, taken) + 1e-12


def test_several_communications_add_up() -> None:
    product = KernelDemand()
    one = CommEngine.RING.traits.moving(100e9, 8)
    two = CommEngine.RING.traits.moving(200e9, 16)
    assert slowdown(product, [one, one], HOPPER) == slowdown(product, [two], HOPPER)
    assert slowdown(product, [HELD] * 100, HOPPER) < float("inf")


def test_limits_are_those_of_the_device_file() -> None:
    ampere = read_device("a100-80gb").limits
    assert ampere.sms * ampere.channel_bytes_per_s == pytest.approx(108 * 10e9)
    for name in device_names():
        device = read_device(name)
        if device.processors:
            assert device.limits.sms == device.processors
            assert {"processors", "channel"} <= device.sources.keys()
        else:
            with pytest.raises(PlanError, match=f"processors of {device.name} are not known"):
                _ = device.limits


@pytest.mark.parametrize("engine", CommEngine)
def test_every_number_of_a_communication_has_its_evidence(engine: CommEngine) -> None:
    sources = engine.traits.sources
    assert {*sources} == {"sms", "memory_bytes", "delay_us", "holds"}
    assert all(source_of(text).evidence is not Evidence.UNSAID for text in sources.values())


def test_no_kernel_loses_more_than_half_of_the_sms() -> None:
    """Kernels with blocks for all SMs share them in turns with others."""
    product = KernelDemand()
    assert slowdown(product, [CommDemand(sms=1000)], HOPPER) == 2.0
    assert slowdown(product, [CommDemand(sms=66)], HOPPER) == 2.0


def test_every_dispatcher_has_what_carries_it() -> None:
    assert all(CommEngine(each.engine).traits for each in ExpertDispatch)
