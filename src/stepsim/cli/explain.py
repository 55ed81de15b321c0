"""`stepsim explain`: a training log beside its prediction."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from stepsim.base.option import Panel
from stepsim.cli.options import NO_MEMORY, OneStepOptions, PlanFileOption, takes
from stepsim.cli.terminal import (
    CsvOption,
    JsonOption,
    check_outputs,
    show,
    warn,
    write_rows,
)


@dataclass(frozen=True, kw_only=True)
class _ExplainOptions(OneStepOptions):
    """What `explain` takes beside the options of a step."""

    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            help="The run's model, where the log does not say it: a public name, a config.json, "
            "or Megatron-LM's arguments.",
            rich_help_panel=Panel.MODEL.value,
        ),
    ] = None
    plan_file: PlanFileOption = None


@takes(_ExplainOptions, NO_MEMORY)
def explain_command(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What a training framework printed.")],
    options: _ExplainOptions,
    json: JsonOption = None,
    csv: CsvOption = None,
) -> None:
    """Explain a training log: measured and predicted, usual suspects.

    The log is one of Megatron-LM, Megatron-Bridge, NeMo, torchtitan, nanotron or DeepSpeed. The
    arguments that it holds are the job; options that are given come first.
    """
    from stepsim.files.load import read_numbers
    from stepsim.runs.explained import explained_log
    from stepsim.show.frames import tables_of
    from stepsim.show.tables.explanation import explanation_shown
    from stepsim.show.terminal import working

    given = [options.plan_file] if options.plan_file else []
    check_outputs([log, *given], json=json, files=[csv])
    with working("simulating the usual suspects", enabled=not options.quiet):
        found = explained_log(
            log,
            options.asked,
            config=options.config,
            plan_file=options.plan_file,
            topology=options.topology,
            numbers=read_numbers(options.numbers or ()),
            comm_source=options.comm_source or "",
        )
    warn(found.warnings, quiet=options.quiet)
    write_rows(csv, tables_of(found))
    show(json, found.to_json, explanation_shown(found))
