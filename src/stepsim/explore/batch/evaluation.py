"""Step time, bubble and breakdown of thousands of scenarios of one job."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import astuple
from numpy.typing import ArrayLike, NDArray

from stepsim.base.arrays import Floats, Ints, rows_of
from stepsim.base.axes import Part
from stepsim.base.errors import PlanError, SimulationError
from stepsim.base.structs import Noun, Same, replace
from stepsim.base.units import LARGEST_SUM
from stepsim.core.actions import NO_HOST, HostPart, host_times, reduces_as_it_launches
from stepsim.core.flat import Flat, flatten
from stepsim.core.timeline import find_actors
from stepsim.explain.breakdown import Gaps, breakdown, program_gaps
from stepsim.explain.make_report import bubble_fraction, mean_columns
from stepsim.explore.batch.lengths import LengthTable, PricedComms
from stepsim.explore.batch.program import BatchProgram, Totals, compile_program
from stepsim.explore.batch.scenarios import HOST, BatchBase, Scenarios
from stepsim.files.asked import StepInputs
from stepsim.network.fold import Actors
from stepsim.network.prices import Known
from stepsim.network.topology.dimension import is_number
from stepsim.network.topology.nested import with_values
from stepsim.parallel.modes import Sharing
from stepsim.parallel.schedules import needs_times
from stepsim.step.job import job_of
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.scaling import ComputeScale

if TYPE_CHECKING:
    from stepsim.network.contention import Contention

_TOTALS_AT_ONCE = 4096
# Scenarios evaluated together, so that what is in use fits the cache: measured.
_TIMES_AT_ONCE = 1024

_OF_TASKS = ("compute_scale", *HOST)


class BatchResult(Noun, eq=False, kw_only=False):
    """Results by scenario, as a `Report` has them.

    `parts_ps` are means over ranks, of shape (scenarios, parts): rows sum to the step time. There
    are no parts where they were not asked for.
    """

    step_time_ps: Ints
    pipeline_time_ps: Ints
    bubble_fraction: Floats
    parts_ps: Ints


class Batch(Noun, dict=True):
    """A job compiled for evaluation: it depends on no duration.

    With `fixed`, why compute
    scale and host times are part of this graph, or with `networked`, why numbers of the network
    are: another value of theirs needs another batch. With `contention` links are shared in time.
    """

    job: PreparedStep
    setting: BatchBase
    flat: Flat
    table: LengthTable
    program: BatchProgram
    fixed: str
    contention: "Contention | None" = None

    @property
    def actors(self) -> Actors:
        """Who is evaluated."""
        return self.flat.actors

    @property
    def job_words(self) -> str:
        """The job in a line: workload, topology, size, degrees, schedule."""
        graph = self.job.graph
        count = graph.plan.microbatches
        return (
            f"{Path(self.job.workload.source).name} on {self.setting.topology.name}, "
            f"{graph.plan.words}: {graph.schedule.label}, {count} microbatch{'es' * (count > 1)}"
        )

    @cached_property
    def _gaps(self) -> dict[int, Gaps]:
        """The gaps of tasks, by their number as an object."""
        return {id(tasks): program_gaps(tasks) for tasks in self.flat.programs}

    @property
    def networked(self) -> str:
        """Why numbers of the network are part of this graph; empty where they are prices only."""
        reads = self.job.workload.reads_network
        return "times of this model depend on its network" if reads else ""

    def takes(self, names: Iterable[str]) -> bool:
        """Whether these columns change durations only."""
        return not any(map(self._why_not, names))

    def _why_not(self, name: str) -> str:
        """Why a column cannot vary; empty where it can."""
        kind = name.partition(".")[0]
        if kind in _OF_TASKS:
            return self.fixed
        if kind == "size" and self.contention:
            return "links are shared in time"
        return self.networked if is_number(name) else ""

    def scenarios(self, columns: Mapping[str, ArrayLike]) -> Scenarios:
        """Scenarios that differ from the job in these columns, see `BatchBase.scenarios`.

        Raises PlanError for columns that cannot vary within this batch.
        """
        refused = list(filter(self._why_not, columns))
        if refused:
            why = self._why_not(refused[0])
            raise PlanError(f"{', '.join(refused)} cannot vary within a batch: {why}")
        given = self.setting.scenarios(columns)
        if self.contention:
            shared = self._shared(self.contention, columns, len(given))
            given = replace(given, shared=shared)
        return given

    def _shared(
        self, contention: "Contention", columns: Mapping[str, ArrayLike], count: int
    ) -> NDArray[Any]:
        """The links of scenarios, which transfers share; raises PlanError where others are."""
        prices, setting = self.job.prices, self.setting.topology
        names = [name for name in columns if is_number(name)]
        several = (np.broadcast_to(columns[name], count).tolist() for name in names)
        rows: list[tuple[float, ...]] = [*zip(*several, strict=True)] or [()]
        known: dict[tuple[float, ...], Contention] = {}
        for row in set(rows):
            network = with_values(setting, dict(zip(names, row, strict=True)))
            links = contention.at(replace(prices, topology=network, known={**prices.known}))
            if links is None:
                raise PlanError(f"transfers cross other links with {', '.join(names)} of {row}")
            known[row] = links
        return np.array([known[row] for row in rows], object)

    def evaluate(self, columns: Mapping[str, ArrayLike], *, parts: bool = False) -> BatchResult:
        """Results of scenarios, equal to those of `simulate`; `parts` adds the breakdown.

        Raises PlanError for columns that cannot be, SimulationError where a step exceeds
        2**63 - 1 ps.
        """
        given = self.scenarios(columns)
        priced = self.table.priced(given)
        timed = parts or self.contention
        most = _TIMES_AT_ONCE if timed else _TOTALS_AT_ONCE
        results = []
        for part, some in given.chunks(most):
            values = self.lengths(some, priced, part)
            if timed:
                results.append(self.timed(some, values, parts=parts)[0])
            else:
                totals = self.program.totals(self.program.counted_ends(values), len(some))
                results.append(self._result(values, totals))
        joined = map(np.concatenate, zip(*map(astuple, results), strict=True))
        return BatchResult(*joined)

    def step_times(self, rows: Sequence[Mapping[str, float]]) -> list[int]:
        """Step times in ps of scenarios, each of which differs from the job in these values."""
        base = self.setting.base()
        names = {name for row in rows for name in row}
        columns = {name: [row.get(name, base[name]) for row in rows] for name in names}
        found: list[int] = self.evaluate(columns).step_time_ps.tolist()
        return found if names else found * len(rows)

    def planned_ps(self) -> Ints:
        """What every node takes in the job itself, in ps."""
        values = self.lengths(self.scenarios({}))
        return np.array([int(values[number][0]) for number in self.program.length])

    def timed(
        self, scenarios: Scenarios, values: list[Ints] | None = None, *, parts: bool = True
    ) -> tuple[BatchResult, Ints, Ints]:
        """Results of a few scenarios, with the breakdown; start and end of every node, in ps.

        `values` are their lengths, where they are known.
        """
        values = self.lengths(scenarios) if values is None else values
        start, end = self._times(values, scenarios)
        mean = None
        if parts:
            mean = mean_columns(self.parts(values, start, end), self.actors.counts).T
        return self._result(values, self.program.totals(end, len(scenarios)), mean), start, end

    def _times(self, values: list[Ints], scenarios: Scenarios) -> tuple[Ints, Ints]:
        """Start and end of every node, in ps; those of events where transfers meet."""
        start, end = self.program.times(values, len(scenarios))
        if self.contention:
            from stepsim.core.events import run
            from stepsim.network.flights import Fabric, meeting

            nodes, shared = self.flat.slowed, np.broadcast_to(scenarios.shared, len(scenarios))
            places = {Same(each): i for i, each in enumerate(self.contention.transfers.values())}
            place = {node: places[Same(each)] for node, each in nodes.items()}
            for case in np.flatnonzero(meeting(nodes, start, end)):
                transfers = tuple(shared[case].transfers.values())
                start[:, case], end[:, case] = run(
                    self.program.waits,
                    end[:, case] - start[:, case],
                    {node: transfers[i] for node, i in place.items()},
                    Fabric(capacity=shared[case].capacity),
                )
        return start, end

    def _result(
        self, values: list[Ints], totals: Totals, parts_ps: Ints | None = None
    ) -> BatchResult:
        step_ps, pipeline_ps, busy_ps = totals
        if parts_ps is None:
            parts_ps = np.zeros((len(step_ps), 0), np.int64)
        bubble = self._bubble(values, pipeline_ps, busy_ps)
        return BatchResult(step_ps, pipeline_ps, bubble, parts_ps)

    def lengths(
        self, scenarios: Scenarios, priced: PricedComms | None = None, part: slice = slice(None)
    ) -> list[Ints]:
        """Picoseconds of every length, as `LengthTable.evaluate` has them.

        Raises SimulationError where sums could wrap around.
        """
        values = self.table.evaluate(scenarios, priced or {}, part)
        used = Counter(self.program.length)
        if sum(times * float(values[number].max()) for number, times in used.items()) > LARGEST_SUM:
            raise SimulationError(
                "tasks of a scenario add up to more than 2**63 - 1 ps (106 days): too many to batch"
            )
        return values

    def _bubble(self, values: list[Ints], pipeline_ps: Ints, busy_ps: Ints) -> Floats:
        ranks = int(self.actors.counts.sum())
        if float(pipeline_ps.max(initial=0)) * ranks > LARGEST_SUM:
            raise SimulationError("ranks together take more than 2**63 - 1 ps: too long to batch")
        busy = busy_ps.copy()
        for number, times in self.program.busy_lengths.items():
            busy += times * values[number]
        return bubble_fraction(pipeline_ps * ranks - busy, ranks, pipeline_ps)

    def parts(self, values: list[Ints], start: Ints, end: Ints) -> Ints:
        """Breakdown of every actor, of shape (actors, parts, scenarios), in ps."""
        program, count = self.program, start.shape[1]
        task_lists = self.table.list_parts(values)
        step = end[program.waits.last].max(axis=0)
        found = np.zeros((len(self.actors), len(Part), count), np.int64)
        actors = zip(self.flat.programs, program.rows, self.flat.node_of, strict=True)
        for actor, (tasks, rows, nodes) in enumerate(actors):
            own = np.zeros((len(Part), count), np.int64)
            for row, number in rows_of(tasks.rows, rows):
                if number in task_lists:
                    own += row.look.runs * task_lists[number]
            found[actor] = breakdown(self._gaps[id(tasks)], start[nodes], end[nodes], own)
            found[actor, Part.TAIL] += step - found[actor].sum(axis=0)
        return found


def make_batch(
    asked: StepInputs,
    *,
    coalesce: bool = True,
    known: Known | None = None,
    shared: bool = False,
) -> Batch:
    """Compile a job for evaluation.

    Its notes stand among the job's warnings. With `coalesce=False` every task is a node of its own.
    A schedule that is searched for (auto-zb) keeps the order found for the job. `known` is what
    prices of jobs before have found. Raises PlanError with overlap_cost, and with contention fair
    unless links may be `shared` in time: times are then no sums; and the errors of `simulate`.
    """
    options = asked.options
    if options.contention is Sharing.FAIR and not shared:
        raise PlanError(
            "contention is fair: times are then no sums, and jobs cannot be evaluated together "
            "(--contention siblings or none can)"
        )
    options.refuse(["overlap_cost"], "times are then no sums: run scenarios one by one")
    scale = options.compute_scale or ComputeScale()
    host = host_times(options)
    options.refuse(["activation_size"], "many scenarios are evaluated without memory")
    unscaled = asked.asking(compute_scale=None, **{part.field: 1 for part in HostPart})
    made = job_of(asked, known)
    kept = made if made.options.dp_overlap else None  # such a job is fixed, and taken as it is
    job = prepare(kept or unscaled, known=known)
    fixed = _why_fixed(job)
    if fixed:
        scale, host = ComputeScale(), NO_HOST
        if kept is None:
            job = prepare(made, known=known)
    setting = BatchBase(topology=job.prices.topology, scale=scale, host=host)
    graph, prices = job.graph, job.prices
    actors, contention = find_actors(graph, prices, job.slow, fold_ranks=True)
    flat = flatten(graph, actors, prices, job.slow, contention, contract=coalesce)
    table = LengthTable(
        graph=graph, prices=prices, slow=job.slow, fixed=bool(fixed), contention=contention
    )
    return Batch(
        job=job,
        setting=setting,
        flat=flat,
        table=table,
        program=compile_program(flat, table),
        fixed=fixed,
        contention=contention,
    )


def _why_fixed(job: PreparedStep) -> str:
    """Why compute and host times are part of the graph; empty if they are only durations."""
    schedule, options = job.graph.schedule, job.graph.options
    uneven = options.expert_load is not None
    split_again = job.graph.plan.pp != job.workload.degrees["pp"]
    one_by_one = reduces_as_it_launches(job.workload.rows())
    reasons = {
        f"{schedule.name} searches for its order by them": needs_times(schedule.name),
        f"{schedule.name} mixes the tasks of fused pairs by them": schedule.has_pairs,
        "the load of experts is rounded on top of them": uneven,
        "gradient buckets are shared out by them": bool(options.dp_overlap),
        "launches are shared out by them to rows that reduce gradients one by one": one_by_one,
        "layers are re-split, and optimizer compute is rounded on top of them": split_again,
    }
    return next((why for why, holds in reasons.items() if holds), "")
