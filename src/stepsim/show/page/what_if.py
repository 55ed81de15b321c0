"""Sensitivities on a page, or why there are none."""

from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.explore.sensitivity import Sensitivity, find_sensitivity
from stepsim.files.asked import StepInputs
from stepsim.step.compare import ComparedSchedules


def find_what_if(job: StepInputs) -> Sensitivity | str:
    """What one per cent of each parameter of a job is worth.

    A text where derivatives are not defined, as with links that transfers share.
    """
    try:
        return find_sensitivity(job.workload, job.topology, job.options)
    except PlanError as error:
        return f"No sensitivities: {error}."


def find_each_what_if(comparison: ComparedSchedules, job: StepInputs) -> list[Sensitivity | str]:
    """The same for every schedule that runs, in order."""
    return [
        find_what_if(replace(job, options=result.timeline.graph.options))
        for _, result in comparison.valid
    ]
