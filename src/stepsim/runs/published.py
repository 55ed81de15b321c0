"""Measured steps of published models against their closed form, zero-shot and calibrated."""

from collections.abc import Iterable, Iterator, Sequence
from math import log1p
from statistics import fmean, median
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Count, Document, Entry, Names, Noun, Seconds, Share, replace
from stepsim.base.units import PS_PER_S
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import topology_of, with_numbers
from stepsim.files.model_steps import PublishedStep
from stepsim.network.two_levels import interconnect_of
from stepsim.options import StepOptions
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.step.prepared import prepare
from stepsim.workload.model.calibration import ModelCalibration
from stepsim.workload.model.framework import Framework, Recipe
from stepsim.workload.model.interconnect import Interconnect
from stepsim.workload.model.memory import rank_memory
from stepsim.workload.model.model import Model
from stepsim.workload.model.step_time import StepModel

_DEFAULT_TOPOLOGY = "hgx-h100"
_GIB = 2**30
_SAME = (
    *("tp", "cp", "pp", "ep", "expert_tp", "microbatch_size", "global_batch", "sequence"),
    *("precision", "sequence_parallel", "zero", "shard_ranks", "reshard", "recompute"),
    *("recompute_layers", "attention", "dispatch", "tp_comm_overlap", "dp_overlap", "cuda_graph"),
    *("expert_overlap", "shared_overlap", "delay_wgrad"),
)
"""Fields of a plan that are options of a step by the same name."""
_KINDS = {False: "dense", True: "with experts"}


class PublishedMemory(Noun):
    """Memory of a run's fullest rank: GiB as its framework reports them, share of the capacity."""

    step: PublishedStep
    reported_gib: float
    share: float

    @property
    def fits(self) -> bool:
        """Whether the run is predicted to fit in its device."""
        return self.share <= 1


