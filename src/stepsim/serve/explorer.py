"""Answers to what a page asks: quick ones by the batch, whole ones by the engine.

The same functions serve `stepsim serve` and a page that runs without a server, so nothing here
knows of a connection: a state comes in, plain data goes out.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from threading import Lock
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.quantities import Quantity
from stepsim.base.records import dataclass
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.explore.batch import Batch, make_batch
from stepsim.explore.batch.scenarios import PHASES, BatchBase
from stepsim.explore.sensitivity import find_sensitivity
from stepsim.files.asked import StepInputs, read_options
from stepsim.files.topology.typed import with_numbers
from stepsim.graph.actions import HostTimes
from stepsim.network.topology.links import LAUNCH_LATENCY, split_link
from stepsim.results.document import StepDocument
from stepsim.serve.lanes import lanes_of_batch, lanes_of_timeline
from stepsim.serve.library import Library
from stepsim.serve.state import ExplorerState
from stepsim.show.tables.model import Pairs, Room, Table, share_of
from stepsim.show.tables.step import comms_table, links_table, stages_table, whole_run_pairs
from stepsim.show.tables.studies import worth_table
from stepsim.step.simulate import SimulatedStep, simulate_step
from stepsim.workload.axes import Part
from stepsim.workload.scaling import ComputeScale

_KEPT = 4
_MAP_SIDE = 24

Progress = Callable[[int, int], None]
"""Called now and then while an answer is made; raises to give it up."""


@dataclass(slots=True, kw_only=True)
class Explorer:
    """Answers about the nouns of a library; keeps what the last few structures compiled to."""

    library: Library
    _batches: "OrderedDict[tuple[object, ...], Batch]" = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def inputs(self, state: ExplorerState) -> StepInputs:
        """The nouns of a state, as `stepsim simulate` would read them; raises StepsimError."""
        options, notes = read_options(state.options)
        return StepInputs(
            workload=self.library.workload(state.workload),
            topology=with_numbers(self.library.topology(state.topology), state.numbers),
            options=options,
            notes=tuple(notes),
        )

    def live(self, state: ExplorerState) -> dict[str, object]:
        """Totals, breakdown and timeline; equal to a run's. Raises PlanError where none can be.

        Only durations differ between states of one structure, so that nothing is built anew.
        """
        batch = self._batch(state)
        if not set(state.numbers) <= set(batch.setting.names):
            self.inputs(state)  # says why a number cannot be
        columns = _columns(state)
        scenarios = batch.scenarios({name: [value] for name, value in columns.items()})
        found = batch.evaluate(scenarios, parts=True)
        lengths = batch.lengths(scenarios)
        times = batch.passes.times([lengths[i] for i in batch.passes.program.length], 1)
        assert found.parts_ps is not None
        parts = {part.key: int(found.parts_ps[0, part]) for part in Part}
        plan, step_ps = batch.job.graph.plan, int(found.step_time_ps[0])
        bubble = float(found.bubble_fraction[0])
        return {
            "step_ps": step_ps,
            "facts": _facts(step_ps, bubble, parts, plan.microbatches * plan.dp),
            "breakdown": parts,
            "lanes": lanes_of_batch(batch, *(each[:, 0] for each in times)).plain(),
        }

    def step(self, state: ExplorerState, progress: Progress | None = None) -> dict[str, object]:
        """Everything about a run: the engine's answer, with critical path, tables and warnings."""
        job = self.inputs(state)
        run = self.run(job, progress)
        found = StepDocument.of_report(run.report)
        tables = [
            comms_table(found),
            links_table([each for each in found.links if each.total_bytes]),
        ]
        if found.plan["pp"] > 1:
            tables.insert(0, stages_table(found))
        return {
            "step_ps": found.step_time_ps,
            "facts": _facts(
                found.step_time_ps,
                found.bubble_fraction,
                found.breakdown_ps,
                found.microbatches * found.plan["dp"],
            ),
            "breakdown": dict(found.breakdown_ps),
            "lanes": lanes_of_timeline(run.timeline).plain(),
            "job": whole_run_pairs(found),
            "tables": [_plain(table) for table in tables],
            "warnings": list(found.warnings),
            "not_live": self._why_not_live(state),
        }

    def worth(self, state: ExplorerState) -> dict[str, object]:
        """What one per cent of each number is worth, as a table; a reason where that is unknown."""
        job = self.inputs(state)
        try:
            found = find_sensitivity(job.workload, job.topology, job.options)
        except PlanError as error:
            return {"missing": str(error)}
        return {"table": _plain(worth_table({"": found}))}

    def map(self, state: ExplorerState, x: str, y: str) -> dict[str, object]:
        """Step time over two numbers, from an eighth to eight times what they are now.

        Raises PlanError for a number that cannot vary here.
        """
        batch = self._batch(state)
        columns = _columns(state)
        now = batch.setting.base() | columns
        for name in (x, y):
            if x == y or not now.get(name) or not batch.takes([name]):
                raise PlanError(f"{name!r} cannot be an axis of the map here")
        factors = np.geomspace(1 / 8, 8, _MAP_SIDE)
        across, up = (_rounded(name, now[name] * factors) for name in (x, y))
        given: dict[str, ArrayLike] = {name: [value] for name, value in columns.items()}
        given[x], given[y] = np.tile(across, _MAP_SIDE), np.repeat(up, _MAP_SIDE)
        steps = batch.evaluate(given).step_time_ps
        return {
            "x": [_text(x, value) for value in across.tolist()],
            "y": [_text(y, value) for value in up.tolist()],
            "step_ps": steps.reshape(_MAP_SIDE, _MAP_SIDE).tolist(),
        }

    def run(self, job: StepInputs, progress: Progress | None = None) -> SimulatedStep:
        """The engine's run of a job."""
        return simulate_step(
            job.workload, job.topology, job.options, notes=job.notes, progress=progress
        )

    def numbers(self, state: ExplorerState) -> list[dict[str, object]]:
        """Numbers of the network's links that sliders change, as the file has them."""
        topology = self.library.topology(state.topology)
        bare = BatchBase(topology=topology, scale=ComputeScale(), host=HostTimes())
        return [
            {
                "name": name,
                "quantity": str(_quantity(name)),
                "value": value,
                "text": _text(name, value),
            }
            for name, value in bare.base().items()
            if split_link(name)[1] and value
        ]

    def _why_not_live(self, state: ExplorerState) -> str:
        """Why sliders need the engine; empty where the batch answers them."""
        try:
            batch = self._batch(state)
        except PlanError as error:
            return str(error)
        return batch.fixed

    def _batch(self, state: ExplorerState) -> Batch:
        """What the structure of a state compiles to; raises PlanError where times are no sums."""
        with self._lock:
            if state.structure in self._batches:
                self._batches.move_to_end(state.structure)
                return self._batches[state.structure]
        job = self.inputs(state.bare())
        batch = make_batch(job.workload, job.topology, job.options, notes=job.notes)
        with self._lock:
            self._batches[state.structure] = batch
            while len(self._batches) > _KEPT:
                self._batches.popitem(last=False)
        return batch


