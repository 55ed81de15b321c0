"""Steps for their totals alone, the quickest way: for sweeps and searches, which run many."""

from stepsim.base import garbage
from stepsim.base.structs import Noun
from stepsim.core.timeline import Timeline
from stepsim.explain.make_report import StepTotals, make_totals
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.step.job import WorkSource
from stepsim.step.prepared import PreparedStep, SimulatedStep, prepare, quickest


class RunStep(Noun):
    """A step that has run, and of which nothing is said yet."""

    ready: PreparedStep
    timeline: Timeline

    def simulated(self) -> SimulatedStep:
        """The step with all that is known of it."""
        return self.ready.reported(self.timeline)

    def totals(self, *, breakdown: bool) -> StepTotals:
        """Its totals alone."""
        work = self.ready.workload
        return make_totals(
            self.timeline, workload=work.source, breakdown=breakdown, effort=work.effort
        )


def step_totals(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions,
    *,
    breakdown: bool,
    known: Known,
) -> StepTotals:
    """Run one training step for its totals alone, the quickest way; raises as `simulate_step` does.

    `known` is what prices of earlier steps have found, and what this one adds to.
    """
    with garbage.paused():
        run = run_step(workload, topology, options, known, apart=breakdown)
        return run.totals(breakdown=breakdown)


def run_step(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions,
    known: Known,
    *,
    apart: bool = True,
) -> RunStep:
    """Run one training step the quickest way; raises as `simulate_step` does.

    `known` is what prices of earlier steps have found, and what this one adds to; `apart` is as
    `FlatStep.timeline` takes it.
    """
    with garbage.paused():
        ready = prepare(workload, topology, quickest(options), known=known)
        return RunStep(ready=ready, timeline=ready.flat().timeline(apart=apart))
