"""What can be asked of a step: one record, declared once.

Each field of `StepOptions` says its default, its help, what its values are and when it has an
effect. The command line, sweep files and axes, tables of measured steps, recorded settings and
Python read them from here. This module imports nothing heavy, so that help is quick.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stepsim.base.errors import PlanError, StepsimError, UnitError
from stepsim.base.quantities import Quantity, Value
from stepsim.parallel.modes import P2PMode, RankOrder, Sharing, StageRows

if TYPE_CHECKING:
    from stepsim.network.measured_times import CommTable
    from stepsim.parallel.ranks import ParallelPlan
    from stepsim.parallel.schedules import Schedule
    from stepsim.workload.scaling import ComputeScale, SlowRanks

MAX_FUSED_FACTOR = 100.0


class Panel(StrEnum):
    """The part of a help text that an option stands in."""

    JOB = "Size of the job"
    PIPELINE = "Pipeline"
    NETWORK = "Network and communication"
    COMPUTE = "Compute and host"
    RUN = "Options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What there is to know of an option beside its type.

    `flags` replace `--name`; none: it is for Python only. `absent` is what its absence means.
    `choices` are the names it can have; `noun` is the class of values that are taken as they are,
    `read` makes one of a text, `write` the text of one, where `quantity` alone does not. `many`:
    several texts may be given; `offers` are names that a shell completes. `is_file`: the text names
    a file. `durations_only`: it changes how long tasks take and never which tasks there are.
    `is_axis`: a sweep can vary it. `is_reported`: a report shows what it did, so that results need
    not record it. `idle` says why it does nothing in a job with a schedule and a mode, empty where
    it does something.
    """

    quantity: Quantity
    help: str
    panel: Panel
    name: str = ""
    default: object = None
    flags: tuple[str, ...] | None = None
    absent: str | None = None
    choices: Callable[[], Iterable[str]] | None = None
    offers: Callable[[], Iterable[str]] | None = None
    noun: Callable[[], type] | None = None
    read: Callable[[str], object] | None = None
    write: Callable[[Any], str] | None = None
    many: bool = False
    is_file: bool = False
    durations_only: bool = False
    is_axis: bool = True
    is_reported: bool = False
    idle: Callable[["StepOptions", "Schedule", P2PMode], str] | None = None

    @property
    def field(self) -> str:
        """Its field of `StepOptions`, which has the unit in its name."""
        return self.name + self.quantity.suffix

    def of(self, value: object) -> object:
        """The field's value of what a person types: a text, in Python also a number or a noun.

        Raises PlanError, or the noun's own error, naming the option.
        """
        if value is None or (self.noun and isinstance(value, self.noun())):
            return value
        if self.many:
            several = value if isinstance(value, list | tuple) else [value]
            return tuple(self._one(each) for each in several)
        return self._one(value)

    def text(self, value: object) -> str:
        """A value as people type it; empty where there is none."""
        if value is None:
            return ""
        return self.write(value) if self.write else self.quantity.text(cast(Value, value))

    def _one(self, value: object) -> object:
        if self.choices and value not in (known := list(self.choices())):
            raise PlanError(f"{self.name} is {value!r}: expected one of {', '.join(known)}")
        try:
            return self.read(str(value)) if self.read else self.quantity.read(value)
        except StepsimError as error:
            named = str(error).startswith(self.name.replace("_", " "))
            said = str(error) if named else f"{self.name}: {error}"
            raise (PlanError if isinstance(error, UnitError) else type(error))(said) from None


Kind = TypeVar("Kind")


def _asked(default: Kind, quantity: Quantity, panel: Panel, about: str, **more: Any) -> Kind:
    """A field of `StepOptions`; `more` are fields of `Option`."""
    option = Option(quantity=quantity, help=about, panel=panel, default=default, **more)
    made: Any = field(default=default, metadata={"option": option})
    return cast(Kind, made)


def _schedule_names() -> Iterable[str]:
    from stepsim.parallel.schedules import BUILDERS

    return BUILDERS


def _schedule(text: str) -> str:
    from stepsim.parallel.schedules import parse_name

    parse_name(text)
    return text


def _schedule_class() -> type:
    from stepsim.parallel.schedules import Schedule

    return Schedule


def _plan_class() -> type:
    from stepsim.parallel.ranks import ParallelPlan

    return ParallelPlan


def _table_class() -> type:
    from stepsim.network.measured_times import CommTable

    return CommTable


def _scale_class() -> type:
    from stepsim.workload.scaling import ComputeScale

    return ComputeScale


def _scale(text: str) -> "ComputeScale | None":
    from stepsim.workload.scaling import ComputeScale, parse_compute_scale

    scale = parse_compute_scale(text)
    return None if scale == ComputeScale() else scale


def _slow(text: str) -> "SlowRanks":
    from stepsim.workload.scaling import parse_slow_ranks

    return parse_slow_ranks(text)


def _slow_class() -> type:
    from stepsim.workload.scaling import SlowRanks

    return SlowRanks


def _algorithm(text: str) -> str:
    from stepsim.network.collectives import parse_algorithms

    parse_algorithms([text])
    return text


