"""Values of options as they are typed, read without the library that typer reads them with.

It is pydantic, whose import and whose reader of every option, given or not, take longer than
a step. Texts, paths, counts and defaults need nothing of it; all else is left to it.
"""

from pathlib import Path
from typing import Any, get_args, get_origin

import typer.core


class LightCommand(typer.core.TyperCommand):
    """A command whose options read plain values themselves."""

    def get_params(self, ctx: Any) -> Any:
        """The options, `--help` among them."""
        return _lightened(super().get_params(ctx))


class LightGroup(typer.core.TyperGroup):
    """A group of commands whose own options read plain values themselves."""

    def get_params(self, ctx: Any) -> Any:
        """The options, those of completion among them."""
        return _lightened(super().get_params(ctx))


def _lightened(parameters: Any) -> Any:
    for each in parameters:
        if getattr(each, "_runtime_param", each) is None:  # as typer has it since 0.29
            each._runtime_param = _PlainValues(each.type_descriptor)
    return parameters


class _PlainValues:
    """Reads values that a type's own function reads, as typer's reader of a parameter does."""

    def __init__(self, described: Any) -> None:
        kind, self.several = described.annotation, get_origin(described.annotation) is list
        self.kind = get_args(kind)[0] if self.several else kind
        self.is_plain = self.kind in (str, int, Path) and not _is_checked(described.parameter_info)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter; raises what typer raises for one that it cannot be."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        read = _all(value, self._read) if self.several else self._read(value)
        if read is not None:
            return read
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _read(self, value: Any) -> Any:
        """A value that needs no more than its type; None for others."""
        if isinstance(self.kind, type) and isinstance(value, self.kind):
            return value
        if not self.is_plain or not isinstance(value, str):
            return None
        return self.kind(value) if self.kind is not int or _is_count(value) else None


def _all(values: Any, read: Any) -> Any:
    if not isinstance(values, list | tuple):
        return None
    found = [read(each) for each in values]
    return None if any(each is None for each in found) else found


def _is_checked(declared: Any) -> bool:
    """Whether typer looks at more than the type: at what a path leads to, or how large it is."""
    checks = ("exists", "readable", "writable", "resolve_path", "allow_dash", "parser", "path_type")
    limits = (declared.min, declared.max, declared.clamp or None)
    of_path = any(getattr(declared, each, None) for each in checks)
    return of_path or not (declared.file_okay and declared.dir_okay) or limits != (None,) * 3


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