class PublishedComparison(Noun):
    """A published run and its prediction; `calibrated_s` after the factor of its machine."""

    step: PublishedStep
    predicted_s: float
    calibrated_s: float
    memory: PublishedMemory

    @property
    def predicted_gib(self) -> float:
        """Memory of the fullest rank as the run's framework reports it."""
        return self.memory.reported_gib

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured memory, minus 1; None where the source gives none."""
        measured = self.step.memory_gib
        return None if not measured else self.predicted_gib / measured - 1

    @property
    def measured_s(self) -> float:
        """Seconds of the measured step."""
        assert self.step.measured_s is not None
        return self.step.measured_s

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.step.error(self.predicted_s)

    @property
    def calibrated_error(self) -> float:
        """Calibrated over measured, minus 1."""
        return self.step.error(self.calibrated_s)


class SourceErrors(Entry):
    """Errors of a source's runs, zero-shot and after one factor per source, device, precision.

    Memory has one factor for the source: the median of measured over predicted.
    """

    source: str
    count: Count
    mean: Share
    median: Share
    largest: Share
    calibrated_mean: Share
    calibrated_largest: Share
    memory_mean: Share | None
    memory_largest: Share | None
    memory_calibrated: Share | None


class PublishedValidation(Noun):
    """All runs, those that `ran_out` of memory, and what could not be compared."""

    rows: tuple[PublishedComparison, ...]
    ran_out: tuple[PublishedMemory, ...] = ()
    warnings: Names = ()

    def errors(self) -> tuple[SourceErrors, ...]:
        """Errors of each source, then of all dense and of all mixture-of-experts runs.

        A source of both kinds of runs has both apart.
        """
        found = []
        for source in dict.fromkeys(row.step.source for row in self.rows):
            rows = [row for row in self.rows if row.step.source == source]
            kinds = {row.step.architecture.is_sparse for row in rows}
            names = _KINDS if len(kinds) > 1 else dict.fromkeys(kinds, "")
            found += [
                self.errors_of(f"{source} {names[kind]}".strip(), [source], sparse=kind)
                for kind in sorted(kinds)
            ]
        for kind, name in _KINDS.items():
            every = self.errors_of(f"all {name}", sparse=kind)
            found += [every] if every.count else []
        return tuple(found)

    def errors_of(
        self, name: str, sources: Sequence[str] | None = None, *, sparse: bool
    ) -> SourceErrors:
        """Errors of the runs of one kind of some sources, None of all; all 0 without runs."""
        rows = [
            row
            for row in self.rows
            if row.step.architecture.is_sparse is sparse
            and (sources is None or row.step.source in sources)
        ]
        return _errors(name, rows)

    def exceeds(self, limit: float) -> bool:
        """Whether the error of any run is above a limit, a share."""
        return any(abs(row.error) > limit for row in self.rows)


def validate_published(
    steps: Iterable[PublishedStep],
    *,
    leave_out: Sequence[str] = (),
    calibration: ModelCalibration | None = None,
    unread: int = 0,
) -> PublishedValidation:
    """Predict every complete run that has a time or ran out of memory, by what is shipped.

    The first warning counts the others, beside `unread` rows that say no run. Sources in
    `leave_out` are not predicted. One factor per source, device and precision, the
    geometric mean of measured over predicted, calibrates. `calibration` changes devices and
    frameworks first.
    """
    rows, ran_out, warnings = [], [], []
    judged = [step for step in steps if step.source not in leave_out]
    for step in judged:
        if not step.is_complete or _is_bare(step):
            continue
        try:
            model = _calibrated(model_of(step), step, calibration)
            memory = published_memory(step, model)
            if step.ran_out:
                ran_out.append(memory)
            else:
                rows.append((step, float(model.seconds([step.plan])[0]), memory))
        except StepsimError as error:
            warnings.append(f"{step.source} {step.name} is left out: {error}")
    factors = _factors([(step, predicted) for step, predicted, _ in rows])
    left = _said_of_left(judged, refused=len(warnings) + unread, unread=unread)
    return PublishedValidation(
        rows=tuple(
            PublishedComparison(
                step=step,
                predicted_s=predicted,
                calibrated_s=predicted * factors[_machine(step)],
                memory=memory,
            )
            for step, predicted, memory in rows
        ),
        ran_out=tuple(ran_out),
        warnings=(*left, *warnings),
    )


def _is_bare(step: PublishedStep) -> bool:
    """Whether a run says neither how long its step took nor that it ran out of memory."""
    return step.measured_s is None and not step.ran_out


def _said_of_left(steps: Sequence[PublishedStep], *, refused: int, unread: int) -> Iterator[str]:
    """How many runs are not compared, and why, if there are any."""
    partial = [step for step in steps if not step.is_complete]
    bare = [step for step in steps if step.is_complete and _is_bare(step)]
    counts = {
        "without their whole layout (complete is 0)": len(partial),
        "without a time (step_s)": len(bare),
        "refused": refused,
    }
    if any(counts.values()):
        reasons = ", ".join(f"{count} {why}" for why, count in counts.items() if count)
        every = len(steps) + unread
        yield f"{sum(counts.values())} of {every} runs are not compared: {reasons}"


def model_of(step: PublishedStep) -> StepModel:
    """What prices a run: its device and framework by name, the device's topology."""
    device = read_device(step.device)
    framework = read_framework(step.framework)
    framework = framework.of_casts if step.plan.precision.casts else framework
    precision, sparse = step.plan.precision, step.architecture.is_sparse
    framework = framework.of_job(device.name, precision, sparse=sparse, release=step.release)
    framework = framework.of_model(step.model, device.name, precision)
    # the runs are of 2025 and before, when a loss had all logits at a time
    context = step.context or framework.context
    framework = replace(framework, context=context, loss_chunks=1)
    return StepModel(
        architecture=step.architecture,
        device=device,
        framework=framework,
        interconnect=_interconnect(step, device.topology or _DEFAULT_TOPOLOGY),
    )


def simulated_s(step: PublishedStep, model: StepModel) -> float:
    """Seconds of the step as `simulate` predicts it: the same prices on the machine's own network.

    Raises the errors of `stepsim.base.errors` where the job cannot run there.
    """
    topology = topology_of(model.device.topology or _DEFAULT_TOPOLOGY)
    if step.node_bandwidth is not None:
        outer = [each.name for each in topology.link_classes[1:]]
        share = step.node_bandwidth / step.npus_per_node
        topology = with_numbers(topology, {f"{name}.bandwidth": f"{share} B/s" for name in outer})
    plan = step.plan
    looped, framework = plan.chunks > 1, _as_run(model.framework, step)
    said = {name: getattr(plan, name) for name in _SAME}
    if plan.recompute_modules:
        said["recompute"] = None  # modules are a recipe's where nobody says what is recomputed
    options = StepOptions(
        npus=plan.npus,
        schedule=PAIRED if plan.runs_pairs else "interleaved" if looped else "1f1b",
        chunks=plan.chunks,
        layout=plan.layout.text(),
        recipe=bool(framework.recipes),
        cp_comm=plan.context,
        device=model.device,
        framework=framework,
        **said,
    )
    source = Model(source=step.name, architecture=step.architecture)
    return prepare(source, topology, options, quick=True).step_time_ps() / PS_PER_S


