"""`stepsim improve`."""

from pathlib import Path
from typing import Annotated

import typer

from stepsim.base.errors import PlanError
from stepsim.cli.common.terminal import (
    CsvOption,
    JsonOption,
    QuietOption,
    check_outputs,
    command_line,
    show,
    warn,
    write_rows,
)
from stepsim.cli.profiles.seen import read_with_progress


def improve_command(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A profile, or a folder with the traces of all ranks."),
    ],
    apply: Annotated[
        str | None, typer.Option("--apply", help="Write the run with this change, by its name.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where --apply writes: a .parquet, or a folder for Chakra."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a page, one HTML file.")
    ] = None,
    node_size: Annotated[
        int | None,
        typer.Option("--node-size", min=1, help="Ranks per node, where the run does not tell."),
    ] = None,
    json: JsonOption = None,
    csv: CsvOption = None,
    quiet: QuietOption = False,
) -> None:
    """Rank changes of a profiled RUN by the step time that they save."""
    from stepsim.explain.improve import ImprovementsDocument, change_profile, improve_profile
    from stepsim.files.traces.chakra_write import write_chakra
    from stepsim.files.traces.ndtimeline import write_ndtimeline
    from stepsim.show.frames import tables_of
    from stepsim.show.tables.profiles import improvements_shown

    if (apply is None) != (output is None):
        raise PlanError("expected --apply NAME and --output FILE together")
    one_file = output is not None and output.suffix == ".parquet"
    files, folders = ([csv, output], []) if one_file else ([csv], [output])
    check_outputs([run], json=json, files=files, folders=folders, page=report)
    profile = read_with_progress(run, quiet=quiet).on_nodes(node_size)
    warn(profile.warnings, quiet=quiet)
    if apply and output:
        write = write_ndtimeline if one_file else write_chakra
        write(change_profile(profile, apply), output)
    found = improve_profile(profile)
    document = ImprovementsDocument.of(found)
    if report:
        from stepsim.show.page.write import write_improvements

        write_improvements(found, report, command=command_line())
    write_rows(csv, tables_of(document))
    show(json, document.to_json, improvements_shown(found))
