"""`stepsim calibrate nccl`: what collectives measured alone tell about a machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.cli_measured import RunsByDefault, calibrate_runs
from stepsim.errors import CalibrationError, OutputError

if TYPE_CHECKING:
    from rich.console import Console

    from stepsim.calibration.link_classes import Regime
    from stepsim.calibration.nccl import MachineFit, NcclFit
    from stepsim.measured.clocks import Placement

app = typer.Typer(
    name="calibrate",
    cls=RunsByDefault,
    help="Fit the numbers of a machine to measurements.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


app.command("runs")(calibrate_runs)


@app.command()
def nccl(
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
    json: Annotated[
        str | None, typer.Option("--json", help="Write everything as JSON; - is stdout.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Texts the machine or source must hold: H800,!run2."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="Collective of nccl-tests output that does not name it."),
    ] = None,
    node_size: Annotated[
        int | None,
        typer.Option("--node-size", min=1, help="Ranks of a node. [default: as measured]"),
    ] = None,
    latency: Annotated[
        str, typer.Option("--latency", help="Sizes whose latency -o writes: bulk or small.")
    ] = "bulk",
    node_bandwidth: Annotated[
        str | None,
        typer.Option("--node-bandwidth", help="Nominal, inside a node: efficiency is a share."),
    ] = None,
    fabric_bandwidth: Annotated[
        str | None,
        typer.Option("--fabric-bandwidth", help="Nominal, of a rank's link between nodes."),
    ] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Print every size, not powers of two.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No warnings.")] = False,
) -> None:
    """Fit latency, bandwidth and efficiency of links to measured collectives.

    Prints the error of the fit for every size, and the outliers that were left out.
    """
    from stepsim.calibration.nccl import fit_nccl
    from stepsim.formats.comm_table_csv import write_comm_table
    from stepsim.formats.measurements import read_measurements
    from stepsim.formats.nccl_fit import fit_json, write_topology
    from stepsim.formats.outputs import write_whole
    from stepsim.formats.samples import collective_kind
    from stepsim.nccl_tables import print_fit

    _check_outputs(files, output, table, json)
    nominal = _nominal(node_bandwidth, fabric_bandwidth)
    known = collective_kind(kind, "command line", "--kind") if kind else None
    measured = read_measurements(files, known)
    measured = measured.choose(source) if source else measured
    fit = fit_nccl(measured, node_size)
    for warning in () if quiet else fit.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if output:
        write_topology(_only_machine(fit), output, regime=_regime(latency), nominal=nominal)
    if table:
        write_comm_table(measured.without_outliers()[0], table)
    if json == "-":
        typer.echo(fit_json(fit).decode(), nl=False)
        return
    if json:
        write_whole(Path(json), fit_json(fit))
    print_fit(_console(), fit, every_size=sizes)


def _check_outputs(
    files: list[Path], output: Path | None, table: Path | None, json: str | None
) -> None:
    """Refuse outputs that cannot be written, or that are inputs, before the work."""
    from stepsim.formats.outputs import check_writable

    known = {path.resolve() for path in files}
    for path in (output, table, Path(json) if json and json != "-" else None):
        if path is None:
            continue
        check_writable(path)
        if path.resolve() in known:
            raise OutputError(
                f"{path}: cannot write: it is an input, or two outputs go to the same file"
            )
        known.add(path.resolve())


def _nominal(node: str | None, fabric: str | None) -> "dict[Placement, float]":
    from stepsim.measured.clocks import Placement
    from stepsim.units import parse_bandwidth

    given = {Placement.INTRA_NODE: node, Placement.INTER_NODE: fabric}
    return {place: parse_bandwidth(text) for place, text in given.items() if text}


def _regime(text: str) -> "Regime":
    from stepsim.calibration.link_classes import Regime

    try:
        return Regime(text)
    except ValueError:
        allowed = ", ".join(Regime)
        raise CalibrationError(f"latency is {text!r}: expected one of {allowed}") from None


def _only_machine(fit: "NcclFit") -> "MachineFit":
    """The machine of a fit; raises CalibrationError where there are several."""
    if len(fit.machines) > 1:
        names = ", ".join(repr(machine.machine) for machine in fit.machines)
        raise CalibrationError(
            f"{fit.source}: {len(fit.machines)} machines: {names}: a topology needs one: choose it "
            "with --source"
        )
    return fit.machines[0]


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, markup=False)
