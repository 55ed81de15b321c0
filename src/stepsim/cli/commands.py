"""The list of commands: the module of each, its help in a line, and its group on the first page.

The list needs no module of a command, so that the first page of the help is there at once.
"""

from collections.abc import Iterator, Mapping

from stepsim.base.structs import Names, Noun, shipped


class Listed(Noun):
    """A command: its module in `stepsim.cli`, its help in a line, and its group.

    A command without a group works, and the first page only says that it exists. `has_parts` is
    whether it is followed by the name of one of its own commands.
    """

    module: str
    help: str
    group: str = ""
    has_parts: bool = False


def listed_commands() -> Mapping[str, Listed]:
    """Commands by name, in the order of the first page."""
    return shipped(__file__, "commands.toml", dict[str, Listed])


def command_groups() -> Names:
    """What commands are for; each group is a paragraph of the first page, but the last, no name."""
    return tuple(dict.fromkeys(each.group for each in listed_commands().values()))


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
    width = max(map(len, listed_commands()))
    for group in command_groups()[:-1]:
        yield group
        for name, listed in listed_commands().items():
            if listed.group == group:
                yield f"  {name:{width}}  {listed.help}"
        yield ""
