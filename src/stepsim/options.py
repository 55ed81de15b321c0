"""What can be asked of a step: one record, declared once.

Each field of `StepOptions` says its panel, its help, its default and when it has an effect; its
type, or the unit in its name, says what its values are. The command line, sweep files and axes,
tables of measured steps, recorded settings and Python read them from here. This module imports
nothing heavy, so that help is quick.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import EnumType
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from stepsim.base.axes import EpLayout, RankOrder
from stepsim.base.errors import PlanError, within
from stepsim.base.option import Option, Panel, asked
from stepsim.base.structs import Values
from stepsim.base.units import Quantity
from stepsim.parallel.modes import Engine, JobPlacement, Sharing, StageRows
from stepsim.workload.model.choices import (
    AttentionKernel,
    ContextParallelKind,
    ExpertDispatch,
    Precision,
    Recompute,
    StateFormat,
)

if TYPE_CHECKING:
    from stepsim.network.measured_times import CommTable
    from stepsim.parallel.p2p import P2PMode
    from stepsim.parallel.schedules import Schedule
    from stepsim.workload.expert_load import ExpertLoad
    from stepsim.workload.model.calibration import ModelCalibration
    from stepsim.workload.model.device import Device
    from stepsim.workload.model.framework import Framework
    from stepsim.workload.overlap import CommSms
    from stepsim.workload.scaling import ComputeScale, SlowRanks

_DEGREE = "1; without any degree a plan that fits"
_AS_RUN = "as the framework's jobs run"


_job, _model, _pipeline, _network, _compute, _run = (partial(asked, panel) for panel in Panel)


def _schedule(text: str) -> str:
    from stepsim.parallel.schedules import parse_name

    parse_name(text)
    return text


def _comm_sms(text: str) -> "CommSms | None":
    from stepsim.workload.overlap import parse_comm_sms

    return parse_comm_sms(text)


def _load(text: str) -> object:
    from stepsim.workload.expert_load import parse_expert_law

    return parse_expert_law(text)


def _scale(text: str) -> "ComputeScale | None":
    from stepsim.workload.scaling import ComputeScale, parse_compute_scale

    scale = parse_compute_scale(text)
    return None if scale == ComputeScale() else scale


def _slow(text: str) -> "SlowRanks":
    from stepsim.workload.scaling import parse_slow_ranks

    return parse_slow_ranks(text)


def _layout(text: str) -> str:
    from stepsim.workload.model.layout import named_layout

    named_layout(text)
    return text


def _named(noun: Any) -> str:
    return noun if isinstance(noun, str) else str(noun.name)


def _algorithm(text: str) -> str:
    from stepsim.network.collectives import parse_algorithms

    parse_algorithms([text])
    return text


def _load_text(load: object) -> str:
    return _joined(load) if isinstance(load, tuple) else str(load)


def _joined(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _only_overlapped(options: "StepOptions", schedule: "Schedule", p2p: "P2PMode") -> str:
    """Megatron-LM's switches are read by its interleaved runtime with overlap alone."""
    from stepsim.parallel.p2p import P2PMode

    megatron = schedule.megatron and schedule.placement.chunks > 1
    if megatron and p2p is P2PMode.OVERLAP:
        return ""
    return f"only interleaved schedules with p2p overlap read it, not {schedule.label} with {p2p}"


