"""One training step, from a workload and a network to what is reported: read this first.

A step is prepared (`prepare`): its workload is scaled, a plan and a schedule are chosen, stages
split, the task graph built, and communications priced. It runs (`PreparedStep.simulated`): ranks
that behave alike are folded into one, programs laid out, and events or columns say when every task
starts and ends. What ran is reported (`explain.make_report`). Last, doubts about the input are
weighed: by how much the step would change without what is doubted (`doubts`).
"""

from functools import cached_property
from typing import TYPE_CHECKING

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError, errors_at, said
from stepsim.base.process import paused
from stepsim.base.structs import Names, Noun, replace
from stepsim.core.timeline import MOST_EVENTS, Timeline, run_graph
from stepsim.core.write import TaskGraph, write_graph
from stepsim.explain.make_report import make_report, simulated_ranks
from stepsim.explain.network_use import Traffic, find_traffic
from stepsim.explain.report import Finding, Report, ResultDocument, SimulatedRanks
from stepsim.files.asked import StepInputs
from stepsim.network.placement import Crossing, find_crossing, idle_npus, place
from stepsim.network.prices import Known, Prices
from stepsim.parallel.modes import Engine, Sharing
from stepsim.parallel.stages import split_stages
from stepsim.step.job import Job, choose_schedule, job_of, prices_of
from stepsim.step.size import memory_of
from stepsim.workload.overlap import CommEngine
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Doubt, Workload
from stepsim.workload.scaling import doubt_placeholders

if TYPE_CHECKING:
    from stepsim.core.beside import OverlapCost
    from stepsim.core.events import OnProgress
    from stepsim.explain.memory import StepMemory
    from stepsim.workload.overlap import CommSms


class PreparedStep(Noun, dict=True):
    """A step that is ready to run: its graph, what its communications cost, and how it is run.

    Of the network that was asked for the `job` takes what `prices` tell. `workload` is the job's
    with the memory of its fullest rank, `slow` are factors on the ranks' compute times. `assumed`
    is what was taken for granted, `notes` what is as usual and may surprise. `memory` is what ranks
    hold, where that is known. `overlap` is what communication takes from compute, None where it
    takes nothing. With `fold_ranks` one rank of each class runs.
    """

    job: Job
    workload: Workload
    graph: TaskGraph
    prices: Prices
    slow: Floats | None
    assumed: Names
    notes: Names
    memory: "StepMemory | None" = None
    overlap: "OverlapCost | None" = None
    fold_ranks: bool = True

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """What the input can hardly mean."""
        if self.job.setup or self.job.options.fill_placeholders:
            return self.job.given.doubts
        bare = doubt_placeholders(self.job.given)
        return (*self.job.given.doubts, *([bare] if bare else []))

    @cached_property
    def crossing(self) -> Crossing | None:
        """Which groups lie in several nodes or racks; None where none does."""
        machine, placement = self.job.asked.topology, self.job.options.placement
        return find_crossing(machine, self.prices.topology, self.graph.plan, placement)

    @property
    def unfit(self) -> bool:
        """Whether ranks of a model hold more than they have."""
        return self.memory is not None and self.memory.fits is False

    @property
    def too_large(self) -> Names:
        """That the step does not fit, and what would."""
        if not (self.memory and self.unfit):
            return ()
        from stepsim.step.checks import too_large

        return (too_large(self.job, self.memory),)

    @property
    def warnings(self) -> Names:
        """All that a user should know, where nobody says what doubts are worth."""
        crossed = (self.crossing.text,) if self.crossing else ()
        return (*self.too_large, *(doubt.text for doubt in self.doubts), *crossed, *self.assumed)

    def timeline(self, progress: "OnProgress | None" = None, *, apart: bool = True) -> Timeline:
        """When every task runs of those who are simulated; `apart` is as `run_graph` takes it."""
        return run_graph(
            self.graph,
            self.prices,
            slow=self.slow,
            fold_ranks=self.fold_ranks,
            engine=self.job.options.engine,
            cost=self.overlap,
            progress=progress,
            apart=apart,
        )

    def step_time_ps(self) -> int:
        """The step time alone, in ps."""
        return self.timeline(apart=False).step_time_ps

    @paused()
    def simulated(
        self, *, weigh: bool = False, progress: "OnProgress | None" = None
    ) -> "SimulatedStep":
        """The step with all that is known of it.

        With `weigh` the report says what doubts about the workload are worth in step time.
        """
        step = self.reported(self.timeline(progress), weigh=weigh)
        if not weigh:
            return step
        from stepsim.step.doubts import weighed

        return replace(step, report=weighed(step.report, self))

    def reported(self, timeline: Timeline, *, weigh: bool = False) -> "SimulatedStep":
        """What is known of its run; with `weigh` its doubts are told elsewhere."""
        work, ranks = self.workload, simulated_ranks(timeline)
        traffic = find_traffic(self.graph.uses, self.prices)
        doubts = () if weigh else tuple(doubt.text for doubt in self.doubts)
        notes, findings = self.notes, tuple(Finding(text=text) for text in self.too_large)
        if timeline.engine is Engine.LEVELS and self.job.options.engine is None:
            notes = (
                *notes,
                f"more than {MOST_EVENTS:,} tasks: their times are found level by level; they are "
                "those of the events (--engine simpy)",
            )
        if self.job.setup and not self.unfit:
            from stepsim.step.checks import second_look

            findings = tuple(second_look(self.job, timeline.step_time_ps))
        report = make_report(
            timeline,
            self.prices,
            ranks,
            traffic,
            workload=work.source,
            warnings=(*doubts, *self.assumed),
            reading=work.reading,
            notes=notes,
            effort=work.effort,
            memory=self.memory,
            findings=findings,
        )
        return SimulatedStep(
            report=report,
            timeline=timeline,
            prices=self.prices,
            ranks=ranks,
            traffic=traffic,
            memory=self.memory,
        )


