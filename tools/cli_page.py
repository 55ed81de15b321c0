"""The reference of the command line, made from the declarations of its commands."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from markdown_text import table

from stepsim.cli import make_app
from stepsim.cli.commands import COMMANDS
from stepsim.cli.declared import Says
from stepsim.cli.options import NO_MEMORY, OF_SIZE, CommandOptions

_OF_COMMANDS = frozenset(CommandOptions.__dataclass_fields__) - {"asked"}
SHARED = {
    "Options of a run": _OF_COMMANDS | {"comm_source"} | NO_MEMORY - {"schedule", "chunks"},
    "Options of a job": _OF_COMMANDS | OF_SIZE | {"compute_scale"},
}
"""Options that several commands share, by the title of their section; the larger set first."""

_WORDS = {"boolean": "", "text": "TEXT", "integer": "INTEGER", "float": "NUMBER", "path": "PATH"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An argument or option of a command, as a row of a table."""

    name: str
    key: str
    value: str
    default: str
    what: str
    is_option: bool


def commands() -> dict[str, Any]:
    """The commands, by what is typed."""
    app, found = make_app(), dict[str, Any]()
    for name in COMMANDS:
        command = app.get_command(None, name)
        parts = getattr(command, "commands", {"": command})
        found |= {f"{name} {part}".strip(): each for part, each in parts.items()}
    return found


def parameters(command: Any) -> list[Parameter]:
    """What a command takes, in the order of its help."""
    return [_parameter(each, command.says[each.name]) for each in command.params]


def _parameter(given: Any, says: Says) -> Parameter:
    kind = " or ".join(str(each) for each in getattr(given.type, "choices", []))
    several = "..." if given.multiple or given.nargs == -1 else ""
    return Parameter(
        name=", ".join(f"`{each}`" for each in says.flags or [says.metavar]),
        key=given.name,
        value=(kind or _WORDS[given.type.name]) + several,
        default="required" if given.required else says.shown,
        what=says.about,
        is_option=bool(says.flags),
    )


def cli_pages() -> dict[str, str]:
    """The reference of the command line: an index, shared options, and a page for each command."""
    pages = {
        "index": _index(),
        "options": _shared_options(),
        **{name: _page(name) for name in COMMANDS},
    }
    return {name: "\n".join(lines).rstrip("\n") + "\n" for name, lines in pages.items()}


def _index() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "*Made by `python tools/reference.py` from the program; `stepsim COMMAND --help` says the"
    yield "same.*"
    yield ""
    for group in dict.fromkeys(each.group for each in COMMANDS.values()):
        yield f"## {group or 'And'}"
        yield ""
        yield from table(
            ("command", "what it does"),
            (
                (f"[`{name}`]({name}.md)", listed.help)
                for name, listed in COMMANDS.items()
                if listed.group == group
            ),
        )
    yield "Before a command: `--version` prints the version, `--help` lists the commands."
    yield "Several commands share [options of a run](options.md)."
    yield ""
    yield "## Exit codes"
    yield ""
    yield from table(
        ("exit code", "meaning"),
        (
            ("0", "done"),
            (
                "1",
                "done, but an error is above `--max-error` or a plan exceeds its budget; or nobody "
                "reads standard output any more, as after `head`",
            ),
            ("2", "a mistake in a file or an option, said in one message on stderr"),
            ("130", "interrupted"),
        ),
    )
    yield "Files are written whole or not at all."


def _page(name: str) -> Iterator[str]:
    """The page of a command; of one with parts, what each of them takes."""
    parts = {n: c for n, c in commands().items() if n == name or n.startswith(f"{name} ")}
    yield f"# stepsim {name}"
    yield ""
    if name not in parts:
        yield COMMANDS[name].help
        yield ""
    for part, command in parts.items():
        if part != name:
            yield f"## stepsim {part}"
            yield ""
        yield from _command(part, command)


def _command(name: str, command: Any) -> Iterator[str]:
    own, group = _own(command)
    arguments = [each for each in own if not each.is_option]
    options = [each for each in own if each.is_option]
    yield inspect.cleandoc(command.help)
    yield ""
    usage = " ".join(each.name.strip("`") for each in arguments)
    yield "```text"
    yield f"stepsim {name} [OPTIONS] {usage}".rstrip()
    yield "```"
    yield ""
    if arguments:
        yield from table(
            ("argument", "value", "what"), ((a.name, a.value, a.what) for a in arguments)
        )
    if options:
        yield from _options(options)
    if group:
        yield f"And the [{group[0].lower()}{group[1:]}](options.md#{_anchor(group)})."
        yield ""


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _own(command: Any) -> tuple[list[Parameter], str | None]:
    """A command's own parameters, and the shared set that it takes beside them."""
    every = parameters(command)
    names = {each.key for each in every}
    for title, options in SHARED.items():
        if options <= names:
            return [each for each in every if each.key not in options], title
    return every, None


def _shared_options() -> Iterator[str]:
    yield "# Shared options"
    yield ""
    for title, options in SHARED.items():
        yield from _shared(title, options)


def _shared(title: str, options: frozenset[str]) -> Iterator[str]:
    taking = [name for name, command in commands().items() if _own(command)[1] == title]
    command = commands()[taking[0]]
    inner = next((t for t, others in SHARED.items() if others < options), None)
    shown = options - SHARED[inner] if inner else options
    yield f"## {title}"
    yield ""
    yield f"Of {', '.join(f'[`{name}`]({name.split()[0]}.md)' for name in taking)}."
    yield ""
    yield from _options([each for each in parameters(command) if each.key in shown])
    if inner:
        yield f"And the [{inner[0].lower()}{inner[1:]}](#{_anchor(inner)})."
        yield ""


def _options(options: Iterable[Parameter]) -> Iterator[str]:
    return table(
        ("option", "value", "default", "what"),
        ((each.name, each.value, each.default, each.what) for each in options),
    )
