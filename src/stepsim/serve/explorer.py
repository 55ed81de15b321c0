"""Questions of a page and their answers: quick ones by the batch, whole ones by the engine.

Nothing here knows of a connection: a state comes in, plain data goes out.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from stepsim.base.arrays import Floats
from stepsim.base.axes import Part
from stepsim.base.errors import PlanError, StepsimError, errors_at
from stepsim.base.option import Option
from stepsim.base.structs import Values, shipped
from stepsim.base.units import PS_PER_S, Quantity, format_time_ps
from stepsim.core.timeline import Timeline
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.explore.batch.scenarios import BatchBase
from stepsim.explore.noise.draws import noisy_speeds
from stepsim.explore.sensitivity import find_sensitivity
from stepsim.files.accelerators import device_names, read_device
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.network.prices import Known
from stepsim.network.topology.dimension import split_link
from stepsim.serve.export import EXPORTS
from stepsim.serve.helps import best_first, job_changes, speed_changes
from stepsim.serve.library import NamedNouns
from stepsim.serve.plans import plan_map
from stepsim.serve.recorded import recorded, recorded_lines
from stepsim.serve.sliders import slider_values
from stepsim.serve.state import (
    KNOBS,
    NOISE,
    SHIPPED_NAMES,
    ExplorerState,
    Question,
    number_quantity,
    number_text,
)
from stepsim.show.page.looks import looks
from stepsim.step.job import held_degrees
from stepsim.step.prepared import SimulatedStep, prepare
from stepsim.views.facts import Plain, answer_facts, document_shown, plain_table
from stepsim.views.lanes import lanes_of_timeline, tasks_of_timeline, times_of_timeline
from stepsim.views.load import network_load
from stepsim.views.studies import worth_table
from stepsim.workload.model.evidence import throughput
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

_KEPT = 4
_MAP_SIDE = 24
_DRAWS = 64


class Explorer(Struct, kw_only=True):
    """Answers questions, each an object with `kind`, `state` and what the kind needs.

    States name nouns of the library. What the last few structures compiled to is kept: where a
    bandwidth of gpt_1024 is moved, an answer takes 24 ms so, and 80 where all is compiled anew; to
    find what nobody said of the plan of llama-3-70b takes 0.16 s.
    """

    library: NamedNouns
    _known: Known = {}
    _compiled_once: Any = None
    _unsaid: Any = None

    def __post_init__(self) -> None:
        self._compiled_once = lru_cache(_KEPT)(self._compiled)
        # what nobody says of a model's plan, once for all questions about a structure
        self._unsaid = lru_cache(_KEPT)(lambda bare: held_degrees(self._read(bare)))

    def answer(self, question: object) -> Plain:
        """The answer to a question; a mistake of the person's is an answer with `error`.

        The program's own mistakes are raised.
        """
        try:
            asked = Question.of(question)
            if asked.kind == "choices":
                return self.choices()
            found: Plain = getattr(self, asked.kind)(ExplorerState.of(asked.state), *asked.more)
        except StepsimError as error:
            return {"error": str(error)}
        return found

    def choices(self) -> Plain:
        """What a page needs once: names, controls, colours."""
        library, first = self.library, shipped(__file__, "first.toml", Values)
        machines = {name: read_device(name).topology for name in device_names()}
        given = next(iter(library.works), None)  # else a page opens with a job that fits
        return {
            "works": library.work_choices(),
            "start": first["start"] if given is None else {"workload": given},
            "topologies": library.topology_choices(),
            "machines": {name: topology for name, topology in machines.items() if topology},
            "controls": [
                _control(KNOBS[name], part)
                for part, names in first["controls"].items()
                for name in names
            ],
            "exports": EXPORTS,
            **looks(),
        }

    def lines(self, state: ExplorerState) -> Plain:
        """The command and the Python lines that give the state's step."""
        ran = self.library.work(state.workload)
        if not isinstance(ran, Workload | Model):
            return recorded_lines(ran, self.library.file_of(state.workload))
        names = self.library.file_of(state.workload), self.library.file_of(state.topology)
        return {"command": state.command(*names), "python": state.python(*names)}

    def inputs(self, state: ExplorerState) -> StepInputs:
        """The nouns of a state, as `stepsim simulate` would read them; raises StepsimError.

        What nobody says of a model's plan is as on its network without numbers.
        """
        unsaid, said = self._unsaid(state.bare())
        return self._read(state).asking(*said, **unsaid)

    def _read(self, state: ExplorerState) -> StepInputs:
        files = self.library.workload(state.workload), self.library.topology(state.topology)
        return read_inputs(*files, state.options, numbers=state.numbers)

    def live(self, state: ExplorerState) -> Plain:
        """Totals, breakdown and times; equal to a run's. Raises PlanError where none can be.

        Only durations differ between states of one structure, so that nothing is built anew, and a
        page that shows one of them asks for another: its timeline has starts and ends alone, and
        memory is the same.
        """
        batch = self._batch(state)
        if not set(state.numbers) <= set(batch.setting.names):
            self.inputs(state)  # says why a number cannot be
        scenarios = batch.scenarios({name: [value] for name, value in state.columns.items()})
        found, start, end = batch.timed(scenarios)
        nodes = len(batch.flat)
        parts = {part.key: int(found.parts_ps[0, part]) for part in Part}
        plan, step_ps = batch.job.graph.plan, int(found.step_time_ps[0])
        effort = batch.job.workload.effort
        return {
            "step_ps": step_ps,
            "facts": answer_facts(
                step_ps,
                float(found.bubble_fraction[0]),
                plan.microbatches * plan.dp,
                throughput(effort, plan.npus, step_ps / PS_PER_S) if effort else None,
            ),
            "breakdown": parts,
            "band": self._band(batch, state),
            "lanes": times_of_timeline(
                Timeline(flat=batch.flat, start=start[:nodes, 0], end=end[:nodes, 0])
            ),
        }

    def shown(self, state: ExplorerState) -> Plain:
        """All about a run: the engine's answer, with critical path, tables and warnings.

        Of what has run already, all that it says. What can vary from here is asked for by itself.
        """
        ran = self.library.work(state.workload)
        if not isinstance(ran, Workload | Model):
            return recorded(ran)
        run = self.run(self.inputs(state))
        return {
            **document_shown(run.report),
            "lanes": lanes_of_timeline(run.timeline),
            "network": network_load(run),
        }

    def varies(self, state: ExplorerState) -> Plain:
        """Whether sliders of links and of compute need no engine here, and the band of noise."""
        why, band, live = self._why_not_live(state), None, {"links": False, "compute": False}
        try:
            batch = self._batch(state)
            live = {"links": not batch.networked, "compute": not batch.fixed}
            band = self._band(batch, state)
        except PlanError as error:
            why = str(error)
        return {"band": band, "not_live": why, "live": live}

    def sliders(self, state: ExplorerState) -> Plain:
        """The values that the sliders of a state may take; raises StepsimError."""
        return slider_values(self.inputs(state))

    def plans(self, state: ExplorerState) -> Plain:
        """The map of plans of a state; raises PlanError where there is none."""
        return plan_map(self.inputs(state))

    def tasks(self, state: ExplorerState, low_ps: int, high_ps: int) -> Plain:
        """The tasks of a state's step; of a step of many those between two times."""
        job = self.inputs(state)
        ready = prepare(job, known=self._known, quick=True)
        return {"tasks": tasks_of_timeline(ready.timeline(), between=(low_ps, high_ps))}

    def helps(self, state: ExplorerState) -> Plain:
        """What would make the step shorter, or fit where it does not, the fastest change first."""
        job, rows = self.inputs(state), list[Plain]()
        if self._why_not_live(state):
            run = self.run(job)
            step_ps, memory = run.report.step_time_ps, run.memory
        else:
            batch = self._batch(state)
            step_ps, rows = speed_changes(batch, state)
            memory = batch.job.memory
        fits = memory is None or memory.fits is not False
        rows += job_changes(job, step_ps, fits=fits)
        return {"rows": best_first(rows, step_ps, fits=fits)}

    def _band(self, batch: Batch, state: ExplorerState) -> Plain | None:
        """Where nine of ten steps lie under the noise asked for; None without noise."""
        if not state.noise:
            return None
        factors = {n.removeprefix(NOISE): _factor(n, text) for n, text in state.noise.items()}
        steps = noisy_speeds(batch, state.columns, **factors, samples=_DRAWS, seed=0)
        low, high = (round(each) for each in np.percentile(steps, [5, 95]).tolist())
        between = f"{format_time_ps(low)} to {format_time_ps(high)}"
        return {"low": low, "high": high, "text": between, "draws": _DRAWS}

    def worth(self, state: ExplorerState) -> Plain:
        """What one per cent of each number is worth, as a table; raises PlanError if unknown."""
        found = find_sensitivity(self.inputs(state))
        return {"table": plain_table(worth_table({"": found}))}

    def map(self, state: ExplorerState, x: str, y: str) -> Plain:
        """Step time over two numbers, from an eighth to eight times what they are now.

        Raises PlanError for a number that cannot vary here.
        """
        batch = self._batch(state)
        columns = state.columns
        now = batch.setting.base() | columns
        for name in (x, y):
            if x == y or not now.get(name) or not batch.takes([name]):
                why = batch.fixed or batch.networked
                raise PlanError(f"{name!r} cannot be an axis of the map here{why and f': {why}'}")
        factors = np.geomspace(1 / 8, 8, _MAP_SIDE)
        across, up = (_rounded(name, now[name] * factors) for name in (x, y))
        given: dict[str, ArrayLike] = {name: [value] for name, value in columns.items()}
        given[x], given[y] = np.tile(across, _MAP_SIDE), np.repeat(up, _MAP_SIDE)
        steps = batch.evaluate(given).step_time_ps
        return {
            "x": [number_text(x, value) for value in across.tolist()],
            "y": [number_text(y, value) for value in up.tolist()],
            "step_ps": steps.reshape(_MAP_SIDE, _MAP_SIDE).tolist(),
        }

    def run(self, job: StepInputs) -> SimulatedStep:
        """The engine's run of a job."""
        return prepare(job, known=self._known).simulated()

    def numbers(self, state: ExplorerState) -> Plain:
        """Numbers of the network's links that sliders change, as the file has them."""
        topology = self.library.topology(state.topology)
        bare = BatchBase(topology=topology)
        numbers = [
            {
                "name": name,
                "quantity": str(number_quantity(name)),
                "value": value,
                "text": number_text(name, value),
            }
            for name, value in bare.base().items()
            if split_link(name)[1] and value
        ]
        return {"numbers": numbers}

    def _why_not_live(self, state: ExplorerState) -> str:
        """Why the state needs the engine; empty where the batch answers it."""
        try:
            batch = self._batch(state)
        except PlanError as error:
            return str(error)
        return "" if batch.takes(state.columns) else batch.fixed or batch.networked

    def _batch(self, state: ExplorerState) -> Batch:
        """What the structure of a state compiles to; raises PlanError where times are no sums."""
        batch: Batch = self._compiled_once(state.bare())
        return batch

    def _compiled(self, bare: ExplorerState) -> Batch:
        job = self.inputs(bare)
        return make_batch(job, known=self._known)


