"""The reference of the command line, made from the declarations of its commands."""

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from markdown_text import table
from typer import Context
from typer.models import ArgumentInfo, OptionInfo

from stepsim.cli import make_app
from stepsim.cli.commands import COMMANDS, CommandGroup
from stepsim.cli.options import NO_MEMORY, OF_SIZE, CommandOptions

_OF_COMMANDS = frozenset(CommandOptions.__dataclass_fields__) - {"asked"}
SHARED = {
    "Options of a run": _OF_COMMANDS | {"comm_source"} | NO_MEMORY - {"schedule", "chunks"},
    "Options of a job": _OF_COMMANDS | OF_SIZE | {"compute_scale"},
}
"""Options that several commands share, by the title of their section; the larger set first."""

_DEFAULT = re.compile(r" \[default: (.+)\]$")
_WORDS = {bool: "", str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}


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
    """The functions behind the commands, by what is typed."""
    app = make_app()
    found = {_name(each.name, each.callback): each.callback for each in app.registered_commands}
    for group in app.registered_groups:
        inner = group.typer_instance
        if inner is not None:
            for each in inner.registered_commands:
                found[f"{group.name} {_name(each.name, each.callback)}"] = each.callback
    return found


def _name(name: str | None, callback: Any) -> str:
    return name or callback.__name__.removesuffix("_command").replace("_", "-")


def parameters(command: Any) -> list[Parameter]:
    """What a command takes, in the order of its help."""
    given = inspect.signature(command).parameters.values()
    return [_parameter(each) for each in given if each.annotation is not Context]


def _parameter(given: inspect.Parameter) -> Parameter:
    kind, info = get_args(given.annotation)[:2]
    is_option = isinstance(info, OptionInfo)
    assert isinstance(info, OptionInfo | ArgumentInfo)
    what = info.help or ""
    told = _DEFAULT.search(what)
    # in Annotated, typer takes the first name for a default
    flags = [each for each in (info.default, *(info.param_decls or ())) if each is not ...]
    names = (flags or [f"--{given.name.replace('_', '-')}"]) if is_option else []
    return Parameter(
        name=", ".join(f"`{each}`" for each in names) or f"`{info.metavar or given.name.upper()}`",
        key=given.name,
        value=_value(kind),
        default=told[1] if told else _shown(info) or _default(given.default),
        what=_DEFAULT.sub("", what),
        is_option=is_option,
    )


def _value(kind: Any) -> str:
    if get_origin(kind) is list:
        return f"{_value(get_args(kind)[0])}..."
    options = [each for each in get_args(kind) if each is not type(None)]
    if options:
        return _value(options[0])
    if issubclass(kind, Enum):
        return " or ".join(str(each.value) for each in kind)
    return _WORDS[kind]


def _shown(info: OptionInfo | ArgumentInfo) -> str:
    """The default that an option shows in place of its own."""
    return info.show_default if isinstance(info.show_default, str) else ""


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if value is None or value is False:
        return ""
    return "on" if value is True else str(getattr(value, "value", value))


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
    for group in (*CommandGroup, None):
        yield f"## {group or 'And'}"
        yield ""
        yield from table(
            ("command", "what it does"),
            (
                (f"[`{name}`]({name}.md)", listed.help)
                for name, listed in COMMANDS.items()
                if listed.group is group
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
    yield inspect.cleandoc(command.__doc__)
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
