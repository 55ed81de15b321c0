"""`stepsim convert`: schedules in the notation of others."""

from pathlib import Path
from typing import Annotated

import typer

from stepsim.errors import OutputError


def convert(
    schedule: Annotated[str, typer.Argument(help="Schedule, e.g. interleaved:4.")],
    target: Annotated[Path, typer.Argument(metavar="OUT.csv", help="File to write.")],
    ranks: Annotated[int, typer.Option("--ranks", help="Pipeline ranks.")],
    microbatches: Annotated[int, typer.Option("--microbatches", "-m", help="Microbatches.")],
    chunks: Annotated[
        int | None, typer.Option("--chunks", help="Virtual stages of each rank.")
    ] = None,
) -> None:
    """Write a schedule as a torch pipeline CSV."""
    from stepsim.formats.schedule_csv import write_schedule
    from stepsim.schedules import build

    if target.suffix != ".csv":
        raise OutputError(f"{target}: a schedule is written as .csv")
    write_schedule(build(schedule, ranks=ranks, microbatches=microbatches, chunks=chunks), target)
