"""The list of commands: the module of each, its help in a line, and its group on the first page.

The list needs no module of a command, so that the first page of the help is there at once.
"""

from typing import Literal, NamedTuple


class Listed(NamedTuple):
    """A command: its module in `stepsim.cli`, its help in a line, and what it is for.

    Each group is a paragraph of the first page, which only says that a command without one exists.
    """

    module: str
    help: str
    group: Literal["Predict", "Explain", "Measured", "Show", ""] = ""


COMMANDS = {
    "simulate": Listed(
        "simulate", "Simulate one training step of a model or a workload.", "Predict"
    ),
    "plan": Listed("plan", "Search the plans of a model on some GPUs for the best.", "Predict"),
    "compare": Listed(
        "compare",
        "Compare pipeline schedules, or packers of documents.",
        "Predict",
    ),
    "sweep": Listed("sweep", "Simulate every combination of some values of options.", "Predict"),
    "inspect": Listed("inspect", "Print what stepsim understands of a file or a name.", "Explain"),
    "diff": Listed("compare", "Explain the difference of two step times.", "Explain"),
    "explain": Listed(
        "explain", "Explain a training log: measured and predicted, usual suspects.", "Explain"
    ),
    "collective": Listed(
        "collective", "Price one collective: time, algbw, busbw and links.", "Explain"
    ),
    "noise": Listed(
        "noise", "Print how step times spread when task times vary at random.", "Explain"
    ),
    "improve": Listed(
        "profiles", "Rank changes of a profiled run by the step time they save.", "Measured"
    ),
    "what-if": Listed(
        "measured", "Simulate a measured run or a profile with other settings.", "Measured"
    ),
    "validate": Listed("measured", "Compare measured runs with their simulation.", "Measured"),
    "calibrate": Listed(
        "calibrate",
        "Fit the numbers of a machine to measurements.",
        "Measured",
    ),
    "serve": Listed("serve", "Open an explorer in the browser.", "Show"),
    "report": Listed("documents", "Write a stored result as one HTML page.", "Show"),
    "list": Listed("listing", "List models, devices, topologies and the like by name.", "Show"),
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
    for group in dict.fromkeys(listed.group for listed in COMMANDS.values() if listed.group):
        groups += f"{group}\n"
        for name, listed in COMMANDS.items():
            if listed.group == group:
                groups += f"  {name:{width}}  {listed.help}\n"
        groups += "\n"
    return _FIRST_PAGE.format(groups=groups)