class SimulatedStep(Noun):
    """A step that has run: what is reported, when every task ran, and at which prices.

    `ranks` says what the step of every simulated rank goes into, `traffic` what the step puts on
    the links of the network. `memory` is what ranks hold, None where nobody said.
    """

    report: Report
    timeline: Timeline
    prices: Prices
    ranks: SimulatedRanks
    traffic: Traffic
    memory: "StepMemory | None" = None

    @property
    def step_time_s(self) -> float:
        """Step time in seconds."""
        return self.report.step_time_s

    @property
    def plan(self) -> Plan:
        """Who computes what: the degrees, and where groups of ranks lie."""
        return self.timeline.graph.plan

    def document(self) -> ResultDocument:
        """The report with a row per rank: what `stepsim simulate --json` writes."""
        return ResultDocument.of(self.report, self.ranks)


@paused()
def prepare(
    asked: StepInputs | Job, *, known: Known | None = None, quick: bool = False
) -> PreparedStep:
    """Everything before the run: who runs what, in which order, and what communication costs.

    It is made of what is asked, or of the job of that, where it is made already. What was assumed
    before stands among the warnings. `known` is what prices of steps before have found, and what
    these add to. A `quick` run has columns in place of events, unless an engine is asked for or
    links are shared in time. Raises the errors of `stepsim.base.errors` when the input is wrong or
    contradictory.
    """
    job = asked if isinstance(asked, Job) else job_of(asked, known)
    work, plan, options, topology = job.workload, job.plan, job.options, job.asked.topology
    if quick and options.engine is None and options.contention is not Sharing.FAIR:
        options = replace(options, engine=Engine.LEVELS)
        job = replace(job, options=options)
    network = place(topology, plan, options.placement)
    schedule = choose_schedule(job, network)
    stages = split_stages(work, plan, schedule.placement, options.stage_rows)
    memory = memory_of(job, schedule, stages)
    full = list[str]()
    if job.setup:
        from stepsim.step.checks import with_memory

        work, full = with_memory(memory, job)
    graph = write_graph(stages, schedule, plan, options)
    prices = prices_of(graph, network, known)
    said(__name__, "workload %s: %d layers", work.source, work.layers)
    said(__name__, "topology %s: %d NPUs", network.name, network.npus)
    said(__name__, "schedule %s: %d stages", schedule.label, plan.pp)
    said(__name__, "task graph: %d communications", len(graph.comms))
    idle = options.idle(schedule, graph.p2p)
    foreign: Names = ()
    if topology.device and not job.setup:
        foreign = (
            f"compute times are those of {job.given.source}, of an unknown device: they are not "
            f"changed for {topology.device}, the device of {topology.name}",
        )
    every = (*work.warnings, *job.asked.notes, *job.notes, *idle, *full, *stages.warnings)
    return PreparedStep(
        job=job,
        workload=work,
        graph=graph,
        prices=prices,
        slow=options.slow.factors(plan.npus) if options.slow else None,
        assumed=every,
        notes=(*work.notes, *foreign, *idle_npus(network)),
        memory=memory,
        overlap=_overlap_cost(job, sms) if (sms := options.overlap_cost) else None,
    )


def _overlap_cost(job: Job, overlap: "CommSms") -> "OverlapCost":
    """What communication takes from compute on the step's device; raises PlanError."""
    from stepsim.core.beside import OverlapCost
    from stepsim.files.accelerators import read_device

    named = job.asked.topology.device
    if not (job.setup or named):
        raise PlanError(
            f"overlap_cost: {job.given.source} is of an unknown device: expected a model, or a "
            "topology that names its device"
        )
    device = job.setup.device if job.setup else read_device(named)
    with errors_at("overlap_cost", PlanError):
        gpu = device.limits
    exchange = CommEngine(job.plan.dispatch.engine) if job.setup else None
    return OverlapCost(
        gpu=gpu,
        sms=overlap.count,
        exchange=exchange or CommEngine.POINT_TO_POINT,
    )
