"""A model to be trained: what a workload is made of once its plan and device are known."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import Names, Noun, Values

if TYPE_CHECKING:
    from stepsim.workload.model.architecture import Architecture


class ModelPart(Noun):
    """A part of a model; raises WorkloadError for a number that it cannot have."""

    counts: ClassVar[tuple[tuple[str, int], ...]] = ()
    """Fields that are at least so many, with that number, as their types say."""
    divisors: ClassVar[Mapping[str, str]] = {}
    """Fields that divide another one."""

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True).items()
        said = [(name, each) for name, hint in hints for each in (hint, *get_args(hint))]
        metas = [(name, m) for name, each in said for m in getattr(each, "__metadata__", ())]
        cls.counts = tuple((name, meta.ge) for name, meta in metas)

    def __post_init__(self) -> None:
        for name, least in self.counts:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                expected = f"a whole number of at least {least}"
                raise WorkloadError(bad_value(self.called, name, value, expected))
        for name, other in self.divisors.items():
            value, whole = getattr(self, name), getattr(self, other)
            if whole % value:
                expected = f"a divisor of {whole} {other}"
                raise WorkloadError(bad_value(self.called, name, value, expected))

    @property
    def called(self) -> str:
        """Its class in words, e.g. `gated delta net`."""
        return re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", type(self).__name__).lower()


class Unread(Noun, kw_only=False):
    """A value that a description leaves open: asked for where nobody says another."""

    why: str


AskedOptions = Values
"""Options of a step by name, as people type them."""
AskedItems = Iterator[tuple[str, Any]]
"""The same, option by option."""


class Model(Noun):
    """An architecture, what its description asks of a step, and what was assumed while reading it.

    `asked` are e.g. those of a launch script; what that leaves to its environment is `Unread`.
    """

    source: str
    architecture: "Architecture"
    asked: Mapping[str, object] = {}
    warnings: Names = ()

    @property
    def said(self) -> Names:
        """All that a user should know of it."""
        return self.warnings
