"""What stepsim understands of a job before it runs one."""

from stepsim.network.placement import place
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.inspection import Inspection, inspect_workload
from stepsim.step.job import WorkSource, job_of


def inspect_work(
    source: WorkSource, topology: Topology, options: StepOptions
) -> tuple[Inspection, str]:
    """A workload or model as it will be run, and the device that it runs on, empty if unknown.

    Raises PlanError where the machine has no room for it.
    """
    job = job_of(source, topology, options)
    place(topology, job.plan, options.placement)
    device = job.setup.device.name if job.setup else topology.device
    return inspect_workload(job.workload, job.plan, job.notes), device
