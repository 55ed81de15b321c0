"""Every number of a shipped device says what it rests on; generations share one scale."""

import pytest
from helpers import maker

from stepsim.files.accelerators import (
    device_names,
    framework_names,
    read_device,
    read_framework,
)
from stepsim.show.tables.inspection import constants_of_framework
from stepsim.show.tables.model import Table
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Evidence, source_of

DEVICES = [read_device(name) for name in device_names()]


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_numbers_of_devices_have_evidence(device: Device) -> None:
    needed = ("memory", "peak", "rate", "sustained", "attention", "vector", "memory_share")
    for name in needed:
        assert source_of(device.sources.get(name)).evidence is not Evidence.UNSAID, name
    kernels = {"grouped": device.grouped, "scan": device.scans}
    for name, table in kernels.items():
        assert not table or source_of(device.sources.get(name)).evidence is not Evidence.UNSAID
    assert device.generation


@pytest.mark.parametrize("name", framework_names())
def test_numbers_of_frameworks_have_evidence(name: str) -> None:
    table = next(iter(constants_of_framework(read_framework(name))))
    assert isinstance(table, Table)
    unsaid = [row[0] for row in table.rows if row[2] == Evidence.UNSAID]
    assert not unsaid


def test_a_text_without_a_kind_of_evidence_stands_as_it_is() -> None:
    assert source_of("guess: half") == (Evidence.GUESS, "half")
    assert source_of("somebody said: half") == (Evidence.UNSAID, "somebody said: half")
    assert source_of(None) == (Evidence.UNSAID, "")


@pytest.mark.parametrize("one", DEVICES, ids=lambda device: device.name)
def test_more_hardware_has_rates_at_least_as_high(one: Device) -> None:
    """Where peaks, bandwidth and capacity are at least as high, so is all else of one maker's."""
    for other in DEVICES:
        shared = one.rates.keys() & other.rates.keys()
        if (
            other is not one
            and maker(one) == maker(other)
            and one.memory_bytes >= other.memory_bytes
            and one.memory_bandwidth >= other.memory_bandwidth
            and all(one.rates[p].peak >= other.rates[p].peak for p in shared)
        ):
            check_higher(one, other)


def check_higher(one: Device, other: Device) -> None:
    """No rate of a device is lower than that of another, and no delay longer."""
    for precision in one.rates.keys() & other.rates.keys():
        ours, theirs = one.rates[precision], other.rates[precision]
        assert ours.rate * one.sustained >= theirs.rate * other.sustained, precision
        assert ours.start_ps <= theirs.start_ps
    assert one.bytes_per_s >= other.bytes_per_s
    assert one.kernel_floor_ps <= other.kernel_floor_ps
    fastest = [max(rate.rate for rate in device.attention.values()) for device in (one, other)]
    assert fastest[0] >= fastest[1]