# no struct: what there is to know of an option is metadata of its field
@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Everything that can be asked of a step beside its workload and its network.

    Times are picoseconds, sizes bytes.
    """

    npus: int | None = _job(
        "NPUs of the job; more or fewer scale dp.", flags=("--npus", "--gpus"), is_reported=True
    )
    pp: int | None = _job("Pipeline stages; the layers are re-split.", is_reported=True)
    microbatches: int | None = _job(
        "Microbatches of each pipeline.", flags=("--microbatches", "-m"), is_reported=True
    )
    global_batch: int | None = _job(
        "Samples per step, of all pipelines together.", is_reported=True
    )
    microbatch_size: int | None = _job(
        "Samples of a microbatch, 1 in the file: compute and activations grow in proportion.",
        absent="1",
        flags=("--microbatch-size", "--mbs"),
    )
    tp: int | None = _model("Ranks that split every layer.", absent=_DEGREE, is_reported=True)
    cp: int | None = _model("Ranks that split every sequence.", absent=_DEGREE, is_reported=True)
    ep: int | None = _model("Ranks that share out experts.", absent=_DEGREE, is_reported=True)
    expert_tp: int | None = _model(
        "Ranks that split every expert.", absent="as tp", flags=("--expert-tp", "--etp")
    )
    sequence: int | None = _model(
        "Tokens of a sample.", absent="4096", flags=("--sequence", "--seq")
    )
    packed: int | None = _model(
        "Tokens of the documents that fill a sequence: attention stays within each.",
        absent="one document",
    )
    precision: Precision | None = _model(
        "Format of products: {names}.",
        absent="bf16",
        flags=("--precision", "--dtype"),
    )
    recompute: Recompute | None = _model("What runs again in the backward: {names}.", absent="none")
    recompute_layers: int | None = _model("Layers of a stage that recompute fully.", absent="all")
    states: StateFormat | None = _model(
        "Format of gradients and the optimizer: {names}; bf16 has no master weights.",
        absent=_AS_RUN,
    )
    loss_chunks: int | None = _model(
        "Parts of a microbatch that have logits at a time.", absent=_AS_RUN
    )
    layout: str | None = _model(
        "Layers of virtual stages: equal, even, ends, 10+12+10, or Megatron's letters.",
        absent="equal",
        read=_layout,
    )
    zero: int | None = _model("ZeRO stage, 0 to 3; 3 is FSDP (--fsdp elsewhere).", absent=_AS_RUN)
    shard_ranks: int | None = _model("Ranks that share a copy; fewer than all: HSDP.", absent="all")
    reshard: bool | None = _model(
        "Whether zero 3 drops parameters after the forward.",
        absent=_AS_RUN,
    )
    sequence_parallel: bool = _model(
        "Whether norms are split over tp too.", default=True, flags=("--sp/--no-sp",)
    )
    cp_comm: ContextParallelKind | None = _model(
        "How ranks of cp exchange keys and values: {names}.",
        absent="ring",
    )
    attention: AttentionKernel | None = _model("Core attention: {names}.", absent="flash")
    dispatch: ExpertDispatch | None = _model("How tokens reach experts: {names}.", absent=_AS_RUN)
    expert_overlap: bool | None = _model(
        "Run exchanges between experts beside another microbatch's compute.",
        absent=_AS_RUN,
        idle=lambda asked, schedule, _: (
            "a pipeline has one microbatch, and none runs beside it"
            if asked.expert_overlap and schedule.microbatches == 1
            else ""
        ),
    )
    shared_overlap: bool | None = _model(
        "Run exchanges between experts beside shared experts.",
        absent=_AS_RUN,
    )
    delay_wgrad: bool | None = _model(
        "Run exchanges of experts' input gradients beside their weight gradients.",
        absent=_AS_RUN,
    )
    tp_comm_overlap: bool | None = _model(
        "Pipeline tp collectives with their products.",
        absent=_AS_RUN,
    )
    cuda_graph: bool | None = _model(
        "Whether CUDA graphs launch the layers.",
        absent=_AS_RUN,
    )
    recipe: bool = _model(
        "Take from public recipes of the model what is not asked for.",
        default=True,
    )
    device: "str | Device | None" = _model(
        "Accelerator: a shipped name or TOML file.",
        absent="the topology's",
        noun="stepsim.workload.model.device:Device",
        read=str,
        write=_named,
        is_reported=True,
    )
    framework: "str | Framework | None" = _model(
        "Training framework: a shipped name or TOML file.",
        absent="megatron-core",
        noun="stepsim.workload.model.framework:Framework",
        read=str,
        write=_named,
        is_reported=True,
    )
    rank_order: RankOrder | None = _job(
        "Which axis runs fastest through the NPUs, e.g. tp-pp-dp.",
        absent="tp-dp-pp",
        is_reported=True,
    )
    ep_layout: EpLayout | None = _job(
        "Where expert groups lie: inside dp, or folded over tp and dp.",
        absent="as the file says, else dp",
        is_reported=True,
    )
    placement: JobPlacement = _job(
        "NPUs taken of racks and nodes: as many as keep groups whole (aligned), or all (packed).",
        default=JobPlacement.ALIGNED,
    )
    schedule: "str | Schedule" = _pipeline(
        "{names}, with chunks as in interleaved:4; or torch's CSV.",
        default="1f1b",
        offers="stepsim.parallel.schedules:BUILDERS",
        noun="stepsim.parallel.schedules:Schedule",
        read=_schedule,
        write=lambda schedule: schedule if isinstance(schedule, str) else schedule.label,
        is_reported=True,
    )
    chunks: int | None = _pipeline(
        "Virtual stages of each rank.", flags=("--chunks", "--vpp"), is_reported=True
    )
    p2p: "P2PMode | None" = _pipeline(
        "How messages are sent: {names}.",
        absent="as the schedule's runtime",
        offers="stepsim.parallel.p2p:P2PMode",
        is_reported=True,
    )
    warmup_flush: bool = _pipeline(
        "Megatron's overlap_p2p_comm_warmup_flush.", default=False, idle=_only_overlapped
    )
    deallocate_outputs: bool = _pipeline(
        "Wait for each asynchronous forward send at once, as Megatron's training does.",
        default=False,
        idle=_only_overlapped,
    )
    group_size: int | None = _pipeline(
        "Microbatches per group of an interleaved schedule.",
    )
    memory_limit: float | None = _pipeline(
        "Activations auto-zb may hold, over pipeline ranks.", absent="2"
    )
    stage_rows: StageRows = _compute(
        "Who runs embedding and head rows: ends, or every stage (SimAI).",
        default=StageRows.ENDS,
    )
    dp_overlap: bool | None = _network(
        "Reduce gradients while the last backward goes on.",
        absent="off; a model: as the framework's jobs run",
    )
    dp_bucket_bytes: int = _network(
        "Gradients reduced at a time, with --dp-overlap.",
        default=160_000_000,  # Megatron-LM's default of 40 million fp32 gradients
        idle=lambda asked, *_: (
            "" if asked.dp_overlap else "gradients are not overlapped (dp_overlap)"
        ),
    )
    contention: Sharing = _network(
        "Who shares links: none, siblings (groups that act together), or fair (all).",
        default=Sharing.SIBLINGS,
        is_reported=True,
    )
    overlap_cost: "CommSms | None" = _network(
        "Communication slows the compute beside it: on, or how many multiprocessors each one holds "
        "(0: copy engines); it takes memory bandwidth besides.",
        absent="off",
        noun="stepsim.workload.overlap:CommSms",
        read=_comm_sms,
        write=str,
    )
    algorithm: tuple[str, ...] = _network(
        "e.g. all_reduce=ring. Repeatable.",
        default=(),
        absent="the fastest",
        read=_algorithm,
        write=_joined,
        many=True,
    )
    comm_table: "CommTable | None" = _network(
        "Measured times of collectives: CSV or nccl-tests. Repeatable.",
        noun="stepsim.network.measured_times:CommTable",
        write=lambda table: str(table.source),
        many=True,
        is_file=True,
        is_axis=False,
    )
    expert_load: "ExpertLoad | None" = _compute(
        "Tokens of experts: skew:1.5, the busiest rank over the mean; power:1.2 or dirichlet:0.5, "
        "drawn for each layer and microbatch (power:1.2:7 from seed 7); or a file of counts.",
        absent="balanced",
        read=_load,
        write=_load_text,
        is_file=True,
    )
    slow: "SlowRanks | None" = _compute(
        "Stragglers: factors on compute, e.g. 12:1.3,40-47:1.1.",
        noun="stepsim.workload.scaling:SlowRanks",
        read=_slow,
        write=str,
        is_axis=False,
    )
    compute_scale: "ComputeScale | None" = _compute(
        "Factor on compute, e.g. 0.5, or forward=0.5,weight_grad=0.6.",
        quantity=Quantity.FACTOR,
        absent="1",
        noun="stepsim.workload.scaling:ComputeScale",
        read=_scale,
        write=str,
        durations_only=True,
    )
    calibration: "ModelCalibration | None" = _compute(
        "Calibration of the machine: a TOML file that stepsim calibrate wrote.",
        noun="stepsim.workload.model.calibration:ModelCalibration",
        write=lambda calibration: calibration.path or "in memory",
        is_file=True,
        is_axis=False,
    )
    fill_placeholders: bool = _compute(
        "In rows with work, give phases of 1 or 1000 ns (placeholders) a time: input gradients "
        "that of forwards, weight gradients that of input gradients.",
        default=False,
    )
    host_overhead_ps: int = _compute(
        "Host time before each forward and backward, e.g. 250us.", default=0, durations_only=True
    )
    get_batch_ps: int = _compute("Host time before the first stage's forwards.", default=0)
    loss_time_ps: int = _compute("Host time after the last stage's forwards.", default=0)
    activation_size_bytes: int | None = _compute(
        "What a stage's layers keep of a sample, e.g. 2GiB; a chunk by its share.",
        is_axis=False,
        is_reported=True,
    )
    engine: Engine | None = _run(
        "How start and end of tasks are found, with equal results: simpy runs events, levels "
        "goes through the tasks level by level.",
        is_axis=False,
        absent="simpy, for large jobs levels",
    )

    def __post_init__(self) -> None:
        within("dp_bucket", self.dp_bucket_bytes, 1)
        if self.engine is Engine.LEVELS and self.contention is Sharing.FAIR:
            raise PlanError(
                "engine is levels with contention fair: expected simpy, transfers that share links "
                "in time need events"
            )

    @property
    def samples(self) -> int:
        """Samples of a microbatch, 1 where nobody says it."""
        return 1 if self.microbatch_size is None else self.microbatch_size

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raise PlanError where one of these options was set, which would do nothing."""
        for option in self.changed():
            if option.name in names:
                raise PlanError(f"{option.name}: {why}: leave it out")

    def changed(self) -> Iterator[Option]:
        """The options that are not the default."""
        return (each for field, each in _BY_FIELD if getattr(self, field) != each.default)

    def settings(self) -> dict[str, str]:
        """What was set, as text by name, e.g. `{"slow": "12:1.3"}`, but what a report shows."""
        return {
            option.name: option.text(getattr(self, option.field))
            for option in self.changed()
            if not option.is_reported
        }

    def idle(self, schedule: "Schedule", p2p: "P2PMode") -> Iterator[str]:
        """A sentence for each option that was set and does nothing."""
        for option in self.changed():
            why = option.idle(self, schedule, p2p) if option.idle else ""
            if why:
                value = option.text(getattr(self, option.field))
                yield f"{option.name} {value} has no effect: {why}"


