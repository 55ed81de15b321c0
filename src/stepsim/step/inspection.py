"""What stepsim understands of a job before it runs one."""

from stepsim.network.placement import place
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.inspection import Inspection, inspect_workload
from stepsim.step.inputs import WorkSource, choose_plan, make_work, scaled_workload


def inspect_work(
    source: WorkSource, topology: Topology, options: StepOptions
) -> tuple[Inspection, str]:
    """A workload or model as it will be run, and the device that it runs on, empty if unknown.

    Raises PlanError where the machine has no room for it.
    """
    made = make_work(source, topology, options)
    workload, _ = scaled_workload(made.workload, made.sized)
    plan, assumed = choose_plan(workload, topology, made.sized)
    place(topology, plan, options.placement)
    device = made.built.device.name if made.built else topology.device
    return inspect_workload(workload, plan, assumed), device
