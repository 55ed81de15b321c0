"""`stepsim explain`: a training log beside its prediction."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit

from stepsim.base.option import Panel
from stepsim.cli.declared import argument, flag
from stepsim.cli.options import NO_MEMORY, LineOption, OneStepOptions, PlanFileOption, takes
from stepsim.cli.terminal import CsvOption, JsonOption, command_bar, show, warn, write_rows

if TYPE_CHECKING:
    from stepsim.runs.explained import LogExplanation


@dataclass(frozen=True, kw_only=True)
class _ExplainOptions(OneStepOptions):
    """What `explain` takes beside the options of a step."""

    config: str | None = flag(
        "The run's model, where the log does not say it: a public name, a config.json, "
        "or Megatron-LM's arguments.",
        panel=Panel.MODEL,
    )
    plan_file: PlanFileOption = None
    line: LineOption = None
    check: bool = flag(
        "Exit with 1 if the run is slow, with 3 if it is impossible, not steady or nobody knows.",
        "--check",
        default=False,
    )

    follow: bool = flag(
        "Read the log as it grows, and print its first line again; until it stays as it "
        "is for 20 steps, and a minute.",
        "--follow",
        default=False,
    )


@takes(_ExplainOptions, NO_MEMORY)
def explain_command(
    log: Annotated[Path, argument("LOG", "What a training framework printed.")],
    options: _ExplainOptions,
    json: JsonOption = None,
    csv: CsvOption = None,
) -> None:
    """Explain a training log: measured and predicted, usual suspects.

    The log is one of Megatron-LM, NeMo, torchtitan, DeepSpeed, the Hugging Face Trainer, MaxText or
    another that trains; of a program that is not known --line says what its steps look like. The
    arguments that the log holds are the job; options that are given come first.
    """
    from stepsim.files.load import read_numbers
    from stepsim.runs.explained import explained_log
    from stepsim.views.explanation import explanation_shown

    explain = partial(
        explained_log,
        log,
        options.asked,
        config=options.config,
        plan_file=options.plan_file,
        topology=options.topology,
        numbers=read_numbers(options.numbers),
        comm_source=options.comm_source or "",
        line=options.line,
    )
    if options.follow:
        _follow(log, lambda: explain(suspects=False))
    with command_bar("simulating the usual suspects"):
        found = explain()
    warn(found.warnings)
    write_rows(csv, found)
    show(json, found.to_json, explanation_shown(found))
    if options.check and (code := _CODES.get(found.verdict, 3)):
        raise Exit(code)


def _follow(log: Path, explain: Callable[[], "LogExplanation"]) -> None:
    """Print what a log says whenever it has grown, until it does no longer."""
    from stepsim.views.explanation import explanation_shown

    size, still_s, most_s = -1, 0.0, _STILL_S
    while still_s < most_s:
        if size != (grown := log.stat().st_size):
            found = explain()
            click.echo(next(iter(explanation_shown(found))))
            size, still_s, most_s = grown, 0.0, max(_STILL_S, _STILL_STEPS * found.measured_s)
        time.sleep(_EVERY_S)
        still_s += _EVERY_S


# How often a log is looked at, and when it grows no longer.
_EVERY_S, _STILL_S, _STILL_STEPS = 5.0, 60.0, 20
# Exit codes of what `--check` finds; 3 of the others.
_CODES = {"inside": 0, "faster": 0, "slower": 1}