_KINDS = {each.kind: each for each in Quantity if each.kind is not str}


def _by_name() -> Iterator[tuple[str, Option]]:
    """Options: what values each has its field's type says, but a unit in its name comes first.

    Without flags of its own one has that of its name, and a switch that may be on one to turn it
    off.
    """
    for each in fields(StepOptions):
        told: Values = {"quantity": Quantity.NAME}
        for kind in (each.type, *get_args(each.type)):
            if isinstance(kind, EnumType):
                told["offers"] = f"{kind.__module__}:{kind.__name__}"
            elif kind in _KINDS:
                told["quantity"] = _KINDS[kind]
        for quantity in (Quantity.TIME, Quantity.SIZE):
            if each.name.endswith(quantity.suffix):
                told["quantity"] = quantity
        told |= {"default": each.default, **each.metadata}
        name = each.name.removesuffix(told["quantity"].suffix)
        words = name.replace("_", "-")
        has_two = told["quantity"] is Quantity.SWITCH and each.default is not False
        told.setdefault("flags", (f"--{words}/--no-{words}" if has_two else f"--{words}",))
        yield name, Option(name=name, field=each.name, **told)


OPTIONS: Mapping[str, Option] = dict(_by_name())
"""Every option by its name: what flags, axes, files and Python call it."""
_BY_FIELD = tuple((option.field, option) for option in OPTIONS.values())

ALIASES: Mapping[str, str] = {
    flag.removeprefix("--").replace("-", "_"): option.name
    for option in OPTIONS.values()
    for flag in option.flags
    if flag.startswith("--") and "/" not in flag
}
"""Names of options by their other flags: Python takes `gpus` where the command line does."""
