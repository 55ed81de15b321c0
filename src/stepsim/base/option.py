"""What there is to know of an option: how people give it, and how it is read and shown.

Numbers of a network are options too, without flags of their own.
"""

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum
from pkgutil import resolve_name
from typing import Any, cast

from stepsim.base.errors import PlanError, StepsimError, UnitError, member
from stepsim.base.structs import Noun
from stepsim.base.units import Quantity, Value


class Panel(StrEnum):
    """The part of a help text that an option stands in."""

    JOB = "Size of the job"
    MODEL = "Model: how it is split and run"
    PIPELINE = "Pipeline"
    NETWORK = "Network and communication"
    COMPUTE = "Compute and host"
    RUN = "Options"


class Option(Noun):
    """What there is to know of an option beside its type.

    `field` is its field of the record, which has the unit in its name. `flags` are those of the
    command line. `absent` is what its absence means. `offers` says as `module:name` where names
    stand that it can have: others too, where it has a reader. `noun` says likewise of which class
    values are taken as they are, `read` makes one of a text, `write` the text of one, where
    `quantity` alone does not. `many`: several texts may be given. `is_file`: the text names a file.
    `durations_only`: it changes how long tasks take and never which tasks there are. `is_axis`: a
    sweep can vary it. `is_reported`: a report shows what it did, so that results need not record
    it. `idle` says why it does nothing in a job with a schedule and a mode, empty where it does
    something.
    """

    quantity: Quantity
    help: str = ""
    panel: Panel = Panel.NETWORK
    name: str = ""
    field: str = ""
    default: object = None
    flags: tuple[str, ...] = ()
    absent: str | None = None
    offers: str = ""
    noun: str = ""
    read: Callable[[str], object] | None = None
    write: Callable[[Any], str] | None = None
    many: bool = False
    is_file: bool = False
    durations_only: bool = False
    is_axis: bool = True
    is_reported: bool = False
    idle: Callable[..., str] | None = None

    @property
    def about(self) -> str:
        """Its help, with the names it can have where it speaks of `{names}`."""
        return self.help.format(names=", ".join(self.names))

    @property
    def names(self) -> list[str]:
        """Names that it can have."""
        return list(resolve_name(self.offers)) if self.offers else []

    def holds(self, value: object) -> bool:
        """Whether a value is a noun that is taken as it is."""
        return bool(self.noun) and isinstance(value, resolve_name(self.noun))

    def of(self, value: object) -> object:
        """The field's value of what a person types: a text, in Python also a number or a noun.

        Raises PlanError, or the noun's own error, naming the option.
        """
        if value is None or self.holds(value):
            return value
        if self.many:
            several = value if isinstance(value, list | tuple) else [value]
            return tuple(self._one(each) for each in several)
        return self._one(value)

    def text(self, value: object) -> str:
        """A value as people type it; empty where there is none."""
        if value is None:
            return ""
        return self.write(value) if self.write else self.quantity.text(cast(Value, value))

    def words(self, text: str, *, short: bool = False) -> list[str]:
        """The option and its value, as a person types it, as words of a command line.

        Switches have flags of their own. With `short` the shortest flag is taken, else the first.
        """
        flag = min(self.flags, key=len) if short else self.flags[0]
        on, _, off = flag.partition("/")
        if self.quantity is Quantity.SWITCH:
            return [on] if self.of(text) else [off] if off else []
        return [f"{flag}={text}"] if text.startswith("-") else [flag, text]

    def _one(self, value: object) -> object:
        if self.offers and not self.read:
            found: object = member(resolve_name(self.offers), value, self.name)
            return found
        if self.noun and not self.read:
            kind = resolve_name(self.noun).__name__
            raise PlanError(f"{self.name} is {value!r}: expected a {kind}")
        try:
            return self.read(str(value)) if self.read else self.quantity.read(value)
        except StepsimError as error:
            named = str(error).startswith(self.name.replace("_", " "))
            said = str(error) if named else f"{self.name}: {error}"
            raise (PlanError if isinstance(error, UnitError) else type(error))(said) from None


def asked(panel: Panel, about: str, *, default: object = None, **more: Any) -> Any:
    """A field of a record of options, with its default; `more` are fields of `Option`."""
    return field(default=default, metadata={"help": about, "panel": panel, **more})
