"""Options that several commands share, declared once."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from stepsim.base.errors import PlanError
from stepsim.cli import completion
from stepsim.cli.terminal import log_shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from stepsim.network.measured_times import CommTable


JOB = "Size of the job"
PIPELINE = "Pipeline"
NETWORK = "Network and communication"
COMPUTE = "Compute and host"


ScheduleOption = Annotated[
    str,
    typer.Option(
        "--schedule",
        help="Schedule, e.g. interleaved:4, or torch's CSV.",
        autocompletion=completion.schedules,
        rich_help_panel=PIPELINE,
    ),
]
ChunksOption = Annotated[
    int | None,
    typer.Option("--chunks", help="Virtual stages of each rank.", rich_help_panel=PIPELINE),
]


class Switch(StrEnum):
    """On or off."""

    ON = "on"
    OFF = "off"


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=RANGE",
        help="An axis, e.g. 'fabric.bandwidth=100..800 Gbps:8' or schedule=1f1b,zb-h1.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What sets the size and the speed of a job."""

    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            "-t",
            help="Shipped topology or TOML file.",
            show_default="hgx-h100",
            autocompletion=completion.topologies,
            rich_help_panel=NETWORK,
        ),
    ] = None
    npus: Annotated[
        int | None,
        typer.Option(
            "--npus", help="NPUs of the job; more or fewer scale dp.", rich_help_panel=JOB
        ),
    ] = None
    pp: Annotated[
        int | None,
        typer.Option("--pp", help="Pipeline stages; the layers are re-split.", rich_help_panel=JOB),
    ] = None
    microbatches: Annotated[
        int | None,
        typer.Option(
            "--microbatches", "-m", help="Microbatches of each pipeline.", rich_help_panel=JOB
        ),
    ] = None
    global_batch: Annotated[
        int | None,
        typer.Option(
            "--global-batch",
            help="Samples per step, of all pipelines together.",
            rich_help_panel=JOB,
        ),
    ] = None
    microbatch_size: Annotated[
        int, typer.Option("--microbatch-size", help="Samples of a microbatch.", rich_help_panel=JOB)
    ] = 1
    compute_scale: Annotated[
        str,
        typer.Option(
            "--compute-scale",
            help="Factor on compute, e.g. 0.5, or forward=0.5,input_grad=0.6,weight_grad=0.6.",
            rich_help_panel=COMPUTE,
        ),
    ] = "1"
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse files whose header and rows disagree.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No warnings, no progress.")] = False
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what is done, and when, on stderr.")
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `stepsim.simulate`, the topology among them."""
        from stepsim.workload.scaling import parse_compute_scale

        return {
            "topology": self.topology,
            "npus": self.npus,
            "pp": self.pp,
            "microbatches": self.microbatches,
            "global_batch": self.global_batch,
            "microbatch_size": self.microbatch_size,
            "compute_scale": parse_compute_scale(self.compute_scale),
        }


@dataclass(frozen=True, kw_only=True)
class RunOptions(PlanOptions):
    """What sets how a job is run."""

    rank_order: Annotated[
        str | None,
        typer.Option(
            "--rank-order",
            help="Which axis runs fastest through the NPUs, e.g. tp-pp-dp.",
            show_default="tp-dp-pp",
            rich_help_panel=JOB,
        ),
    ] = None
    p2p: Annotated[
        str | None,
        typer.Option(
            "--p2p",
            help="eager, blocking or overlap.",
            show_default="as the schedule's runtime",
            autocompletion=completion.p2p_modes,
            rich_help_panel=PIPELINE,
        ),
    ] = None
    warmup_flush: Annotated[
        bool,
        typer.Option(
            "--warmup-flush",
            help="Megatron's overlap_p2p_comm_warmup_flush.",
            rich_help_panel=PIPELINE,
        ),
    ] = False
    deallocate_outputs: Annotated[
        bool,
        typer.Option(
            "--deallocate-outputs",
            help="Wait for each asynchronous forward send at once, as Megatron's training does.",
            rich_help_panel=PIPELINE,
        ),
    ] = False
    group_size: Annotated[
        int | None,
        typer.Option(
            "--group-size",
            help="Microbatches per group of an interleaved schedule.",
            rich_help_panel=PIPELINE,
        ),
    ] = None
    memory_limit: Annotated[
        float | None,
        typer.Option(
            "--memory-limit",
            help="Activations auto-zb may hold, over pipeline ranks.",
            show_default="2",
            rich_help_panel=PIPELINE,
        ),
    ] = None
    stage_rows: Annotated[
        str,
        typer.Option(
            "--stage-rows",
            help="Who runs embedding and head rows: ends, or every stage (SimAI).",
            autocompletion=completion.stage_rows,
            rich_help_panel=COMPUTE,
        ),
    ] = "ends"
    tp_overlap: Annotated[
        Switch,
        typer.Option(
            "--tp-overlap",
            help="Compute weight gradients beside the input gradient's collective.",
            rich_help_panel=NETWORK,
        ),
    ] = Switch.ON
    dp_overlap: Annotated[
        bool,
        typer.Option(
            "--dp-overlap",
            help="Reduce gradients while the last backward goes on.",
            rich_help_panel=NETWORK,
        ),
    ] = False
    dp_bucket: Annotated[
        str,
        typer.Option(
            "--dp-bucket",
            help="Gradients reduced at a time, with --dp-overlap.",
            rich_help_panel=NETWORK,
        ),
    ] = "160 MB"
    contention: Annotated[
        str,
        typer.Option(
            "--contention",
            help="Transfers that overlap share links: none, or fair (max-min).",
            autocompletion=completion.sharings,
            rich_help_panel=NETWORK,
        ),
    ] = "none"
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            "--algorithm",
            help="e.g. all_reduce=ring. Repeatable.",
            show_default="the fastest",
            rich_help_panel=NETWORK,
        ),
    ] = None
    comm_table: Annotated[
        list[Path] | None,
        typer.Option(
            "--comm-table",
            help="Measured times of collectives: CSV or nccl-tests. Repeatable.",
            rich_help_panel=NETWORK,
        ),
    ] = None
    comm_source: Annotated[
        str | None,
        typer.Option(
            "--comm-source",
            help="Text in machine or run of the curves to use; !: not.",
            rich_help_panel=NETWORK,
        ),
    ] = None
    expert_load: Annotated[
        Path | None,
        typer.Option(
            "--expert-load",
            help="File with the tokens of each expert (or expert rank), a line each.",
            rich_help_panel=COMPUTE,
        ),
    ] = None
    expert_skew: Annotated[
        float | None,
        typer.Option(
            "--expert-skew",
            help="Load of the busiest expert rank over the mean.",
            rich_help_panel=COMPUTE,
        ),
    ] = None
    slow: Annotated[
        str | None,
        typer.Option(
            "--slow",
            help="Stragglers: factors on compute, e.g. 12:1.3,40-47:1.1.",
            rich_help_panel=COMPUTE,
        ),
    ] = None
    host_overhead: Annotated[
        str,
        typer.Option(
            "--host-overhead",
            help="Host time before each action, e.g. 250us.",
            rich_help_panel=COMPUTE,
        ),
    ] = "0 ns"
    get_batch: Annotated[
        str,
        typer.Option(
            "--get-batch",
            help="Host time before the first stage's forwards.",
            rich_help_panel=COMPUTE,
        ),
    ] = "0 ns"
    loss_time: Annotated[
        str,
        typer.Option(
            "--loss-time",
            help="Host time after the last stage's forwards.",
            rich_help_panel=COMPUTE,
        ),
    ] = "0 ns"
    fused_factor: Annotated[
        float,
        typer.Option(
            "--fused-factor",
            help="Compute of a fused pair over that of its halves.",
            rich_help_panel=COMPUTE,
        ),
    ] = 1.0
    activation_size: Annotated[
        str | None,
        typer.Option(
            "--activation-size",
            help="What a chunk keeps of a microbatch, e.g. 2GiB.",
            rich_help_panel=COMPUTE,
        ),
    ] = None
    fold: Annotated[
        bool,
        typer.Option("--fold/--no-fold", help="Simulate one rank of each class of ranks."),
    ] = True

    def _expert_load(self) -> "list[float] | float | None":
        from stepsim.files.expert_load import read_expert_load

        if self.expert_load and self.expert_skew is not None:
            raise PlanError("--expert-load and --expert-skew say the same: give one of them")
        return read_expert_load(self.expert_load) if self.expert_load else self.expert_skew

    def _comm_table(self) -> "CommTable | None":
        if not self.comm_table:
            if self.comm_source:
                raise PlanError("--comm-source chooses curves of a --comm-table: name one")
            return None
        from stepsim.files.load import load_comm_table

        return load_comm_table(self.comm_table, source=self.comm_source or "")

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `stepsim.simulate`."""
        from stepsim.parallel.p2p import P2POptions

        return super().arguments() | {
            "rank_order": self.rank_order,
            "p2p": self.p2p,
            "p2p_options": P2POptions(
                warmup_flush=self.warmup_flush, deallocate_outputs=self.deallocate_outputs
            ),
            "schedule_options": {
                name: value
                for name in ("group_size", "memory_limit")
                if (value := getattr(self, name)) is not None
            },
            "stage_rows": self.stage_rows,
            "tp_overlap": self.tp_overlap is Switch.ON,
            "dp_overlap": self.dp_overlap,
            "dp_bucket": self.dp_bucket,
            "contention": self.contention,
            "algorithm": self.algorithm or (),
            "comm_table": self._comm_table(),
            "expert_load": self._expert_load(),
            "slow": self.slow,
            "host_overhead": self.host_overhead,
            "get_batch": self.get_batch,
            "loss_time": self.loss_time,
            "fused_factor": self.fused_factor,
            "activation_size": self.activation_size,
            "fold_ranks": self.fold,
        }


Options = TypeVar("Options", bound="DataclassInstance")


def takes(options_type: type[Options]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a dataclass, which it receives as `options`."""
    hints = get_type_hints(options_type, include_extras=True)
    declared = fields(options_type)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**arguments: Any) -> None:
            options = options_type(**{each.name: arguments.pop(each.name) for each in declared})
            with log_shown(enabled=getattr(options, "verbose", False)):
                command(**arguments, options=options)

        own = inspect.signature(command).parameters
        shared = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in declared
        ]
        kept = [p.replace(kind=p.KEYWORD_ONLY) for n, p in own.items() if n != "options"]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        # typer reads the signature, which mypy does not know functions to have
        run.__signature__ = inspect.Signature([*kept, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*kept, *shared)}
        return run

    return decorate
