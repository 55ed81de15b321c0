"""Every number of a shipped device says what it rests on."""

import pytest

from stepsim.documents.table import Table
from stepsim.files.accelerators import device_names, framework_names, read_device, read_framework
from stepsim.views.inspection import constants_shown
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
    table = next(iter(constants_shown(read_framework(name))))
    assert isinstance(table, Table)
    unsaid = [row[0] for row in table.rows if row[3] == Evidence.UNSAID]
    assert not unsaid


def test_a_text_without_a_kind_of_evidence_stands_as_it_is() -> None:
    assert source_of("guess: half") == (Evidence.GUESS, "half")
    assert source_of("somebody said: half") == (Evidence.UNSAID, "somebody said: half")
    assert source_of(None) == (Evidence.UNSAID, "")
