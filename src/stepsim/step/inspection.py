"""What stepsim understands of a job before it runs one."""

from stepsim.base.structs import replace
from stepsim.network.placement import place
from stepsim.parallel.inspection import Inspection, inspect_workload
from stepsim.step.job import Job
from stepsim.workload.model.architecture import said_of_architecture


def inspect_job(job: Job) -> tuple[Inspection, str]:
    """A workload or model as it will be run, and the device that it runs on, empty if unknown.

    Raises PlanError where the machine has no room for it.
    """
    topology = job.asked.topology
    place(topology, job.plan, job.options.placement)
    setup, work = job.setup, job.workload
    if setup is None:
        return inspect_workload(work, job.plan, job.notes), topology.device
    runs_on = f"{setup.device.name}, {setup.framework.name}, {job.plan.precision}"
    described = *said_of_architecture(setup.architecture), ("runs on", runs_on)
    work = replace(work, described=described)
    return inspect_workload(work, job.plan, job.notes), setup.device.name
