"""What a prediction's error rests on: runs on this very device, else nothing but a range."""

from math import log

import pytest

from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import read_model
from stepsim.workload.model.evidence import ErrorBand
from stepsim.workload.model.framework import error_band
from stepsim.workload.plan import Plan

DENSE = ErrorBand(
    device="H100",
    generation="hopper",
    sparse=False,
    error=0.04,
    runs=10,
    source="one",
    low=0.9,
    high=1.2,
    others=7,
    most_npus=64,
    most_sequence=8192,
    most_cp=2,
)
FRAMEWORK = replace(read_framework("megatron-core"), errors=(DENSE,))
PLAN = Plan.of_batch(dp=8, global_batch=8)
DENSE_MODEL, SPARSE_MODEL = (
    read_model(name).architecture for name in ("llama-3-8b", "mixtral-8x7b")
)


def test_runs_on_the_device_say_its_errors() -> None:
    assert error_band(FRAMEWORK, read_device("h100"), PLAN, DENSE_MODEL) == DENSE


def test_another_device_never_has_those_errors() -> None:
    sibling = error_band(FRAMEWORK, read_device("h200"), PLAN, DENSE_MODEL)
    assert sibling is not None
    assert (sibling.runs, sibling.low, sibling.high) == (0, 0.9, 1.2)
    assert error_band(FRAMEWORK, read_device("mi300x"), PLAN, DENSE_MODEL) is None
    assert error_band(FRAMEWORK, read_device("gb300"), PLAN, DENSE_MODEL) is None


def test_nothing_is_said_of_another_kind() -> None:
    assert error_band(FRAMEWORK, read_device("h100"), PLAN, SPARSE_MODEL) is None


@pytest.mark.parametrize(
    ("plan", "beyond"),
    [
        (replace(PLAN, dp=128), 1),
        (replace(PLAN, sequence=16384), 1),
        (replace(PLAN, cp=4), 1),
        (replace(PLAN, cp=4, sequence=16384), 2),
    ],
    ids=["NPUs", "sequence", "cp", "both"],
)
def test_a_range_is_wider_beyond_the_runs(plan: Plan, beyond: int) -> None:
    band = error_band(FRAMEWORK, read_device("h100"), plan, DENSE_MODEL)
    assert band is not None
    assert log(band.low) == pytest.approx(log(0.9) * 1.5**beyond)
    assert log(band.high) == pytest.approx(log(1.2) * 1.5**beyond)
