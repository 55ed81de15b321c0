"""What commands say of their options and arguments, and the commands of `click` made of that."""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, field
from enum import Enum
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import click

from stepsim.base.errors import UnitError
from stepsim.base.units import Quantity

_ARGUMENTS, _OPTIONS = "Arguments", "Options"


class Says(NamedTuple):
    """What a command says of an option, or of an argument, which has no flags but a `metavar`.

    `flags` are its flags where they are not the parameter's name, `shown` is what its absence means
    where that is not its default, `panel` the part of the help that it stands in. `offers` says as
    `module:name` what has the names that a shell completes, or gives them, `writes` likewise what
    checks the path of an output before the work.
    """

    about: str
    flags: tuple[str, ...] = ()
    shown: str = ""
    panel: str = _OPTIONS
    metavar: str | None = None
    offers: str = ""
    writes: str = ""


def argument(metavar: str, about: str, **more: Any) -> Says:
    """What a command says of an argument."""
    return Says(about, metavar=metavar, panel=_ARGUMENTS, **more)


def flag(about: str, *flags: str, default: object = None, **more: Any) -> Any:
    """A field or a parameter that is an option of a command; without one, `default` is `...`.

    One that may be given several times is a tuple, empty where it is absent.
    """
    return field(default=default, metadata={"says": Says(about, flags, **more)})


def _completed(names: str, _context: object, _parameter: object, begun: str) -> list[Any]:
    """What is offered, also for the last of several behind commas; files where it is none."""
    from click.shell_completion import CompletionItem

    found: Any = resolve_name(names) if names else ()
    known: Iterable[str] = found if isinstance(found, Iterable) else found()
    before, comma, last = begun.rpartition(",")
    offered = sorted(before + comma + name for name in known if name.startswith(last))
    return offered or [CompletionItem(begun, type="file")]


Declared = tuple[click.Parameter, Says]
"""An option or an argument of a command, and what the command says of it."""


def parameters_of(command: Callable[..., None]) -> Iterator[Declared]:
    """The options and arguments that a function declares, `options` left out."""
    hints = get_type_hints(command, include_extras=True)
    for name, given in inspect.signature(command).parameters.items():
        if name != "options":
            default = ... if given.default is given.empty else given.default
            yield parameter(name, hints[name], default)


def parameter(name: str, kind: Any, default: Any) -> Declared:
    """An option or an argument of a type, which may be None or a tuple of several.

    `default` is its field where that says what it is, else `kind` is annotated with it. Without a
    default, which is `...` then, it is required.
    """
    says = None
    if isinstance(default, Field):
        says, default = default.metadata.get("says"), default.default
    if says is None:
        kind, says = get_args(kind)
    kind = next((each for each in get_args(kind) if NoneType in get_args(kind)), kind)
    several = get_origin(kind) is tuple
    kind = get_args(kind)[0] if several else kind
    more: dict[str, Any] = {"required": default is ..., "metavar": says.metavar}
    if issubclass(kind, Enum):
        more["type"] = click.Choice(kind, case_sensitive=False)
    else:
        more["type"] = _TYPES[kind]
        more["shell_complete"] = partial(_completed, says.offers)
    if default is not ...:
        more["default"] = default
    if says.panel == _ARGUMENTS:
        return click.Argument([name], nargs=-1 if several else 1, **more), says
    absent = "on" * default if isinstance(default, bool) else str(default)
    shown = says.shown or ("" if default in (None, ..., ()) else absent)
    told = "[required]" if more["required"] else shown and f"[default: {shown}]"
    flags = says.flags or (f"--{name.replace('_', '-')}",)
    more |= {
        "is_flag": kind is bool or None,
        "multiple": several,
        "help": f"{says.about} {told}".rstrip(),
    }
    return click.Option([*flags, name], **more), says._replace(flags=flags, shown=shown)


def integer(text: str) -> int:
    """The whole number of a text, also one with a prefix such as 4k; raises BadParameter."""
    with suppress(ValueError):
        return int(text)
    try:
        return int(Quantity.COUNT.parse(text))
    except UnitError as error:
        raise click.BadParameter(str(error)) from None


def path(text: str) -> Path:
    """The path of a text; nothing is looked at: its reader says what is wrong."""
    if os.sep not in text:
        return Path(text)
    from stepsim.files.load import typed_path

    return typed_path(text)


_TYPES: Mapping[type, Any] = {str: str, int: integer, float: float, bool: bool, Path: path}


class DeclaredCommand(click.Command):
    """A command whose help has its options by panels; `says` is what it says of them by name."""

    def __init__(self, name: str, declared: Sequence[Declared], **more: Any) -> None:
        super().__init__(name, params=[each for each, _ in declared], **more)
        self.says = {str(each.name): says for each, says in declared}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command takes, arguments first."""
        panels: dict[str, list[Any]] = {_ARGUMENTS: [], _OPTIONS: []}
        for each in self.get_params(ctx):
            says = self.says.get(str(each.name), Says(""))
            about = says.metavar, says.about
            record = about if isinstance(each, click.Argument) else each.get_help_record(ctx)
            panels.setdefault(says.panel, []).append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
