"""`stepsim calibrate`: what runs, and collectives measured alone, tell about a machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import click

from stepsim.base.errors import CalibrationError, PlanError, member
from stepsim.base.option import Panel
from stepsim.cli.declared import argument, flag
from stepsim.cli.measured import CommSourceOption, NcclOption, RunsArgument
from stepsim.cli.options import (
    NO_MEMORY,
    NodeSizeOption,
    OneStepOptions,
    QuietOptions,
    refuse_beside,
    takes,
)
from stepsim.cli.terminal import FILE, CsvOption, show_tables, warn

if TYPE_CHECKING:
    from stepsim.files.asked import StepInputs
    from stepsim.workload.model.calibration import MeasuredRate


@takes(QuietOptions)
def runs(
    paths: RunsArgument,
    output: Path = flag("Calibration file to write.", "--output", "-o", default=..., writes=FILE),
    nccl: NcclOption = (),
    comm_source: CommSourceOption = "",
    node_size: NodeSizeOption = None,
    csv: CsvOption = None,
) -> None:
    """Find host, message and gradient costs of a machine in measured RUNs."""
    from stepsim.files.calibrations import write_calibration
    from stepsim.files.collectives.measurements import load_benchmarks
    from stepsim.files.measured import load_run
    from stepsim.runs.measured import calibrate_measured
    from stepsim.views.calibration import calibration_shown

    loaded = [load_run(path, node_size=node_size) for path in paths]
    table = load_benchmarks(nccl, comm_source)
    read = [*loaded, table] if table else loaded
    warn([text for each in read for text in each.warnings])
    found = calibrate_measured(loaded, table)
    if found.empty:
        warn([f"{output} holds no number: the runs tell none of those that can be calibrated"])
    write_calibration(found, output)
    show_tables(calibration_shown(found), csv)


# Options of `calibrate trace` that do something without a model.
_WITHOUT_MODEL = {*("paths", "output", "node_size", "csv", "env"), *("device", "precision")}


@dataclass(frozen=True, kw_only=True)
class _TraceOptions(OneStepOptions):
    """What `calibrate trace` takes beside the options of a step, which are those of its models."""

    models: tuple[str, ...] = flag(
        "The model of the traces, or one for each: all kernels are learned. Repeatable.",
        "--model",
        panel=Panel.MODEL,
    )
    plans: tuple[Path, ...] = flag(
        "The plan of the models, or one for each trace. Repeatable.",
        "--plan-file",
        panel=Panel.MODEL,
    )

    def jobs(self, traces: int) -> "list[StepInputs]":
        """The job of each trace; none without a model. Raises PlanError for other counts."""
        if not self.models:
            refuse_beside("--model is missing", _WITHOUT_MODEL)
            return []
        models = _for_each("--model", self.models, traces)
        plans = _for_each("--plan-file", self.plans, traces) if self.plans else [None] * traces
        return [self._job(*pair) for pair in zip(models, plans, strict=True)]

    def _job(self, model: str, plan: Path | None) -> "StepInputs":
        from stepsim.files.load import read_model
        from stepsim.files.models.launch import with_launch

        read = read_model(model)
        return self.inputs(with_launch(read, plan) if plan else read)


_Given = TypeVar("_Given")


def _for_each(flag: str, given: Sequence[_Given], traces: int) -> list[_Given]:
    """One value for each trace; raises PlanError for neither one nor as many as there are."""
    if len(given) not in (1, traces):
        raise PlanError(f"{flag}: {len(given)} for {traces} traces: expected one, or one for each")
    return [*given] * (traces // len(given))


@takes(_TraceOptions, NO_MEMORY - {"calibration"})
def calibrate_trace(
    paths: Annotated[tuple[Path, ...], argument("TRACE...", "Profiles of one machine.")],
    options: _TraceOptions,
    output: Path = flag("Calibration file to write.", "--output", "-o", default=..., writes=FILE),
    node_size: NodeSizeOption = None,
    csv: CsvOption = None,
) -> None:
    """Find collectives by size, host and message times, rates of kernels in profiles.

    With --device the rate of products is found by their shapes, with --model that of every class of
    kernels; the options of a step are then those of the traced job. Traces of several jobs are held
    against each other.
    """
    from stepsim.files.accelerators import read_device
    from stepsim.files.calibrations import write_calibration
    from stepsim.files.measured import load_profile
    from stepsim.runs.learned import calibrate_profiles
    from stepsim.views.calibration import calibration_shown, learned_shown
    from stepsim.workload.model.choices import Precision

    device = options.asked.get("device")
    jobs = options.jobs(len(paths))
    precision = str(options.asked.get("precision", "bf16"))
    found, notes = calibrate_profiles(
        [load_profile(path) for path in paths],
        node_size=node_size,
        device=read_device(str(device)) if device else None,
        precision=member(Precision, precision, "precision", CalibrationError),
        jobs=jobs,
    )
    warn(notes)
    if found.empty:
        warn([f"{output} holds no number: the profiles tell none of them"])
    write_calibration(found, output)
    show_tables([*calibration_shown(found), *learned_shown(found)], csv)


@takes(QuietOptions)
def calibrate_model(
    steps: Annotated[
        tuple[Path, ...],
        argument("[STEPS.csv]...", "Tables of measured steps of models."),
    ] = (),
    output: Path | None = flag("Calibration file to write.", "--output", "-o", writes=FILE),
    gemm: Path | None = flag("Measured matrix products: CSV of m,n,k,tflops."),
    device: str | None = flag("Device that --gemm was measured on."),
    precision: str = flag(
        "Precision of --gemm, e.g. fp8.", "--precision", "--dtype", default="bf16"
    ),
    csv: CsvOption = None,
) -> None:
    """Fit predictions of models to measured steps and kernels.

    One factor for each device, framework and precision, rates from matrix products; prints the
    residual of every step.
    """
    from stepsim.base.structs import replace, toml_text
    from stepsim.base.writing import write_whole
    from stepsim.files.model_steps import read_published_steps
    from stepsim.runs.published import PublishedRun
    from stepsim.runs.published_calibration import calibrate_steps
    from stepsim.views.validation import model_calibration_shown
    from stepsim.workload.model.calibration import ModelCalibration

    if not steps and gemm is None:
        raise CalibrationError("nothing to calibrate on: expected a table of steps, or --gemm")
    read = [read_published_steps(path) for path in steps]
    warn([note for _, notes in read for note in notes])
    rates = [_gemm_rate(gemm, device, precision)] if gemm else []
    measured = [step for found, _ in read for step in found]
    found, rows = ModelCalibration(rates=tuple(rates)), list[PublishedRun]()
    if steps:
        found, rows = calibrate_steps(measured, rates)
    sources = tuple(path.name for path in (*steps, gemm) if path)
    calibration = replace(found, sources=sources)
    warn(calibration.notes)
    if output:
        write_whole(output, toml_text(calibration).encode())
    show_tables(model_calibration_shown(calibration, rows), csv)


def _gemm_rate(path: Path, device: str | None, precision: str) -> "MeasuredRate":
    from stepsim.files.accelerators import read_device
    from stepsim.files.calibrations import fit_gemm_rates
    from stepsim.workload.model.choices import Precision

    if device is None:
        raise CalibrationError("--gemm needs --device: the device that it was measured on")
    known = member(Precision, precision, "precision", CalibrationError)
    return fit_gemm_rates(path, read_device(device), known)


@takes(QuietOptions)
def calibrate_nccl(
    files: Annotated[
        tuple[Path, ...],
        argument("FILE...", "Output of nccl-tests, or tables as CSV."),
    ],
    table: Path | None = flag("Write the times as a table for --comm-table.", writes=FILE),
    csv: CsvOption = None,
    source: str | None = flag("Use machines or sources that hold these texts, e.g. H800,!run2."),
    kind: str | None = flag("Collective of nccl-tests output that does not name it."),
    sizes: bool = flag("Print every size, not powers of two only.", "--sizes", default=False),
) -> None:
    """Read measured collectives: times and bandwidths, and the outliers that are left out."""
    from stepsim.files.collectives.measurements import read_measurements
    from stepsim.files.collectives.samples import collective_kind
    from stepsim.files.collectives.times_csv import write_comm_table
    from stepsim.views.calibration import measurements_shown

    known = collective_kind(kind, "command line", "--kind") if kind else None
    measured = read_measurements(files, known)
    clean, outliers = (measured.choose(source) if source else measured).without_outliers()
    warn(measured.warnings)
    if table:
        write_comm_table(clean, table)
    show_tables(measurements_shown(clean, outliers, every_size=sizes), csv)


class _RunsByDefault(click.Group):
    """A group whose command `runs` may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command's name before arguments that name none."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["runs", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Names of the commands, `runs` first."""
        return [*self.commands]


calibrate_command = _RunsByDefault(
    "calibrate",
    help="Fit the numbers of a machine to measurements.",
    commands={
        "runs": runs,
        "trace": calibrate_trace,
        "model": calibrate_model,
        "nccl": calibrate_nccl,
    },
)