def _as_run(framework: Framework, step: PublishedStep) -> Framework:
    """The framework that runs a step as its row says: nothing by default, nor by another recipe."""
    plan = step.plan
    recipe = Recipe(
        model=step.architecture.name,
        device=None,
        precision=None,
        sharded=plan.zero >= 3,
        recompute_modules=plan.recompute_modules,
        offload_layers=plan.offload_layers,
    )
    scopes = framework.graph_scopes if plan.graph_scopes is None else plan.graph_scopes
    recipes = (recipe,) if plan.recompute_modules else ()
    return replace(framework, graph_scopes=scopes, recipes=recipes, defaults=())


def _calibrated(
    model: StepModel, step: PublishedStep, calibration: ModelCalibration | None
) -> StepModel:
    if calibration is None:
        return model
    device, framework = calibration.apply(model.device, model.framework, step.plan.precision)
    return replace(model, device=device, framework=framework)


def published_memory(step: PublishedStep, model: StepModel) -> PublishedMemory:
    """Memory of a run's fullest rank, on the layout that its framework chooses."""
    found = rank_memory(model.architecture, model.device, model.framework, [step.plan])
    held = found.total if model.framework.reports_total else found.allocated
    share = float(found.share_of(model.device)[0])
    return PublishedMemory(step=step, reported_gib=float(held[0]) / _GIB, share=share)


def _interconnect(step: PublishedStep, topology: str) -> Interconnect:
    found = interconnect_of(topology_of(topology).fit(step.plan.npus))
    if step.node_bandwidth is None:
        return found
    return replace(found, outer=step.node_bandwidth / step.npus_per_node)


def _machine(step: PublishedStep) -> tuple[str, str, str]:
    return step.source, step.device, step.plan.precision.value


def _factors(rows: Sequence[tuple[PublishedStep, float]]) -> dict[tuple[str, str, str], float]:
    logs: dict[tuple[str, str, str], list[float]] = {}
    for step, predicted in rows:
        logs.setdefault(_machine(step), []).append(-log1p(step.error(predicted)))
    return {machine: float(np.exp(fmean(each))) for machine, each in logs.items()}


def _errors(source: str, rows: Sequence[PublishedComparison]) -> SourceErrors:
    errors = [abs(row.error) for row in rows]
    calibrated = [abs(row.calibrated_error) for row in rows]
    reported = [1 + row.memory_error for row in rows if row.memory_error is not None]
    memory = [abs(each - 1) for each in reported]
    return SourceErrors(
        source=source,
        count=len(rows),
        mean=fmean(errors or [0.0]),
        median=median(errors or [0.0]),
        largest=max(errors, default=0.0),
        calibrated_mean=fmean(calibrated or [0.0]),
        calibrated_largest=max(calibrated, default=0.0),
        memory_mean=fmean(memory) if memory else None,
        memory_largest=max(memory, default=None),
        memory_calibrated=fmean(abs(each / median(reported) - 1) for each in reported)
        if reported
        else None,  # once the median of predicted over measured is 1
    )


class _RowEntry(Entry):
    """A published run; errors are predicted over measured, minus 1."""

    name: str
    source: str
    model: str
    device: str
    framework: str
    measured_s: Seconds
    predicted_s: Seconds
    calibrated_s: Seconds
    error: Share
    calibrated_error: Share
    measured_gib: Annotated[float | None, Meta(description="as the source reports it")]
    predicted_gib: float
    memory_share: Annotated[float, Meta(ge=0, description="predicted, of the device's capacity")]

    @classmethod
    def of(cls, row: PublishedComparison) -> Self:
        """The entry of a run."""
        step = row.step
        return cls.taken_from(
            row,
            name=step.name,
            source=step.source,
            model=step.architecture.name,
            device=step.device,
            framework=step.framework,
            measured_gib=step.memory_gib,
            memory_share=row.memory.share,
        )


class _RanOutEntry(Entry):
    """A published run that ran out of memory; above a share of 1 that was predicted."""

    name: str
    source: str
    model: str
    device: str
    memory_share: Annotated[float, Meta(ge=0, description="predicted, of the device's capacity")]

    @classmethod
    def of(cls, memory: PublishedMemory) -> Self:
        """The entry of a run."""
        step = memory.step
        return cls(
            name=step.name,
            source=step.source,
            model=step.architecture.name,
            device=step.device,
            memory_share=memory.share,
        )


class PublishedDocument(Document):
    """`stepsim validate steps.csv --json` of published models: rows, and errors per source."""

    sources: tuple[SourceErrors, ...]
    rows: tuple[_RowEntry, ...]
    ran_out: tuple[_RanOutEntry, ...]
    warnings: Names

    @classmethod
    def of(cls, found: PublishedValidation) -> Self:
        """The document of a validation."""
        return cls(
            sources=found.errors(),
            rows=tuple(map(_RowEntry.of, found.rows)),
            ran_out=tuple(map(_RanOutEntry.of, found.ran_out)),
            warnings=found.warnings,
        )
