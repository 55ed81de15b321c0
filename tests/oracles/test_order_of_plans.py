"""The faster of two measured plans is mostly predicted to be the faster one."""

from pathlib import Path

import pytest
from accuracy_order import ordered_pairs

from stepsim.files.model_steps import read_published_steps
from stepsim.validation.published import validate_published


@pytest.mark.parametrize(("source", "pairs", "least"), [("vtrain-multi", 80, 0.85)])
def test_alternatives_are_in_the_measured_order(
    source: str, pairs: int, least: float, shared: Path
) -> None:
    steps, _ = read_published_steps(shared / "reference/steps/dev.csv")
    rows = validate_published([step for step in steps if step.source == source]).rows
    right, found = ordered_pairs(rows)[source]
    assert found > pairs
    assert right >= least * found