def _joined(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _only_overlapped(options: "StepOptions", schedule: "Schedule", p2p: P2PMode) -> str:
    """Megatron-LM's switches are read by its interleaved runtime with overlap alone."""
    megatron = schedule.megatron and schedule.placement.chunks > 1
    if megatron and p2p is P2PMode.OVERLAP:
        return ""
    return f"only interleaved schedules with p2p overlap read it, not {schedule.label} with {p2p}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Everything that can be asked of a step beside its workload and its network.

    Times are picoseconds, sizes bytes. `plan` replaces what the workload, `npus`, `pp`,
    `microbatches` and `global_batch` would give.
    """

    npus: int | None = _asked(
        None,
        Quantity.COUNT,
        Panel.JOB,
        "NPUs of the job; more or fewer scale dp.",
        is_reported=True,
    )
    pp: int | None = _asked(
        None,
        Quantity.COUNT,
        Panel.JOB,
        "Pipeline stages; the layers are re-split.",
        is_reported=True,
    )
    microbatches: int | None = _asked(
        None,
        Quantity.COUNT,
        Panel.JOB,
        "Microbatches of each pipeline.",
        flags=("--microbatches", "-m"),
        is_reported=True,
    )
    global_batch: int | None = _asked(
        None,
        Quantity.COUNT,
        Panel.JOB,
        "Samples per step, of all pipelines together.",
        is_reported=True,
    )
    microbatch_size: int = _asked(
        1,
        Quantity.COUNT,
        Panel.JOB,
        "Samples of a microbatch.",
        is_reported=True,
        idle=lambda asked, *_: "" if asked.global_batch else "it divides a global_batch",
    )
    plan: "ParallelPlan | None" = _asked(
        None,
        Quantity.NAME,
        Panel.JOB,
        "Degrees and microbatches.",
        flags=(),
        noun=_plan_class,
        is_axis=False,
        is_reported=True,
    )
    rank_order: RankOrder | None = _asked(
        None,
        Quantity.NAME,
        Panel.JOB,
        "Which axis runs fastest through the NPUs, e.g. tp-pp-dp.",
        absent="tp-dp-pp",
        choices=lambda: RankOrder,
        read=RankOrder,
        is_reported=True,
    )
    schedule: "str | Schedule" = _asked(
        "1f1b",
        Quantity.NAME,
        Panel.PIPELINE,
        "Schedule, e.g. interleaved:4, or torch's CSV.",
        offers=_schedule_names,
        noun=_schedule_class,
        read=_schedule,
        write=lambda schedule: schedule if isinstance(schedule, str) else schedule.label,
        is_reported=True,
    )
    chunks: int | None = _asked(
        None, Quantity.COUNT, Panel.PIPELINE, "Virtual stages of each rank.", is_reported=True
    )
    p2p: P2PMode | None = _asked(
        None,
        Quantity.NAME,
        Panel.PIPELINE,
        "eager, blocking or overlap.",
        absent="as the schedule's runtime",
        choices=lambda: P2PMode,
        read=P2PMode,
        is_reported=True,
    )
    warmup_flush: bool = _asked(
        False,
        Quantity.SWITCH,
        Panel.PIPELINE,
        "Megatron's overlap_p2p_comm_warmup_flush.",
        idle=_only_overlapped,
    )
    deallocate_outputs: bool = _asked(
        False,
        Quantity.SWITCH,
        Panel.PIPELINE,
        "Wait for each asynchronous forward send at once, as Megatron's training does.",
        idle=_only_overlapped,
    )
    eager_transfers: bool = _asked(
        False,
        Quantity.SWITCH,
        Panel.PIPELINE,
        "A transfer starts when its send is posted; sends are never waited for.",
        flags=(),
    )
    group_size: int | None = _asked(
        None,
        Quantity.COUNT,
        Panel.PIPELINE,
        "Microbatches per group of an interleaved schedule.",
    )
    memory_limit: float | None = _asked(
        None,
        Quantity.FACTOR,
        Panel.PIPELINE,
        "Activations auto-zb may hold, over pipeline ranks.",
        absent="2",
    )
    stage_rows: StageRows = _asked(
        StageRows.ENDS,
        Quantity.NAME,
        Panel.COMPUTE,
        "Who runs embedding and head rows: ends, or every stage (SimAI).",
        choices=lambda: StageRows,
        read=StageRows,
    )
    tp_overlap: bool = _asked(
        True,
        Quantity.SWITCH,
        Panel.NETWORK,
        "Compute weight gradients beside the input gradient's collective.",
    )
    dp_overlap: bool = _asked(
        False,
        Quantity.SWITCH,
        Panel.NETWORK,
        "Reduce gradients while the last backward goes on.",
    )
    dp_bucket_bytes: int = _asked(
        160_000_000,  # Megatron-LM's default of 40 million fp32 gradients
        Quantity.SIZE,
        Panel.NETWORK,
        "Gradients reduced at a time, with --dp-overlap.",
        idle=lambda asked, *_: (
            "" if asked.dp_overlap else "gradients are not overlapped (dp_overlap)"
        ),
    )
    contention: Sharing = _asked(
        Sharing.NONE,
        Quantity.NAME,
        Panel.NETWORK,
        "Transfers that overlap share links: none, or fair (max-min).",
        choices=lambda: Sharing,
        read=Sharing,
        is_reported=True,
    )
    algorithm: tuple[str, ...] = _asked(
        (),
        Quantity.NAME,
        Panel.NETWORK,
        "e.g. all_reduce=ring. Repeatable.",
        absent="the fastest",
        read=_algorithm,
        write=_joined,
        many=True,
    )
    comm_table: "CommTable | None" = _asked(
        None,
        Quantity.NAME,
        Panel.NETWORK,
        "Measured times of collectives: CSV or nccl-tests. Repeatable.",
        noun=_table_class,
        write=lambda table: str(table.source),
        many=True,
        is_file=True,
        is_axis=False,
    )
    expert_load: tuple[float, ...] | None = _asked(
        None,
        Quantity.NAME,
        Panel.COMPUTE,
        "File with the tokens of each expert (or expert rank), a line each.",
        write=_joined,
        is_file=True,
        is_axis=False,
    )
    expert_skew: float | None = _asked(
        None,
        Quantity.FACTOR,
        Panel.COMPUTE,
        "Load of the busiest expert rank over the mean.",
    )
    slow: "SlowRanks | None" = _asked(
        None,
        Quantity.NAME,
        Panel.COMPUTE,
        "Stragglers: factors on compute, e.g. 12:1.3,40-47:1.1.",
        noun=_slow_class,
        read=_slow,
        write=str,
        is_axis=False,
    )
    compute_scale: "ComputeScale | None" = _asked(
        None,
        Quantity.FACTOR,
        Panel.COMPUTE,
        "Factor on compute, e.g. 0.5, or forward=0.5,input_grad=0.6,weight_grad=0.6.",
        absent="1",
        noun=_scale_class,
        read=_scale,
        write=str,
        durations_only=True,
    )
    host_overhead_ps: int = _asked(
        0,
        Quantity.TIME,
        Panel.COMPUTE,
        "Host time before each action, e.g. 250us.",
        durations_only=True,
    )
    get_batch_ps: int = _asked(
        0,
        Quantity.TIME,
        Panel.COMPUTE,
        "Host time before the first stage's forwards.",
    )
    loss_time_ps: int = _asked(
        0,
        Quantity.TIME,
        Panel.COMPUTE,
        "Host time after the last stage's forwards.",
    )
    fused_factor: float = _asked(
        1.0,
        Quantity.FACTOR,
        Panel.COMPUTE,
        "Compute of a fused pair over that of its halves.",
        idle=lambda _, schedule, __: (
            "" if schedule.has_pairs else f"{schedule.label} has no fused pairs"
        ),
    )
    activation_size_bytes: int | None = _asked(
        None,
        Quantity.SIZE,
        Panel.COMPUTE,
        "What a chunk keeps of a microbatch, e.g. 2GiB.",
        is_axis=False,
        is_reported=True,
    )
    fold_ranks: bool = _asked(
        True,
        Quantity.SWITCH,
        Panel.RUN,
        "Simulate one rank of each class of ranks.",
        flags=("--fold/--no-fold",),
        is_axis=False,
        is_reported=True,
    )

    def __post_init__(self) -> None:
        if self.dp_bucket_bytes < 1:
            raise PlanError(f"dp_bucket is {self.dp_bucket_bytes} bytes: expected at least 1")
        if not 0 < self.fused_factor <= MAX_FUSED_FACTOR:
            raise PlanError(
                f"fused_factor is {self.fused_factor}: expected above 0, at most {MAX_FUSED_FACTOR}"
            )
        if self.expert_load is not None and self.expert_skew is not None:
            raise PlanError("expert_load and expert_skew say the same: give one of them")

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raise PlanError where one of these options was set, which would do nothing."""
        for option in self.changed():
            if option.name in names:
                raise PlanError(f"{option.name}: {why}: leave it out")

    def changed(self) -> Iterator[Option]:
        """The options that are not the default."""
        return (each for each in OPTIONS.values() if getattr(self, each.field) != each.default)

    def settings(self) -> dict[str, str]:
        """What was set, as text by name, e.g. `{"slow": "12:1.3"}`, but what a report shows."""
        return {
            option.name: option.text(getattr(self, option.field))
            for option in self.changed()
            if not option.is_reported
        }

    def idle(self, schedule: "Schedule", p2p: P2PMode) -> Iterator[str]:
        """A sentence for each option that was set and does nothing."""
        for option in self.changed():
            why = option.idle(self, schedule, p2p) if option.idle else ""
            if why:
                value = option.text(getattr(self, option.field))
                yield f"{option.name} {value} has no effect: {why}"


def _named() -> Iterator[tuple[str, Option]]:
    for each in fields(StepOptions):
        option: Option = each.metadata["option"]
        name = each.name.removesuffix(option.quantity.suffix)
        yield name, replace(option, name=name)


OPTIONS: Mapping[str, Option] = MappingProxyType(dict(_named()))
"""Every option by its name: what flags, axes, files and Python call it."""
