"""The faster of two measured plans is mostly predicted to be the faster one."""

from pathlib import Path

import pytest
from accuracy_order import MOST_NPUS, ordered_pairs

from stepsim.files.model_steps import read_published_steps
from stepsim.runs.published import validate_published


@pytest.mark.parametrize(
    ("source", "pairs", "least"),
    [("vtrain-multi", 80, 0.83), ("bigscience", 30, 0.65), ("nanotron", 1500, 0.88)],
)
def test_alternatives_are_in_the_measured_order(
    source: str, pairs: int, least: float, shared: Path
) -> None:
    steps, _ = read_published_steps(shared / "reference/steps/dev.csv")
    alike = [
        step
        for step in steps
        if step.source == source and step.plan.npus <= MOST_NPUS.get(source, 999)
    ]
    rows = validate_published(alike).rows
    right, found = ordered_pairs(rows)[source]
    assert found > pairs
    assert right >= least * found
