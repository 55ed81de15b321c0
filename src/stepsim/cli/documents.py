"""`stepsim report` and `stepsim schema`: documents as a page, and what they are allowed to hold."""

from pathlib import Path
from typing import Annotated

import click

from stepsim.cli.declared import argument, flag
from stepsim.cli.options import takes
from stepsim.cli.terminal import PAGE, command_line


@takes()
def report_command(
    file: Annotated[
        Path,
        argument("RESULT", "JSON of simulate or compare, or the database of a sweep."),
    ],
    output: Path = flag("Page to write, .html.", "--output", "-o", default=..., writes=PAGE),
) -> None:
    """Write a stored result as one HTML page.

    The option --report of other commands shows more of a step.
    """
    from stepsim.views.pages import file_page

    file_page(file).write(output, command_line())


@takes()
def schema_command(
    name: Annotated[str | None, argument("[FORMAT]", "A format; without one, all names.")] = None,
) -> None:
    """Print the JSON Schema of a file format.

    An editor checks a topology file with it, for example.
    """
    from stepsim.views.schemas import FORMATS, schema_json

    if name:
        click.echo(schema_json(name), nl=False)
        return
    width = max(map(len, FORMATS))
    for each, (what, _) in FORMATS.items():
        click.echo(f"{each:{width}}  {what}")
