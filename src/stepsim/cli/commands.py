"""The list of commands: the module of each, its help in a line, and its group on the first page.

The list needs no module of a command, so that the first page of the help is there at once.
"""

from enum import StrEnum
from typing import NamedTuple


class CommandGroup(StrEnum):
    """What a command is for; each group is a paragraph of the first page."""

    PREDICT = "Predict"
    EXPLAIN = "Explain"
    MEASURED = "Measured"
    SHOW = "Show"


class Listed(NamedTuple):
    """A command: its module in `stepsim.cli`, its help in a line, and its group.

    A command without a group works, and the first page only says that it exists. `has_parts` is
    whether it is followed by the name of one of its own commands.
    """

    module: str
    help: str
    group: CommandGroup | None = None
    has_parts: bool = False


_PREDICT, _EXPLAIN, _MEASURED, _SHOW = CommandGroup

COMMANDS = {
    "simulate": Listed(
        "simulate", "Simulate one training step of a model or a workload.", _PREDICT
    ),
    "plan": Listed("plan", "Search the plans of a model on some GPUs for the best.", _PREDICT),
    "compare": Listed(
        "compare",
        "Compare pipeline schedules, or packers of documents.",
        _PREDICT,
    ),
    "sweep": Listed("sweep", "Simulate every combination of some values of options.", _PREDICT),
    "inspect": Listed("inspect", "Print what stepsim understands of a file or a name.", _EXPLAIN),
    "diff": Listed("compare", "Explain the difference of two step times.", _EXPLAIN),
    "explain": Listed(
        "explain", "Explain a training log: measured and predicted, usual suspects.", _EXPLAIN
    ),
    "collective": Listed(
        "collective", "Price one collective: time, algbw, busbw and links.", _EXPLAIN
    ),
    "noise": Listed(
        "noise", "Print how step times spread when task times vary at random.", _EXPLAIN
    ),
    "improve": Listed(
        "profiles", "Rank changes of a profiled run by the step time they save.", _MEASURED
    ),
    "what-if": Listed(
        "measured", "Simulate a measured run or a profile with other settings.", _MEASURED
    ),
    "validate": Listed("measured", "Compare measured runs with their simulation.", _MEASURED),
    "calibrate": Listed(
        "calibrate",
        "Fit the numbers of a machine to measurements.",
        _MEASURED,
        has_parts=True,
    ),
    "serve": Listed("serve", "Open an explorer in the browser.", _SHOW),
    "report": Listed("documents", "Write a stored result as one HTML page.", _SHOW),
    "list": Listed("listing", "List models, devices, topologies and the like by name.", _SHOW),
    "schema": Listed("documents", "Print the JSON Schema of a file format."),
}
"""Commands by name, in the order of the first page."""

_FIRST_PAGE = """\
Usage: stepsim COMMAND [OPTIONS]

Predict how long one training step takes on a cluster you do not have, and
see why.

{groups}`stepsim COMMAND --help` says what a command takes. `--version` prints the
version, `eval "$(_STEPSIM_COMPLETE=bash_source stepsim)"` lets bash complete
names and options. Also: `schema` prints JSON Schemas.
"""


def first_page() -> str:
    """What `stepsim --help` prints: the commands in their groups, a line per command."""
    width, groups = max(map(len, COMMANDS)), ""
    for group in CommandGroup:
        groups += f"{group.value}\n"
        for name, listed in COMMANDS.items():
            if listed.group is group:
                groups += f"  {name:{width}}  {listed.help}\n"
        groups += "\n"
    return _FIRST_PAGE.format(groups=groups)
