"""Sensitivities for a page, or why there are none."""

from typing import Any

from stepsim.compare import Comparison, accepted_options
from stepsim.errors import PlanError
from stepsim.sensitivity import Sensitivity, sensitivity
from stepsim.workload import Workload


def find_what_if(workload: Workload, **options: Any) -> Sensitivity | str:
    """What one per cent of each parameter of a job is worth; `options` are those of `simulate`.

    A text where derivatives are not defined, as with links that transfers share.
    """
    try:
        return sensitivity(workload, **options)
    except PlanError as error:
        return f"No sensitivities: {error}."


def find_each_what_if(
    comparison: Comparison, workload: Workload, **options: Any
) -> list[Sensitivity | str]:
    """The same for every schedule that runs, in order."""
    asked = options.pop("schedule_options", None) or {}
    return [
        find_what_if(
            workload, schedule=name, schedule_options=accepted_options(name, asked), **options
        )
        for name, _ in comparison.valid
    ]