def _rounded(name: str, values: Floats) -> Floats:
    """Values as they can be, in four digits: whole picoseconds, shares of at most 1."""
    values = np.array([float(f"{value:.4g}") for value in values])
    if name.endswith("efficiency"):
        return np.minimum(values, 1.0)
    return np.rint(values) if number_quantity(name) is Quantity.TIME else values


def _factor(name: str, text: str) -> float:
    with errors_at(name, PlanError):
        return float(cast(float, Quantity.FACTOR.parse(text)))


def _control(option: Option, part: str) -> Plain:
    """How a page shows an option: its place, name, help, default and choices."""
    choices: Iterable[str] = option.names
    if option.name in SHIPPED_NAMES:
        choices = SHIPPED_NAMES[option.name]()
    if option.quantity is Quantity.SWITCH:
        choices = ["on", "off"]
    absent = option.absent or option.text(option.default)
    return {
        "name": option.name,
        "part": part,
        "help": option.about,
        "choices": list(map(str, choices)),
        "open": bool(option.offers and option.read),
        "absent": absent or "as in the file",
        "durations_only": option.durations_only,
    }


LONG = frozenset({"shown", "varies", "worth", "map", "helps", "tasks"})
"""Kinds of questions that may take long; `live` is asked of structures that are known."""