def _columns(state: ExplorerState) -> dict[str, float]:
    """A state's durations as columns of a batch: bytes/s, ps, factors."""
    found: dict[str, float] = {}
    options, _ = read_options(state.options)
    if options.compute_scale:
        scale = options.compute_scale
        found |= {f"compute_scale.{phase}": getattr(scale, phase) for phase in PHASES}
    if options.host_overhead_ps:
        found["host_overhead"] = options.host_overhead_ps
    for name, text in state.numbers.items():
        found[name] = cast(float, _quantity(name).parse(text))
    return found


def _quantity(name: str) -> Quantity:
    """What a number of a network is."""
    field = split_link(name)[1]
    return field.quantity if field else LAUNCH_LATENCY.quantity


def _rounded(name: str, values: Floats) -> Floats:
    """Values as they can be: whole picoseconds, shares of at most 1."""
    if name.endswith("efficiency"):
        return np.minimum(values, 1.0)
    return np.rint(values) if _quantity(name) is Quantity.TIME else values


def _text(name: str, value: float) -> str:
    quantity = _quantity(name)
    return quantity.text(round(value) if quantity is Quantity.TIME else value)


def _facts(step_ps: int, bubble: float, parts: Mapping[str, int], pipelines: int) -> Pairs:
    """The few numbers that are looked for first."""
    exposed = sum(time for name, time in parts.items() if name.startswith("exposed"))
    return (
        ("step time", format_time_ps(step_ps)),
        ("pipeline bubble", f"{bubble:.1%}"),
        ("compute", f"{share_of(parts['compute'], step_ps):.1%}"),
        ("exposed communication", f"{share_of(exposed, step_ps):.1%}"),
        ("throughput", f"{share_of(pipelines * PS_PER_S, step_ps):,.4g} microbatches/s"),
    )


def _plain(table: Table) -> dict[str, object]:
    """A table as texts, for the page."""
    shown = table.shown(Room.EVERYWHERE)
    return {
        "caption": table.caption,
        "columns": [{"name": name, "number": column.number} for _, name, column in shown],
        "rows": [[column.text(row[place]) for place, _, column in shown] for row in table.rows],
    }
