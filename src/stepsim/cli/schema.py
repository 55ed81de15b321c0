"""`stepsim schema`: the JSON Schemas of the files that stepsim reads and writes."""

from typing import Annotated

import typer


def schema_command(
    name: Annotated[
        str | None, typer.Argument(metavar="[FORMAT]", help="A format; without one, all names.")
    ] = None,
) -> None:
    """Print the JSON Schema of a file format, e.g. for an editor that checks topology files."""
    from stepsim.show.schemas import FORMATS, schema_json

    if name:
        typer.echo(schema_json(name), nl=False)
        return
    width = max(map(len, FORMATS))
    for each, form in FORMATS.items():
        typer.echo(f"{each:{width}}  {form.what}")
