"""The list of commands: the module of each, its help in a line, and its group on the first page.

The list needs no module of a command, so that the first page of the help is there at once.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple


class Listed(NamedTuple):
    """A command: its module in `stepsim.cli`, its help in a line, and its group.

    A command without a group works, and the first page only says that it exists. `has_parts` is
    whether it is followed by the name of one of its own commands.
    """

    module: str
    help: str
    group: str = ""
    has_parts: bool = False


_LIST = Path(__file__).with_name("commands.toml").read_text("utf-8")
COMMANDS: Mapping[str, Listed] = MappingProxyType(
    {name: Listed(**told) for name, told in tomllib.loads(_LIST).items()}
)
"""Commands by name, in the order of the first page."""
COMMAND_GROUPS = tuple(dict.fromkeys(each.group for each in COMMANDS.values()))
"""What commands are for; each group is a paragraph of the first page, but the last without name."""

_FIRST_PAGE = """\
Usage: stepsim COMMAND [OPTIONS]

Predict how long one training step takes on a cluster you do not have, and
see why.

{groups}`stepsim COMMAND --help` says what a command takes. `--version` prints the
version, `--install-completion` lets the shell complete names and options.
Also: `schema` prints JSON Schemas.
"""


def first_page() -> str:
    """What `stepsim --help` prints: the commands in their groups, a line per command."""
    return _FIRST_PAGE.format(groups="".join(f"{line}\n" for line in _group_lines()))


def _group_lines() -> Iterator[str]:
    width = max(map(len, COMMANDS))
    for group in COMMAND_GROUPS[:-1]:
        yield group
        for name, listed in COMMANDS.items():
            if listed.group == group:
                yield f"  {name:{width}}  {listed.help}"
        yield ""
