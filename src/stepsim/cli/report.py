"""`stepsim report`: the page of a result that was written earlier."""

from pathlib import Path
from typing import Annotated

import typer

from stepsim.cli.terminal import check_outputs, command_line


def report_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT",
            help="JSON of simulate, compare or sensitivity, or the database of a sweep.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Page to write, .html.")],
) -> None:
    """Show a result as one HTML page; --report of the other commands shows more of a step."""
    from stepsim.show.page.write import write_file

    check_outputs([file], page=output)
    write_file(file, output, command=command_line())
