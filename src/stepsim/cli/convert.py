"""`stepsim convert`: schedules in the notation of others."""

from pathlib import Path
from typing import Annotated

import typer

from stepsim.base.errors import OutputError
from stepsim.cli.options import ChunksOption, completed_schedules


def convert_command(
    schedule: Annotated[
        str,
        typer.Argument(help="Schedule, e.g. interleaved:4.", autocompletion=completed_schedules),
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT.csv", help="File to write.")],
    pp: Annotated[int, typer.Option("--pp", help="Pipeline stages.")],
    microbatches: Annotated[int, typer.Option("--microbatches", "-m", help="Microbatches.")],
    chunks: ChunksOption = None,
) -> None:
    """Write a schedule as a CSV file in torch's pipeline notation."""
    from stepsim.files.schedule_csv import write_schedule
    from stepsim.parallel.schedules import build

    if target.suffix != ".csv":
        raise OutputError(f"{target}: a schedule is written as .csv")
    write_schedule(build(schedule, ranks=pp, microbatches=microbatches, chunks=chunks), target)
