"""`stepsim calibrate`: what runs, and collectives measured alone, tell about a machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from stepsim.base.errors import CalibrationError, OutputError, PlanError, member
from stepsim.base.option import Panel
from stepsim.cli.measured import (
    CommSourceOption,
    NcclOption,
    NodeSizeOption,
    RunsArgument,
)
from stepsim.cli.options import NO_MEMORY, OneStepOptions, takes
from stepsim.cli.root import LightGroup
from stepsim.cli.terminal import (
    CsvOption,
    JsonOption,
    QuietOption,
    check_outputs,
    show,
    show_tables,
    warn,
    write_rows,
)

if TYPE_CHECKING:
    from stepsim.files.asked import StepInputs
    from stepsim.measured.calibration.nccl import MachineFit, NcclFit
    from stepsim.measured.clocks import NodePlacement
    from stepsim.network.measured_times import CommTable
    from stepsim.workload.model.calibration import MeasuredRate


class RunsByDefault(LightGroup):
    """A group whose command `runs` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name before arguments that name none."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["runs", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="calibrate",
    cls=RunsByDefault,
    help="Fit the numbers of a machine to measurements.",
    no_args_is_help=True,
)


@app.command("runs")
def runs(
    paths: RunsArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Calibration file to write.")],
    nccl: NcclOption = None,
    comm_source: CommSourceOption = "",
    node_size: NodeSizeOption = None,
    csv: CsvOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find host, message and gradient costs of a machine in measured RUNs."""
    from stepsim.files.calibrations import write_calibration
    from stepsim.files.measured import load_benchmarks, load_run
    from stepsim.runs.measured import calibrate_measured, warnings_of
    from stepsim.show.tables.calibration import calibration_shown

    check_outputs(paths, files=[output, csv])
    loaded = [load_run(path, node_size=node_size) for path in paths]
    table = load_benchmarks(nccl, comm_source)
    warn([*warnings_of(loaded), *(table.warnings if table else ())], quiet=quiet)
    found = calibrate_measured(loaded, table)
    if found.empty:
        warn(
            [f"{output} holds no number: the runs tell none of those that can be calibrated"],
            quiet=quiet,
        )
    write_calibration(found, output)
    show_tables(calibration_shown(found), csv)


@dataclass(frozen=True, kw_only=True)
class _TraceOptions(OneStepOptions):
    """What `calibrate trace` takes beside the options of a step, which are those of its models."""

    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="The model of the traces, or one for each: all kernels are learned. Repeatable.",
            rich_help_panel=Panel.MODEL.value,
        ),
    ] = None
    plans: Annotated[
        list[Path] | None,
        typer.Option(
            "--plan-file",
            help="The plan of the models, or one for each trace. Repeatable.",
            rich_help_panel=Panel.MODEL.value,
        ),
    ] = None

    def jobs(self, traces: int) -> "list[StepInputs]":
        """The job of each trace; none without a model. Raises PlanError for other counts."""
        if not self.models:
            unused = [flag for flag in self.flags if flag not in ("--device", "--precision")]
            if unused or self.plans:
                flags = ", ".join([*unused, *["--plan-file"] * bool(self.plans)])
                raise PlanError(f"--model is missing: without it these options do nothing: {flags}")
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


@app.command("trace")
@takes(_TraceOptions, NO_MEMORY - {"calibration"})
def calibrate_trace(
    paths: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="Profiles of one machine.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Calibration file to write.")],
    options: _TraceOptions,
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
    from stepsim.show.tables.calibration import (
        calibration_shown,
        collectives_shown,
        held_shown,
        kernels_shown,
    )
    from stepsim.workload.model.plan import Precision

    check_outputs([*paths, *(options.plans or ())], files=[output, csv])
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
    warn(notes, quiet=options.quiet)
    if found.empty:
        warn([f"{output} holds no number: the profiles tell none of them"], quiet=options.quiet)
    write_calibration(found, output)
    shown = (calibration_shown, kernels_shown, held_shown, collectives_shown)
    show_tables([line for view in shown for line in view(found)], csv)


@app.command("model")
def calibrate_model(
    steps: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[STEPS.csv]...", help="Tables of measured steps of models."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Calibration file to write.")
    ] = None,
    gemm: Annotated[
        Path | None, typer.Option("--gemm", help="Measured matrix products: CSV of m,n,k,tflops.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Device that --gemm was measured on.")
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", "--dtype", help="Precision of --gemm, e.g. fp8.")
    ] = "bf16",
    csv: CsvOption = None,
    quiet: QuietOption = False,
) -> None:
    """Fit predictions of models to measured steps and kernels.

    One factor for each device, framework and precision, host time per layer where the steps tell
    it, rates from matrix products; prints the residual of every step.
    """
    from stepsim.files.calibrations import model_calibration_toml
    from stepsim.files.model_steps import read_published_steps
    from stepsim.files.writing import write_whole
    from stepsim.runs.published_calibration import calibrate_steps
    from stepsim.show.tables.validation import model_calibration_shown
    from stepsim.workload.model.calibration import ModelCalibration

    paths = steps or []
    check_outputs([*paths, *([gemm] if gemm else [])], files=[output, csv])
    if not paths and gemm is None:
        raise CalibrationError("nothing to calibrate on: expected a table of steps, or --gemm")
    read = [read_published_steps(path) for path in paths]
    warn([note for _, notes in read for note in notes], quiet=quiet)
    rates = [_gemm_rate(gemm, device, precision)] if gemm else []
    measured = [step for found, _ in read for step in found]
    fitted = calibrate_steps(measured, rates) if paths else None
    calibration = ModelCalibration(
        factors=fitted.factors if fitted else (),
        rates=tuple(rates),
        sources=tuple(path.name for path in (*paths, *([gemm] if gemm else []))),
        notes=fitted.notes if fitted else (),
    )
    warn(calibration.notes, quiet=quiet)
    if output:
        write_whole(output, model_calibration_toml(calibration).encode())
    show_tables(model_calibration_shown(calibration, fitted.rows if fitted else ()), csv)


def _gemm_rate(path: Path, device: str | None, precision: str) -> "MeasuredRate":
    from stepsim.files.accelerators import read_device
    from stepsim.files.calibrations import fit_gemm_rates
    from stepsim.workload.model.plan import Precision

    if device is None:
        raise CalibrationError("--gemm needs --device: the device that it was measured on")
    known = member(Precision, precision, "precision", CalibrationError)
    return fit_gemm_rates(path, read_device(device), known)


@app.command("overlap")
def calibrate_overlap(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Profiles of Kineto or Nsight Systems, or tables that it wrote.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Calibration file to write.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="The GPU of all traces.", show_default="as they call it"),
    ] = None,
    csv: CsvOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find what communications take of a GPU, from kernels alone and beside them.

    The CSV has a row for every kernel; -o writes what --calibration takes for --overlap-cost.
    """
    from stepsim.files.calibrations import model_calibration_toml
    from stepsim.files.writing import write_whole
    from stepsim.runs.overlap import calibrate_overlap_rows, overlap_rows
    from stepsim.show.tables.overlap import beside_columns, overlap_shown

    check_outputs(paths, files=[output, csv])
    rows, notes = overlap_rows(paths)
    warn(notes, quiet=quiet)
    calibration, fits = calibrate_overlap_rows(rows, device, [path.name for path in paths])
    warn(calibration.notes, quiet=quiet)
    if output:
        write_whole(output, model_calibration_toml(calibration).encode())
    write_rows(csv, {"kernels": lambda: beside_columns(rows)})
    show_tables(overlap_shown(rows, fits))


@app.command("nccl")
def calibrate_nccl(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Output of nccl-tests, or tables as CSV."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the links as a topology TOML.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--table", help="Write the times as a table for --comm-table.")
    ] = None,
    json: JsonOption = None,
    csv: CsvOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", help="Use machines or sources that hold these texts, e.g. H800,!run2."
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="Collective of nccl-tests output that does not name it."),
    ] = None,
    node_size: Annotated[
        int | None,
        typer.Option("--node-size", min=1, help="Ranks of a node.", show_default="as measured"),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", "-t", help="Fit the protocols of this topology; -o writes a copy."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", help="Start the fit of --topology from the protocols of this topology."
        ),
    ] = None,
    latency: Annotated[
        str, typer.Option("--latency", help="Latency to write with -o: of bulk or of small sizes.")
    ] = "bulk",
    node_bandwidth: Annotated[
        str | None,
        typer.Option(
            "--node-bandwidth", help="Rated bandwidth inside a node; the fit gives the efficiency."
        ),
    ] = None,
    fabric_bandwidth: Annotated[
        str | None,
        typer.Option("--fabric-bandwidth", help="Rated bandwidth of a rank's link between nodes."),
    ] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Print every size, not powers of two only.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Fit latency, bandwidth and efficiency of links to measured collectives.

    Prints the error of the fit for every size, and the outliers that were left out. With
    --topology the protocols of its library are fitted (LL, LL128, Simple) by algorithm, and the
    errors printed are those of the times it then gives.
    """
    from stepsim.files.collectives.fits import write_topology
    from stepsim.files.collectives.measurements import read_measurements
    from stepsim.files.collectives.samples import collective_kind
    from stepsim.files.collectives.times_csv import write_comm_table
    from stepsim.measured.calibration.link_classes import Regime
    from stepsim.measured.calibration.nccl import fit_nccl
    from stepsim.measured.calibration.nccl_document import CollectiveFitDocument
    from stepsim.show.tables.calibration import nccl_shown

    check_outputs(files, json=json, files=[output, table, csv])
    nominal = _nominal(node_bandwidth, fabric_bandwidth)
    known = collective_kind(kind, "command line", "--kind") if kind else None
    measured = read_measurements(files, known)
    measured = measured.choose(source) if source else measured
    if topology:
        _check_fit_options(json, table, node_bandwidth, fabric_bandwidth, node_size)
        _fit_topology(topology, start, measured, output, csv, quiet=quiet)
        return
    fit = fit_nccl(measured, node_size)
    warn(fit.warnings, quiet=quiet)
    if output:
        machine, regime = _only_machine(fit), member(Regime, latency, "latency", CalibrationError)
        write_topology(machine, output, regime=regime, nominal=nominal)
    if table:
        write_comm_table(measured.without_outliers()[0], table)
    show(json, CollectiveFitDocument.of(fit).to_json, nccl_shown(fit, every_size=sizes), csv)


def _check_fit_options(json: str | None, table: Path | None, *links: str | int | None) -> None:
    """Raise OutputError for options that a fit of protocols has no use for."""
    if json or table or any(links):
        raise OutputError(
            "--topology goes with -o, --source and --kind: leave out --json, --table, --node-size "
            "and bandwidths, which the topology has"
        )


def _fit_topology(
    name: str,
    start: str | None,
    measured: "CommTable",
    output: Path | None,
    csv: Path | None,
    *,
    quiet: bool,
) -> None:
    from stepsim.files.collectives.fits import write_fitted
    from stepsim.files.load import topology_of
    from stepsim.files.reading import topology_file
    from stepsim.measured.calibration.accuracy import fit_with_accuracy
    from stepsim.show.tables.inspection import library_shown

    warn(measured.warnings, quiet=quiet)
    clean, outliers = measured.without_outliers()
    first = topology_of(start) if start else None
    fitted = fit_with_accuracy(topology_of(name), clean.curves, first)
    if output:
        write_fitted(topology_file(name), fitted, output)
    show_tables([*library_shown(fitted.library), f"outliers left out: {len(outliers)}"], csv)


def _nominal(node: str | None, fabric: str | None) -> "dict[NodePlacement, float]":
    from stepsim.base.units import parse_bandwidth
    from stepsim.measured.clocks import NodePlacement

    given = {NodePlacement.INTRA_NODE: node, NodePlacement.INTER_NODE: fabric}
    return {place: parse_bandwidth(text) for place, text in given.items() if text}


def _only_machine(fit: "NcclFit") -> "MachineFit":
    """The machine of a fit; raises CalibrationError where there are several."""
    if len(fit.machines) > 1:
        names = ", ".join(repr(machine.machine) for machine in fit.machines)
        raise CalibrationError(
            f"{fit.source}: {len(fit.machines)} machines: {names}: a topology needs one: choose it "
            "with --source"
        )
    return fit.machines[0]
