"""The list of commands: the module of each, its help in a line, and its group on the first page.

`commands.csv` is the list. It needs no module of a command, so that the first page of the help is
there at once.
"""

import csv
from pathlib import Path
from typing import NamedTuple


class Listed(NamedTuple):
    """A command: its module in `stepsim.cli`, what it is for, and its help in a line.

    Each group is a paragraph of the first page, which only says that a command without one exists.
    """

    module: str
    group: str
    help: str


with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as _file:
    COMMANDS = {row.pop("name"): Listed(**row) for row in csv.DictReader(_file)}
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
