"""What a prediction's error rests on: runs like it, else runs on other devices, else nothing."""

from dataclasses import replace

import pytest

from stepsim.files.accelerators import read_device, read_framework
from stepsim.workload.model.effort import error_band
from stepsim.workload.model.framework import ErrorBand

DENSE = ErrorBand(device="H100", sparse=False, error=0.04, runs=10, source="one")
OTHER = ErrorBand(device="B200", sparse=False, error=0.01, runs=20, source="two")
FRAMEWORK = replace(read_framework("megatron-core"), errors=(DENSE, OTHER))


def test_runs_on_the_device_come_first() -> None:
    assert error_band(FRAMEWORK, read_device("h100"), sparse=False) == DENSE


def test_another_device_has_the_runs_of_all() -> None:
    found = error_band(FRAMEWORK, read_device("gb300"), sparse=False)
    assert found is not None
    assert (found.device, found.runs, found.source) == ("H100, B200", 30, "one, two")
    assert found.error == pytest.approx((0.4 + 0.2) / 30)


def test_nothing_is_said_of_another_kind() -> None:
    assert error_band(FRAMEWORK, read_device("h100"), sparse=True) is None
