"""`stepsim measure`: the constants of a device, from kernels that run on it alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.base.errors import CalibrationError, member
from stepsim.cli.terminal import QuietOption, check_outputs, show_tables, warn, write_rows

_MOST_BLOCKS = 64
"""Channels of NCCL at most."""

if TYPE_CHECKING:
    from stepsim.measured.device.shapes import Shapes
    from stepsim.measured.kernels_beside import SyntheticLoad
    from stepsim.workload.model.plan import Precision


def measure_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model by name or file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Device file to write.")],
    device: Annotated[
        str | None,
        typer.Option("--device", help="Its data sheet: a shipped name or TOML file."),
    ] = None,
    sequence: Annotated[
        int, typer.Option("--sequence", "--seq", min=1, help="Tokens of a sample.")
    ] = 4096,
    microbatch_size: Annotated[
        int, typer.Option("--microbatch-size", "--mbs", min=1, help="Samples of a microbatch.")
    ] = 1,
    tp: Annotated[
        int, typer.Option("--tp", min=1, help="Ranks whose part of a layer is timed as well.")
    ] = 8,
    precision: Annotated[
        str, typer.Option("--precision", "--dtype", help="Precisions of products: bf16, fp16, fp8.")
    ] = "bf16",
    framework: Annotated[
        str, typer.Option("--framework", help="Whose prediction stands beside the layer.")
    ] = "torch-fsdp-eager",
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Times that each kernel runs.")
    ] = 20,
    sustain: Annotated[
        str, typer.Option("--sustain", help="How long products run without a pause; 0s: not.")
    ] = "10s",
    without_gpu: Annotated[
        bool, typer.Option("--without-gpu", help="Run on the CPU, to try the command.")
    ] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write the products for calibrate model --gemm.")
    ] = None,
    kineto: Annotated[
        Path | None, typer.Option("--kineto", help="Write the trace of a layer: JSON.")
    ] = None,
    overlap: Annotated[
        Path | None,
        typer.Option("--overlap", help="Write kernels alone and beside a load: CSV."),
    ] = None,
    comm_blocks: Annotated[
        str, typer.Option("--comm-blocks", help="Multiprocessors of the loads of --overlap.")
    ] = "8,16,24,32",
    comm_rate: Annotated[
        str, typer.Option("--comm-rate", help="Memory bandwidth that these loads take besides.")
    ] = "500 GB/s",
    quiet: QuietOption = False,
) -> None:
    """Time kernels of a model on this machine's GPU (needs torch).

    What was measured is written as a device file. --overlap times kernels beside a load, too, that
    holds multiprocessors as communication does: once with, once without traffic of memory.
    """
    from stepsim.base.units import PS_PER_S, parse_time_ps
    from stepsim.files.accelerators import device_toml, read_device, read_framework
    from stepsim.files.load import shadowed
    from stepsim.files.writing import write_whole
    from stepsim.measured.device import torch_timer
    from stepsim.measured.device.measure import Measurement, measure_device
    from stepsim.measured.device.predicted import predicted_layer
    from stepsim.runs.overlap import measured_overlap
    from stepsim.show.tables.device import device_shown, product_columns
    from stepsim.show.tables.overlap import beside_columns, loads_shown
    from stepsim.show.terminal import working

    check_outputs([model], files=[output, csv, kineto, overlap])
    warn(shadowed("model", model), quiet=quiet)
    asked = Measurement(
        shapes=_shapes(model, microbatch_size, sequence, tp),
        precisions=_precisions(precision),
        sustained_s=parse_time_ps(sustain) / PS_PER_S,
        trace=kineto,
    )
    if overlap and without_gpu:
        raise CalibrationError("overlap: a CPU has no multiprocessors: expected a GPU")
    loads = _loads(comm_blocks, comm_rate)
    base = read_device(device) if device else None
    known = read_framework(framework)
    timer = torch_timer.make_timer(on_gpu=not without_gpu, repeat=repeat)
    with working("timing kernels", enabled=not quiet):
        found = measure_device(timer, asked, base)
        beside = measured_overlap(timer, asked.shapes, loads, found.device) if overlap else None
    warn(found.notes, quiet=quiet)
    write_whole(output, device_toml(found.device).encode())
    write_rows(csv, {"products": lambda: product_columns(found)})
    layer = predicted_layer(asked.shapes, found.device, known) if found.layer else None
    show_tables(device_shown(found, base, layer))
    if beside:
        write_rows(overlap, {"kernels": lambda: beside_columns(beside.rows)})
        show_tables(loads_shown(beside))


def _loads(blocks: str, rate: str) -> "list[SyntheticLoad]":
    """Loads of so many blocks, each without and with traffic; raises CalibrationError."""
    from stepsim.base.units import parse_bandwidth
    from stepsim.measured.kernels_beside import SyntheticLoad

    counts = [count.strip() for count in blocks.split(",")]
    for count in counts:
        if not count.isdecimal() or not 1 <= int(count) <= _MOST_BLOCKS:
            allowed = f"numbers from 1 to {_MOST_BLOCKS}, such as 8,16,24"
            raise CalibrationError(f"comm_blocks is {blocks!r}: expected {allowed}")
    return [
        SyntheticLoad(blocks=int(count), bytes_per_s=taken)
        for count in counts
        for taken in (0.0, parse_bandwidth(rate))
    ]


def _shapes(model: Path, batch: int, sequence: int, tp: int) -> "Shapes":
    """The kernels of a model, whole and split; raises the errors of its reader."""
    from stepsim.files.load import load_work
    from stepsim.measured.device.shapes import Shapes
    from stepsim.workload.model.model import Model
    from stepsim.workload.model.plan import ModelPlan, check_plan

    read = load_work(model)
    if not isinstance(read, Model):
        raise CalibrationError(f"{read.source}: a workload file names no shapes: expected a model")
    check_plan(read.architecture, ModelPlan(tp=tp, sequence=sequence))
    degrees = (1, tp) if tp > 1 else (1,)
    return Shapes(architecture=read.architecture, batch=batch, sequence=sequence, tp=degrees)


def _precisions(text: str) -> "tuple[Precision, ...]":
    from stepsim.workload.model.plan import Precision

    names = [name.strip() for name in text.split(",")]
    found = tuple(member(Precision, name, "precision", CalibrationError) for name in names)
    if Precision.BF16 not in found:
        raise CalibrationError(f"precision is {text!r}: expected bf16 among them")
    return found
